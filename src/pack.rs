//! Builders that pack a folder into a carton, and unpack a carton into a folder.

use std::path::PathBuf;

use byte_source::{Location, Observer};
use carton_tools::{ArrayFile, PackCompression, PackOptions, PackReport, UnpackOptions, UnpackReport};
use output::IfExists;

use crate::Result;

/// Returns a packing of `folder`, which holds the files of a carton, that [`Pack::run`] starts.
pub fn pack(folder: impl Into<Location>) -> Pack {
    Pack::new(folder)
}

/// A packing of a folder into a carton, which has not started.
#[derive(Clone, Debug)]
#[must_use = "a folder is packed by `run`"]
pub struct Pack {
    options: PackOptions,
}

impl Pack {
    /// Creates a packing of `folder` into a carton next to it.
    pub fn new(folder: impl Into<Location>) -> Self {
        Self { options: PackOptions::new(folder) }
    }

    /// Sets the path of the carton to write.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.output = Some(path.into());
        self
    }

    /// Sets the policy for a file that exists at the output path.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Sets the compression of the carton's files.
    pub fn compression(mut self, compression: PackCompression) -> Self {
        self.options.compression = compression;
        self
    }

    /// Adds a NumPy array from a `.npy` file to the tensors for self tests.
    pub fn tensor(mut self, name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.options.tensors.push(ArrayFile { name: name.into(), path: path.into() });
        self
    }

    /// Writes the carton and returns its report.
    ///
    /// # Errors
    /// When the folder is not that of a carton, a file cannot be read or changes, the output cannot be written, or
    /// `observer` stops the work. In each case no output is left.
    pub fn run(&self, observer: &dyn Observer) -> Result<PackReport> {
        carton_tools::pack(&self.options, observer)
    }
}

impl From<PackOptions> for Pack {
    fn from(options: PackOptions) -> Self {
        Self { options }
    }
}

/// Returns an unpacking of the carton at `path`, which [`Unpack::run`] starts.
pub fn unpack(path: impl Into<Location>) -> Unpack {
    Unpack::new(path)
}

/// An unpacking of a carton into a folder, which has not started.
#[derive(Clone, Debug)]
#[must_use = "a carton is unpacked by `run`"]
pub struct Unpack {
    options: UnpackOptions,
}

impl Unpack {
    /// Creates an unpacking of the carton at `path` into a folder next to it.
    pub fn new(path: impl Into<Location>) -> Self {
        Self { options: UnpackOptions::new(path) }
    }

    /// Sets the destination folder, which is created if it does not exist.
    pub fn output(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.output = Some(folder.into());
        self
    }

    /// Replaces files that exist in the destination folder.
    pub fn force(mut self) -> Self {
        self.options.force = true;
        self
    }

    /// Writes the files and checks the SHA-256 of each.
    ///
    /// # Errors
    /// When the carton cannot be read or is damaged, a file exists, the folder cannot be written, or `observer` stops the
    /// work.
    pub fn run(&self, observer: &dyn Observer) -> Result<UnpackReport> {
        carton_tools::unpack(&self.options, observer)
    }
}

impl From<UnpackOptions> for Unpack {
    fn from(options: UnpackOptions) -> Self {
        Self { options }
    }
}
