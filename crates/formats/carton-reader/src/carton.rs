//! An open `.carton` or unpacked folder: its entries, and access to their bytes.
//!
//! Facts: the Carton v1 specification; path and link limits are those of Linux.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{MappedFile, ReadError, Region, Source, Work};
use carton_format::{Config, FileLen, Links, Manifest, Parsed, TensorIndex, is_inside};
use sha2::{Digest, Sha256};
use torch_import::Container;
use zip_index::{Index, Method};

use crate::entry::Expected;
use crate::{Entry, EntryReader, Error, Result};

/// The folder of the model.
pub const MODEL: &str = "model/";
/// The most bytes of a MANIFEST that are read: one with 100,000 long paths has a tenth of this.
const MANIFEST_MAX: u64 = 256 << 20;
/// The most bytes of any other document that are read. Parsed TOML takes about fifty times its length.
pub const TOML_MAX: u64 = 16 << 20;
/// The longest chain of links that is followed, as in Linux.
const LINKS_IN_A_ROW: usize = 40;
/// The most bytes of a link's target: the longest path in Linux.
const TARGET: u64 = 4096;
/// Files that the system adds to folders for its own use.
const LITTER: &[&str] = &[".DS_Store", "Thumbs.db"];

/// An open carton. Nothing but its directory, MANIFEST and LINKS has been read.
#[derive(Debug)]
pub struct Carton {
    path: PathBuf,
    /// `None` for a folder.
    zip: Option<Arc<dyn Source>>,
    entries: BTreeMap<String, Entry>,
    manifest: Option<Manifest>,
    manifest_hash: Option<[u8; 32]>,
    links: Links,
}

impl Carton {
    /// Opens the `.carton` or the folder at `path`. A folder need not have a MANIFEST.
    ///
    /// # Errors
    /// When it cannot be read, its zip directory is damaged or ambiguous, an entry's path leads out of
    /// it, MANIFEST or LINKS do not follow the specification, or a file is in neither of the two.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Self::from_source(Arc::new(MappedFile::open(path)?));
        }
        Self::checked(Self::open_unlisted(path)?)
    }

    /// Reads a `.carton` from a source. Of one that is not in memory, the local headers are read with the files.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        let (path, links) = (source.path().to_owned(), Links::default());
        let index = match source.in_memory() {
            Some(_) => Index::read(&*source).map(|index| (index, source)),
            None => Index::read_directory(&source),
        };
        let (index, source) = index.map_err(Error::Zip)?;
        let entries = zipped(index)?;
        Self::checked(Self { path, zip: Some(source), entries, manifest: None, manifest_hash: None, links })
    }

    /// The carton with its MANIFEST and LINKS.
    fn checked(mut carton: Self) -> Result<Self> {
        if carton.entries.contains_key(Links::PATH) {
            carton.links = Links::parse(&carton.text(Links::PATH)?)?;
        }
        if carton.entries.contains_key(Manifest::PATH) {
            let text = carton.text(Manifest::PATH)?;
            carton.manifest_hash = Some(Sha256::digest(text.as_bytes()).into());
            carton.manifest = Some(Manifest::parse(&text)?);
        } else if carton.zip.is_some() {
            return Err(Error::Missing { path: Manifest::PATH.to_owned() });
        }
        carton.reject_files_as_folders()?;
        Ok(carton)
    }

    /// Opens the folder at `path` without its MANIFEST and LINKS: the files are not compared with anything.
    ///
    /// # Errors
    /// When it cannot be read, or has a path that a carton cannot have.
    pub fn open_unlisted(path: &Path) -> Result<Self> {
        let entries = folder(path)?;
        let (path, links) = (path.to_owned(), Links::default());
        Ok(Self { path, zip: None, entries, manifest: None, manifest_hash: None, links })
    }

    /// Rejects a path that is below another file.
    fn reject_files_as_folders(&self) -> Result<()> {
        let listed = self.manifest.iter().flat_map(Manifest::lines).map(|(path, _)| path);
        for below in self.entries.keys().map(String::as_str).chain(listed) {
            let mut path = below;
            while let Some((folder, _)) = path.rsplit_once('/') {
                if self.entries.contains_key(folder) || self.is_listed(folder) {
                    return Err(Error::FileAsFolder { path: folder.to_owned(), below: below.to_owned() });
                }
                path = folder;
            }
        }
        Ok(())
    }

    fn is_listed(&self, path: &str) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.hash(path).is_some())
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The zip file; a folder has none.
    pub(crate) fn zip(&self) -> Option<&Arc<dyn Source>> {
        self.zip.as_ref()
    }

    /// Whether it is a zip file, not a folder.
    pub fn is_packed(&self) -> bool {
        self.zip.is_some()
    }

    /// Bytes of the zip file; 0 for a folder.
    pub fn len(&self) -> u64 {
        self.zip.as_ref().map_or(0, |zip| zip.len())
    }

    /// Fails when the zip file has another length or modification time than when it was opened. For a folder this says
    /// nothing: its files are opened one by one.
    ///
    /// # Errors
    /// When it changed, or the system does not report its metadata.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        self.zip.as_ref().map_or(Ok(()), |zip| zip.check_unchanged())
    }

    /// Whether it has no files.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The files that are there, MANIFEST and LINKS among them, sorted by path.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The file at `path`.
    ///
    /// # Errors
    /// When it does not exist; the error distinguishes files that LINKS lists.
    pub fn entry(&self, path: &str) -> Result<&Entry> {
        if let Some(entry) = self.entries.get(path) {
            return Ok(entry);
        }
        let path = path.to_owned();
        let hash = self.manifest.as_ref().and_then(|manifest| manifest.hash(&path));
        match hash {
            Some(hash) if !self.links.urls(&hash).is_empty() => Err(Error::Elsewhere { path }),
            _ => Err(Error::Missing { path }),
        }
    }

    /// MANIFEST; a folder may have none.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The SHA-256 of MANIFEST, which is called the model's hash.
    pub fn manifest_hash(&self) -> Option<[u8; 32]> {
        self.manifest_hash
    }

    /// LINKS; empty if there is none.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Paths and hashes of the files that MANIFEST lists and that are not there.
    pub fn absent(&self) -> Vec<(String, [u8; 32])> {
        let lines = self.manifest.iter().flat_map(Manifest::lines);
        lines
            .filter(|(path, _)| !self.entries.contains_key(*path))
            .map(|(path, hash)| (path.to_owned(), hash))
            .collect()
    }

    /// The bytes of the file at `path`, checked as they are read.
    ///
    /// # Errors
    /// When it is not there, or MANIFEST does not list it.
    pub fn read(&self, path: &str) -> Result<EntryReader> {
        let entry = self.entry(path)?;
        let known = [Manifest::PATH, Links::PATH].contains(&path) || entry.link;
        let mut expected = Expected { crc: entry.place.as_ref().map(|(_, crc)| *crc), sha256: None };
        if let Some(manifest) = self.manifest.as_ref().filter(|_| !known) {
            let hash = manifest.hash(path).ok_or_else(|| Error::Unlisted { path: path.to_owned() })?;
            expected.sha256 = Some(hash);
        }
        self.source(entry, expected)
    }

    fn source(&self, entry: &Entry, expected: Expected) -> Result<EntryReader> {
        if let Some(file) = &self.zip {
            return EntryReader::zipped(file, entry, expected);
        }
        let path = self.path.join(&entry.path);
        let io = |reason| Error::Io { path: path.clone(), reason };
        if entry.link {
            let target = std::fs::read_link(&path).map_err(io)?;
            return Ok(EntryReader::link(target.into_os_string().into_encoded_bytes(), entry));
        }
        Ok(EntryReader::file(File::open(&path).map_err(io)?, entry, expected))
    }

    /// The text of a document at `path`, checked.
    ///
    /// # Errors
    /// When it is not there, too large for a document, damaged, or not UTF-8.
    pub fn text(&self, path: &str) -> Result<String> {
        let entry = self.entry(path)?;
        let limit = if path == Manifest::PATH { MANIFEST_MAX } else { TOML_MAX };
        if entry.len > limit {
            return Err(Error::Large { path: path.to_owned(), found: entry.len, limit });
        }
        let mut bytes = Vec::new();
        self.read(path)?.read_to_end(&mut bytes).map_err(|error| self.unwrapped(path, error))?;
        String::from_utf8(bytes).map_err(|_| Error::Text { path: path.to_owned() })
    }

    /// The error of this crate inside an I/O error of an [`EntryReader`] of the file at `path`, or the I/O error itself.
    pub fn unwrapped(&self, path: &str, error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => error,
            Err(reason) => match ReadError::from(reason) {
                ReadError::Changed(changed) => Error::Changed(changed),
                reason => Error::Io { path: self.path.join(path), reason: reason.into() },
            },
        }
    }

    /// carton.toml.
    ///
    /// # Errors
    /// When it is not there, damaged, or does not follow the specification.
    pub fn config(&self) -> Result<Parsed<Config>> {
        Ok(Config::parse(&self.text(Config::PATH)?)?)
    }

    /// `tensor_data/index.toml`, compared with its files; empty if there is none.
    ///
    /// # Errors
    /// When it is damaged or does not follow the specification.
    pub fn tensor_index(&self) -> Result<Parsed<TensorIndex>> {
        match self.entry(TensorIndex::PATH) {
            Err(Error::Missing { .. }) => {
                Ok(Parsed { document: TensorIndex::default(), added: carton_format::Problems::default() })
            }
            _ => Ok(TensorIndex::parse(&self.text(TensorIndex::PATH)?, &|path| self.file_len(path))?),
        }
    }

    fn file_len(&self, path: &str) -> FileLen {
        match self.entry(path) {
            Ok(entry) => FileLen::Bytes(entry.len),
            Err(Error::Elsewhere { .. }) => FileLen::Unknown,
            Err(_) => FileLen::Missing,
        }
    }

    /// Whether there is a file at `path`, here or elsewhere.
    pub fn has(&self, path: &str) -> bool {
        self.file_len(path) != FileLen::Missing
    }

    /// The file that the link `entry` leads to, directly or through other links.
    ///
    /// # Errors
    /// When it leads out of `model/`, to nothing or in a circle, or is damaged.
    pub fn link_target(&self, entry: &Entry) -> Result<String> {
        let mut at = entry;
        for _ in 0..LINKS_IN_A_ROW {
            let text = self.link_text(at)?;
            let resolved = resolve_link(&at.path, &text);
            let found = resolved.as_deref().map(|resolved| self.entry(resolved));
            match (found, resolved) {
                (Some(Ok(found)), _) if found.link => at = found,
                (Some(Ok(_) | Err(Error::Elsewhere { .. })), Some(resolved)) => return Ok(resolved),
                _ => return Err(Error::Link { path: at.path.clone(), target: text }),
            }
        }
        Err(Error::Link { path: entry.path.clone(), target: self.link_text(entry)? })
    }

    /// The target of the link `entry`. An absolute path into `model/` of the folder that was opened is made a
    /// relative one, as Carton stores it.
    ///
    /// # Errors
    /// When it is longer than a path can be, damaged, or not UTF-8.
    pub fn link_text(&self, entry: &Entry) -> Result<String> {
        let path = &entry.path;
        if entry.len > TARGET {
            return Err(Error::Large { path: path.clone(), found: entry.len, limit: TARGET });
        }
        let mut text = Vec::new();
        self.read(path)?.read_to_end(&mut text).map_err(|error| self.unwrapped(path, error))?;
        let text = String::from_utf8(text).map_err(|_| Error::Text { path: path.clone() })?;
        let model = self.zip.is_none().then(|| std::path::absolute(self.path.join(MODEL)).ok()).flatten();
        let inside = model.and_then(|model| Path::new(&text).strip_prefix(model).ok()?.to_str());
        // How many folders the link is below `model/`.
        let below = path.matches('/').count().saturating_sub(1);
        Ok(inside.map(|inside| "../".repeat(below) + inside).unwrap_or(text))
    }

    /// The checkpoint or TorchScript archive at `path`, such as `model/model.pt`. A stored one is mapped
    /// in place: its tensors are views of the carton itself, and nothing is hashed. A compressed one is
    /// decompressed into a temporary file first, and checked.
    ///
    /// # Errors
    /// When it is not there, damaged, or not in a format that holds tensors.
    pub fn model(&self, path: &str) -> Result<Container> {
        let mut path = path.to_owned();
        if self.entry(&path)?.link {
            path = self.link_target(self.entry(&path)?)?;
        }
        let entry = self.entry(&path)?;
        let source: Arc<dyn Source> = match (&entry.place, &self.zip) {
            (Some((range, _)), Some(zip)) if entry.method == Method::Stored => {
                let region = Region::new(zip, range.clone());
                Arc::new(region.ok_or_else(|| Error::Missing { path: path.clone() })?)
            }
            (Some(_), _) => Arc::new(self.spilled(&path)?),
            (None, _) => Arc::new(MappedFile::open(&self.path.join(&path))?),
        };
        Container::from_source(source).map_err(|reason| Error::Model { path, reason: Box::new(reason) })
    }

    fn spilled(&self, path: &str) -> Result<MappedFile> {
        let mut out = tempfile::tempfile().map_err(Error::Spill)?;
        self.copy(path, &mut out, Work::unobserved())?;
        Ok(MappedFile::from_file(&out, &self.path)?)
    }

    /// Copies the file at `path` to `out`, checked. `work` learns after each window how many bytes are copied.
    ///
    /// # Errors
    /// When it is not there or damaged, `out` fails, or the observer stops the work.
    pub fn copy(&self, path: &str, out: &mut dyn io::Write, work: Work<'_>) -> Result<()> {
        let mut reader = self.read(path)?;
        let mut done = 0_u64;
        loop {
            let bytes = reader.fill_buf().map_err(|error| self.unwrapped(path, error))?;
            if bytes.is_empty() {
                return Ok(());
            }
            let len = bytes.len();
            out.write_all(bytes).map_err(Error::Spill)?;
            reader.consume(len);
            done = done.saturating_add(len as u64);
            work.advance(done)?;
        }
    }

    /// The stored (possibly compressed) data of the file at `path`, and the CRC-32 of the decompressed data.
    pub fn packed(&self, path: &str) -> Option<(Region, u32)> {
        let (range, crc) = self.entries.get(path)?.place.clone()?;
        Some((Region::new(self.zip.as_ref()?, range)?, crc))
    }
}

/// The path that the link at `path` leads to, if that is inside `model/`.
pub fn resolve_link(path: &str, target: &str) -> Option<String> {
    if target.is_empty() || target.starts_with('/') || !path.starts_with(MODEL) {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            // `..` cannot leave `model` itself.
            ".." if parts.len() > 1 => {
                parts.pop();
            }
            ".." => return None,
            other => parts.push(other),
        }
    }
    let resolved = parts.join("/");
    (is_inside(&resolved) && resolved.starts_with(MODEL)).then_some(resolved)
}

fn zipped(index: Index) -> Result<BTreeMap<String, Entry>> {
    let mut entries = BTreeMap::new();
    for entry in index.entries {
        // Many zip files have entries for folders, but Carton's own never do.
        let is_folder = entry.len == 0 && entry.name.ends_with('/');
        let path = if is_folder { entry.name.trim_end_matches('/') } else { &entry.name };
        // Bytes that were not UTF-8 are replacement characters now, so the name could be ambiguous.
        if !is_inside(path) || path.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Error::Path { path: entry.name });
        }
        if is_folder {
            continue;
        }
        let packed_len = entry.stored_len();
        let (place, path) = (entry.data, entry.name);
        let entry = Entry {
            path: path.clone(),
            len: entry.len,
            packed_len,
            method: entry.method,
            link: entry.link,
            place: Some((place, entry.crc)),
        };
        if entry.link && !path.starts_with(MODEL) {
            return Err(Error::LinkPlace { path });
        }
        entries.insert(path, entry);
    }
    Ok(entries)
}

/// The files below `root`, found without recursion; links are not followed.
fn folder(root: &Path) -> Result<BTreeMap<String, Entry>> {
    let mut entries = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        let io = |reason| Error::Io { path: at.clone(), reason };
        for item in at.read_dir().map_err(io)? {
            let item = item.map_err(io)?;
            let name = item.file_name();
            let name = name.to_str().ok_or_else(|| Error::Name { path: item.path() })?;
            if LITTER.contains(&name) {
                continue;
            }
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            if !is_inside(&path) {
                return Err(Error::Path { path });
            }
            let kind = item.metadata().map_err(io)?;
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let len = kind.len();
            let link = kind.is_symlink();
            if !link && !kind.is_file() {
                return Err(Error::NotAFile { path });
            }
            if link && !path.starts_with(MODEL) {
                return Err(Error::LinkPlace { path });
            }
            let method = Method::Stored;
            entries.insert(path.clone(), Entry { path, len, packed_len: len, method, link, place: None });
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside() {
        let resolve = |path, target| resolve_link(path, target);
        assert_eq!(resolve("model/a", "b").as_deref(), Some("model/b"));
        assert_eq!(resolve("model/sub/a", "../b/./c").as_deref(), Some("model/b/c"));
        for target in ["../b", "/etc/passwd", "", "../../etc/passwd", "sub/../../b", ".."] {
            assert_eq!(resolve("model/a", target), None, "{target}");
        }
        assert_eq!(resolve("misc/a", "b"), None);
    }
}
