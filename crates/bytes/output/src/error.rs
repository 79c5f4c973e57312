//! Errors of outputs.

use std::io;
use std::path::PathBuf;

use byte_source::{Place, details};

use crate::{RemoteAddress, shown_path};

/// Problem of an output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The inputs of an output cannot be read while it is written.
    #[error("cannot read the inputs of {}: {reason}", path.display())]
    ReadInputs {
        /// Path of the output.
        path: PathBuf,
        reason: io::Error,
    },
    /// A path is the address of a remote file.
    #[error("{} is not a local path", shown_path(path).display())]
    Remote {
        /// Path as it was typed.
        path: PathBuf,
        /// Address that the path spells.
        address: RemoteAddress,
    },

    /// The path of an output is an address, and outputs at addresses are not written.
    #[error("cannot write {}: it is not a local path", shown_path(path).display())]
    RemoteOutput { path: PathBuf },
    /// A part of the path to an output is a file.
    #[error("cannot write {}: {} is not a folder", path.display(), folder.display())]
    NoFolder { path: PathBuf, folder: PathBuf },
    /// An output is a folder.
    #[error("cannot write {}: it is a folder", path.display())]
    IsFolder { path: PathBuf },
    /// An output is a pipe, a socket or a device.
    #[error("cannot write {}: it is {what}", path.display())]
    NotAFile {
        path: PathBuf,
        /// Kind of the path, with its article.
        what: &'static str,
    },
    /// An output is one of the inputs, by whatever path or link.
    #[error("the output {} is the input {}", output.display(), input.display())]
    SameFile {
        /// Output path as it was typed.
        output: PathBuf,
        /// Input path as it was typed.
        input: PathBuf,
    },
    /// An output exists and must not be replaced.
    #[error("{} exists", path.display())]
    Exists { path: PathBuf },
    /// An output exists without a mark that this program wrote it.
    #[error("cannot replace {}: it was not written by torch2carton, or was changed or copied since", path.display())]
    NotOwnOutput { path: PathBuf },
    /// The default output of an input is the output of another one.
    #[error("cannot replace {}: it was made from {input}", path.display())]
    OfAnotherInput {
        path: PathBuf,
        /// File name of the other input.
        input: String,
    },
    /// Windows allows no file with the name of a part of the output's path.
    #[error("cannot write {}: Windows does not allow the file name {name:?}", path.display())]
    WindowsName {
        path: PathBuf,
        /// The part of the path.
        name: String,
    },
    /// No file or folder can be created in a folder.
    #[error("cannot write into {}: {kind}", folder.display())]
    CreateIn {
        folder: PathBuf,
        /// Kind of the system's error, without its message, which names a temporary file.
        kind: io::ErrorKind,
    },
    /// The files in a folder cannot be synced.
    #[error("cannot write into {}: {reason}", folder.display())]
    Sync {
        folder: PathBuf,
        /// Error reported by the system.
        reason: io::Error,
    },
    /// The system does not report the free space.
    #[error("cannot ask for the free space in {}: {reason}", folder.display())]
    FreeSpace {
        folder: PathBuf,
        /// Error reported by the system.
        reason: io::Error,
    },
    /// The filesystem has too little free space.
    #[error("not enough space in {}: {needed} bytes needed, {free} free", folder.display())]
    NoSpace {
        /// Bytes that will be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        folder: PathBuf,
    },
}

details! {
    Problem => Problem::place {
        Input: Remote, RemoteOutput;
        Option: SameFile;
        Io: NoFolder, IsFolder, NotAFile, Exists, NotOwnOutput, OfAnotherInput, WindowsName, CreateIn, NoSpace;
        [reason]: ReadInputs, Sync, FreeSpace;
    }
}

impl Problem {
    fn place(&self) -> Place {
        let (Self::ReadInputs { path, .. }
        | Self::Remote { path, .. }
        | Self::RemoteOutput { path }
        | Self::NoFolder { path, .. }
        | Self::IsFolder { path }
        | Self::NotAFile { path, .. }
        | Self::SameFile { output: path, .. }
        | Self::Exists { path }
        | Self::NotOwnOutput { path }
        | Self::OfAnotherInput { path, .. }
        | Self::WindowsName { path, .. }
        | Self::CreateIn { folder: path, .. }
        | Self::Sync { folder: path, .. }
        | Self::FreeSpace { folder: path, .. }
        | Self::NoSpace { folder: path, .. }) = self;
        Place::file(path)
    }
}
