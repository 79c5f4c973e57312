//! Decoder of bytes into instructions without executing them, like `pickletools.genops`.
//!
//! Source: the argument readers of CPython's `Lib/pickletools.py`; names of globals are UTF-8 as in `Lib/pickle.py`.

use std::iter::FusedIterator;

use crate::error::{Error, ErrorKind, Result};
use crate::integer::{Integer, Long};
use crate::literal;
use crate::opcode::{ArgKind, Opcode};
use crate::value::{ByteString, Text};

/// One instruction of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'p> {
    /// Byte offset of the instruction from the start of the pickle.
    pub offset: u64,
    pub opcode: Opcode,
    pub arg: Arg<'p>,
}

/// The decoded argument of an instruction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Arg<'p> {
    None,
    /// A bool, which INT writes as `00` or `01`.
    Bool(bool),
    /// An integer that fits an `i64`, a memo key, an extension code or a protocol.
    Int(i64),
    /// An integer that does not fit an `i64`.
    Long(Long<'p>),
    Float(f64),
    Text(Text<'p>),
    /// A Python 2 `str`, which is a byte string.
    String(ByteString<'p>),
    /// The bytes of a bytes object or a bytearray.
    Bytes(&'p [u8]),
    /// Module and name of a global.
    Global {
        module: &'p str,
        name: &'p str,
    },
    /// The length of a frame, in bytes.
    FrameLength(u64),
}

/// Iterator over the instructions of one pickle, up to and including STOP.
///
/// ```
/// use pickle_vm::{Opcode, Reader};
///
/// let mut reader = Reader::new(b"\x80\x02K\x07.and more");
/// let opcodes: Vec<Opcode> = reader.by_ref().map(|i| i.map(|i| i.opcode)).collect::<Result<_, _>>()?;
/// assert_eq!(opcodes, [Opcode::Proto, Opcode::BinInt1, Opcode::Stop]);
/// assert_eq!(reader.offset(), 5);
/// # Ok::<(), pickle_vm::Error>(())
/// ```
///
/// Time per instruction is linear in its length. Arguments borrow from the pickle; only protocol 0 text with escapes is
/// copied. The iterator ends after STOP or an error.
#[derive(Clone, Debug)]
pub struct Reader<'p> {
    bytes: &'p [u8],
    position: usize,
    finished: bool,
    /// Offset of the end of the current frame; [`NO_FRAME`] outside of frames.
    frame_end: usize,
    frame_error: Option<Error>,
}

/// End of the current frame where there is none, which no offset reaches.
const NO_FRAME: usize = usize::MAX;

impl<'p> Reader<'p> {
    /// Creates a reader at the first byte. Bytes after STOP are not read.
    pub fn new(bytes: &'p [u8]) -> Self {
        Reader { bytes, position: 0, finished: false, frame_end: NO_FRAME, frame_error: None }
    }

    /// Returns the number of bytes read: the end of the last instruction, or the offset of an error.
    pub fn offset(&self) -> u64 {
        self.position as u64
    }

    /// Returns true if the last instruction is inside a frame that goes on.
    pub fn is_in_frame(&self) -> bool {
        self.frame_end != NO_FRAME
    }

    /// Returns the first instruction at which a frame begins inside another, ends inside the instruction, or goes on after STOP, as an
    /// error. The reader itself only follows the lengths of arguments: for a pickle that is alone, frames are hints.
    pub fn frame_error(&self) -> Option<&Error> {
        self.frame_error.as_ref()
    }

    /// Skips `count` bytes that are not instructions: joblib writes the elements of an array between two instructions.
    /// Returns false, and skips nothing, if fewer bytes are left.
    pub fn skip_bytes(&mut self, count: u64) -> bool {
        let position = usize::try_from(count).ok().and_then(|count| self.position.checked_add(count));
        let position = position.filter(|position| *position <= self.bytes.len());
        self.position = position.unwrap_or(self.position);
        position.is_some()
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "decoded in place, instructions are read twice as fast")]
    fn read(&mut self) -> Result<Instruction<'p>> {
        let offset = self.offset();
        let error = |kind| Error { kind, offset, opcode: None };
        let Some(&byte) = self.bytes.get(self.position) else { return Err(error(ErrorKind::NoStop)) };
        let info = Opcode::info_of_byte(byte).ok_or_else(|| error(ErrorKind::UnknownOpcode(byte)))?;
        let opcode = info.opcode;
        let mut rest = ArgumentReader(self.bytes.get(self.position.saturating_add(1)..).unwrap_or_default());
        let arg = rest.argument(info.arg).map_err(|kind| kind.at(offset, opcode))?;
        self.position = self.bytes.len().saturating_sub(rest.0.len());
        self.finished = opcode == Opcode::Stop;
        if self.position >= self.frame_end || matches!(opcode, Opcode::Stop | Opcode::Frame) {
            self.follow_frame(offset, opcode, &arg);
        }
        Ok(Instruction { offset, opcode, arg })
    }

    /// Begins or ends a frame after an instruction.
    #[cold]
    fn follow_frame(&mut self, offset: u64, opcode: Opcode, arg: &Arg<'_>) {
        let in_frame = self.is_in_frame();
        let fault = match opcode {
            Opcode::Frame if in_frame => Some("begins inside another"),
            Opcode::Stop if self.position < self.frame_end && in_frame => Some("goes on after STOP"),
            _ => (self.position > self.frame_end).then_some("ends inside an instruction"),
        };
        if let Some(fault) = fault
            && self.frame_error.is_none()
        {
            self.frame_error = Some(ErrorKind::Frame(fault).at(offset, opcode));
        }
        self.frame_end = match *arg {
            Arg::FrameLength(len @ 1..) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                self.position.saturating_add(len).min(NO_FRAME.saturating_sub(1))
            }
            _ => NO_FRAME,
        };
    }
}

impl<'p> Iterator for Reader<'p> {
    type Item = Result<Instruction<'p>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let instruction = self.read();
        self.finished |= instruction.is_err();
        Some(instruction)
    }
}

impl FusedIterator for Reader<'_> {}

/// Remaining bytes after an opcode.
struct ArgumentReader<'p>(&'p [u8]);

impl<'p> ArgumentReader<'p> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "decoded in place, instructions are read twice as fast")]
    fn argument(&mut self, kind: ArgKind) -> Result<Arg<'p>, ErrorKind> {
        Ok(match kind {
            ArgKind::None => Arg::None,
            ArgKind::Uint1 => Arg::Int(i64::from(self.number(u8::from_le_bytes)?)),
            ArgKind::Uint2 => Arg::Int(i64::from(self.number(u16::from_le_bytes)?)),
            ArgKind::Int4 => Arg::Int(i64::from(self.number(i32::from_le_bytes)?)),
            ArgKind::Uint4 => Arg::Int(i64::from(self.number(u32::from_le_bytes)?)),
            ArgKind::Uint8 => Arg::FrameLength(self.number(u64::from_le_bytes)?),
            ArgKind::Float8 => Arg::Float(self.number(f64::from_be_bytes)?),
            ArgKind::UnicodeString1 => text(self.counted1()?)?,
            ArgKind::UnicodeString4 => text(self.counted4()?)?,
            ArgKind::UnicodeString8 => text(self.counted8()?)?,
            ArgKind::String1 => Arg::String(self.counted1()?.into()),
            ArgKind::String4 => Arg::String(self.counted4_signed()?.into()),
            ArgKind::Bytes1 => Arg::Bytes(self.counted1()?),
            ArgKind::Bytes4 => Arg::Bytes(self.counted4()?),
            ArgKind::Bytes8 | ArgKind::ByteArray8 => Arg::Bytes(self.counted8()?),
            ArgKind::Long1 => Integer::from_le_bytes(self.counted1()?).into(),
            ArgKind::Long4 => Integer::from_le_bytes(self.counted4_signed()?).into(),
            ArgKind::StringNlNoEscapePair => {
                Arg::Global { module: self.utf8_line()?, name: self.utf8_line()? }
            }
            ArgKind::StringNlNoEscape => Arg::Text(self.utf8_line()?.into()),
            ArgKind::StringNl => Arg::String(literal::unquote(self.line()?)?.into()),
            ArgKind::UnicodeStringNl => {
                let bytes = literal::decode_raw_unicode(self.line()?)?;
                Arg::Text(Text::from_bytes(bytes).ok_or(ErrorKind::NotUtf8)?)
            }
            ArgKind::DecimalNlShort => match self.line()? {
                b"00" => Arg::Bool(false),
                b"01" => Arg::Bool(true),
                line => literal::integer(line)?.into(),
            },
            ArgKind::DecimalNlLong => {
                let line = self.line()?;
                literal::integer(line.strip_suffix(b"L").unwrap_or(line))?.into()
            }
            ArgKind::FloatNl => Arg::Float(literal::float(self.line()?)?),
        })
    }

    fn take(&mut self, length: u64) -> Result<&'p [u8], ErrorKind> {
        let split = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) =
            split.ok_or(ErrorKind::Truncated { needed: length, left: self.0.len() as u64 })?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a number of `N` bytes. It is converted before it is returned, because returning unaligned byte arrays
    /// costs a third of the reader's speed.
    #[inline]
    fn number<const N: usize, T>(&mut self, from_bytes: impl FnOnce([u8; N]) -> T) -> Result<T, ErrorKind> {
        match self.0.split_first_chunk() {
            Some((bytes, rest)) => {
                self.0 = rest;
                Ok(from_bytes(*bytes))
            }
            None => Err(ErrorKind::Truncated { needed: N as u64, left: self.0.len() as u64 }),
        }
    }

    fn counted1(&mut self) -> Result<&'p [u8], ErrorKind> {
        let length = self.number(u8::from_le_bytes)?;
        self.take(u64::from(length))
    }

    fn counted4(&mut self) -> Result<&'p [u8], ErrorKind> {
        let length = self.number(u32::from_le_bytes)?;
        self.take(u64::from(length))
    }

    fn counted4_signed(&mut self) -> Result<&'p [u8], ErrorKind> {
        let length = self.number(i32::from_le_bytes)?;
        self.take(u64::try_from(length).map_err(|_| ErrorKind::NegativeLength(length))?)
    }

    fn counted8(&mut self) -> Result<&'p [u8], ErrorKind> {
        let length = self.number(u64::from_le_bytes)?;
        self.take(length)
    }

    /// Reads the bytes before the next newline, and skips the newline.
    fn line(&mut self) -> Result<&'p [u8], ErrorKind> {
        let end = self.0.iter().position(|&byte| byte == b'\n').ok_or(ErrorKind::NoNewline)?;
        let line = self.0.get(..end).unwrap_or_default();
        self.0 = self.0.get(end.saturating_add(1)..).unwrap_or_default();
        Ok(line)
    }

    fn utf8_line(&mut self) -> Result<&'p str, ErrorKind> {
        std::str::from_utf8(self.line()?).map_err(|_| ErrorKind::NotUtf8)
    }
}

impl<'p> From<Integer<'p>> for Arg<'p> {
    fn from(integer: Integer<'p>) -> Self {
        match integer {
            Integer::Small(value) => Arg::Int(value),
            Integer::Large(value) => Arg::Long(value),
        }
    }
}

fn text(bytes: &[u8]) -> Result<Arg<'_>, ErrorKind> {
    Ok(Arg::Text(Text::from_bytes(bytes.into()).ok_or(ErrorKind::NotUtf8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(bytes: &[u8]) -> Result<Arg<'_>, String> {
        let instruction = Reader::new(bytes).next().expect("a reader starts with an item or an error");
        instruction.map(|instruction| instruction.arg).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_decoded() {
        assert_eq!(first(b"I01\n"), Ok(Arg::Bool(true)));
        assert_eq!(first(b"I-7\n"), Ok(Arg::Int(-7)));
        assert_eq!(first(b"L12L\n"), Ok(Arg::Int(12)));
        assert_eq!(first(b"J\xff\xff\xff\xff"), Ok(Arg::Int(-1)));
        assert_eq!(first(b"j\xff\xff\xff\xff"), Ok(Arg::Int(0xffff_ffff)));
        assert_eq!(first(b"\x8a\x00"), Ok(Arg::Int(0)));
        assert_eq!(first(b"G\xbf\xf4\0\0\0\0\0\0"), Ok(Arg::Float(-1.25)));
        assert_eq!(first(b"ca\nb\n"), Ok(Arg::Global { module: "a", name: "b" }));
        assert_eq!(first(b"X\x01\0\0\0a"), Ok(Arg::Text("a".into())));
        assert_eq!(first(b"U\x01\xff"), Ok(Arg::String((&b"\xff"[..]).into())));
    }

    #[test]
    fn bytes_that_are_not_instructions_are_passed_over() {
        let mut reader = Reader::new(b"N\xff\xff.");
        assert_eq!(reader.next().map(|read| read.map(|read| read.opcode)), Some(Ok(Opcode::None)));
        assert!(!reader.skip_bytes(4) && !reader.skip_bytes(u64::MAX));
        assert!(reader.skip_bytes(2));
        assert_eq!(reader.next().map(|read| read.map(|read| read.offset)), Some(Ok(3)));
    }

    #[test]
    fn frames_that_no_pickler_writes_are_noticed() {
        let error = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            assert!(reader.by_ref().all(|read| read.is_ok()), "the frames are only noticed");
            reader.frame_error().map(ToString::to_string)
        };
        for sound in [
            &b"N."[..],
            b"\x95\x02\0\0\0\0\0\0\0N.",
            b"\x95\x01\0\0\0\0\0\0\0N.",
            b"\x95\0\0\0\0\0\0\0\0\x95\x02\0\0\0\0\0\0\0NN\x95\x02\0\0\0\0\0\0\0N.",
        ] {
            assert_eq!(error(sound), None, "{}", sound.escape_ascii());
        }
        let faults: [(&[u8], &str); 4] = [
            (b"\x95\x03\0\0\0\0\0\0\0N.", "frame goes on after STOP at offset 0xa (STOP)"),
            (b"\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "frame goes on after STOP at offset 0xa (STOP)"),
            (b"\x95\x01\0\0\0\0\0\0\0K\x01.", "frame ends inside an instruction at offset 0x9 (BININT1)"),
            (
                b"\x95\x0b\0\0\0\0\0\0\0\x95\x02\0\0\0\0\0\0\0N.",
                "frame begins inside another at offset 0x9 (FRAME)",
            ),
        ];
        for (pickle, expected) in faults {
            assert_eq!(error(pickle).as_deref(), Some(expected), "{}", pickle.escape_ascii());
        }
    }

    #[test]
    fn errors_name_offset_and_opcode() {
        let error = |bytes| first(bytes).expect_err("these bytes are not an instruction");
        assert_eq!(error(b""), "pickle ends before STOP at offset 0x0");
        assert_eq!(error(b"\xff"), "unknown opcode 0xff at offset 0x0");
        assert_eq!(
            error(b"X\xff\xff\xff\xffabc"),
            "argument needs 4294967295 bytes, 3 are left at offset 0x0 (BINUNICODE)"
        );
        assert_eq!(
            error(b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc"),
            "argument needs 18446744073709551615 bytes, 3 are left at offset 0x0 (BINBYTES8)"
        );
        assert_eq!(error(b"\x8b\xff\xff\xff\xff"), "negative length -1 at offset 0x0 (LONG4)");
        assert_eq!(error(b"I12"), "argument has no newline at offset 0x0 (INT)");
        assert_eq!(error(b"Iten\n"), "argument is not a decimal integer at offset 0x0 (INT)");
        assert_eq!(error(b"Sabc\n"), "string has no quotes around it at offset 0x0 (STRING)");
        assert_eq!(error(b"\x8c\x01\xff"), "text is not UTF-8 at offset 0x0 (SHORT_BINUNICODE)");
    }
}
