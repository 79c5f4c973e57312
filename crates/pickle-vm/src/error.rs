//! Errors of reading and writing a pickle, with their offsets.
//!
//! Source of the kinds: CPython's `Modules/_pickle.c` and `Lib/pickletools.py`.

use std::fmt;

use crate::limits::PickleLimit;
use crate::opcode::Opcode;

/// Result type with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in a pickle, with the offset and the opcode of the instruction at fault.
///
/// The message reads ``stack underflow at offset 0x4 (REDUCE)``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// Byte offset of the instruction at fault from the start of the pickle.
    pub offset: u64,
    /// Opcode of the instruction at fault; `None` if it could not be read.
    pub opcode: Option<Opcode>,
}

/// Kinds of errors in a pickle, or in a value for a [`Writer`](crate::Writer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes end where an opcode is expected.
    #[error("pickle ends before STOP")]
    NoStop,
    /// No opcode has this byte.
    #[error("unknown opcode 0x{0:02x}")]
    UnknownOpcode(u8),
    /// The argument is longer than the remaining bytes.
    #[error("argument needs {needed} bytes, {left} are left")]
    Truncated {
        /// Length of the argument in bytes.
        needed: u64,
        /// Remaining bytes of the pickle.
        left: u64,
    },
    /// A text argument has no newline to end it.
    #[error("argument has no newline")]
    NoNewline,
    /// A frame does not end where the pickle or an instruction ends. The next pickle of a file then begins elsewhere for CPython's C
    /// unpickler, which reads whole frames. No pickler writes such a frame. See [`Reader::frame_error`](crate::Reader::frame_error).
    #[error("frame {0}")]
    Frame(&'static str),
    /// A signed length is negative.
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// A text argument is not a decimal integer as picklers write it.
    #[error("argument is not a decimal integer")]
    NotAnInteger,
    /// A number is one that CPython's two unpicklers read differently, such as `010`.
    #[error("CPython's two unpicklers read the number differently")]
    AmbiguousNumber,
    /// A decimal integer has more digits than CPython reads or prints.
    #[error("integer has more than {max} digits")]
    TooManyDigits {
        /// Maximum number of accepted digits.
        max: usize,
    },
    /// A text argument is not a floating-point literal.
    #[error("argument is not a floating-point number")]
    NotAFloat,
    /// The argument of STRING has no quotes around it.
    #[error("string has no quotes around it")]
    NoQuotes,
    /// A backslash escape is cut short or names no character.
    #[error("bad backslash escape")]
    BadEscape,
    /// Text, or the name of a global, is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A persistent id of PERSID is not ASCII; in listings, any text of protocol 0.
    #[error("text is not ASCII")]
    NotAscii,
    /// An instruction that the caller constructed has an argument of the wrong type for its opcode.
    #[error("argument does not suit the opcode")]
    WrongArgument,
    /// The opcode needs more objects than its frame of the stack has.
    #[error("stack underflow")]
    StackUnderflow,
    /// The opcode needs a mark, and none is on the stack.
    #[error("no mark on the stack")]
    NoMark,
    /// The memo has no entry for this key.
    #[error("memo key {0} has never been stored into")]
    MemoMissing(i64),
    /// A memo key is negative, or 2⁶³ or more.
    #[error("memo key is not in 0..2⁶³")]
    MemoKey,
    /// The last key of a dict has no value.
    #[error("odd number of items")]
    OddItems,
    /// The operand has the wrong type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// Python type that the opcode needs.
        expected: &'static str,
        /// Python type of the operand.
        found: &'static str,
    },
    /// PROTO names a protocol that does not exist.
    #[error("unsupported protocol {0}")]
    UnsupportedProtocol(u8),
    /// An extension code is not positive.
    #[error("extension code {0} is not positive")]
    ExtensionCode(i64),
    /// One of the [`PickleLimits`](crate::PickleLimits) is exceeded.
    #[error("more than {max} {limit}")]
    LimitExceeded {
        limit: PickleLimit,
        /// Value of the exceeded limit.
        max: u64,
    },
    /// Only listings: a memo key is stored into twice.
    #[error("memo key {0} already defined")]
    MemoRedefined(i64),
    /// A mark would be stored into the memo; only listings report it.
    #[error("cannot store the mark in the memo")]
    MemoMark,
    /// Only listings: objects are left after STOP.
    #[error("stack not empty after STOP: {0} left")]
    StackNotEmpty(u64),
    /// Only writing: text or the name of a global is longer than its length field can hold.
    #[error("{0} bytes do not fit a four-byte length")]
    TooLong(u64),
    /// Only writing: the name of a global contains a newline.
    #[error("global name holds a newline")]
    NewlineInName,
    /// Only writing: the memo has no unused key left.
    #[error("memo is full")]
    MemoFull,
}

impl ErrorKind {
    /// Returns true if the pickle may be valid but is not supported by this machine or the writer. Otherwise the pickle
    /// is damaged.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::UnsupportedProtocol(_)
            | Self::ExtensionCode(_)
            | Self::LimitExceeded { .. }
            | Self::TooLong(_)
            | Self::NewlineInName
            | Self::MemoFull => true,
            Self::NoStop
            | Self::UnknownOpcode(_)
            | Self::Truncated { .. }
            | Self::NoNewline
            | Self::Frame(_)
            | Self::NegativeLength(_)
            | Self::NotAnInteger
            | Self::AmbiguousNumber
            | Self::TooManyDigits { .. }
            | Self::NotAFloat
            | Self::NoQuotes
            | Self::BadEscape
            | Self::NotUtf8
            | Self::NotAscii
            | Self::WrongArgument
            | Self::StackUnderflow
            | Self::NoMark
            | Self::MemoMissing(_)
            | Self::MemoKey
            | Self::OddItems
            | Self::WrongType { .. }
            | Self::MemoRedefined(_)
            | Self::MemoMark
            | Self::StackNotEmpty(_) => false,
        }
    }
}

impl ErrorKind {
    pub(crate) fn at(self, offset: u64, opcode: Opcode) -> Error {
        Error { kind: self, offset, opcode: Some(opcode) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset 0x{:x}", self.kind, self.offset)?;
        match self.opcode {
            Some(opcode) => write!(f, " ({opcode})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
