//! Errors of reading a source and of writing to a sink.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::{Cancelled, ErrorKind, FileChanged};

/// Error of a [`Blob`](crate::Blob), a [`Sink`](crate::Sink), or a reader of windows.
///
/// Traits of the standard library return an [`io::Error`]. The conversion of a `ReadError` to an [`io::Error`] and back
/// is lossless.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system cannot read a source, or a sink fails.
    #[error(transparent)]
    Io(io::Error),
    /// A file of this machine cannot be opened or mapped.
    #[error(transparent)]
    NotOpened(#[from] crate::Error),
    /// A file changed after it was opened.
    #[error(transparent)]
    Changed(#[from] FileChanged),
    /// The bytes of a record do not match its checksum.
    #[error(transparent)]
    Damaged(#[from] RecordDamaged),
    /// The requested dtype has no value for a number.
    #[error(transparent)]
    NotRepresentable(#[from] NotRepresentable),
    /// The caller cancelled the operation.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl ReadError {
    /// Returns the error's kind for callers.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => error.into(),
            Self::NotOpened(error) => error.kind(),
            Self::Changed(_) => ErrorKind::Changed,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::NotRepresentable(_) => ErrorKind::Option,
            Self::Cancelled(_) => ErrorKind::Cancelled,
        }
    }
}

impl ReadError {
    /// Adds the name of a tensor to a [`RecordDamaged`] error without a tensor name.
    #[must_use]
    pub fn with_tensor(self, name: &str) -> Self {
        match self {
            Self::Damaged(damaged @ RecordDamaged { tensor: None, .. }) => {
                Self::Damaged(RecordDamaged { tensor: Some(name.to_owned()), ..damaged })
            }
            error => error,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }
}

impl From<io::ErrorKind> for ReadError {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Io(kind.into())
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            // The kind is not `Interrupted`, because the standard library retries interrupted calls.
            error => Self::other(error),
        }
    }
}

/// Error of a record whose bytes do not match the CRC-32 in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordDamaged {
    pub file: PathBuf,
    /// Name of the record in the file.
    pub record: String,
    /// CRC-32 according to the file.
    pub expected: u32,
    /// CRC-32 of the bytes.
    pub found: u32,
    /// Name of a tensor stored in the record, if a caller added it.
    pub tensor: Option<String>,
}

impl std::error::Error for RecordDamaged {}

impl fmt::Display for RecordDamaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, expected, found, tensor, .. } = self;
        if let Some(tensor) = tensor {
            write!(f, "tensor `{}`: ", tensor.escape_debug())?;
        }
        let name = self.file.file_name().unwrap_or(self.file.as_os_str()).display();
        let record = record.escape_debug();
        write!(f, "record `{record}` is damaged: its CRC-32 is {found:08x}, {name} records {expected:08x}")
    }
}

/// Error of a number that the requested dtype cannot represent, such as a float outside the range of an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRepresentable {
    /// Name of a tensor that contains the number.
    pub tensor: String,
    /// Name of the tensor's dtype.
    pub from: &'static str,
    /// Name of the requested dtype.
    pub to: &'static str,
    pub number: String,
}

impl std::error::Error for NotRepresentable {}

impl fmt::Display for NotRepresentable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, from, to, number } = self;
        write!(f, "tensor `{}`: {number} ({from}) is not in the range of {to}", tensor.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_passes_through_the_standard_library() {
        let damaged = RecordDamaged {
            file: PathBuf::from("/a/b.pth"),
            record: "b/data/0".to_owned(),
            expected: 1,
            found: 0xabc,
            tensor: None,
        };
        let through = io::Error::from(ReadError::from(damaged.clone()).with_tensor("w"));
        let text = "tensor `w`: record `b/data/0` is damaged: its CRC-32 is 00000abc, b.pth records 00000001";
        assert_eq!(through.to_string(), text);
        let ReadError::Damaged(back) = ReadError::from(through).with_tensor("other") else {
            panic!("it was damage")
        };
        assert_eq!(back, RecordDamaged { tensor: Some("w".to_owned()), ..damaged });
        assert!(matches!(ReadError::from(io::Error::other("disk")), ReadError::Io(_)));
        let stopped = io::Error::from(ReadError::from(Cancelled));
        assert_ne!(stopped.kind(), io::ErrorKind::Interrupted);
        assert!(matches!(ReadError::from(stopped), ReadError::Cancelled(Cancelled)));
    }

    #[test]
    fn a_number_without_a_value_is_named() {
        let error = NotRepresentable {
            tensor: "a\tb".to_owned(),
            from: "float32",
            to: "int8",
            number: "300.0".to_owned(),
        };
        assert_eq!(error.to_string(), r"tensor `a\tb`: 300.0 (float32) is not in the range of int8");
        assert_eq!(ReadError::from(error).kind(), ErrorKind::Option);
    }
}
