//! `resolve` with a server on loopback: complete, interrupted and wrong downloads.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method does not coerce to a fn pointer for every lifetime"
)]

use std::io::{Result, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carton_format::{Links, sha256_from_hex};
use carton_writer::{CartonLayout, CartonMember};
use zip_format::EntryContent;

use crate::carton_tools::{manifest, ok, run, scratch, write};
use crate::download_server::{Answer, Request, server};
#[cfg(unix)]
use crate::outputs::is_ignored;

/// The file that is left out: compressible, and longer than a socket's buffer.
fn left_out() -> Vec<u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
}

const SHA256: &str = "2fadeb03b6d797daf4d2a3fdfdbe5662d50eaa343fc153b249894a336bf0ebba";

/// Writes a carton without its model, whose LINKS has these URLs for it.
fn carton(root: &Path, urls: &[String]) {
    let toml = "spec_version = 1\n[runner]\nrunner_name = 'r'\nrequired_framework_version = '*'\nrunner_compat_version = 1\n";
    let sha256 = sha256_from_hex(SHA256).expect("64 digits");
    let mut links = Links::default();
    links.urls.insert(sha256, urls.to_vec());
    let files = vec![
        CartonMember::new("carton.toml", EntryContent::Bytes(toml.as_bytes())),
        CartonMember::new("tensor_data/index.toml", EntryContent::Bytes(b"tensor = []\n")),
    ];
    let absent = vec![("model/weights".to_owned(), sha256)];
    let links = Some(links.to_toml().expect("TOML holds it"));
    let mut out = std::fs::File::create(root.join("s.carton")).expect("a temporary folder");
    CartonLayout { files, absent, links }
        .write(&mut out, byte_source::ProgressReporter::unobserved())
        .expect("they make a carton");
}

/// The result of `resolve` with `args` on a carton with these URLs. If it fails, it must not write anything.
fn resolve(root: &Path, urls: &[String], args: &[&str]) -> (Option<i32>, String) {
    carton(root, urls);
    let _ = std::fs::remove_file(root.join("r.carton"));
    // On a busy machine, a server may need minutes for its answer.
    let patient: &[&str] = if args.contains(&"--timeout") { &[] } else { &["--timeout", "3600"] };
    let (status, mut text) =
        run(root, &[&["resolve", "s.carton", "-o", "r.carton", "-q"], args, patient].concat());
    if status == Some(0) {
        ok(root, &["verify", "r.carton", "-q"]);
        assert_eq!(manifest(&root.join("r.carton")), manifest(&root.join("s.carton")));
    } else {
        assert!(!root.join("r.carton").exists());
    }
    let left = root.read_dir().expect("it is there").flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
    for (number, url) in urls.iter().enumerate() {
        let server = url.split_once("/file").map_or(url.as_str(), |(server, _)| server);
        text = text.replace(server, &format!("http://SERVER{}", if number == 0 { "" } else { "2" }));
    }
    (status, text)
}

fn resolved(answer: Answer, args: &[&str]) -> (Option<i32>, String) {
    let scratch = scratch();
    let (server, _) = server(left_out(), answer);
    resolve(scratch.path(), &[format!("{server}/file")], &[&["--allow-http"], args].concat())
}

const DONE: (Option<i32>, String) = (Some(0), String::new());

#[test]
fn a_file_is_downloaded() {
    let plain: Answer = |request| {
        let asks = request.lines.iter().any(|line| line.eq_ignore_ascii_case("accept-encoding: identity"));
        assert!(asks, "{:?}", request.lines);
        request.file()
    };
    assert_eq!(resolved(plain, &[]), DONE);
}

#[test]
fn a_file_with_the_right_hash_is_accepted() {
    let too_long: Answer = |request| {
        let (file, len) = (request.file, request.file.len() + 1);
        request.send("200 OK", "", len, file)
    };
    assert_eq!(resolved(too_long, &[]), DONE);
}

#[test]
fn a_chunked_response_is_read() {
    let chunked: Answer = |request| {
        let stream = request.stream;
        write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for chunk in request.file.chunks(70_000) {
            write!(stream, "{:x}\r\n", chunk.len())?;
            stream.write_all(chunk)?;
            write!(stream, "\r\n")?;
        }
        write!(stream, "0\r\n\r\n")
    };
    assert_eq!(resolved(chunked, &[]), DONE);
}

#[test]
fn a_slow_server_does_not_time_out() {
    // It has no continuations, so only a connection that lasts longer than the timeout brings the file.
    let slow: Answer = |request| {
        write!(request.stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.file.len())?;
        request.file.chunks(30_000).try_for_each(|chunk| {
            std::thread::sleep(Duration::from_millis(150));
            request.stream.write_all(chunk)
        })
    };
    assert_eq!(resolved(slow, &["--timeout", "3"]), DONE);
}

#[test]
fn a_connection_that_stalls_or_breaks_is_resumed() {
    let stalled: Answer = |request| match request.start() {
        None => {
            write!(request.stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.file.len())?;
            request.stream.write_all(&request.file[..300_000])?;
            request.wait()
        }
        Some(start) => {
            assert!(start > 0);
            request.rest(start)
        }
    };
    assert_eq!(resolved(stalled, &["--timeout", "1"]), DONE);
    // More often than a connection without progress would be retried.
    let cut: Answer = |request| {
        let start = request.start().unwrap_or_default();
        assert_eq!(start == 0, request.number == 0);
        let (file, len) = (request.file, request.file.len());
        let status = if start == 0 { "200 OK" } else { "206 Partial Content" };
        let headers = format!("Content-Range: bytes {start}-{}/{len}\r\n", len - 1);
        request.send(status, &headers, len - start, &file[start..len.min(start + 100_000)])
    };
    assert_eq!(resolved(cut, &[]), DONE);
    let (status, text) = resolved(|request| request.wait(), &["--timeout", "1"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("timeout"), "{text}");
}

#[test]
fn a_server_that_cannot_resume_starts_again() {
    fn cut(request: Request<'_>) -> Result<()> {
        let (file, len) = (request.file, request.file.len());
        request.send("200 OK", "", len, &file[..300_000])
    }
    let ignores: Answer = |request| if request.number == 0 { cut(request) } else { request.file() };
    let refuses: Answer = |request| match request.start() {
        None if request.number == 0 => cut(request),
        None => request.file(),
        Some(_) => request.send("416 Range Not Satisfiable", "", 0, b""),
    };
    let elsewhere: Answer = |request| match request.start() {
        None if request.number == 0 => cut(request),
        None => request.file(),
        Some(_) => request.rest(17),
    };
    let encodes: Answer = |request| match request.start() {
        None if request.number == 0 => cut(request),
        None => request.file(),
        Some(start) => {
            let headers = format!("Content-Encoding: gzip\r\nContent-Range: bytes {start}-9/10\r\n");
            request.send("206 Partial Content", &headers, 4, b"gzip")
        }
    };
    let other: Answer = |request| match request.start() {
        None if request.number == 0 => {
            let len = request.file.len();
            request.send("200 OK", "", len, &vec![7; 300_000])
        }
        None => request.file(),
        Some(start) => request.rest(start),
    };
    for answer in [ignores, refuses, elsewhere, encodes, other] {
        assert_eq!(resolved(answer, &[]), DONE);
    }
}

#[test]
fn downloads_that_are_refused() {
    let answers: [(&str, &[&str], Answer); 10] = [
        ("404", &[], |request| request.send("404 Not Found", "", 4, b"gone")),
        ("503", &[], |request| request.send("503 Service Unavailable", "", 0, b"")),
        ("wrong content", &[], |request| {
            let mut bytes = request.file.to_vec();
            bytes[1000] ^= 1;
            request.whole("", &bytes)
        }),
        ("a length that is too small", &[], |request| {
            let file = request.file;
            request.send("200 OK", "", 1000, file)
        }),
        ("cut off for good", &[], |request| {
            let (file, len) = (request.file, request.file.len());
            request.send("200 OK", "", len, &file[..10])
        }),
        ("a length beyond --max-size", &["--max-size", "799999"], |request| request.file()),
        ("more than --max-size without end", &["--max-size", "5000000"], |request| {
            write!(request.stream, "HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                request.stream.write_all(&[0; 1 << 13])?;
            }
        }),
        ("redirects without end", &[], |request| request.redirect("/again")),
        ("a redirect to a file", &[], |request| request.redirect("file:///etc/passwd")),
        ("an encoding", &[], |request| request.whole("Content-Encoding: gzip\r\n", b"gzip")),
    ];
    let mut texts = String::new();
    for (what, args, answer) in answers {
        let (status, text) = resolved(answer, args);
        assert_eq!(status, Some(1), "{what}: {text}");
        texts.extend(["--- ", what, "\n", &text]);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn addresses_that_are_refused() {
    let scratch = scratch();
    let mut texts = String::new();
    for (url, args) in [
        ("http://example.org/file", &[][..]),
        // Each is a loopback address, or one that routers do not forward.
        ("https://127.0.0.1/file", &[]),
        ("https://0x7f.1/file", &[]),
        ("https://2130706433/file", &[]),
        ("https://localhost/file", &[]),
        ("https://[::1]/file", &[]),
        ("https://[::ffff:10.0.0.1]/file", &[]),
        ("https://[64:ff9b::7f00:1]/file", &[]),
        ("https://169.254.169.254/latest/meta-data/file", &[]),
        // No server listens there.
        ("http://127.0.0.1:1/file", &["--allow-http"]),
    ] {
        carton(scratch.path(), &[url.to_owned()]);
        let args = [&["resolve", "s.carton", "-o", "r.carton", "-q"], args].concat();
        let (status, text) = run(scratch.path(), &args);
        assert_eq!(status, Some(1), "{url}: {text}");
        // The system decides which of its two loopback addresses is first.
        texts += &text.replace("localhost/file: ::1 is", "localhost/file: 127.0.0.1 is");
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn a_redirect_is_followed() {
    let redirects: Answer = |request| match request.path() {
        "/file" => request.redirect("/a?b=c"),
        "/a?b=c" => request.redirect("../there"),
        "/there" => request.file(),
        other => panic!("{other}"),
    };
    assert_eq!(resolved(redirects, &[]), DONE);
}

#[test]
fn each_url_is_tried_in_turn() {
    let scratch = scratch();
    let (good, _) = server(left_out(), |request| match request.start() {
        None => request.file(),
        Some(start) => request.rest(start),
    });
    let (bad, asked) = server(left_out(), |request| match request.path() {
        "/file/gone" => request.send("404 Not Found", "", 0, b""),
        // A different file that is cut off, so a continuation is wrong too.
        "/file/other" => request.send("200 OK", "", 800_000, &vec![7; 300_000]),
        other => panic!("{other}"),
    });
    let urls = [format!("{bad}/file/gone"), format!("{bad}/file/other"), format!("{good}/file")];
    assert_eq!(resolve(scratch.path(), &urls, &["--allow-http"]), DONE);
    assert!(asked.load(Ordering::Relaxed) >= 2);
    let (status, text) = resolve(scratch.path(), &urls[..2], &["--allow-http"]);
    assert_eq!(status, Some(1));
    assert!(
        text.contains("/file/gone does not exist") && text.contains("/file/other cannot be read"),
        "{text}"
    );
}

#[test]
fn a_downloaded_file_is_kept_in_the_cache() {
    let scratch = scratch();
    let root = scratch.path();
    let (server, asked) = server(left_out(), |request| match request.start() {
        None => request.file(),
        Some(start) => request.rest(start),
    });
    let urls = [format!("{server}/file")];
    let args = ["--allow-http", "--cache", "cache"];
    let requests = || asked.load(Ordering::Relaxed);
    assert_eq!(resolve(root, &urls, &args), DONE);
    assert_eq!(resolve(root, &urls, &args), DONE);
    assert_eq!(requests(), 1, "the second time it is there");
    let cached = root.join("cache").join(SHA256);
    let mut poison = left_out();
    poison[5] ^= 1;
    write(cached.clone(), &poison);
    let (status, text) = resolve(root, &urls, &args);
    assert_eq!(status, Some(0));
    assert_eq!(text, "", "quiet prints no notes");
    assert_eq!((requests(), std::fs::read(&cached).expect("it was fetched")), (2, left_out()));
    // Left by an earlier run: the beginning, the whole file, something else.
    let partial = root.join("cache").join(format!("{SHA256}.partial"));
    for (left, asks) in [(&left_out()[..1000], 1), (&left_out(), 0), (&poison, 2), (&poison[..9], 2)] {
        std::fs::remove_file(&cached).expect("it was fetched");
        write(partial.clone(), left);
        let before = requests();
        assert_eq!(resolve(root, &urls, &args), DONE);
        assert_eq!(requests() - before, asks);
        assert!(!partial.exists());
    }
}

#[test]
fn a_wrong_file_is_not_kept_in_the_cache() {
    let scratch = scratch();
    let root = scratch.path();
    let (server, _) = server(left_out(), |request| request.whole("", &[7; 1000]));
    let (status, _) = resolve(root, &[format!("{server}/file")], &["--allow-http", "--cache", "cache"]);
    assert_eq!(status, Some(1));
    assert_eq!(root.join("cache").read_dir().expect("it was made").count(), 0);
}

#[test]
fn two_runs_share_a_cache() {
    let scratch = scratch();
    let root = scratch.path();
    let (server, _) = server(left_out(), |request| {
        let (head, tail) = request.file.split_at(400_000);
        write!(request.stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.file.len())?;
        request.stream.write_all(head)?;
        std::thread::sleep(Duration::from_millis(500));
        request.stream.write_all(tail)
    });
    carton(root, &[format!("{server}/file")]);
    std::thread::scope(|scope| {
        for output in ["a.carton", "b.carton"] {
            scope.spawn(move || {
                let patient = ["--cache", "cache", "--timeout", "3600"];
                let args = ["resolve", "s.carton", "-o", output, "-q", "--allow-http"];
                ok(root, &[&args[..], &patient].concat());
                ok(root, &["verify", output, "-q"]);
            });
        }
    });
    assert_eq!(root.join("cache").read_dir().expect("it was made").count(), 1);
}

/// 128 plus the number of the signal, as shells report it.
#[cfg(unix)]
#[test]
fn a_signal_leaves_nothing_and_sets_the_exit_status() {
    let signals = [("HUP", 129), ("INT", 130), ("TERM", 143)];
    for (signal, status) in signals.into_iter().filter(|(_, status)| !is_ignored(status - 128)) {
        let scratch = scratch();
        let root = scratch.path();
        let (server, asked) = server(left_out(), |request| request.wait());
        carton(root, &[format!("{server}/file")]);
        let mut running = std::process::Command::new(env!("CARGO_BIN_EXE_torch2carton"))
            .args(["resolve", "s.carton", "-o", "r.carton", "-q", "--allow-http", "--timeout", "86400"])
            .current_dir(root)
            .spawn()
            .expect("the program was built for this test");
        while asked.load(Ordering::Relaxed) == 0 {
            assert!(running.try_wait().expect("it was started").is_none(), "it waits for the server");
            std::thread::sleep(Duration::from_millis(10));
        }
        let kill =
            std::process::Command::new("kill").args(["-s", signal, &running.id().to_string()]).status();
        assert!(kill.expect("every Unix has it").success());
        assert_eq!(running.wait().expect("it was started").code(), Some(status), "{signal}");
        let left: Vec<_> =
            root.read_dir().expect("it is there").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["s.carton"]);
    }
}
