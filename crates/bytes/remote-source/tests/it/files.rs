//! Requests that the reading of a file makes.

use std::io::{Error as IoError, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use byte_source::Source;
use remote_source::{Address, Error, RemoteFile, RemoteOptions};

use crate::server::{Request, Server, head, send_range, send_status};

pub(crate) fn bytes(len: u32) -> Vec<u8> {
    (0..len).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

pub(crate) fn options() -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.allow_http = true;
    options.timeout = Duration::from_secs(20);
    options
}

pub(crate) fn open(url: &str, options: &RemoteOptions) -> Result<RemoteFile, Error> {
    RemoteFile::open(&Address::parse(url)?, options)
}

#[test]
fn the_edges_are_read_once_and_in_parallel() {
    let file = bytes(3_000_000);
    let server = Server::of_file(file.clone());
    let source = open(&format!("{}/a.pth", server.url), &options()).expect("it answers");
    assert_eq!((source.len(), source.traffic().requests), (3_000_000, 2));
    assert_eq!(source.traffic().bytes, 2 * (256 << 10));
    let parts = source.read_ranges(&[2_999_000..3_000_000, 0..10, 5..5]).expect("inside");
    assert_eq!(parts, [&file[2_999_000..], &file[..10], &[]]);
    assert_eq!(source.traffic().requests, 2, "both were read before");
    let parts = source.read_ranges(&[1_000_000..1_000_100, 1_100_000..1_100_100, 2_000_000..2_000_001]);
    let wanted = [&file[1_000_000..1_000_100], &file[1_100_000..1_100_100], &file[2_000_000..2_000_001]];
    assert_eq!(parts.expect("inside"), wanted);
    assert_eq!(source.traffic().requests, 4, "neighbours are joined");
    source.read_range(2_999_999..3_000_001).expect_err("past the end");
    source.read_at(&mut [0; 2], 2_999_999).expect_err("past the end");
}

#[test]
fn short_records_one_after_the_other_are_requested_together() {
    let file = bytes(12_000_000);
    let server = Server::of_file(file.clone());
    let source = open(&format!("{}/a.pth", server.url), &options()).expect("it answers");
    let mut at = 300_000;
    while at < 11_000_000 {
        let read = source.read_range(at..at + 50_000).expect("inside");
        assert!(read[..] == file[usize::try_from(at).expect("small")..][..50_000], "{at}");
        // The next header and its padding.
        at += 50_100;
    }
    let traffic = source.traffic();
    assert!(traffic.requests < 12, "{traffic:?} for 213 records");
    assert!(traffic.bytes <= 12_000_000 + 2 * (256 << 10), "each byte is read once: {traffic:?}");
}

#[test]
fn a_safetensors_file_is_read_at_its_start() {
    let server = Server::of_file(bytes(3_000_000));
    let source = open(&format!("{}/a.safetensors", server.url), &options()).expect("it answers");
    assert_eq!((source.traffic().requests, source.traffic().bytes), (1, 512 << 10));
}

#[test]
fn short_and_empty_files_are_whole() {
    for len in [0_u32, 1, 1000] {
        let file = bytes(len);
        let sent = file.clone();
        let server = Server::start("127.0.0.1", move |_, request, stream| match sent.len() {
            0 => send_status(stream, "416 Range Not Satisfiable", "Content-Range: bytes */0\r\n"),
            _ => send_range(stream, request, &sent, "\"v\""),
        });
        let source = open(&server.url, &options()).expect("it answers");
        assert_eq!(source.read_range(0..u64::from(len)).expect("all of it"), file);
    }
    // Without ranges, a file that is as short as what was asked for is whole too.
    let server = Server::start("127.0.0.1", |_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    });
    let source = open(&server.url, &options()).expect("it answers");
    assert_eq!(source.read_range(0..3).expect("all of it"), b"abc".as_slice());
}

#[test]
fn a_sequential_reader_gets_each_byte_once() {
    let file = bytes(20_000_000);
    let server = Server::of_file(file.clone());
    let source = open(&server.url, &options()).expect("it answers");
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < file.len() {
        let len = buffer.len().min(file.len() - at);
        source.read_at(&mut buffer[..len], at as u64).expect("inside");
        assert!(buffer[..len] == file[at..at + len], "at {at}");
        let window = source.read_window(at as u64..(at + len) as u64).expect("inside");
        assert!(window[..] == buffer[..len], "at {at}");
        at += len;
    }
    assert_eq!(source.traffic().bytes, file.len() as u64);
    assert!(source.traffic().requests < 15, "{:?}", source.traffic());
}

/// Answers as the Hub does: each range is redirected to another address, which is good for it alone.
fn hub(
    number: usize,
    request: &Request,
    stream: &mut TcpStream,
    file: &[u8],
    cut: usize,
) -> std::io::Result<()> {
    let asked = request.header("range").expect("a range").to_owned();
    let Some(signed) = request.path.strip_prefix("/signed/") else {
        return send_status(
            stream,
            "302 Found",
            &format!("Location: /signed/{}\r\n", asked.replace('=', "-")),
        );
    };
    assert_eq!(signed, asked.replace('=', "-"), "an address is good for its range alone");
    let range = request.range(file.len()).expect("a range");
    if range.len() > cut && number.is_multiple_of(3) {
        stream.write_all(head(&range, file.len(), "\"v1\"").as_bytes())?;
        stream.write_all(file.get(range.start..).and_then(|rest| rest.get(..cut)).unwrap_or_default())?;
        return Err(IoError::other("cut"));
    }
    send_range(stream, request, file, "\"v1\"")
}

#[test]
fn a_long_file_on_the_hub_takes_few_requests() {
    let file = Arc::new(bytes(120_000_000));
    for cut in [usize::MAX, 13_000_000] {
        let sent = Arc::clone(&file);
        let server = Server::start("127.0.0.1", move |number, request, stream| {
            hub(number, request, stream, &sent, cut)
        });
        let mut options = options();
        options.hub_endpoint.clone_from(&server.url);
        let source = open("hf://o/m/a.pth", &options).expect("it answers");
        let mut at = 0;
        while at < file.len() {
            let end = (at + (1 << 20)).min(file.len());
            let window = source.read_window(at as u64..end as u64).expect("inside");
            assert!(window[..] == file[at..end], "at {at}");
            at = end;
        }
        let resolved =
            server.requests().iter().filter(|request| !request.path.starts_with("/signed")).count();
        // Two edges, four short ranges, and 32 MiB at a time; after a break, the rest is requested.
        let most = if cut == usize::MAX { 10 } else { 16 };
        assert!(resolved <= most, "{resolved} requests");
        if cut == usize::MAX {
            assert_eq!(source.traffic().bytes, file.len() as u64);
        }
    }
}

#[test]
fn a_slow_reader_of_the_hub_holds_little_memory() {
    let file = Arc::new(bytes(120_000_000));
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (of_server, counted) = (Arc::clone(&file), Arc::clone(&sent));
    let server = Server::start("127.0.0.1", move |_, request, stream| {
        if !request.path.starts_with("/signed/") {
            return hub(1, request, stream, &of_server, usize::MAX);
        }
        let range = request.range(of_server.len()).expect("a range");
        stream.write_all(head(&range, of_server.len(), "\"v1\"").as_bytes())?;
        for part in of_server[range].chunks(1 << 16) {
            stream.write_all(part)?;
            counted.fetch_add(part.len(), Ordering::Relaxed);
        }
        Ok(())
    });
    let mut options = options();
    options.hub_endpoint.clone_from(&server.url);
    let source = open("hf://o/m/a.pth", &options).expect("it answers");
    let mut at = 0;
    while at < 20 << 20 {
        source.read_window(at..at + (1 << 20)).expect("inside");
        at += 1 << 20;
    }
    std::thread::sleep(Duration::from_millis(500));
    // What the reader has not asked for is in 48 MiB of buffers, and in those of the system.
    assert!(sent.load(Ordering::Relaxed) < (20 << 20) + (60 << 20), "{}", sent.load(Ordering::Relaxed));
}

#[test]
fn a_reader_that_goes_back_gets_each_byte_once() {
    let file = bytes(12_000_000);
    let server = Server::of_file(file.clone());
    let source = open(&server.url, &options()).expect("it answers");
    let mut buffer = vec![0; 500_000];
    // The storages of an old file may be in another order than its tensors.
    for storage in [8_000_000..12_000_000, 3_000_000..8_000_000, 0..3_000_000] {
        for at in storage.step_by(buffer.len()) {
            source.read_at(&mut buffer, at as u64).expect("inside");
            assert!(buffer[..] == file[at..at + buffer.len()], "at {at}");
        }
    }
    assert_eq!(source.traffic().bytes, file.len() as u64);
}

#[test]
fn readers_in_several_places_do_not_disturb_one_another() {
    let file = Arc::new(bytes(12_000_000));
    let server = Server::of_file(file.to_vec());
    let source = Arc::new(open(&server.url, &options()).expect("it answers"));
    let readers: Vec<_> = (0..6_usize)
        .map(|reader| {
            let (source, file) = (Arc::clone(&source), Arc::clone(&file));
            std::thread::spawn(move || {
                for step in 0..20_usize {
                    let at = reader * 2_000_000 + step * 100_000;
                    let mut buffer = vec![0; 100_000];
                    source.read_at(&mut buffer, at as u64).expect("inside");
                    assert!(buffer == file[at..at + 100_000], "at {at}");
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().expect("it reads");
    }
}

#[test]
fn a_token_stays_at_its_host() {
    let file = bytes(1000);
    let store =
        Server::start("127.0.0.2", move |_, request, stream| send_range(stream, request, &file, "\"v\""));
    let location = format!("Location: {}/signed?secret\r\nX-Repo-Commit: c0ffee\r\n", store.url);
    let hub = Server::start("127.0.0.1", move |_, _, stream| send_status(stream, "302 Found", &location));
    let mut options = options();
    (options.hub_endpoint, options.hub_token) = (hub.url.clone(), Some("hf_secret".to_owned()));
    let source = open("hf://a/b@refs/pr/1/c.safetensors", &options).expect("it answers");
    assert_eq!(source.path().to_str(), Some("hf://a/b@refs/pr/1/c.safetensors"));
    let [asked] = hub.requests().try_into().expect("one request");
    assert_eq!(asked.path, "/a/b/resolve/refs%2Fpr%2F1/c.safetensors");
    assert_eq!(asked.header("authorization"), Some("Bearer hf_secret"));
    assert!(store.requests().iter().all(|request| request.header("authorization").is_none()));
    assert_eq!(source.traffic().requests, 2, "a redirect counts");
}

#[test]
fn permissions_are_asked_for() {
    let server = Server::of_file(bytes(10));
    let error = open(&server.url, &RemoteOptions::default()).expect_err("http");
    assert!(matches!(error, Error::Insecure { .. }), "{error}");
    let error = open("https://127.0.0.1:1/a", &RemoteOptions::default()).expect_err("a private address");
    assert!(matches!(error, Error::PrivateAddress { .. }), "{error}");
    let mut options = options();
    options.offline = true;
    let error = open(&server.url, &options).expect_err("switched off");
    assert!(matches!(error, Error::Offline { .. }), "{error}");
    assert!(server.requests().is_empty());
}

#[test]
fn a_stopped_reader_returns_at_once() {
    let server = Server::start("127.0.0.1", |_, _, _| {
        std::thread::sleep(Duration::from_secs(30));
        Ok(())
    });
    let options = options();
    let stop = Arc::clone(&options.stop);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
    });
    let start = Instant::now();
    let error = open(&server.url, &options).expect_err("stopped");
    assert!(byte_source::Error::from(error).is_cancelled());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_repository_is_read_from_the_cache_alone() {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let cache = tempfile::tempdir().expect("a folder");
    let file = bytes(1_000_000);
    let sent = file.clone();
    let server = Server::start("127.0.0.1", move |_, request, stream| {
        if request.path.starts_with("/api/") {
            let siblings =
                r#"[{"rfilename": "a.safetensors", "size": 1000000}, {"rfilename": "b", "size": 5}]"#;
            let listing = format!(r#"{{"sha": "{COMMIT}", "siblings": {siblings}}}"#);
            return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{listing}", listing.len());
        }
        let range = request.range(sent.len()).expect("a range");
        let head =
            head(&range, sent.len(), "\"v\"").replace("ETag", &format!("X-Repo-Commit: {COMMIT}\r\nETag"));
        stream.write_all(head.as_bytes())?;
        stream.write_all(sent.get(range).unwrap_or_default())
    });
    let mut options = options();
    options.hub_endpoint.clone_from(&server.url);
    options.cache = Some(cache.path().to_owned());
    let read = |options: &RemoteOptions| {
        let address = Address::parse("hf://o/m").expect("an address");
        let input = remote_source::open_input(&address, remote_source::Neighbours::default(), options)?;
        let source = input.join("a.safetensors").open().expect("it was listed");
        Ok::<_, Error>(source.read_range(0..1_000_000).expect("it was read before"))
    };
    assert_eq!(read(&options).expect("it answers"), file);
    let requests = server.requests().len();
    options.offline = true;
    assert_eq!(read(&options).expect("it is in the cache"), file);
    assert_eq!(server.requests().len(), requests);
    options.cache = None;
    assert!(matches!(read(&options), Err(Error::Offline { .. })));
}
