//! A client that sends exactly the bytes that a test gives it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::LONG;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    pub(crate) fn error(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        self.json()["error"].as_str().expect("an error is a text").to_owned()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        stream.set_write_timeout(Some(LONG)).expect("a timeout");
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends as much of the bytes as the server takes.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Tells the server that nothing more comes.
    pub(crate) fn finish_sending(&mut self) {
        // It may have closed the connection already.
        let _ = self.stream.get_mut().shutdown(std::net::Shutdown::Write);
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply().expect("the server answers")
    }

    /// Reads a response; none if the connection was closed before.
    pub(crate) fn try_reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let status = line.split(' ').nth(1).expect("a status").parse().expect("a number");
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                reply.body.extend(chunk);
            }
            return Some(reply);
        }
        let length = reply.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        reply.body = vec![0; length];
        self.stream.read_exact(&mut reply.body).expect("the whole body");
        Some(reply)
    }

    /// Reads the next chunk of a response that has started; none at its end.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a size");
        let size = usize::from_str_radix(line.trim_end(), 16).expect("a number in hexadecimal");
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk).expect("the whole chunk");
        self.stream.read_line(&mut line).expect("the end of the chunk");
        (size > 0).then_some(chunk)
    }

    /// Whether the server closes the connection without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        // A reset is an end as well.
        self.stream.read(&mut [0]).map_or(true, |count| count == 0)
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        self.reply()
    }

    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(request(path, headers, body));
        self.reply()
    }
}

/// A POST with its length.
pub(crate) fn request(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").expect("memory");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}
