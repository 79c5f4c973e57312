//! The private maps of files, from which Python objects get their bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use torch2carton::crates::byte_source;
use torch2carton::{Source, Storage};

use crate::memory::{Memory, PrivateMap};

/// How Python objects get the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// As parts of a private map of the file.
    Map,
    /// Copied by pread(2).
    Read,
}

impl Backend {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "mmap" => Some(Self::Map),
            "pread" => Some(Self::Read),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Map => "mmap",
            Self::Read => "pread",
        }
    }
}

/// The private maps of files, each made when it is first needed.
#[derive(Debug)]
pub(crate) struct Maps {
    backend: Backend,
    /// Maps by the addresses of their sources, which the maps' owner keeps. `None` if the system cannot map the file.
    maps: Mutex<HashMap<usize, MappedSource>>,
}

/// A source, and its map.
type MappedSource = (Arc<dyn Source>, Option<Arc<PrivateMap>>);

impl Maps {
    pub(crate) fn new(backend: Backend) -> Self {
        Self { backend, maps: Mutex::default() }
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the memory of a range of a storage, in bytes, if a file has these bytes and can be mapped.
    ///
    /// # Errors
    /// Those of [`Source::locate`].
    pub(crate) fn memory(
        &self,
        storage: &Storage,
        range: Range<u64>,
    ) -> Result<Option<Memory>, byte_source::Error> {
        let region = storage.region().filter(|_| self.backend == Backend::Map);
        let Some(region) = region else { return Ok(None) };
        let Some(map) = self.map(region.source()) else { return Ok(None) };
        let Range { start, end } = region.locate(range)?;
        Ok(Memory::mapped(&map, start, end.saturating_sub(start)))
    }

    fn map(&self, source: &Arc<dyn Source>) -> Option<Arc<PrivateMap>> {
        let (file, len) = source.file()?;
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, map) = maps
            .entry(Arc::as_ptr(source).addr())
            .or_insert_with(|| (Arc::clone(source), PrivateMap::new(file, len).ok().map(Arc::new)));
        map.clone()
    }
}
