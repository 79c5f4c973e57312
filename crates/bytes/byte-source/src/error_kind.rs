//! What an error means for a caller, whatever crate it comes from.

use std::fmt;
use std::io;

use crate::ReadError;

/// What an error means for a caller. Each crate's error has a `kind`, so that a program in another language can choose
/// its own class of exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is not one that the call takes, does not fit the other inputs, or is not allowed by the options.
    Input,
    /// The input is whole, but this version, or the kind of output, does not have something that is in it.
    Unsupported,
    /// Bytes violate their format, or do not match their checksum.
    Damaged,
    /// A file changed after it was opened.
    Changed,
    /// The observer stopped the work.
    Cancelled,
    /// The system or a server refused: a path does not exist, access is denied, or space or memory is missing.
    Io,
    /// An option has a value that it cannot have, or none that fits the input.
    Option,
}

impl ErrorKind {
    /// The kind in lower case, such as `damaged`.
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

/// The kind of the [`ReadError`] that an error of the system carries. Otherwise, bytes that violate their format are damaged,
/// and all else is [`ErrorKind::Io`].
impl From<&io::Error> for ErrorKind {
    fn from(error: &io::Error) -> Self {
        let carried = error.get_ref().and_then(|cause| cause.downcast_ref::<ReadError>());
        let own = if error.kind() == io::ErrorKind::InvalidData { Self::Damaged } else { Self::Io };
        carried.map_or(own, ReadError::kind)
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
        let stopped = io::Error::from(ReadError::from(Cancelled));
        assert_eq!(ErrorKind::from(&stopped), ErrorKind::Cancelled);
    }
}
