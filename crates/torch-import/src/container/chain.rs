//! Pickles and numbers that follow one another, as the files of PyTorch before 1.6 have them.

use std::ops::Range;

use pickle_vm::{ErrorKind, Heap, ObjectId, Pickle};

use crate::persistent::key_text;
use crate::{Error, Result};

/// A position in bytes that are read from start to end.
#[derive(Debug)]
pub(super) struct Chain<'b> {
    bytes: &'b [u8],
    /// Where `bytes` start in the file, for messages.
    start: usize,
    at: usize,
    /// Whether they end at the end of the file.
    to_the_end: bool,
    /// What the bytes are, for messages.
    record: &'b str,
    /// The ranges of the pickles read so far, in bytes from the start of the file.
    pickles: Vec<Range<usize>>,
}

impl<'b> Chain<'b> {
    /// Starts at the first byte of `range` of the file.
    pub(super) fn new(file: &'b [u8], range: Range<usize>, record: &'b str) -> Self {
        let start = range.start;
        let to_the_end = range.end == file.len();
        let bytes = file.get(range).unwrap_or_default();
        Self { bytes, start, at: 0, to_the_end, record, pickles: Vec::new() }
    }

    /// Bytes from the start of the file to the position.
    pub(super) fn offset(&self) -> usize {
        self.start.saturating_add(self.at)
    }

    fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> u64 {
        self.rest().len() as u64
    }

    /// Reads the pickle at this position, called `what`.
    pub(super) fn pickle(&mut self, what: &str) -> Result<Pickle<'b>> {
        let pickle = pickle_vm::load(self.rest()).map_err(|reason| {
            if matches!(reason.kind, ErrorKind::NoStop | ErrorKind::Truncated { .. } | ErrorKind::NoNewline) {
                self.cut_short(what, None)
            } else {
                let record = format!("{what}, from byte {} on", self.offset());
                Error::Pickle { record, reason }
            }
        })?;
        let start = self.offset();
        self.at = self.at.saturating_add(usize::try_from(pickle.len).unwrap_or(usize::MAX));
        self.pickles.push(start..self.offset());
        Ok(pickle)
    }

    /// The ranges of the pickles that were read.
    pub(super) fn pickles(self) -> Vec<Range<usize>> {
        self.pickles
    }

    /// Reads a signed number of eight bytes, little-endian, called `what`.
    pub(super) fn number(&mut self, what: &str) -> Result<i64> {
        let bytes = self.take(8, what)?;
        let bytes = self.bytes_of(bytes).try_into().unwrap_or_default();
        Ok(i64::from_le_bytes(bytes))
    }

    /// Reads a count; a negative one is an error.
    pub(super) fn count(&mut self, what: &str) -> Result<u64> {
        let offset = self.offset();
        let number = self.number(what)?;
        u64::try_from(number).map_err(|_| Error::Layout {
            record: self.record.to_owned(),
            reason: format!("{what} is {number} at byte {offset}"),
        })
    }

    /// The next `len` bytes, called `what`, as a range of the file.
    pub(super) fn take(&mut self, len: u64, what: &str) -> Result<Range<usize>> {
        let left = self.left();
        if len > left {
            return Err(self.cut_short(what, Some(len.saturating_sub(left))));
        }
        let start = self.offset();
        // Not more than what is left, which is a `usize`.
        self.at = self.at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(start..self.offset())
    }

    /// The bytes of a range that [`take`](Self::take) gave.
    fn bytes_of(&self, range: Range<usize>) -> &'b [u8] {
        let within = |at: usize| at.saturating_sub(self.start);
        self.bytes.get(within(range.start)..within(range.end)).unwrap_or_default()
    }

    /// The error for bytes that end before the end of `what`.
    pub(super) fn cut_short(&self, what: &str, missing: Option<u64>) -> Error {
        let missing = missing.map_or_else(String::new, |missing| format!(" and {missing} bytes are missing"));
        let end = self.start.saturating_add(self.bytes.len());
        if self.to_the_end {
            Error::Cut { reason: format!("{} ends at byte {end}, within {what}{missing}", self.record) }
        } else {
            self.unexpected(format!("it ends at byte {end}, within {what}{missing}"))
        }
    }

    /// The error for something that PyTorch does not write.
    pub(super) fn unexpected(&self, reason: String) -> Error {
        Error::Layout { record: self.record.to_owned(), reason }
    }

    /// Reads a storage's key.
    pub(super) fn key(&self, heap: &Heap<'_>, id: ObjectId) -> Result<String> {
        let key = key_text(heap, id);
        let key = key.ok_or_else(|| self.unexpected(format!("a key is a {}", heap.get(id).type_name())))?;
        Ok(key.into_owned())
    }
}
