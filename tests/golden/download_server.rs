//! A server on loopback that answers downloads as a test wants.

#![expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One request: the stream for the answer, the file that was left out, the lines of the request, and the number of
/// requests before it.
pub(crate) struct Request<'s> {
    pub(crate) stream: &'s mut TcpStream,
    pub(crate) file: &'s [u8],
    pub(crate) lines: Vec<String>,
    pub(crate) number: usize,
}

pub(crate) type Answer = fn(Request<'_>) -> Result<()>;

impl Request<'_> {
    /// The first byte that it requests.
    pub(crate) fn start(&self) -> Option<usize> {
        let range = self.lines.iter().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-').map(str::to_owned)
        });
        range.map(|start| start.parse().expect("a number"))
    }

    pub(crate) fn path(&self) -> &str {
        // A client that ends may leave a connection without a request.
        self.lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default()
    }

    /// Announces `len` bytes and sends `bytes`.
    pub(crate) fn send(self, status: &str, headers: &str, len: usize, bytes: &[u8]) -> Result<()> {
        let stream = self.stream;
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n{headers}\r\n")?;
        stream.write_all(bytes)
    }

    pub(crate) fn whole(self, headers: &str, bytes: &[u8]) -> Result<()> {
        self.send("200 OK", headers, bytes.len(), bytes)
    }

    pub(crate) fn file(self) -> Result<()> {
        let file = self.file;
        self.whole("", file)
    }

    pub(crate) fn redirect(self, location: &str) -> Result<()> {
        self.send("302 Found", &format!("Location: {location}\r\n"), 0, b"")
    }

    /// Sends nothing more, and waits until the client closes the connection.
    pub(crate) fn wait(self) -> Result<()> {
        std::io::copy(self.stream, &mut std::io::sink()).map(drop)
    }

    /// Sends the range of `file` that is asked for.
    pub(crate) fn range(self, file: &[u8]) -> Result<()> {
        let len = file.len();
        let asked = self.lines.iter().find_map(|line| {
            let line = line.to_ascii_lowercase();
            let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
            Some(match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) => first..(last + 1).min(len),
                (_, last) => len.saturating_sub(last.expect("a number"))..len,
            })
        });
        let asked = asked.expect("a range is asked for");
        let headers =
            format!("Content-Range: bytes {}-{}/{len}\r\nETag: \"1\"\r\n", asked.start, asked.end - 1);
        self.send("206 Partial Content", &headers, asked.len(), &file[asked])
    }

    /// Sends the file from `start` on.
    pub(crate) fn rest(self, start: usize) -> Result<()> {
        let (file, len) = (self.file, self.file.len());
        let headers = format!("Content-Range: bytes {start}-{}/{len}\r\n", len - 1);
        self.send("206 Partial Content", &headers, len - start, &file[start..])
    }
}

/// A server on loopback until the test ends: its address, and the number of requests.
pub(crate) fn server(file: Vec<u8>, answer: Answer) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (file, count) = (file.clone(), Arc::clone(&counted));
            std::thread::spawn(move || {
                let mut stream = stream;
                let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                let lines = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let number = count.fetch_add(1, Ordering::Relaxed);
                // A client that cuts the connection causes an error here.
                let _ = answer(Request { stream: &mut stream, file: &file, lines, number });
            });
        }
    });
    (format!("http://{address}"), count)
}
