//! Reads consecutive pickles and integers, the layout of files before PyTorch 1.6.

use std::cell::Cell;
use std::ops::Range;

use byte_source::Observer;
use pickle_vm::{ErrorKind, Heap, ObjectId, Pickle, PickleLimits};

use super::contents::load_checked;
use crate::persistent::key_text;
use crate::{Error, Problem, Result};

/// A cursor over bytes that are read from start to end.
pub(super) struct PickleCursor<'b> {
    bytes: &'b [u8],
    /// File offset of `bytes`, for messages.
    start: usize,
    cursor_offset: usize,
    /// Number of bytes of the file after `bytes` that were not read.
    unread: u64,
    /// True if a pickle goes on in the bytes that were not read.
    needs_more: bool,
    /// True if `bytes` extend to the end of the file.
    ends_at_file_end: bool,
    /// Name of the byte range, for messages.
    record: &'b str,
    /// Byte ranges of the pickles read so far, from the start of the file.
    pickles: Vec<Range<usize>>,
    /// Stops the reading of a pickle.
    observer: &'b dyn Observer,
}

impl<'b> PickleCursor<'b> {
    /// Starts at the first byte of `range` of the file.
    pub(super) fn new(file: &'b [u8], range: Range<usize>, record: &'b str) -> Self {
        let start = range.start;
        let to_the_end = range.end == file.len();
        let bytes = file.get(range).unwrap_or_default();
        Self {
            bytes,
            start,
            cursor_offset: 0,
            unread: 0,
            needs_more: false,
            ends_at_file_end: to_the_end,
            record,
            pickles: Vec::new(),
            observer: &(),
        }
    }

    /// Asks `observer` during the reading of each pickle.
    pub(super) fn observed(self, observer: &'b dyn Observer) -> Self {
        Self { observer, ..self }
    }

    /// Returns an error if the observer stops the reading.
    pub(super) fn check_observer(&self) -> Result<()> {
        Ok(self.observer.check()?)
    }

    /// Starts at the first byte of `range` of a file of `len` bytes, of which `bytes` were read.
    pub(super) fn in_part(bytes: &'b [u8], range: &Range<u64>, len: u64, record: &'b str) -> Self {
        let unread = range.end.saturating_sub(range.start).saturating_sub(bytes.len() as u64);
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let ends_at_file_end = range.end == len;
        Self { start, unread, ends_at_file_end, ..Self::new(bytes, 0..bytes.len(), record) }
    }

    /// Returns true if a pickle goes on in the bytes that were not read.
    pub(super) fn needs_more(&self) -> bool {
        self.needs_more
    }

    /// Returns the cursor's offset in the file, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.start.saturating_add(self.cursor_offset)
    }

    fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.cursor_offset..).unwrap_or_default()
    }

    pub(super) fn bytes_left(&self) -> u64 {
        let end = (self.bytes.len() as u64).saturating_add(self.unread);
        end.saturating_sub(self.cursor_offset as u64)
    }

    /// Reads the pickle at the cursor; `what` names it in errors.
    pub(super) fn load_next_pickle(&mut self, what: &str) -> Result<Pickle<'b>> {
        let limits = PickleLimits::for_stored(self.bytes.len() as u64);
        let needs_more = Cell::new(false);
        let damaged = |reason: pickle_vm::Error| {
            if matches!(reason.kind, ErrorKind::NoStop | ErrorKind::Truncated { .. } | ErrorKind::NoNewline) {
                needs_more.set(self.unread > 0);
                self.truncation_error(what, None)
            } else {
                let record = format!("{what}, from byte {} on", self.offset());
                Problem::Pickle { record, reason }.into()
            }
        };
        let loaded = load_checked(self.rest(), &limits, damaged, |_| self.check_observer());
        let loaded = loaded.and_then(|(pickle, frame_error)| match frame_error {
            // CPython's C unpickler finds the next pickle elsewhere.
            Some(error) => Err(damaged(error)),
            None => Ok(pickle),
        });
        self.needs_more |= needs_more.get();
        let pickle = loaded?;
        let start = self.offset();
        self.cursor_offset =
            self.cursor_offset.saturating_add(usize::try_from(pickle.len).unwrap_or(usize::MAX));
        self.pickles.push(start..self.offset());
        Ok(pickle)
    }

    /// Returns the byte ranges of the pickles that were read.
    pub(super) fn pickles(self) -> Vec<Range<usize>> {
        self.pickles
    }

    /// Reads a signed little-endian integer of eight bytes; `what` names it in errors.
    pub(super) fn read_signed_number(&mut self, what: &str) -> Result<i64> {
        let bytes = self.take_range(8, what)?;
        let bytes = self.range_bytes(bytes).try_into().unwrap_or_default();
        Ok(i64::from_le_bytes(bytes))
    }

    /// Reads a count as an eight-byte integer, and refuses a negative one.
    pub(super) fn read_count(&mut self, what: &str) -> Result<u64> {
        let offset = self.offset();
        let number = self.read_signed_number(what)?;
        Ok(u64::try_from(number).map_err(|_| Problem::Layout {
            record: self.record.to_owned(),
            reason: format!("{what} is {number} at byte {offset}"),
        })?)
    }

    /// Reads a count like [`read_count`](Self::read_count), and skips one that was not read.
    pub(super) fn read_known_count(&mut self, what: &str) -> Result<Option<u64>> {
        if self.unread == 0 || self.rest().len() >= size_of::<u64>() {
            return self.read_count(what).map(Some);
        }
        self.take_range(size_of::<u64>() as u64, what)?;
        Ok(None)
    }

    /// Consumes the next `len` bytes and returns their range in the file; `what` names them in errors.
    pub(super) fn take_range(&mut self, len: u64, what: &str) -> Result<Range<usize>> {
        let left = self.bytes_left();
        if len > left {
            return Err(self.truncation_error(what, Some(len.saturating_sub(left))));
        }
        let start = self.offset();
        // `len` is at most the number of bytes left, which is a `usize`.
        self.cursor_offset = self.cursor_offset.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(start..self.offset())
    }

    /// Returns the bytes of a range that [`take`](Self::take_range) returned.
    fn range_bytes(&self, range: Range<usize>) -> &'b [u8] {
        let within = |at: usize| at.saturating_sub(self.start);
        self.bytes.get(within(range.start)..within(range.end)).unwrap_or_default()
    }

    /// Builds the error for bytes that end before the end of `what`.
    pub(super) fn truncation_error(&self, what: &str, missing: Option<u64>) -> Error {
        let missing = missing.map_or_else(String::new, |missing| format!(" and {missing} bytes are missing"));
        let end = (self.start.saturating_add(self.bytes.len()) as u64).saturating_add(self.unread);
        if self.ends_at_file_end {
            Problem::TruncatedFile {
                reason: format!("{} ends at byte {end}, within {what}{missing}", self.record),
            }
            .into()
        } else {
            self.layout_error(format!("it ends at byte {end}, within {what}{missing}"))
        }
    }

    /// Builds the error for a structure that PyTorch does not write.
    pub(super) fn layout_error(&self, reason: String) -> Error {
        Problem::Layout { record: self.record.to_owned(), reason }.into()
    }

    pub(super) fn read_key(&self, heap: &Heap<'_>, id: ObjectId) -> Result<String> {
        let key = key_text(heap, id);
        let key = key.ok_or_else(|| self.layout_error(format!("a key is a {}", heap.get(id).type_name())))?;
        Ok(key.into_owned())
    }
}
