//! Pickle writer for torch's C++ unpickler, which accepts less than CPython's.
//!
//! Facts: `torch/csrc/jit/serialization/unpickler.cpp`. It requires LONG1 to have 8 bytes ("Expected length to be 8", seen
//! in 2.0.1 and 2.15), where CPython and [`pickle_vm::Writer`] write as few bytes as the number needs.

use std::ops::{Deref, DerefMut};

use pickle_vm::{Opcode, Writer};

/// Pickle [`Writer`] whose [`int`](Self::int) writes integers in the form that torch reads.
#[derive(Default)]
pub(crate) struct Pickler {
    writer: Writer,
    /// Integers that need LONG1, each with its byte offset in the output of `writer`.
    long: Vec<(usize, i64)>,
}

impl Pickler {
    /// Pushes an integer, as LONG1 with 8 bytes if it exceeds 32 bits.
    pub(crate) fn int(&mut self, value: i64) {
        if i32::try_from(value).is_ok() {
            self.writer.int(value);
        } else {
            self.long.push((self.writer.len(), value));
        }
    }

    /// Ends the pickle with STOP, inserts the long integers, and returns its bytes.
    pub(crate) fn finish(self) -> Vec<u8> {
        let bytes = self.writer.finish();
        if self.long.is_empty() {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len().saturating_add(self.long.len().saturating_mul(10)));
        let mut rest = bytes.as_slice();
        let mut taken = 0_usize;
        for (at, value) in self.long {
            let (before, after) = rest.split_at_checked(at.saturating_sub(taken)).unwrap_or((rest, &[]));
            out.extend_from_slice(before);
            out.extend([Opcode::Long1.code(), 8]);
            out.extend(value.to_le_bytes());
            (rest, taken) = (after, at);
        }
        out.extend_from_slice(rest);
        out
    }
}

impl Deref for Pickler {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for Pickler {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_integers_have_eight_bytes() {
        let mut pickler = Pickler::default();
        pickler.mark();
        for value in [7, 1 << 31, -1, 1 << 40, i64::from(i32::MAX)] {
            pickler.int(value);
        }
        pickler.tuple();
        let expected = b"\x80\x02(K\x07\x8a\x08\0\0\0\x80\0\0\0\0J\xff\xff\xff\xff\x8a\x08\0\0\0\0\0\x01\0\0J\xff\xff\xff\x7ft.";
        assert_eq!(pickler.finish(), expected);
    }
}
