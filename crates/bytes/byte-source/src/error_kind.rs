//! Kinds of errors, common to all crates.

use std::fmt;
use std::io;

use crate::{Detail, Error};

/// Kind of an error. Each crate's error has a `kind`, so that bindings for another language can choose an exception
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is of the wrong type for the call, does not fit the other inputs, or is not allowed by the options.
    Input,
    /// The input is valid, but contains a feature that this version, or the kind of output, does not support.
    Unsupported,
    /// Bytes violate their format, or do not match their checksum.
    Damaged,
    /// A file changed after it was opened.
    Changed,
    /// The observer cancelled the operation.
    Cancelled,
    /// The system or a server failed: a path does not exist, access is denied, or space or memory is exhausted.
    Io,
    /// An option has an invalid value, or no value that fits the input.
    Option,
}

impl ErrorKind {
    /// Returns the kind's name in lower case, such as `damaged`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Unsupported => "unsupported",
            Self::Damaged => "damaged",
            Self::Changed => "changed",
            Self::Cancelled => "cancelled",
            Self::Io => "io",
            Self::Option => "option",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the kind of the [`Error`] inside an I/O error. An I/O error without an [`Error`] is [`ErrorKind::Damaged`] if its kind
/// is `InvalidData`, else [`ErrorKind::Io`].
impl From<&io::Error> for ErrorKind {
    fn from(error: &io::Error) -> Self {
        let carried = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
        let own = if error.kind() == io::ErrorKind::InvalidData { Self::Damaged } else { Self::Io };
        carried.map_or(own, Error::kind)
    }
}

impl From<&Error> for ErrorKind {
    fn from(error: &Error) -> Self {
        error.kind()
    }
}

impl<D: Detail> From<&D> for ErrorKind {
    fn from(detail: &D) -> Self {
        detail.kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancelled;

    #[test]
    fn a_kind_passes_through_the_standard_library() {
        assert_eq!(ErrorKind::from(&io::Error::other("disk")), ErrorKind::Io);
        assert_eq!(ErrorKind::from(&io::Error::from(io::ErrorKind::NotFound)), ErrorKind::Io);
        assert_eq!(ErrorKind::from(&io::Error::from(io::ErrorKind::InvalidData)), ErrorKind::Damaged);
        let stopped = io::Error::from(Error::from(Cancelled));
        assert_eq!(ErrorKind::from(&stopped), ErrorKind::Cancelled);
        assert_eq!(ErrorKind::Cancelled.to_string(), "cancelled");
    }
}
