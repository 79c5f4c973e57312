//! Open cartons with their metadata and tensors.

use std::fmt;
use std::path::Path;

use byte_source::{Observer, OpenedFile, hex};
use carton_format::Config;
use carton_tools::{ContentsReport, VerifyReport};

use crate::{Result, Tensors, Verify};

/// An open carton: a file, or an unpacked folder.
pub struct Carton {
    carton: carton_format::Carton,
    config: Config,
}

impl Carton {
    /// Opens the carton or the unpacked folder at `path`.
    ///
    /// # Errors
    /// When the path cannot be read, is not a carton, or has a carton.toml that does not follow the specification.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(carton_tools::open(&path.as_ref().into())?)
    }

    /// Opens the carton or the unpacked folder at `path` like [`open`](Self::open), and each file with tensors with `open_file`, for a
    /// caller that does not map files.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of `open_file`.
    pub fn open_with(path: impl AsRef<Path>, open_file: fn(&Path) -> OpenedFile) -> Result<Self> {
        Self::new(carton_tools::open_with(path.as_ref(), open_file)?)
    }

    pub(crate) fn new(carton: carton_format::Carton) -> Result<Self> {
        let config = carton.config().map_err(|error| error.in_file(carton.path()))?.document;
        Ok(Self { carton, config })
    }

    /// Returns the path as given to [`open`](Self::open).
    pub fn path(&self) -> &Path {
        self.carton.path()
    }

    /// Returns the metadata of carton.toml: name, license, inputs and outputs, runner.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the SHA-256 of MANIFEST in hexadecimal digits, which identifies the model; `None` without a MANIFEST.
    pub fn manifest_sha256(&self) -> Option<String> {
        self.carton.manifest_hash().map(|hash| hex(&hash))
    }

    /// Lists the files, tensors and metadata in a report that can be serialised.
    ///
    /// # Errors
    /// When a document of the carton does not follow the specification.
    pub fn contents(&self) -> Result<ContentsReport> {
        carton_tools::contents(self.path())
    }

    /// Returns the model's tensors under their names in the checkpoint; empty if there is no `model/model.pt`. A stored
    /// model is mapped in place. A compressed model is first decompressed into a temporary file, which takes long.
    ///
    /// # Errors
    /// When the model is elsewhere, is damaged or has no tensors, and when `observer` stops the work.
    pub fn tensors(&self, observer: &dyn Observer) -> Result<Tensors> {
        Ok(carton_tools::tensors(&self.carton, observer)?.into_iter().collect())
    }

    /// Checks every hash, every checksum and every rule of the format. [`verify`](crate::verify) can also compare the
    /// tensors with a checkpoint.
    ///
    /// # Errors
    /// When the carton cannot be read, or `observer` stops the work. A problem of the carton is a finding of the report.
    pub fn verify(&self, observer: &dyn Observer) -> Result<VerifyReport> {
        Verify::new(self.path()).run(observer)
    }
}

impl fmt::Debug for Carton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carton").field("path", &self.path()).finish_non_exhaustive()
    }
}
