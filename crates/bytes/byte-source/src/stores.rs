//! The stores that a program knows, by which a text becomes a location.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Location};

/// Function that opens the store of an address; `None` for a path on this machine.
type FindAddress = dyn Fn(&Path) -> Result<Option<Location>, Error> + Send + Sync;

/// The stores that a program knows. Options that are data carry the texts of paths and addresses, and the program that runs them
/// turns each into a [`Location`] when its turn comes. Without other stores, each text is a path on this machine.
#[derive(Clone, Default)]
pub struct Stores {
    addresses: Option<Arc<FindAddress>>,
    /// Locations that are open, by their texts.
    opened: Vec<(PathBuf, Location)>,
}

impl Stores {
    /// Creates the disks of this machine and the stores of addresses. `find` opens what is at an address, and returns `None` for a
    /// path of this machine.
    pub fn with_addresses(
        find: impl Fn(&Path) -> Result<Option<Location>, Error> + Send + Sync + 'static,
    ) -> Self {
        Self { addresses: Some(Arc::new(find)), opened: Vec::new() }
    }

    /// Keeps the location of a text, so that it is not opened again.
    pub fn insert(&mut self, text: impl Into<PathBuf>, location: Location) {
        self.opened.push((text.into(), location));
    }

    /// Returns the location of a path or an address.
    ///
    /// # Errors
    /// When an address cannot be opened.
    pub fn locate(&self, text: &Path) -> Result<Location, Error> {
        if let Some((_, opened)) = self.opened.iter().find(|(known, _)| known == text) {
            return Ok(opened.clone());
        }
        let found = self.addresses.as_ref().map_or(Ok(None), |find| find(text))?;
        Ok(found.unwrap_or_else(|| Location::local(text)))
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stores")
    }
}
