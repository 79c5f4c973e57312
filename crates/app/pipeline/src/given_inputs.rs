//! Adapters and summed checkpoints that are not on this machine.

use std::fmt;
use std::path::{Path, PathBuf};

use byte_source::InputSource;

/// Inputs that are not on this machine, by the paths under which the other options name them.
#[derive(Clone, Default)]
pub struct GivenInputs(Vec<(PathBuf, InputSource)>);

impl GivenInputs {
    /// Adds an input.
    pub fn add(&mut self, path: impl Into<PathBuf>, source: InputSource) {
        self.0.push((path.into(), source));
    }

    /// Returns the input that is called `path`; `None` for a path on this machine.
    pub fn find(&self, path: &Path) -> Option<&InputSource> {
        self.0.iter().find(|(known, _)| known == path).map(|(_, source)| source)
    }
}

/// Writes no bytes that were read of an input, and no query of an address, which may be secret.
impl fmt::Debug for GivenInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, source)| source.path())).finish()
    }
}
