//! Error type of every call of the library, with its kind.

use byte_source::{ErrorKind, Place};

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
    /// Any other error.
    #[error(transparent)]
    Located(byte_source::Error),
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
            Self::Located(error) => error.kind(),
        }
    }
}

impl Error {
    /// Returns the file, the record, the tensor and the offset that the error is about.
    pub fn location(&self) -> Place {
        match self {
            Self::Open(error) => open_place(error),
            Self::Convert(error) => convert_place(error),
            Self::Inspect(error) => inspect_place(error),
            Self::Carton(error) => carton_place(error),
            Self::Run(error) => match &**error {
                runtime::Error::Carton { path, .. } | runtime::Error::CartonModel { path, .. } => {
                    Place::file(path)
                }
                runtime::Error::Model(reason) => reason.location(),
                _ => Place::default(),
            },
            Self::Located(error) => error.location(),
        }
    }
}

fn open_place(error: &open::Error) -> Place {
    use open::Error as E;
    match error {
        E::AtPath { path, reason } => Place::file(path).or(open_place(reason)),
        E::InputFiles(error) => files_place(error),
        E::Located(error) | E::LayoutTranslation(error) => error.location(),
        E::DangerousGlobal { offset, .. } | E::UnknownGlobal { offset, .. } => Place::offset(*offset),
        _ => Place::default(),
    }
}

fn convert_place(error: &convert::Error) -> Place {
    use convert::Error as E;
    match error {
        E::AtPath { path, reason } => Place::file(path).or(convert_place(reason)),
        E::Open(error) => open_place(error),
        E::Read { path, .. } => Place::file(path),
        E::Model { reason, .. } => reason.location(),
        _ => Place::default(),
    }
}

fn inspect_place(error: &inspect::Error) -> Place {
    use inspect::Error as E;
    match error {
        E::AtPath { path, reason } => Place::file(path).or(inspect_place(reason)),
        E::Open(error) => open_place(error),
        E::Pickle(error) => Place::offset(error.offset),
        _ => Place::default(),
    }
}

fn carton_place(error: &carton_tools::Error) -> Place {
    use carton_tools::Error as E;
    match error {
        E::Open(error) => open_place(error),
        E::Convert(error) => convert_place(error),
        E::Located(error) => error.location(),
        E::Reader { path, .. }
        | E::IsCheckpoint { path, .. }
        | E::NotACarton { path }
        | E::IsFolder { path }
        | E::NotAFolder { path }
        | E::CreateFolder { path, .. }
        | E::Io { path, .. } => Place::file(path),
        _ => Place::default(),
    }
}

fn files_place(error: &open::files::Error) -> Place {
    use open::files::Error as E;
    match error {
        E::Checkpoint { path, reason } | E::InconsistentSet { folder: path, reason } => {
            Place::file(path).or(reason.location())
        }
        E::Io { path, .. }
        | E::DocumentTooLarge { path, .. }
        | E::NotFound { path }
        | E::LoneShard { path, .. }
        | E::MissingShard { path, .. }
        | E::ExtraShard { path, .. }
        | E::DeepSpeed { folder: path, .. } => Place::file(path),
        E::Trainer { folder, reason } => {
            Place { tensor: reason.tensor().map(str::to_owned), ..Place::file(folder) }
        }
        _ => Place::default(),
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
}

impl From<byte_source::Error> for Error {
    fn from(error: byte_source::Error) -> Self {
        Self::Located(error)
    }
}

impl From<tensor::Error> for Error {
    fn from(error: tensor::Error) -> Self {
        Self::Located(error.into())
    }
}

impl From<generate::Error> for Error {
    fn from(error: generate::Error) -> Self {
        Self::Located(error.into())
    }
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
