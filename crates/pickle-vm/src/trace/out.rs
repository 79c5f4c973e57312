//! Text to a writer in large pieces.
//!
//! A listing is many short texts; a system call for each of them would take most of the time.

use std::fmt;
use std::io;

/// Collects text and writes it in pieces of [`PIECE`] bytes.
pub(crate) struct Out<'w> {
    writer: &'w mut dyn io::Write,
    buffer: String,
    error: Option<io::Error>,
    /// Bytes so far.
    len: u64,
}

/// How many bytes of text are collected before they are written.
const PIECE: usize = 1 << 15;

impl<'w> Out<'w> {
    pub(crate) fn new(writer: &'w mut dyn io::Write) -> Self {
        Out { writer, buffer: String::with_capacity(PIECE), error: None, len: 0 }
    }

    /// How many bytes of text there were.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Runs `f`, and turns a formatting error into the I/O error that caused it.
    pub(crate) fn write(&mut self, f: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) -> io::Result<()> {
        f(self)
            .map_err(|fmt::Error| self.error.take().unwrap_or_else(|| io::Error::other("formatting failed")))
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.writer.write_all(self.buffer.as_bytes())?;
        self.buffer.clear();
        self.writer.flush()
    }
}

impl fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.len = self.len.saturating_add(text.len() as u64);
        if self.buffer.len().saturating_add(text.len()) > PIECE {
            let written = self.writer.write_all(self.buffer.as_bytes());
            self.buffer.clear();
            if let Err(error) = written {
                self.error = Some(error);
                return Err(fmt::Error);
            }
        }
        if text.len() > PIECE {
            // Long texts, such as pickled bytes, are written without a copy.
            return self.writer.write_all(text.as_bytes()).map_err(|error| {
                self.error = Some(error);
                fmt::Error
            });
        }
        self.buffer.push_str(text);
        Ok(())
    }
}

/// Passes text on until a number of bytes is reached.
pub(crate) struct Capped<'o> {
    out: &'o mut dyn fmt::Write,
    left: u64,
    /// Whether a text did not fit, which is then the reason of an error.
    pub(crate) is_full: bool,
}

impl<'o> Capped<'o> {
    pub(crate) fn new(out: &'o mut dyn fmt::Write, left: u64) -> Self {
        Capped { out, left, is_full: false }
    }
}

impl fmt::Write for Capped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Some(left) = self.left.checked_sub(text.len() as u64) else {
            self.is_full = true;
            return Err(fmt::Error);
        };
        self.left = left;
        self.out.write_str(text)
    }
}
