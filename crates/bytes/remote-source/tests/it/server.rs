//! Loopback server that counts requests and misbehaves as told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A request: its path, and its headers in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the range that the request asks for, in a file of `len` bytes.
    pub(crate) fn range(&self, len: usize) -> Option<Range<usize>> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(match first {
            "" => len.saturating_sub(last.parse().ok()?)..len,
            first => first.parse().ok()?..last.parse::<usize>().ok()?.saturating_add(1).min(len),
        })
    }
}

/// Server on a loopback address, and the requests that it got.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server. `answer` writes the answer to request number N.
    pub(crate) fn start(
        address: &str,
        answer: impl Fn(usize, &Request, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("loopback");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (known, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (known, answer) = (Arc::clone(&known), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &known, &*answer));
            }
        });
        Self { url, requests }
    }

    /// Starts a server that sends ranges of `file` correctly.
    pub(crate) fn of_file(file: Vec<u8>) -> Self {
        Self::start("127.0.0.1", move |_, request, stream| send_range(stream, request, &file, "\"v1\""))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(
    mut stream: TcpStream,
    known: &Mutex<Vec<Request>>,
    answer: &dyn Fn(usize, &Request, &mut TcpStream) -> std::io::Result<()>,
) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
        let headers = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let request = Request { path, headers };
        let number = {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let number = known.len();
            known.push(request.clone());
            number
        };
        if answer(number, &request, &mut stream).is_err() {
            return;
        }
    }
}

pub(crate) fn send_range(
    stream: &mut TcpStream,
    request: &Request,
    file: &[u8],
    etag: &str,
) -> std::io::Result<()> {
    let range = request.range(file.len()).unwrap_or(0..file.len());
    let head = head(&range, file.len(), etag);
    stream.write_all(head.as_bytes())?;
    stream.write_all(file.get(range).unwrap_or_default())
}

pub(crate) fn head(range: &Range<usize>, len: usize, etag: &str) -> String {
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{}/{len}\r\nContent-Length: {}\r\nETag: {etag}\r\n\r\n",
        range.start,
        range.end.saturating_sub(1),
        range.len()
    )
}

/// Sends an answer without a body.
pub(crate) fn send_status(stream: &mut TcpStream, status: &str, headers: &str) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\n\r\n")
}
