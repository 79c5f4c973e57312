//! Answers of servers that misbehave.

use std::io::{Error as IoError, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use byte_source::{Sink, Source};
use remote_source::{Error, RemoteFile, Traffic};

use crate::files::{bytes, open, options};
use crate::server::{Request, Server, head, send_range, send_status};

/// Opens a file on a server with this behaviour.
fn misbehaving(
    answer: impl Fn(usize, &Request, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (Server, Result<RemoteFile, Error>) {
    let server = Server::start("127.0.0.1", answer);
    let mut options = options();
    options.timeout = Duration::from_millis(500);
    let opened = open(&format!("{}/a.safetensors", server.url), &options);
    (server, opened)
}

#[test]
fn passing_failures_are_tried_again() {
    let file = bytes(100_000);
    let sent = file.clone();
    let (_, opened) = misbehaving(move |number, request, stream| match number {
        0 => send_status(stream, "429 Too Many Requests", "Retry-After: 0\r\n"),
        1 => send_status(stream, "503 Service Unavailable", ""),
        2 => {
            // The connection breaks within the body; the next request goes on from there.
            stream.write_all(head(&(0..100_000), 100_000, "\"v\"").as_bytes())?;
            stream.write_all(&sent[..40_000])?;
            Err(IoError::other("broken"))
        }
        3 => {
            assert_eq!(request.header("range"), Some("bytes=40000-99999"));
            send_range(stream, request, &sent, "\"v\"")
        }
        _ => send_range(stream, request, &sent, "\"v\""),
    });
    let source = opened.expect("the fourth request succeeds");
    assert_eq!(source.read_range(0..100_000).expect("all of it"), file);
}

#[test]
fn a_pause_that_is_asked_for_is_waited_for_within_the_timeout() {
    let file = bytes(1000);
    let server = Server::start("127.0.0.1", move |number, request, stream| {
        assert_eq!(request.header("user-agent"), Some(concat!("torch2carton/", env!("CARGO_PKG_VERSION"))));
        match number {
            0 => send_status(stream, "429 Too Many Requests", "Retry-After: 1\r\n"),
            1 => {
                let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_millis(1500));
                send_status(stream, "503 Service Unavailable", &format!("Retry-After: {date}\r\n"))
            }
            _ => send_range(stream, request, &file, "\"v\""),
        }
    });
    let mut options = options();
    options.timeout = Duration::from_secs(4);
    let start = Instant::now();
    open(&format!("{}/a.safetensors", server.url), &options).expect("the third request succeeds");
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    // The pauses are longer than the timeout, all of them together.
    let server = Server::start("127.0.0.1", |_, _, stream| {
        send_status(stream, "429 Too Many Requests", "Retry-After: 1\r\n")
    });
    options.timeout = Duration::from_secs(2);
    let error = open(&format!("{}/a.safetensors", server.url), &options).expect_err("it never sends it");
    assert!(matches!(error, Error::Wait { status: 429, seconds: 1, .. }), "{error}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn what_is_announced_is_requested_once() {
    let file = bytes(20_000_000);
    let server = Server::of_file(file.clone());
    let source = open(&format!("{}/a.safetensors", server.url), &options()).expect("it answers");
    // Neighbours, in an order that is not that of the file, and not all of it.
    let record = |number: u64| 1_000_000 + number * 300_000..1_000_000 + number * 300_000 + 299_900;
    let order: Vec<Range<u64>> = (0..50).map(|number| record(number * 7 % 50)).collect();
    source.will_read(&order);
    for range in &order {
        let at = usize::try_from(range.start).expect("small");
        let mut read: Vec<u8> = Vec::new();
        let taken = byte_source::each_window(&source, range.clone(), |window| Sink::write(&mut read, window));
        taken.expect("inside");
        assert!(read == file[at..at + 299_900]);
    }
    let Traffic { bytes, requests } = source.traffic();
    assert!(bytes <= (512 << 10) + 50 * 300_000, "{bytes} bytes");
    assert!(requests <= 52, "{requests} requests");
}

#[test]
fn wrong_answers_are_errors() {
    type Answer = fn(&Request, &mut TcpStream) -> std::io::Result<()>;
    let cases: &[(&str, Answer, &str)] = &[
        (
            "whole file",
            |_, stream| write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nabc"),
            "does not send parts of files",
        ),
        (
            "gzip",
            |_, stream| {
                let encoded = "Content-Encoding: gzip\r\nContent-Range: bytes 0-2/3\r\n";
                write!(stream, "HTTP/1.1 206 P\r\n{encoded}Content-Length: 3\r\n\r\nabc")
            },
            "encoded as gzip",
        ),
        (
            "another range",
            |_, stream| {
                write!(stream, "HTTP/1.1 206 P\r\nContent-Range: bytes 1-3/9\r\nContent-Length: 3\r\n\r\nabc")
            },
            "expected bytes 0-8",
        ),
        (
            "two ranges",
            |_, stream| {
                let ranges = "Content-Range: bytes 0-2/3\r\nContent-Range: bytes 0-2/9\r\n";
                write!(stream, "HTTP/1.1 206 P\r\n{ranges}Content-Length: 3\r\n\r\nabc")
            },
            "it has two Content-Ranges",
        ),
        (
            "a range with the status of a whole file",
            |_, stream| {
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\nabc"
                )
            },
            "its status is 200, and its Content-Range is `bytes 0-2/9`",
        ),
        (
            "another length",
            |_, stream| {
                write!(stream, "HTTP/1.1 206 P\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 2\r\n\r\nab")
            },
            "Content-Length is 2, expected 3",
        ),
        ("missing", |_, stream| send_status(stream, "404 Not Found", ""), "does not exist"),
        (
            "gone",
            |_, stream| send_status(stream, "410 Gone", ""),
            "does not exist any more: the server answers 410, gone",
        ),
        (
            "gated",
            |_, stream| send_status(stream, "403 Forbidden", "X-Error-Message: Access is restricted.\r\n"),
            "answers 403 (Access is restricted.)",
        ),
        (
            "an hour",
            |_, stream| send_status(stream, "429 Too Many Requests", "Retry-After: 3600\r\n"),
            "answers 429, too many requests, and asks to wait for 3600 s",
        ),
        ("loop", |_, stream| send_status(stream, "302 Found", "Location: /a\r\n"), "redirects more than 10"),
        ("nowhere", |_, stream| send_status(stream, "302 Found", ""), "names no URL"),
        (
            "a long time",
            |_, stream| send_status(stream, "503 Busy", "Retry-After: 99999999999999999999999\r\n"),
            "asks to wait",
        ),
        ("errors", |_, stream| send_status(stream, "500 Oops", ""), "answers 500"),
        (
            "scheme",
            |_, stream| send_status(stream, "302 Found", "Location: file:///x\r\n"),
            "redirects to file",
        ),
    ];
    for (name, answer, wanted) in cases {
        let (_, opened) = misbehaving(move |_, request, stream| answer(request, stream));
        let error = opened.map(|file| file.len()).expect_err(name).to_string();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

#[test]
fn a_server_may_refuse_ranges_at_the_end() {
    let file = bytes(3_000_000);
    let sent = file.clone();
    let server = Server::start("127.0.0.1", move |_, request, stream| {
        if request.header("range").is_some_and(|range| range.starts_with("bytes=-")) {
            return send_status(stream, "416 Range Not Satisfiable", "Content-Range: bytes */3000000\r\n");
        }
        send_range(stream, request, &sent, "\"v\"")
    });
    let source = open(&format!("{}/a.pth", server.url), &options()).expect("it answers");
    assert_eq!(source.traffic().requests, 3);
    assert_eq!(source.read_range(2_999_990..3_000_000).expect("inside"), file[2_999_990..]);
}

#[test]
fn a_file_that_changes_is_an_error() {
    let file = bytes(3_000_000);
    let (_, opened) = misbehaving(move |number, request, stream| {
        send_range(stream, request, &file, if number == 0 { "W/\"a\"" } else { "W/\"b\"" })
    });
    let error = opened.expect("the first answer is right").read_range(1_000_000..1_000_001);
    let error = error.expect_err("the next one has another ETag").to_string();
    assert!(error.contains("its ETag was W/\"a\", and is W/\"b\""), "{error}");
    let file = bytes(3_000_000);
    let (_, opened) = misbehaving(move |number, request, stream| {
        send_range(stream, request, &file, if number == 0 { "W/\"a\"" } else { "\"a\"" })
    });
    let same = opened.expect("the answers are right").read_range(1_000_000..1_000_001);
    same.expect("a weak tag says nothing else");
}

#[test]
fn a_stall_and_a_drip_end() {
    // The server sends the head of a chunk byte by byte, and never any bytes of the file.
    let (_, opened) = misbehaving(|_, _, stream| {
        let head = "Content-Range: bytes 0-999/1000\r\nTransfer-Encoding: chunked\r\n";
        write!(stream, "HTTP/1.1 206 P\r\n{head}\r\n9;")?;
        loop {
            stream.write_all(b"x")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let error = opened.expect_err("no byte comes").to_string();
    assert!(error.contains("too slow"), "{error}");

    let start = Instant::now();
    let (_, opened) = misbehaving(|_, request, stream| {
        stream.write_all(head(&request.range(1000).expect("a range"), 1000, "\"v\"").as_bytes())?;
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    });
    opened.expect_err("nothing comes");
    let (_, opened) = misbehaving(|_, request, stream| {
        stream.write_all(head(&request.range(1000).expect("a range"), 1000, "\"v\"").as_bytes())?;
        loop {
            stream.write_all(b"x")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let error = opened.expect_err("a byte comes every tenth of a second");
    assert!(matches!(error, Error::Slow { expected: 1000, .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
