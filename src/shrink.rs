//! Builders that move files out of cartons and, with the feature `download`, back into them.

use std::path::PathBuf;
#[cfg(feature = "download")]
use std::time::Duration;

use byte_source::{Location, Observer};
#[cfg(feature = "download")]
use carton_tools::{ResolveOptions, ResolveReport};
use carton_tools::{ShrinkOptions, ShrinkReport};
use output::IfExists;

use crate::Result;

/// Returns a shrinking of the carton at `path` into the carton `output`, which [`Shrink::run`] starts. The files of the
/// carton move into the folder `blobs`, which will be served under the URL `base`.
pub fn shrink(
    path: impl Into<Location>,
    output: impl Into<PathBuf>,
    base: &str,
    blobs: impl Into<PathBuf>,
) -> Shrink {
    Shrink { options: ShrinkOptions::new(path, output, base, blobs) }
}

/// A move of a carton's files into a folder that many cartons share, which has not started.
#[derive(Clone, Debug)]
#[must_use = "a carton is shrunk by `run`"]
pub struct Shrink {
    options: ShrinkOptions,
}

impl Shrink {
    /// Sets the policy for a file that exists at the output path.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Sets the minimum size in bytes of a file that moves. Smaller files stay in the carton.
    pub fn min_size(mut self, nbytes: u64) -> Self {
        self.options.min_size = nbytes;
        self
    }

    /// Writes the smaller carton and the moved files.
    ///
    /// # Errors
    /// When the carton cannot be read or is damaged, the base is not a URL, an output cannot be written, or `observer` stops
    /// the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<ShrinkReport> {
        carton_tools::shrink(&self.options, observer)
    }
}

impl From<ShrinkOptions> for Shrink {
    fn from(options: ShrinkOptions) -> Self {
        Self { options }
    }
}

/// Returns a resolving of the carton at `path` into the carton `output`, which also has the files that the first carton
/// leaves out. [`Resolve::run`] starts the download.
#[cfg(feature = "download")]
pub fn resolve(path: impl Into<Location>, output: impl Into<PathBuf>) -> Resolve {
    Resolve { options: ResolveOptions::new(path, output) }
}

/// A download of a carton's missing files, which has not started.
#[cfg(feature = "download")]
#[derive(Clone, Debug)]
#[must_use = "files are fetched by `run`"]
pub struct Resolve {
    options: ResolveOptions,
}

#[cfg(feature = "download")]
impl Resolve {
    /// Sets the policy for a file that exists at the output path.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Sets a cache folder for fetched files, named by their SHA-256. An interrupted download is resumed from the cache.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.cache = Some(folder.into());
        self
    }

    /// Also fetches http URLs, and URLs that themselves name a private address.
    pub fn allow_http(mut self) -> Self {
        self.options.allow_http = true;
        self
    }

    /// Sets the maximum size of a file in bytes. The default is half of the free space.
    pub fn max_size(mut self, nbytes: u64) -> Self {
        self.options.max_size = Some(nbytes);
        self
    }

    /// Sets the time without data after which a connection counts as broken.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Fetches the files and writes the complete carton.
    ///
    /// # Errors
    /// When the carton cannot be read or is damaged, a file cannot be fetched, the output cannot be written, or `observer`
    /// stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<ResolveReport> {
        carton_tools::resolve(&self.options, observer)
    }
}

#[cfg(feature = "download")]
impl From<ResolveOptions> for Resolve {
    fn from(options: ResolveOptions) -> Self {
        Self { options }
    }
}
