//! Writer of protocol 2 pickles, from the opcode table that the reader uses.
//!
//! Source: the `save_*` functions of CPython's `Lib/pickle.py` choose the encoding of a value.

use crate::error::{ErrorKind, Result};
use crate::integer::without_sign_extension;
use crate::opcode::Opcode;

/// Key of a memo entry, returned by [`Writer::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoId(u32);

/// Writer of one pickle; each call writes one opcode.
///
/// ```
/// use pickle_vm::Writer;
///
/// let mut writer = Writer::new();
/// writer.empty_dict();
/// writer.mark();
/// writer.text("epoch")?;
/// writer.int(7);
/// writer.setitems();
/// let pickle = writer.finish();
/// assert_eq!(pickle, b"\x80\x02}(X\x05\0\0\0epochK\x07u.");
/// # Ok::<(), pickle_vm::Error>(())
/// ```
///
/// The caller is responsible for the stack: a writer does not check that its opcodes form a valid pickle.
#[derive(Clone, Debug)]
pub struct Writer {
    out: Vec<u8>,
    memo: u32,
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// Starts a pickle with PROTO 2.
    pub fn new() -> Self {
        let mut writer = Writer { out: Vec::new(), memo: 0 };
        writer.emit(Opcode::Proto, &[2]);
        writer
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns false: PROTO is always written first.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Pushes `None` with the NONE opcode.
    pub fn none(&mut self) {
        self.emit(Opcode::None, &[]);
    }

    /// Pushes a bool, with NEWTRUE or NEWFALSE.
    pub fn bool(&mut self, value: bool) {
        self.emit(if value { Opcode::NewTrue } else { Opcode::NewFalse }, &[]);
    }

    /// Pushes an int in the shortest of BININT1, BININT2, BININT and LONG1 that holds it, as CPython chooses.
    pub fn int(&mut self, value: i64) {
        if let Ok(value) = u8::try_from(value) {
            self.emit(Opcode::BinInt1, &[value]);
        } else if let Ok(value) = u16::try_from(value) {
            self.emit(Opcode::BinInt2, &value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.emit(Opcode::BinInt, &value.to_le_bytes());
        } else {
            let bytes = value.to_le_bytes();
            let bytes = without_sign_extension(&bytes);
            self.emit(Opcode::Long1, &[u8::try_from(bytes.len()).unwrap_or(8)]);
            self.out.extend_from_slice(bytes);
        }
    }

    /// Pushes a float with BINFLOAT, as eight bytes.
    pub fn float(&mut self, value: f64) {
        self.emit(Opcode::BinFloat, &value.to_be_bytes());
    }

    /// Pushes text with BINUNICODE, as UTF-8.
    ///
    /// # Errors
    ///
    /// Returns an error if the text does not fit a four-byte length (4 GiB).
    pub fn text(&mut self, text: &str) -> Result<()> {
        let length = u32::try_from(text.len())
            .map_err(|_| self.error(ErrorKind::TooLong(text.len() as u64), Opcode::BinUnicode))?;
        self.emit(Opcode::BinUnicode, &length.to_le_bytes());
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Pushes a class or a function by name.
    ///
    /// # Errors
    ///
    /// Returns an error if a name contains a newline, which would end the argument.
    pub fn global(&mut self, module: &str, name: &str) -> Result<()> {
        if module.contains('\n') || name.contains('\n') {
            return Err(self.error(ErrorKind::NewlineInName, Opcode::Global));
        }
        self.emit(Opcode::Global, module.as_bytes());
        self.out.push(b'\n');
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'\n');
        Ok(())
    }

    /// Pushes a mark with the MARK opcode.
    pub fn mark(&mut self) {
        self.emit(Opcode::Mark, &[]);
    }

    /// Replaces the objects above the mark with a tuple of them.
    pub fn tuple(&mut self) {
        self.emit(Opcode::Tuple, &[]);
    }

    /// Replaces the topmost object with a tuple of it.
    pub fn tuple1(&mut self) {
        self.emit(Opcode::Tuple1, &[]);
    }

    /// Replaces the topmost two objects with a tuple of them.
    pub fn tuple2(&mut self) {
        self.emit(Opcode::Tuple2, &[]);
    }

    /// Replaces the topmost three objects with a tuple of them.
    pub fn tuple3(&mut self) {
        self.emit(Opcode::Tuple3, &[]);
    }

    /// Pushes an empty tuple with `EMPTY_TUPLE`.
    pub fn empty_tuple(&mut self) {
        self.emit(Opcode::EmptyTuple, &[]);
    }

    /// Pushes an empty dict with `EMPTY_DICT`.
    pub fn empty_dict(&mut self) {
        self.emit(Opcode::EmptyDict, &[]);
    }

    /// Pushes an empty list with `EMPTY_LIST`.
    pub fn empty_list(&mut self) {
        self.emit(Opcode::EmptyList, &[]);
    }

    /// Sets the topmost key and value on the dict below them.
    pub fn setitem(&mut self) {
        self.emit(Opcode::SetItem, &[]);
    }

    /// Sets the keys and values above the mark on the dict below the mark.
    pub fn setitems(&mut self) {
        self.emit(Opcode::SetItems, &[]);
    }

    /// Appends the topmost object to the list below it.
    pub fn append(&mut self) {
        self.emit(Opcode::Append, &[]);
    }

    /// Appends the objects above the mark to the list below the mark.
    pub fn appends(&mut self) {
        self.emit(Opcode::Appends, &[]);
    }

    /// Calls the object below the topmost tuple with the tuple as its arguments.
    pub fn reduce(&mut self) {
        self.emit(Opcode::Reduce, &[]);
    }

    /// Creates an instance of the class below the topmost tuple, with the tuple as arguments of `__new__`.
    pub fn newobj(&mut self) {
        self.emit(Opcode::NewObj, &[]);
    }

    /// Sets the topmost object as the state of the object below it, with BUILD.
    pub fn build(&mut self) {
        self.emit(Opcode::Build, &[]);
    }

    /// Replaces the topmost object, a persistent id, with the object that it identifies.
    pub fn binpersid(&mut self) {
        self.emit(Opcode::BinPersId, &[]);
    }

    /// Stores the topmost object into the memo under the next key.
    ///
    /// # Errors
    ///
    /// Returns an error if the memo is full (2³² − 1 entries).
    pub fn put(&mut self) -> Result<MemoId> {
        let key = self.memo;
        self.memo = key.checked_add(1).ok_or_else(|| self.error(ErrorKind::MemoFull, Opcode::LongBinPut))?;
        match u8::try_from(key) {
            Ok(key) => self.emit(Opcode::BinPut, &[key]),
            Err(_) => self.emit(Opcode::LongBinPut, &key.to_le_bytes()),
        }
        Ok(MemoId(key))
    }

    /// Pushes the memo's object with this key.
    pub fn get(&mut self, MemoId(key): MemoId) {
        match u8::try_from(key) {
            Ok(key) => self.emit(Opcode::BinGet, &[key]),
            Err(_) => self.emit(Opcode::LongBinGet, &key.to_le_bytes()),
        }
    }

    /// Ends the pickle with STOP.
    pub fn finish(mut self) -> Vec<u8> {
        self.emit(Opcode::Stop, &[]);
        self.out
    }

    fn emit(&mut self, opcode: Opcode, arg: &[u8]) {
        self.out.push(opcode.code());
        self.out.extend_from_slice(arg);
    }

    fn error(&self, kind: ErrorKind, opcode: Opcode) -> crate::Error {
        kind.at(self.out.len() as u64, opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_get_the_encoding_that_cpython_chooses() {
        let cases: [(i64, &[u8]); 10] = [
            (0, b"K\0"),
            (255, b"K\xff"),
            (256, b"M\0\x01"),
            (65536, b"J\0\0\x01\0"),
            (-1, b"J\xff\xff\xff\xff"),
            (i64::from(i32::MIN), b"J\0\0\0\x80"),
            (0x8000_0000, b"\x8a\x05\0\0\0\x80\0"),
            (-0x8000_0001, b"\x8a\x05\xff\xff\xff\x7f\xff"),
            (0x7f_ffff_ffff, b"\x8a\x05\xff\xff\xff\xff\x7f"),
            (i64::MIN, b"\x8a\x08\0\0\0\0\0\0\0\x80"),
        ];
        for (value, expected) in cases {
            let mut writer = Writer::new();
            writer.int(value);
            let pickle = writer.finish();
            assert_eq!(pickle, [b"\x80\x02", expected, b"."].concat(), "{value}");
        }
    }

    #[test]
    fn memo_keys_count_up_and_become_wider() {
        let mut writer = Writer::new();
        writer.none();
        let keys: Vec<MemoId> = (0..257).map(|_| writer.put().expect("the memo has room")).collect();
        writer.get(*keys.first().expect("257 keys"));
        writer.get(*keys.last().expect("257 keys"));
        let pickle = writer.finish();
        assert!(pickle.ends_with(b"q\xffr\0\x01\0\0h\0j\0\x01\0\0."));
    }

    #[test]
    fn a_newline_in_a_name_is_rejected() {
        let error = Writer::new().global("a\nb", "c").expect_err("a newline ends a name");
        assert_eq!(error.to_string(), "global name holds a newline at offset 0x2 (GLOBAL)");
    }
}
