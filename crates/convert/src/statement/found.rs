//! Finds the inputs of a statement by their hashes, and opens them under the names that they have in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use byte_source::{FileStat, Listing, Location, Observer, Region, Source, Stat, Store};
use carton_format::Config;

use super::request::without_dots;
use super::statement::ResourceDescriptor;
use super::write::{hash, hash_files};
use crate::{Problem, Result};

/// Maximum number of files that are looked at below the given folders.
const FILES_MAX: usize = 1_000_000;

/// Inputs of a statement.
pub(super) struct FoundInputs {
    /// Files by their names in the statement.
    pub(super) files: BTreeMap<String, Location>,
    /// Names of inputs that have other bytes now.
    pub(super) changed: Vec<String>,
}

/// Finds the dependencies that are files among the given files, and below the given folders. Those whose names are right are hashed
/// first, and others only while something is missing.
///
/// # Errors
/// When a folder cannot be listed, a file cannot be read, or nothing has the name or the bytes of an input.
pub(super) fn find_inputs(
    dependencies: &[ResourceDescriptor],
    given: &[Location],
    observer: &dyn Observer,
) -> Result<FoundInputs> {
    let files = list_files(given)?;
    let wanted: Vec<(&str, &str)> =
        dependencies.iter().filter_map(|file| Some((file.name.as_str(), file.sha256()?))).collect();
    let hashes: BTreeSet<&str> = wanted.iter().map(|(_, sha256)| *sha256).collect();
    let last_parts: BTreeSet<&str> = wanted.iter().map(|(name, _)| last_part(name)).collect();
    let (named, others): (Vec<Location>, Vec<Location>) =
        files.into_iter().partition(|file| last_parts.contains(output::file_name(file.path()).as_str()));
    let named = hash_all(named, &hashes, observer)?;
    let mut found: BTreeMap<String, Location> = BTreeMap::new();
    found.extend(named.iter().rev().map(|(sha256, file)| (sha256.clone(), file.clone())));
    if hashes.iter().any(|sha256| !found.contains_key(*sha256)) {
        let missing = hashes.iter().filter(|sha256| !found.contains_key(**sha256)).copied().collect();
        found.extend(hash_all(others, &missing, observer)?);
    }
    let mut inputs = FoundInputs { files: BTreeMap::new(), changed: Vec::new() };
    for (name, sha256) in wanted {
        let is_other = |(other, file): &(String, Location)| {
            !hashes.contains(other.as_str()) && output::file_name(file.path()) == last_part(name)
        };
        if let Some(file) = found.get(sha256) {
            inputs.files.insert(name.to_owned(), file.clone());
        } else if named.iter().any(is_other) {
            inputs.changed.push(name.to_owned());
        } else {
            return Err(Problem::StatementInput { name: name.to_owned(), sha256: sha256.to_owned() }.into());
        }
    }
    Ok(inputs)
}

impl FoundInputs {
    /// Uses the files of unpacked cartons from the folders with their `carton.toml`: only the disk has their links.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn place_cartons(
        &mut self,
        dependencies: &[ResourceDescriptor],
        observer: &dyn Observer,
    ) -> Result<()> {
        let is_carton =
            |(name, file): &(&String, &Location)| file.is_local() && last_part(name) == Config::PATH;
        let cartons = self.files.iter().filter(is_carton);
        let cartons: Vec<_> = cartons
            .map(|(name, file)| (name.trim_end_matches(Config::PATH).to_owned(), file.parent()))
            .collect();
        for (prefix, folder) in cartons {
            for (name, sha256) in dependencies.iter().filter_map(|file| Some((&file.name, file.sha256()?))) {
                let Some(inside) = name.strip_prefix(&prefix) else { continue };
                if prefix.is_empty() && inside.starts_with('@') {
                    continue;
                }
                let place = folder.join(inside);
                if self.files.get(name).is_some_and(|file| file.path() == place.path()) {
                    continue;
                }
                if place.is_file() && hash(&place, observer)? == sha256 {
                    self.files.insert(name.clone(), place);
                } else {
                    self.changed.push(name.clone());
                }
            }
        }
        Ok(())
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns the given files, and those below the given folders, without links to folders.
fn list_files(given: &[Location]) -> Result<Vec<Location>> {
    let mut files = Vec::new();
    for input in given {
        let failed = |error: io::Error, at: &Location| crate::Error::from(error).in_file(at.path());
        match input.stat().map_err(|error| failed(error, input))? {
            None => return Err(failed(io::ErrorKind::NotFound.into(), input)),
            Some(Stat::Folder) => {}
            Some(_) => {
                files.push(input.clone());
                continue;
            }
        }
        let mut folders = vec![input.clone()];
        while let Some(folder) = folders.pop().filter(|_| files.len() < FILES_MAX) {
            let listing = folder.list().map_err(|error| failed(error, &folder))?.listing;
            let is_link = |name: &&String| listing.links.binary_search(name).is_ok();
            files.extend(listing.files.iter().map(|name| folder.join(name)));
            folders
                .extend(listing.folders.iter().filter(|name| !is_link(name)).map(|name| folder.join(name)));
        }
    }
    Ok(files)
}

/// Hashes files until all of `wanted` are found, and returns them in their order with their hashes.
fn hash_all(
    files: Vec<Location>,
    wanted: &BTreeSet<&str>,
    observer: &dyn Observer,
) -> Result<Vec<(String, Location)>> {
    let missing = Mutex::new(wanted.clone());
    let is_last = |sha256: &str| {
        let mut missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.remove(sha256);
        missing.is_empty()
    };
    let hashes = if wanted.is_empty() { Vec::new() } else { hash_files(&files, is_last, observer)? };
    Ok(hashes.into_iter().zip(files).filter_map(|(sha256, file)| Some((sha256?, file))).collect())
}

/// Folder above each group of inputs, deep enough for names that begin with `..`.
const ABOVE: &str = "1/2/3/4";

/// Returns the path of an input in a [`NamedStore`] by its name in a statement.
fn stored_path(name: &str) -> PathBuf {
    let (group, name) = match name.split_once('/').unwrap_or((name, "")) {
        (group, name) if group.starts_with('@') => (group, name),
        _ => ("@", name),
    };
    without_dots(&Path::new(group).join(ABOVE).join(name))
}

/// Store that has the inputs under their names in the statement.
#[derive(Debug)]
pub(super) struct NamedStore {
    files: BTreeMap<PathBuf, Location>,
    /// Files that are opened and not listed.
    unlisted: Vec<PathBuf>,
}

impl NamedStore {
    pub(super) fn new(files: &BTreeMap<String, Location>, unlisted: &[String]) -> Self {
        let files = files.iter().map(|(name, file)| (stored_path(name), file.clone())).collect();
        Self { files, unlisted: unlisted.iter().map(|name| stored_path(name)).collect() }
    }

    /// Returns an input by its name: what this store has, or the folder of an unpacked carton.
    pub(super) fn locate(self: &Arc<Self>, name: &Path) -> Location {
        let path = stored_path(&name.to_string_lossy());
        match self.files.get(&path.join(Config::PATH)) {
            Some(file) if file.is_local() => file.parent(),
            _ => Location::new(self.clone(), path),
        }
    }
}

impl Store for NamedStore {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        let folder = without_dots(folder);
        let listed = self.files.keys().filter(|path| !self.unlisted.contains(path));
        let below = listed.filter_map(|path| path.strip_prefix(&folder).ok()?.to_str());
        Ok(Listing::from_paths(below.filter(|path| !path.is_empty())))
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let path = without_dots(path);
        Ok(match self.files.get(&path) {
            Some(file) => match file.stat()? {
                Some(Stat::File(file)) => Some(Stat::File(FileStat { is_own: false, ..file })),
                other => other,
            },
            None => self.files.keys().any(|known| known.starts_with(&path)).then_some(Stat::Folder),
        })
    }

    fn open(&self, files: &[PathBuf]) -> std::result::Result<Vec<Arc<dyn Source>>, byte_source::Error> {
        let open = |path: &PathBuf| {
            let file = self.files.get(&without_dots(path));
            let source = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.open()?;
            Ok(Arc::new(Region::whole(&source).named(path)) as Arc<dyn Source>)
        };
        files.iter().map(open).collect()
    }

    fn has_latency(&self) -> bool {
        !self.files.values().all(Location::is_local)
    }
}
