//! Listing of the instructions, byte for byte as `python3 -m pickletools` prints it.
//!
//! Source: `dis` in CPython's `Lib/pickletools.py` (3.11), including its checks of stack, marks and memo.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::listing_writer::ListingWriter;
use super::options::TraceError;
use super::repr;
use crate::error::{ErrorKind, Result};
use crate::integer::MAX_DIGITS;
use crate::literal;
use crate::memo::Memo;
use crate::object::ObjectId;
use crate::opcode::{Opcode, StackItem};
use crate::reader::{Arg, Instruction, Reader};

/// Lists the pickle at the start of `bytes`, as `python3 -m pickletools` does.
///
/// The set of escaped non-ASCII characters may differ, and lines are indented for at most 64 open marks. Memory is
/// proportional to the number of open marks and memo keys.
///
/// ```
/// let mut out = Vec::new();
/// pickle_vm::trace::dis(b"\x80\x02K\x01.", &mut out)?;
/// let expected = "    0: \\x80 PROTO      2\n    2: K    BININT1    1\n    4: .    STOP\n\
///                 highest protocol among opcodes = 2\n";
/// assert_eq!(out, expected.as_bytes());
/// # Ok::<(), pickle_vm::trace::TraceError>(())
/// ```
///
/// # Errors
///
/// Returns an error where pickletools raises: for instructions that cannot be decoded, and, after their line, for
/// instructions that do not fit the stack or the memo. Also returns an error if a line cannot be written.
pub fn dis(bytes: &[u8], out: &mut dyn std::io::Write) -> Result<(), TraceError> {
    let mut out = ListingWriter::new(out);
    let result = write_instructions(bytes, &mut out);
    out.finish()?;
    result
}

fn write_instructions(bytes: &[u8], out: &mut ListingWriter<'_>) -> Result<(), TraceError> {
    let mut state = StackTracker::default();
    let mut highest = 0;
    let mut stop = (0, Opcode::Stop);
    for instruction in Reader::new(bytes) {
        let instruction = instruction?;
        stop = (instruction.offset, instruction.opcode);
        highest = highest.max(instruction.opcode.info().proto);
        state.line(&instruction, out)?;
    }
    out.write(|out| writeln!(out, "highest protocol among opcodes = {highest}"))?;
    match state.height {
        0 => Ok(()),
        left => Err(ErrorKind::StackNotEmpty(left).at(stop.0, stop.1).into()),
    }
}

/// Stack and memo state that pickletools tracks: the height of the stack, the positions of marks, and the used memo
/// keys.
#[derive(Default)]
struct StackTracker {
    /// Number of stack items, including marks.
    height: u64,
    /// Height of the stack below each mark.
    marks: Vec<u64>,
    /// Byte offset of each MARK. Longer than `marks` if an opcode popped a mark as an object.
    mark_offsets: Vec<u64>,
    keys: ListedKeys,
}

impl StackTracker {
    fn line(&mut self, instruction: &Instruction<'_>, out: &mut ListingWriter<'_>) -> Result<(), TraceError> {
        let Instruction { offset, opcode, ref arg } = *instruction;
        let info = opcode.info();
        let fail = |kind: ErrorKind| TraceError::Pickle(kind.at(offset, opcode));
        // An argument that cannot be printed is an error before its line, as in pickletools.
        let arg = printed_arg(opcode, arg).map_err(fail)?;
        let depth = self.mark_offsets.len();
        let mut problem = None;
        let mut pops = info.before.len() as u64;
        let mut mark = None;

        let needs_mark = info.before.iter().position(|item| *item == StackItem::Mark);
        if needs_mark.is_some() || opcode == Opcode::Pop && self.top_is_mark() {
            pops = needs_mark.unwrap_or(0) as u64;
            let start = self.mark_offsets.pop();
            mark = Some(start);
            if start.is_some() {
                // pickletools itself fails here and prints nothing.
                self.height = self.marks.pop().ok_or_else(|| fail(ErrorKind::NoMark))?;
            } else {
                problem = Some(ErrorKind::NoMark);
            }
        }
        let mut memoized = None;
        match opcode {
            Opcode::Put | Opcode::BinPut | Opcode::LongBinPut | Opcode::Memoize => {
                let key = match opcode {
                    Opcode::Memoize => ListedKey::Small(self.keys.len()),
                    _ => ListedKey::from_arg(&instruction.arg),
                };
                memoized = (opcode == Opcode::Memoize).then(|| self.keys.len());
                if self.keys.contains(&key) {
                    problem = Some(ErrorKind::MemoRedefined(key.number()));
                } else if self.height == 0 {
                    problem = Some(ErrorKind::StackUnderflow);
                } else if self.top_is_mark() {
                    problem = Some(ErrorKind::MemoMark);
                } else {
                    self.keys.insert(key);
                }
            }
            Opcode::Get | Opcode::BinGet | Opcode::LongBinGet => {
                let key = ListedKey::from_arg(&instruction.arg);
                if !self.keys.contains(&key) {
                    problem = Some(ErrorKind::MemoMissing(key.number()));
                }
            }
            _ => {}
        }

        out.write(|out| {
            write!(out, "{offset:5}: {:4} ", OpcodeByte(opcode))?;
            indent(out, depth)?;
            out.write_str(info.name)?;
            if !matches!(arg, PrintedArg::Nothing) || mark.is_some() || memoized.is_some() {
                write!(out, "{:1$}", "", 10_usize.saturating_sub(info.name.len()))?;
            }
            arg.write(out)?;
            match (mark, memoized) {
                (Some(Some(start)), _) => write!(out, " (MARK at {start})")?,
                (Some(None), _) => out.write_str(" no MARK exists on stack")?,
                (None, Some(key)) => write!(out, " (as {key})")?,
                (None, None) => {}
            }
            out.write_char('\n')
        })?;
        if let Some(problem) = problem {
            return Err(fail(problem));
        }
        self.height = self.height.checked_sub(pops).ok_or_else(|| fail(ErrorKind::StackUnderflow))?;
        while self.marks.last().is_some_and(|&mark| mark >= self.height) {
            self.marks.pop();
        }
        if opcode == Opcode::Mark {
            self.marks.push(self.height);
            self.mark_offsets.push(offset);
        }
        let pushes = info.after.len() as u64;
        self.height = self.height.saturating_add(pushes);
        Ok(())
    }

    fn top_is_mark(&self) -> bool {
        self.marks.last().is_some_and(|&mark| mark.checked_add(1) == Some(self.height))
    }
}

/// Maximum indentation, in marks: without a limit, a megabyte of MARKs would be indented by terabytes of spaces.
const INDENT_MAX: usize = 64;

/// Byte of an opcode, formatted like Python's `repr`.
struct OpcodeByte(Opcode);

impl fmt::Display for OpcodeByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.code() {
            byte @ b'!'..=b'~' => f.pad(char::from(byte).encode_utf8(&mut [0; 4])),
            byte => write!(f, "\\x{byte:02x}"),
        }
    }
}

/// Indents a line as pickletools does, up to [`INDENT_MAX`].
fn indent(out: &mut dyn Write, depth: usize) -> fmt::Result {
    (0..depth.min(INDENT_MAX)).try_for_each(|_| out.write_str("    "))
}

/// An argument in the form that pickletools prints.
enum PrintedArg<'a> {
    Nothing,
    Arg(&'a Arg<'a>),
    Decimal(String),
    /// Text that pickletools unescapes and the machine does not.
    Latin1(std::borrow::Cow<'a, [u8]>),
    ByteArray(&'a [u8]),
}

fn printed_arg<'a>(opcode: Opcode, arg: &'a Arg<'a>) -> Result<PrintedArg<'a>, ErrorKind> {
    let ascii = |text: std::borrow::Cow<'a, [u8]>| {
        if text.is_ascii() { Ok(PrintedArg::Latin1(text)) } else { Err(ErrorKind::NotAscii) }
    };
    Ok(match arg {
        Arg::None => PrintedArg::Nothing,
        Arg::Long(long) => {
            PrintedArg::Decimal(long.to_decimal().ok_or(ErrorKind::TooManyDigits { max: MAX_DIGITS })?)
        }
        Arg::Bytes(bytes) if opcode == Opcode::ByteArray8 => PrintedArg::ByteArray(bytes),
        Arg::String(bytes) if opcode == Opcode::String && !bytes.is_ascii() => {
            return Err(ErrorKind::NotAscii);
        }
        Arg::Text(text) if opcode == Opcode::PersId => return ascii(literal::decode_escapes(text.bytes())?),
        Arg::Global { module, name } => {
            let mut both = literal::decode_escapes(module.as_bytes())?.into_owned();
            both.push(b' ');
            both.extend_from_slice(&literal::decode_escapes(name.as_bytes())?);
            return ascii(both.into());
        }
        arg => PrintedArg::Arg(arg),
    })
}

impl PrintedArg<'_> {
    fn write(&self, out: &mut dyn Write) -> fmt::Result {
        if matches!(self, PrintedArg::Nothing) {
            return Ok(());
        }
        out.write_char(' ')?;
        match self {
            PrintedArg::Decimal(digits) => out.write_str(digits),
            PrintedArg::Latin1(text) => repr::latin1(out, text, usize::MAX),
            PrintedArg::ByteArray(bytes) => repr::bytearray(out, bytes, usize::MAX),
            PrintedArg::Arg(Arg::Bool(value)) => out.write_str(if *value { "True" } else { "False" }),
            PrintedArg::Arg(Arg::Int(value)) => write!(out, "{value}"),
            PrintedArg::Arg(Arg::FrameLength(length)) => write!(out, "{length}"),
            PrintedArg::Arg(Arg::Float(value)) => repr::float(out, *value),
            PrintedArg::Arg(Arg::Text(text)) => repr::text(out, text, usize::MAX),
            PrintedArg::Arg(Arg::String(bytes)) => repr::latin1(out, bytes, usize::MAX),
            PrintedArg::Arg(Arg::Bytes(bytes)) => repr::bytes(out, bytes, usize::MAX),
            PrintedArg::Nothing | PrintedArg::Arg(Arg::None | Arg::Long(_) | Arg::Global { .. }) => Ok(()),
        }
    }
}

/// A memo key, which is any integer in PUT.
enum ListedKey {
    Small(u64),
    Other(Vec<u8>),
}

impl ListedKey {
    fn from_arg(arg: &Arg<'_>) -> ListedKey {
        match arg {
            Arg::Int(key) => match u64::try_from(*key) {
                Ok(key) => ListedKey::Small(key),
                Err(_) => ListedKey::Other(key.to_le_bytes().to_vec()),
            },
            Arg::Bool(key) => ListedKey::Small(u64::from(*key)),
            Arg::Long(key) => ListedKey::Other(key.bytes().to_vec()),
            _ => ListedKey::Other(Vec::new()),
        }
    }

    /// Returns the key for an error message, clamped to the range of `i64`.
    fn number(&self) -> i64 {
        match self {
            ListedKey::Small(key) => i64::try_from(*key).unwrap_or(i64::MAX),
            ListedKey::Other(bytes) => match <[u8; 8]>::try_from(bytes.as_slice()) {
                Ok(bytes) => i64::from_le_bytes(bytes),
                Err(_) if bytes.last().is_some_and(|byte| byte & 0x80 != 0) => i64::MIN,
                Err(_) => i64::MAX,
            },
        }
    }
}

#[derive(Default)]
struct ListedKeys {
    small: Memo,
    others: BTreeSet<Vec<u8>>,
}

impl ListedKeys {
    fn len(&self) -> u64 {
        self.small.len().saturating_add(self.others.len()) as u64
    }

    fn contains(&self, key: &ListedKey) -> bool {
        match key {
            ListedKey::Small(key) => self.small.get(*key).is_some(),
            ListedKey::Other(key) => self.others.contains(key),
        }
    }

    fn insert(&mut self, key: ListedKey) {
        match key {
            // Only the keys are used, so all entries have the same object.
            ListedKey::Small(key) => self.small.put(key, ObjectId(0)),
            ListedKey::Other(key) => {
                self.others.insert(key);
            }
        }
    }
}
