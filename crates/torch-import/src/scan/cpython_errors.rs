//! Determines whether CPython also refuses a pickle that the pickle machine refuses.
//!
//! The machine accepts the pickles that picklers write. CPython's two unpicklers accept more: hexadecimal numbers,
//! SETITEM on a list, BUILD with an empty state. A payload after such an instruction would run although the machine
//! never reaches it. Bytes are therefore dismissed as "not a pickle" only after an error at which both unpicklers stop
//! as well.
//!
//! Facts: `Modules/_pickle.c` and `Lib/pickle.py` of CPython 3.11 to 3.14. `tests/conformance/test_scan_nested.py`
//! compares them with this file on random pickles.

use pickle_vm::{Error, ErrorKind, Instruction, Opcode, Reader};

/// Returns true if both of CPython's unpicklers also stop at this error of the pickle in `bytes`.
pub(super) fn python_stops(error: &Error, bytes: &[u8]) -> bool {
    use Opcode as Op;
    let line = || {
        let start = usize::try_from(error.offset).ok().and_then(|offset| offset.checked_add(1));
        let rest = start.and_then(|start| bytes.get(start..)).unwrap_or_default();
        rest.split(|byte| *byte == b'\n').next().unwrap_or_default()
    };
    match (&error.kind, error.opcode) {
        // `Lib/pickle.py` takes the rest of the bytes as the last name and imports it.
        (ErrorKind::NoNewline, Some(Op::Global | Op::Inst)) => {
            let start = usize::try_from(error.offset).unwrap_or(usize::MAX);
            !bytes.get(start..).is_some_and(|rest| rest.contains(&b'\n'))
        }
        (ErrorKind::NotAnInteger | ErrorKind::TooManyDigits { .. }, _) => !is_integer(line()),
        // The C unpickler stops at a NUL, and `Lib/pickle.py` reads underscores between digits.
        (ErrorKind::NotAFloat, _) => {
            let number = String::from_utf8_lossy(until_nul(line())).replace('_', "");
            number.trim().parse::<f64>().is_err()
        }
        (ErrorKind::WrongType { found, .. }, Some(Op::SetItem | Op::SetItems | Op::Append | Op::Appends)) => {
            !matches!(*found, "list" | "buffer")
        }
        (ErrorKind::WrongType { .. }, Some(Op::AddItems)) => true,
        // `memoryview` takes bytearrays and instances of classes that provide a buffer.
        (ErrorKind::WrongType { found, .. }, Some(Op::ReadonlyBuffer)) => {
            !depends_on_class(found) && *found != "bytearray"
        }
        // Only a `str` is a name, and only objects of these types may be a `str`.
        (ErrorKind::WrongType { found, .. }, Some(Op::StackGlobal)) => {
            !(depends_on_class(found) || matches!(*found, "str" | "Python 2 str"))
        }
        // `pickle.py` accepts any iterable as arguments and any mapping as keywords, and ignores an empty state.
        (
            ErrorKind::AmbiguousNumber
            | ErrorKind::WrongType { .. }
            | ErrorKind::LimitExceeded { .. }
            | ErrorKind::MemoKey,
            _,
        ) => false,
        _ => true,
    }
}

/// Returns true for objects whose behaviour depends on a class.
fn depends_on_class(type_name: &str) -> bool {
    matches!(type_name, "instance" | "persistent object" | "extension")
}

/// The instructions after an error, as Python would read them if it continued.
pub(super) struct InstructionsAfterError<'p> {
    bytes: &'p [u8],
    reader: Reader<'p>,
    /// Offset in the pickle at which the reader's bytes start.
    base: usize,
    /// True if the bytes end in the name of a global.
    pub(super) ends_in_a_name: bool,
}

impl<'p> InstructionsAfterError<'p> {
    /// Continues with `reader`, which reads `bytes` and stopped at the error, or after the instruction that the machine
    /// refused.
    pub(super) fn new(bytes: &'p [u8], reader: Reader<'p>, error: &Error) -> Self {
        let mut after = Self { bytes, reader, base: 0, ends_in_a_name: false };
        if after.offset() == error.offset {
            after.resume(error);
        }
        after
    }

    /// Returns the number of bytes read.
    pub(super) fn offset(&self) -> u64 {
        (self.base as u64).saturating_add(self.reader.offset())
    }

    /// Continues after the line of a number that Python may read; returns false if the error has another cause.
    fn resume(&mut self, error: &Error) -> bool {
        self.ends_in_a_name |=
            error.kind == ErrorKind::NoNewline && matches!(error.opcode, Some(Opcode::Global | Opcode::Inst));
        if !matches!(
            error.kind,
            ErrorKind::NotAnInteger
                | ErrorKind::AmbiguousNumber
                | ErrorKind::TooManyDigits { .. }
                | ErrorKind::NotAFloat
        ) {
            return false;
        }
        let start = usize::try_from(error.offset).ok().map(|offset| self.base.saturating_add(offset));
        let line = start.and_then(|start| self.bytes.get(start..)?.iter().position(|byte| *byte == b'\n'));
        let (Some(start), Some(line)) = (start, line) else { return false };
        self.base = start.saturating_add(line).saturating_add(1);
        self.reader = Reader::new(self.bytes.get(self.base..).unwrap_or_default());
        true
    }
}

impl<'p> Iterator for InstructionsAfterError<'p> {
    type Item = Instruction<'p>;

    fn next(&mut self) -> Option<Instruction<'p>> {
        loop {
            let base = self.base as u64;
            match self.reader.next()? {
                Ok(read) => return Some(Instruction { offset: base.saturating_add(read.offset), ..read }),
                Err(error) if self.resume(&error) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Returns true if Python may read the text as an integer, in any base and up to a NUL. For INT, nothing before a NUL is 0.
fn is_integer(line: &[u8]) -> bool {
    if line.starts_with(b"\0") {
        return true;
    }
    let text = until_nul(line).trim_ascii();
    let text = text.strip_suffix(b"L").unwrap_or(text);
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let digits = match digits {
        [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', digits @ ..] => digits,
        digits if digits.iter().all(|digit| digit.is_ascii_digit() || *digit == b'_') => digits,
        _ => return false,
    };
    !digits.is_empty() && digits.iter().all(|digit| digit.is_ascii_hexdigit() || *digit == b'_')
}

fn until_nul(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(pickle: &[u8]) -> bool {
        let error = pickle_vm::load(pickle).expect_err("the machine refuses it");
        python_stops(&error, pickle)
    }

    #[test]
    fn python_reads_on_where_the_machine_does_not() {
        let cases: [&[u8]; 10] = [
            b"I0x10\n0N.",
            b"I7\0\n0N.",
            b"L0b1L\n0N.",
            b"F1\0\n0N.",
            b"](K\x01K\x02eK\0K\x05s0N.",
            b"\x96\x01\0\0\0\0\0\0\0a\x980N.",
            b"])b0N.",
            b"]N}\x86b0N.",
            b"Np18446744073709551616\n0N.",
            b"(ios\nsystem",
        ];
        for pickle in cases {
            assert!(!stops(pickle), "{}", pickle.escape_ascii());
        }
    }

    #[test]
    fn python_stops_where_bytes_are_not_a_pickle() {
        let cases: [&[u8]; 12] = [
            b"\0\0",
            b"",
            b"It is\n",
            b"Learn\n",
            b"For all\n",
            b"Some text\n",
            b"}K\x01a.",
            b"NK\x01K\x02s.",
            b"K\x01K\x02\x93.",
            b"h\x07.",
            b"0.",
            b"class",
        ];
        for bytes in cases {
            assert!(stops(bytes), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn integers_are_those_of_any_base() {
        for text in ["0", "-12", "+1_000", "0x1f", "0O17", "0b1", "7L", " 7 ", "7\0x", "\0", "\u{0}1"] {
            assert!(is_integer(text.as_bytes()), "{text:?}");
        }
        for text in ["", "-", "L", "0x", "a", "1a", "1 2", "0xg", "0x.", "1.5"] {
            assert!(!is_integer(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn what_is_added_to_a_set_is_hashed_and_a_buffer_is_one() {
        assert!(stops(b"N(K\x01\x90."), "only a set has `update`");
        assert!(stops(b"N\x98."), "None is not a buffer");
        assert!(!stops(b"cm\nn\n)R\x980N."), "an object of a class may be one");
    }

    #[test]
    fn reading_goes_on_after_numbers_of_other_forms() {
        let pickle = b"NI0x10\n0I0x11\n0cm\nn\n.";
        let error = pickle_vm::load(pickle).expect_err("the machine reads decimals");
        let mut reader = Reader::new(pickle);
        let _ = reader.by_ref().find(Result::is_err);
        let mut after = InstructionsAfterError::new(pickle, reader, &error);
        assert_eq!(after.offset(), 7);
        let found: Vec<_> = after.by_ref().map(|read| (read.offset, read.opcode)).collect();
        let expected = [(7, Opcode::Pop), (14, Opcode::Pop), (15, Opcode::Global), (20, Opcode::Stop)];
        assert_eq!(found, expected);
        assert!(!after.ends_in_a_name);
        let names = |pickle: &'static [u8]| {
            let error = pickle_vm::load(pickle).expect_err("it is cut short");
            let mut reader = Reader::new(pickle);
            let _ = reader.by_ref().find(Result::is_err);
            let mut after = InstructionsAfterError::new(pickle, reader, &error);
            after.by_ref().for_each(drop);
            after.ends_in_a_name
        };
        assert!(names(b"cos\nsystem") && names(b"(ios\nsystem") && names(b"I0x1\ncos\nsystem"));
        assert!(!names(b"Vtext") && !names(b"X\x09\0\0\0"));
    }
}
