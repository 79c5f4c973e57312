//! Tests of downloads from loopback servers. Their messages on the command line are tested in the root package.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use byte_source::{Action, Observer, ProgressUpdate};

use super::*;

/// Starts a server on this loopback address and returns its URL.
fn server(address: &str, answer: impl Fn(&mut TcpStream) -> io::Result<()> + Send + 'static) -> String {
    let listener = TcpListener::bind((address, 0)).expect("loopback");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
            lines.map_while(io::Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            // The client may leave early.
            let _ = answer(&mut stream);
        }
    });
    url
}

/// Starts a server that answers each request with a redirect to `location`.
fn redirects(address: &str, location: String) -> String {
    server(address, move |stream| {
        let head = "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0";
        write!(stream, "{head}\r\nLocation: {location}\r\n\r\n")
    })
}

/// Observer that cancels after more than `limit` bytes.
struct StopAfter {
    limit: u64,
    last: AtomicU64,
}

impl Observer for StopAfter {
    fn progress(&self, step: ProgressUpdate<'_>) {
        self.last.fetch_max(step.done, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.last.load(Ordering::Relaxed) > self.limit
    }
}

fn options() -> RemoteOptions {
    RemoteOptions { allow_http: true, timeout: Duration::from_secs(600), ..RemoteOptions::default() }
}

fn wanted(url: &str) -> WantedFile<'_> {
    WantedFile { url, sha256: &[0; 32], max_bytes: u64::MAX }
}

#[test]
fn only_private_addresses_redirect_to_private_addresses() {
    // The public Internet of this test is 127.0.0.2: all of 127.0.0.0/8 is loopback.
    let is_public = |address: IpAddr| address.to_string() == "127.0.0.2";
    let nothing = server("127.0.0.2", |stream| {
        write!(stream, "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    });
    let end = redirects("127.0.0.1", nothing);
    let private = redirects("127.0.0.1", end.clone());
    let public = redirects("127.0.0.2", end);
    let refused = |url: &str| {
        let mut out = tempfile::tempfile().expect("a temporary folder");
        let client = Client::with_public_addresses(&options(), is_public).expect("a client");
        let downloader = Downloader::from_client(client);
        match downloader.download(&wanted(url), &mut out, ProgressReporter::unobserved()) {
            Err(Error::PrivateAddress { ip, .. }) => ip.to_string() == "127.0.0.1",
            Err(Error::NotFound { .. }) => false,
            other => panic!("it is followed to its end: {other:?}"),
        }
    };
    assert!(!refused(&private));
    assert!(refused(&public), "from the Internet into a private network");
    // After a redirect to a public address, a private one is refused.
    let back = redirects("127.0.0.1", redirects("127.0.0.2", private.clone()));
    assert!(refused(&back));
    assert!(!refused(&redirects("127.0.0.1", private)));
}

#[test]
fn a_download_stops_within_one_buffer() {
    let url = server("127.0.0.1", |stream| {
        write!(stream, "HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            stream.write_all(&[7; 1 << 13])?;
        }
    });
    let mut out = tempfile::tempfile().expect("a temporary folder");
    let stop = StopAfter { limit: 1_000_000, last: AtomicU64::new(0) };
    let work = ProgressReporter::new(&stop, "file", Action::Download, None);
    let downloader = Downloader::new(&options()).expect("a client");
    let error = downloader.download(&wanted(&url), &mut out, work).expect_err("it was stopped");
    let last = stop.last.into_inner();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
    assert!(last <= 1_000_000 + BUFFER as u64, "{last}");
    assert_eq!(out.metadata().expect("it is open").len(), last, "a later download resumes from here");
}

#[test]
fn a_download_that_is_stopped_before_it_begins_connects_nowhere() {
    let mut out = tempfile::tempfile().expect("a temporary folder");
    let stop = StopAfter { limit: 0, last: AtomicU64::new(1) };
    let work = ProgressReporter::new(&stop, "file", Action::Download, None);
    let downloader = Downloader::new(&options()).expect("a client");
    let error = downloader.download(&wanted("http://127.0.0.1:1/"), &mut out, work);
    assert!(matches!(error, Err(Error::Cancelled(_))), "{error:?}");
}
