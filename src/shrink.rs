//! Moves files out of cartons and, with the feature `download`, back into them.

use std::path::PathBuf;
#[cfg(feature = "download")]
use std::time::Duration;

#[cfg(feature = "download")]
use carton_tools::{ResolveOptions, ResolveReport};
use carton_tools::{ShrinkOptions, ShrinkReport};
use pipeline::{IfExists, Observer};

use crate::Result;

/// Returns a shrinking of the carton at `path` into the carton `output`. Its files move into the folder `blobs`, which will
/// be served under the URL `base`. [`Shrink::run`] starts it.
pub fn shrink(
    path: impl Into<PathBuf>,
    output: impl Into<PathBuf>,
    base: &str,
    blobs: impl Into<PathBuf>,
) -> Shrink {
    Shrink { options: ShrinkOptions::new(path, output, base, blobs) }
}

/// A carton whose files are to move into a folder that many cartons share.
#[derive(Clone, Debug)]
#[must_use = "a carton is shrunk by `run`"]
pub struct Shrink {
    options: ShrinkOptions,
}

impl Shrink {
    /// Sets what happens to a file that exists at the output.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Keeps files with fewer bytes in the carton.
    pub fn min_size(mut self, nbytes: u64) -> Self {
        self.options.min_size = nbytes;
        self
    }

    /// Writes the smaller carton and the files.
    ///
    /// # Errors
    /// When the carton cannot be read or is damaged, the base is not a URL, an output cannot be written, or `observer` stops
    /// the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<ShrinkReport> {
        Ok(carton_tools::shrink(&self.options, observer)?)
    }
}

impl From<ShrinkOptions> for Shrink {
    fn from(options: ShrinkOptions) -> Self {
        Self { options }
    }
}

/// Returns a resolving of the carton at `path` into the carton `output`, which has the files that the first one leaves out.
/// [`Resolve::run`] starts it.
#[cfg(feature = "download")]
pub fn resolve(path: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Resolve {
    Resolve { options: ResolveOptions::new(path, output) }
}

/// A carton whose files are to be fetched.
#[cfg(feature = "download")]
#[derive(Clone, Debug)]
#[must_use = "files are fetched by `run`"]
pub struct Resolve {
    options: ResolveOptions,
}

#[cfg(feature = "download")]
impl Resolve {
    /// Sets what happens to a file that exists at the output.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Keeps what is fetched in this folder, by its SHA-256. A broken download is resumed from there.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.cache = Some(folder.into());
        self
    }

    /// Fetches http URLs too, and URLs that name a private address themselves.
    pub fn allow_http(mut self) -> Self {
        self.options.allow_http = true;
        self
    }

    /// Sets the most bytes that a file may have. The default is half of the free space.
    pub fn max_size(mut self, nbytes: u64) -> Self {
        self.options.max_size = Some(nbytes);
        self
    }

    /// Sets how long nothing may come before a connection counts as broken.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Fetches the files and writes the whole carton.
    ///
    /// # Errors
    /// When the carton cannot be read or is damaged, a file cannot be fetched, the output cannot be written, or `observer`
    /// stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<ResolveReport> {
        Ok(carton_tools::resolve(&self.options, observer)?)
    }
}

#[cfg(feature = "download")]
impl From<ResolveOptions> for Resolve {
    fn from(options: ResolveOptions) -> Self {
        Self { options }
    }
}
