//! Inputs of a conversion that are not on this machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{InputSource, ReadError};

use crate::{Error, Result};

/// Function that opens an input; `None` for a path on this machine.
type OpenInput = dyn Fn(&Path) -> Result<Option<InputSource>, ReadError> + Send + Sync;

/// Inputs that are not on this machine, by the paths under which the other options name them.
#[derive(Clone, Default)]
pub struct GivenInputs {
    opened: Vec<(PathBuf, InputSource)>,
    /// Opens the inputs of a batch, each when its turn comes.
    open: Option<Arc<OpenInput>>,
}

impl GivenInputs {
    /// Adds an input.
    pub fn add(&mut self, path: impl Into<PathBuf>, source: InputSource) {
        self.opened.push((path.into(), source));
    }

    /// Returns the input that is called `path`; `None` for a path on this machine.
    pub fn find(&self, path: &Path) -> Option<&InputSource> {
        self.opened.iter().find(|(known, _)| known == path).map(|(_, source)| source)
    }

    /// Sets the function that opens each input of a batch when its turn comes; it returns `None` for a path on this machine.
    pub fn open_with(
        &mut self,
        open: impl Fn(&Path) -> Result<Option<InputSource>, ReadError> + Send + Sync + 'static,
    ) {
        self.open = Some(Arc::new(open));
    }

    /// Returns true if inputs of a batch may be at addresses.
    pub(crate) fn can_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn open(&self, path: &Path) -> Result<Option<InputSource>> {
        let Some(open) = &self.open else { return Ok(None) };
        open(path).map_err(|reason| Error::unread_input(path, reason))
    }
}

/// Writes no bytes that were read of an input, and no query of an address, which may be secret.
impl fmt::Debug for GivenInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.opened.iter().map(|(_, source)| source.path())).finish()
    }
}
