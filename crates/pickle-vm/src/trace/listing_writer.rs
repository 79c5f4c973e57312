//! Buffered text output to a writer.
//!
//! A listing consists of many short texts; a system call for each text would take most of the time.

use std::fmt;
use std::io;

/// Text buffer that writes about [`BUFFER_CAPACITY`] bytes at a time.
pub(crate) struct ListingWriter<'w> {
    writer: &'w mut dyn io::Write,
    buffer: String,
    error: Option<io::Error>,
    /// Number of bytes of text so far.
    len: u64,
}

/// Capacity of the text buffer in bytes.
const BUFFER_CAPACITY: usize = 1 << 15;

impl<'w> ListingWriter<'w> {
    pub(crate) fn new(writer: &'w mut dyn io::Write) -> Self {
        ListingWriter { writer, buffer: String::with_capacity(BUFFER_CAPACITY), error: None, len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Runs `f`, and converts a formatting error to the I/O error that caused it.
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

impl fmt::Write for ListingWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.len = self.len.saturating_add(text.len() as u64);
        if self.buffer.len().saturating_add(text.len()) > BUFFER_CAPACITY {
            let written = self.writer.write_all(self.buffer.as_bytes());
            self.buffer.clear();
            if let Err(error) = written {
                self.error = Some(error);
                return Err(fmt::Error);
            }
        }
        if text.len() > BUFFER_CAPACITY {
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

/// Writer that passes on a limited number of bytes.
pub(crate) struct LimitedWriter<'o> {
    out: &'o mut dyn fmt::Write,
    left: u64,
    /// True if a text exceeded the limit, which is then the reason for the formatting error.
    pub(crate) is_full: bool,
}

impl<'o> LimitedWriter<'o> {
    pub(crate) fn new(out: &'o mut dyn fmt::Write, left: u64) -> Self {
        LimitedWriter { out, left, is_full: false }
    }
}

impl fmt::Write for LimitedWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Some(left) = self.left.checked_sub(text.len() as u64) else {
            self.is_full = true;
            return Err(fmt::Error);
        };
        self.left = left;
        self.out.write_str(text)
    }
}
