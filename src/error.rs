//! Error type of every call of the library, with its kind.

use std::path::PathBuf;

use byte_source::{ErrorKind, ReadError, RecordDamaged};

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for the failure of a call. The text contains the causes.
///
/// A caller that needs more than [`kind`](Self::kind) matches the variants, whose types are in [`crates`](crate::crates).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint or carton that cannot be opened.
    #[error(transparent)]
    Open(Box<open::Error>),
    /// A checkpoint that cannot be converted.
    #[error(transparent)]
    Convert(Box<convert::Error>),
    /// A checkpoint that cannot be inspected, scanned, traced or compared.
    #[error(transparent)]
    Inspect(Box<inspect::Error>),
    /// A carton that cannot be read or written.
    #[error(transparent)]
    Carton(Box<carton_tools::Error>),
    /// A carton that cannot run.
    #[error(transparent)]
    Run(Box<runtime::Error>),
    /// A text that cannot be tokenized or continued.
    #[error(transparent)]
    Text(Box<generate::Error>),
    /// A shape and stride that do not fit their storage.
    #[error(transparent)]
    Tensor(Box<tensor::Error>),
    /// Tensor elements that cannot be read.
    #[error(transparent)]
    Read(Box<ReadError>),
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Open(error) => error.kind(),
            Self::Convert(error) => error.kind(),
            Self::Inspect(error) => error.kind(),
            Self::Carton(error) => error.kind(),
            Self::Run(error) => error.kind(),
            Self::Text(error) => error.kind(),
            Self::Tensor(_) => ErrorKind::Input,
            Self::Read(error) => error.kind(),
        }
    }
}

/// The thing that an [`Error`] is about, as far as the error names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorLocation {
    /// File or folder.
    pub path: Option<PathBuf>,
    /// Name of a tensor.
    pub tensor: Option<String>,
    /// Offset of an instruction in the pickle, in bytes.
    pub offset: Option<u64>,
}

impl Error {
    /// Returns the file, the tensor and the offset that the error is about.
    pub fn location(&self) -> ErrorLocation {
        let mut found = ErrorLocation::default();
        match self {
            Self::Open(error) => found.add_open(error),
            Self::Convert(error) => found.add_convert(error),
            Self::Inspect(error) => found.add_inspect(error),
            Self::Carton(error) => found.add_carton(error),
            Self::Run(error) => {
                if let runtime::Error::Carton { path, .. } | runtime::Error::CartonModel { path, .. } =
                    &**error
                {
                    found.path = Some(path.clone());
                }
            }
            Self::Read(error) => found.add_read(error),
            Self::Text(_) | Self::Tensor(_) => {}
        }
        found
    }
}

impl ErrorLocation {
    fn add_convert(&mut self, error: &convert::Error) {
        use convert::Error as E;
        match error {
            E::AtPath { path, reason } => {
                self.path.get_or_insert_with(|| path.clone());
                self.add_convert(reason);
            }
            E::Open(error) => self.add_open(error),
            E::Write { path, .. } | E::CreateFolder { path, .. } | E::Read { path, .. } => {
                self.path.get_or_insert_with(|| path.clone());
            }
            E::Checkpoint(error) => self.add_import(error),
            _ => {}
        }
    }

    fn add_inspect(&mut self, error: &inspect::Error) {
        use inspect::Error as E;
        match error {
            E::AtPath { path, reason } => {
                self.path.get_or_insert_with(|| path.clone());
                self.add_inspect(reason);
            }
            E::Open(error) => self.add_open(error),
            E::Checkpoint(error) => self.add_import(error),
            E::Pickle(error) => self.offset = Some(error.offset),
            _ => {}
        }
    }

    fn add_open(&mut self, error: &open::Error) {
        use open::Error as E;
        let mut error = error;
        while let E::AtPath { path, reason } = error {
            self.path.get_or_insert_with(|| path.clone());
            error = reason;
        }
        match error {
            E::Io { path, .. } => {
                self.path.get_or_insert_with(|| path.clone());
            }
            E::Map(error) => self.add_map(error),
            E::InputFiles(error) => self.add_files(error),
            E::Changed(changed) => self.path = Some(changed.path.clone()),
            E::Damaged(damaged) => self.add_damaged(damaged),
            E::NotRepresentable(number) => self.tensor = Some(number.tensor.clone()),
            E::ReadTensor { name, .. } => self.tensor = Some(name.clone()),
            E::DangerousGlobal { offset, .. } | E::UnknownGlobal { offset, .. } => {
                self.offset = Some(*offset);
            }
            _ => {}
        }
    }

    fn add_carton(&mut self, error: &carton_tools::Error) {
        use carton_tools::Error as E;
        match error {
            E::Open(error) => self.add_open(error),
            E::Convert(error) => self.add_convert(error),
            E::Map(error) => self.add_map(error),
            E::Reader { path, .. }
            | E::IsCheckpoint { path, .. }
            | E::NotACarton { path }
            | E::IsFolder { path }
            | E::NotAFolder { path }
            | E::CreateFolder { path, .. }
            | E::Io { path, .. } => self.path = Some(path.clone()),
            _ => {}
        }
    }

    fn add_files(&mut self, error: &open::files::Error) {
        use open::files::Error as E;
        match error {
            E::Checkpoint { path, reason } | E::InconsistentSet { folder: path, reason } => {
                self.path = Some(path.clone());
                self.add_import(reason);
            }
            E::Io { path, .. }
            | E::DocumentTooLarge { path, .. }
            | E::NotFound { path }
            | E::LoneShard { path, .. }
            | E::MissingShard { path, .. }
            | E::ExtraShard { path, .. } => self.path = Some(path.clone()),
            E::DeepSpeed { folder, .. } => self.path = Some(folder.clone()),
            E::Trainer { folder, reason } => {
                self.path = Some(folder.clone());
                self.tensor = reason.tensor().map(str::to_owned);
            }
            _ => {}
        }
    }

    fn add_import(&mut self, error: &torch_import::Error) {
        use torch_import::Error as E;
        let mut error = error;
        while let E::Tensor { name, reason } = error {
            self.tensor.get_or_insert_with(|| name.clone());
            error = reason;
        }
        match error {
            E::Map(error) => self.add_map(error),
            E::Read(error) => self.add_read(error),
            E::Pickle { reason, .. } => self.offset = Some(reason.offset),
            E::PersistentId { offset, .. } | E::Rebuild { offset, .. } | E::Limit { offset, .. } => {
                self.offset = Some(*offset);
            }
            E::Duplicate { name, .. } => self.tensor = Some(name.clone()),
            E::MissingTensor { tensor, .. } | E::Join { tensor, .. } | E::ReadPart { tensor, .. } => {
                self.tensor = Some(tensor.clone());
            }
            _ => {}
        }
    }

    fn add_map(&mut self, error: &byte_source::Error) {
        match error {
            byte_source::Error::Io { path, .. } | byte_source::Error::NotAFile { path, .. } => {
                self.path.get_or_insert_with(|| path.clone());
            }
            _ => {}
        }
    }

    fn add_read(&mut self, error: &ReadError) {
        match error {
            ReadError::Changed(changed) => self.path = Some(changed.path.clone()),
            ReadError::Damaged(damaged) => self.add_damaged(damaged),
            ReadError::NotRepresentable(number) => self.tensor = Some(number.tensor.clone()),
            _ => {}
        }
    }

    fn add_damaged(&mut self, damaged: &RecordDamaged) {
        self.path = Some(damaged.file.clone());
        self.tensor.clone_from(&damaged.tensor);
    }
}

/// Implements `From` for the errors of the underlying crates.
macro_rules! from {
    ($($error:ty => $variant:ident,)*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

from! {
    open::Error => Open,
    carton_tools::Error => Carton,
    runtime::Error => Run,
    generate::Error => Text,
    tensor::Error => Tensor,
    ReadError => Read,
}

impl From<convert::Error> for Error {
    fn from(error: convert::Error) -> Self {
        match error {
            convert::Error::Open(error) => error.into(),
            error => Self::Convert(Box::new(error)),
        }
    }
}

impl From<inspect::Error> for Error {
    fn from(error: inspect::Error) -> Self {
        match error {
            inspect::Error::Open(error) => error.into(),
            error => Self::Inspect(Box::new(error)),
        }
    }
}

impl From<open::files::Error> for Error {
    fn from(error: open::files::Error) -> Self {
        open::Error::from(error).into()
    }
}
