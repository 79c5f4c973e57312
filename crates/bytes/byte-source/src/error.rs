//! The error of all crates: what is wrong, and where.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::{ErrorKind, FileError};

/// Result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong. Each crate has an enum of its own problems, whose texts are complete without the [`Place`].
///
/// [`details!`](crate::details) implements it. A crate that passes on problems of other crates returns an [`Error`], into
/// which `?` converts any detail; one that does not returns its own enum.
pub trait Detail: StdError + Any + Send + Sync {
    /// Returns the kind of error, which tells the caller how to react.
    fn kind(&self) -> ErrorKind;

    /// Returns the name of the problem, which begins with that of its crate, such as `zip-format::NoEnd`.
    fn code(&self) -> &'static str;

    /// Returns the place that the text names itself.
    fn place(&self) -> Place {
        Place::default()
    }
}

/// Where an error is, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// File or folder.
    pub path: Option<PathBuf>,
    /// Name of a record of the file.
    pub record: Option<String>,
    /// Name of a tensor.
    pub tensor: Option<String>,
    /// Offset of an instruction in a pickle, in bytes.
    pub offset: Option<u64>,
}

impl Place {
    /// Creates the place of a file or folder.
    pub fn file(path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..Self::default() }
    }

    /// Creates the place of a tensor.
    pub fn tensor(name: &str) -> Self {
        Self { tensor: Some(name.to_owned()), ..Self::default() }
    }

    /// Creates the place of an instruction.
    pub fn offset(offset: u64) -> Self {
        Self { offset: Some(offset), ..Self::default() }
    }

    /// Returns the place with what `other` knows more.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            path: self.path.or(other.path),
            record: self.record.or(other.record),
            tensor: self.tensor.or(other.tensor),
            offset: self.offset.or(other.offset),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        if let Some(record) = &self.record {
            write!(f, "`{}`: ", record.escape_debug())?;
        }
        match &self.tensor {
            Some(tensor) => write!(f, "tensor `{}`: ", tensor.escape_debug()),
            None => Ok(()),
        }
    }
}

/// Error of any crate: a [`Detail`], and the [`Place`] that the callers of the crate added.
///
/// Traits of the standard library return an [`io::Error`]. The conversion to an [`io::Error`] and back is lossless.
#[derive(Debug)]
pub struct Error(Box<Located>);

#[derive(Debug)]
struct Located {
    place: Place,
    detail: Box<dyn Detail>,
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        self.0.detail.kind()
    }

    /// Returns the name of the problem.
    pub fn code(&self) -> &'static str {
        self.0.detail.code()
    }

    /// Returns true if the caller cancelled the operation.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Returns the problem, if it is one of `D`.
    pub fn detail<D: Detail>(&self) -> Option<&D> {
        (&*self.0.detail as &dyn Any).downcast_ref()
    }

    /// Returns the problem alone if it is one of `D`, else the error.
    ///
    /// # Errors
    /// Returns this error if the problem is another one.
    pub fn downcast<D: Detail>(self) -> Result<D> {
        if self.detail::<D>().is_none() {
            return Err(self);
        }
        let detail: Box<dyn Any> = self.0.detail;
        Ok(*detail.downcast().expect("it is one of `D`"))
    }

    /// Returns the kind of the system's error, if the system failed.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.detail().map(|System(error)| error.kind())
    }

    /// Returns where the error is.
    pub fn location(&self) -> Place {
        self.0.place.clone().or(self.0.detail.place())
    }

    /// Adds the file or folder, unless the error names one. The path of a document whose name the text begins with replaces it.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        self.within(Place::file(path))
    }

    /// Puts the file that the error names by its path in a folder into this folder. An error that names no file is about the folder.
    #[must_use]
    pub fn in_folder(mut self, folder: &Path) -> Self {
        match &mut self.0.place.path {
            Some(path) if !path.starts_with(folder) => *path = folder.join(&*path),
            Some(_) => {}
            None => return self.in_file(folder),
        }
        self
    }

    /// Adds the record of the file, unless the error names one.
    #[must_use]
    pub fn in_record(self, name: &str) -> Self {
        self.within(Place { record: Some(name.to_owned()), ..Place::default() })
    }

    /// Adds the tensor, unless the error names one.
    #[must_use]
    pub fn in_tensor(self, name: &str) -> Self {
        self.within(Place::tensor(name))
    }

    fn within(mut self, place: Place) -> Self {
        // What is read is not the place of an output.
        if matches!(self.detail(), Some(FileError::Write { .. } | FileError::Output { .. })) {
            return self;
        }
        let known = self.location();
        let own = std::mem::take(&mut self.0.place);
        let is_document = |path: &Path| {
            known.path.as_deref().is_some_and(|named| path.file_name() == Some(named.as_os_str()))
        };
        let path = place.path.filter(|path| known.path.is_none() || is_document(path));
        self.0.place = own.or(Place {
            path,
            record: place.record.filter(|_| known.record.is_none()),
            tensor: place.tensor.filter(|_| known.tensor.is_none()),
            offset: None,
        });
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The caller cancels all of an operation, wherever it is.
        let Located { place, detail } = &*self.0;
        if self.is_cancelled() {
            return detail.fmt(f);
        }
        if let (Some(path), Some(document)) = (&place.path, detail.place().path) {
            let text = detail.to_string();
            return write!(
                f,
                "{}{}",
                path.display(),
                text.strip_prefix(&*document.to_string_lossy()).unwrap_or(&text)
            );
        }
        place.fmt(f)?;
        detail.fmt(f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.detail.source()
    }
}

impl<D: Detail> From<D> for Error {
    fn from(detail: D) -> Self {
        Self(Box::new(Located { place: Place::default(), detail: Box::new(detail) }))
    }
}

/// Error of the system.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct System(io::Error);

impl Detail for System {
    fn kind(&self) -> ErrorKind {
        (&self.0).into()
    }

    fn code(&self) -> &'static str {
        "byte-source::System"
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(|error| System(error).into())
    }
}

impl From<io::ErrorKind> for Error {
    fn from(kind: io::ErrorKind) -> Self {
        io::Error::from(kind).into()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        // The kind is not `Interrupted`, because the standard library retries interrupted calls.
        if error.0.place == Place::default() { error.downcast() } else { Err(error) }
            .map_or_else(Self::other, |System(error)| error)
    }
}

/// Implements [`Detail`] for an enum. Lists the variants of each [`ErrorKind`]. Variants after `[field]`, such as `[0]`, have the
/// kind of the error in that field; those after `{function => field}` have the kind that the function finds. A function after `=>`
/// returns the place that the text names. `CODES` of the enum lists the codes.
#[macro_export]
macro_rules! details {
    ($type:ty $(=> $place:path)? {
        $($kind:ident: $($variant:ident),+;)*
        $([$field:tt]: $($carrier:ident),+;)*
        $({$of:path => $named:ident}: $($other:ident),+;)*
    }) => {
        impl $type {
            /// Codes of the problems.
            pub const CODES: &'static [&'static str] = &[
                $($(concat!(env!("CARGO_PKG_NAME"), "::", stringify!($variant)),)+)*
                $($(concat!(env!("CARGO_PKG_NAME"), "::", stringify!($carrier)),)+)*
                $($(concat!(env!("CARGO_PKG_NAME"), "::", stringify!($other)),)+)*
            ];
        }

        impl $crate::Detail for $type {
            fn kind(&self) -> $crate::ErrorKind {
                match self {
                    $($(Self::$variant { .. })|+ => $crate::ErrorKind::$kind,)*
                    $($(Self::$carrier { $field: cause, .. } => $crate::ErrorKind::from(cause),)+)*
                    $($(Self::$other { $named, .. } => $of($named),)+)*
                }
            }

            fn code(&self) -> &'static str {
                match self {
                    $($(Self::$variant { .. } => {
                        concat!(env!("CARGO_PKG_NAME"), "::", stringify!($variant))
                    })+)*
                    $($(Self::$carrier { .. } => {
                        concat!(env!("CARGO_PKG_NAME"), "::", stringify!($carrier))
                    })+)*
                    $($(Self::$other { .. } => {
                        concat!(env!("CARGO_PKG_NAME"), "::", stringify!($other))
                    })+)*
                }
            }

            $(fn place(&self) -> $crate::Place {
                $place(self)
            })?
        }
    };
}

/// Implements [`Detail`] for a struct.
macro_rules! detail {
    ($type:ident is $kind:ident $(, $place:expr)?) => {
        impl $type {
            /// Code of the problem.
            pub const CODES: &'static [&'static str] = &[concat!("byte-source::", stringify!($type))];
        }

        impl $crate::Detail for $type {
            fn kind(&self) -> $crate::ErrorKind {
                $crate::ErrorKind::$kind
            }

            fn code(&self) -> &'static str {
                concat!("byte-source::", stringify!($type))
            }

            $(fn place(&self) -> $crate::Place {
                let place: fn(&Self) -> $crate::Place = $place;
                place(self)
            })?
        }
    };
}
pub(crate) use detail;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cancelled, NotRepresentable, RecordDamaged};

    #[test]
    fn an_error_passes_through_the_standard_library() {
        let damaged = RecordDamaged { record: "b/data/0".to_owned(), expected: 1, found: 0xabc };
        let error = Error::from(damaged.clone()).in_file(Path::new("/a/b.pth")).in_tensor("w");
        let through = io::Error::from(error);
        let text = "/a/b.pth: tensor `w`: record `b/data/0` is damaged: its CRC-32 is 00000abc, the archive records 00000001";
        assert_eq!(through.to_string(), text);
        let back = Error::from(through).in_tensor("other").in_file(Path::new("c"));
        assert_eq!((back.detail(), back.to_string()), (Some(&damaged), text.to_owned()));
        assert_eq!(back.code(), "byte-source::RecordDamaged");
        assert!(
            io::Error::from(Error::from(io::Error::other("disk")))
                .get_ref()
                .is_some_and(|e| !e.is::<Error>())
        );
        let stopped = io::Error::from(Error::from(Cancelled).in_tensor("w"));
        assert_ne!(stopped.kind(), io::ErrorKind::Interrupted);
        assert!(Error::from(stopped).is_cancelled());
    }

    #[test]
    fn a_place_that_the_text_names_is_not_added() {
        let error = NotRepresentable {
            tensor: "a\tb".to_owned(),
            from: "float32",
            to: "int8",
            number: "300.0".to_owned(),
        };
        let text = r"tensor `a\tb`: 300.0 (float32) is not in the range of int8";
        let error = Error::from(error).in_tensor("c");
        assert_eq!(error.to_string(), text);
        assert_eq!((error.kind(), error.location()), (ErrorKind::Option, Place::tensor("a\tb")));
        assert_eq!(error.in_record("r").to_string(), format!("`r`: {text}"));
    }

    #[test]
    fn a_file_in_a_folder_gets_the_folder() {
        let path = |error: Error| error.in_folder(Path::new("a/b")).location().path.unwrap_or_default();
        assert_eq!(path(Error::from(Cancelled)), Path::new("a/b"));
        assert_eq!(path(Error::from(Cancelled).in_file(Path::new("c/d"))), Path::new("a/b/c/d"));
        assert_eq!(path(Error::from(Cancelled).in_file(Path::new("a/b/c"))), Path::new("a/b/c"));
    }

    #[test]
    fn an_output_is_not_in_what_is_read() {
        let error = FileError::Output { what: "the listing", reason: io::ErrorKind::BrokenPipe.into() };
        let error = Error::from(error).in_tensor("w").in_file(Path::new("a.pth"));
        assert_eq!((error.location(), error.io_kind()), (Place::default(), None));
    }

    #[test]
    fn an_error_is_small() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
