//! Access to the files of an open `.carton` or unpacked folder.
//!
//! Facts: the Carton v1 specification; path and link limits are those of Linux.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Action, Checks, FileError, MappedFile, Observer, OpenedFile, ProgressReporter, Region, Sha256, Source,
};
use zip_format::{CompressionMethod, ZipIndex};

use crate::entry::ExpectedSums;
use crate::error::zip_error;
use crate::link::{MODEL_FOLDER, resolve_link};
use crate::listing::{folder_entries, zip_entries};
use crate::{
    CartonEntry, Config, DocumentProblems, EntryReader, Error, FileLen, Links, Manifest, Parsed, Problem,
    Result, TensorIndex,
};

/// Maximum size of a MANIFEST in bytes: one with 100,000 long paths has a tenth of this.
const MANIFEST_MAX: u64 = 256 << 20;
/// Maximum size in bytes of carton.toml, LINKS, or another document except MANIFEST. Parsed TOML takes about fifty times its length.
pub const TOML_MAX: u64 = 16 << 20;
/// Maximum length of a chain of links, as in Linux.
const LINK_CHAIN_MAX: usize = 40;
/// Maximum length of a link's target in bytes: the longest path in Linux.
const LINK_TARGET_MAX: u64 = 4096;

/// An open carton. Only its directory, MANIFEST and LINKS have been read.
#[derive(Debug)]
pub struct Carton {
    path: PathBuf,
    /// Zip file; `None` for a folder.
    zip: Option<Arc<dyn Source>>,
    entries: BTreeMap<String, CartonEntry>,
    manifest: Option<Manifest>,
    manifest_hash: Option<[u8; 32]>,
    links: Links,
    /// Opens a file with tensors in an unpacked carton.
    open_file: fn(&Path) -> OpenedFile,
}

impl Carton {
    /// Opens the `.carton` or the folder at `path`. A folder need not have a MANIFEST.
    ///
    /// # Errors
    /// When the path cannot be read, the zip directory is damaged or ambiguous, the path of an entry leads out of the
    /// carton, a link is outside of `model/`, MANIFEST or LINKS do not follow the specification, a zip file has no MANIFEST,
    /// or a path lies below another file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, byte_source::map_file)
    }

    /// Opens the `.carton` or the folder at `path` like [`open`](Self::open), and each file with tensors with `open_file`, for a caller
    /// that does not map files.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of `open_file`.
    pub fn open_with(path: &Path, open_file: fn(&Path) -> OpenedFile) -> Result<Self> {
        if !path.is_dir() {
            return Self::from_source(open_file(path)?);
        }
        Self::with_manifest(Self { open_file, ..Self::open_unlisted(path)? })
    }

    /// Reads a `.carton` from a source. If each read of it is a request, local headers are read only with their files.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        let (path, links) = (source.path().to_owned(), Links::default());
        let checks = Checks::for_source(&*source);
        let (index, source) = ZipIndex::open(source, checks, &()).map_err(zip_error)?;
        let entries = zip_entries(index)?;
        Self::with_manifest(Self {
            path,
            zip: Some(source),
            entries,
            manifest: None,
            manifest_hash: None,
            links,
            open_file: byte_source::map_file,
        })
    }

    /// Reads and checks the MANIFEST and LINKS of `carton`.
    fn with_manifest(mut carton: Self) -> Result<Self> {
        if carton.entries.contains_key(Links::PATH) {
            carton.links = Links::parse(&carton.text(Links::PATH)?)?;
        }
        if carton.entries.contains_key(Manifest::PATH) {
            let text = carton.text(Manifest::PATH)?;
            carton.manifest_hash = Some(Sha256::of(text.as_bytes()));
            carton.manifest = Some(Manifest::parse(&text)?);
        } else if carton.zip.is_some() {
            return Err(Problem::Missing { path: Manifest::PATH.to_owned() }.into());
        }
        carton.reject_files_as_folders()?;
        Ok(carton)
    }

    /// Opens the folder at `path` without its MANIFEST and LINKS: the files are not compared with their hashes.
    ///
    /// # Errors
    /// When the folder cannot be read, or has a path that a carton cannot have.
    pub fn open_unlisted(path: &Path) -> Result<Self> {
        let entries = folder_entries(path)?;
        let (path, links) = (path.to_owned(), Links::default());
        Ok(Self {
            path,
            zip: None,
            entries,
            manifest: None,
            manifest_hash: None,
            links,
            open_file: byte_source::map_file,
        })
    }

    /// Returns an error if a path lies below another file.
    fn reject_files_as_folders(&self) -> Result<()> {
        let listed = self.manifest.iter().flat_map(Manifest::lines).map(|(path, _)| path);
        for below in self.entries.keys().map(String::as_str).chain(listed) {
            let mut path = below;
            while let Some((folder, _)) = path.rsplit_once('/') {
                if self.entries.contains_key(folder) || self.is_listed(folder) {
                    return Err(
                        Problem::FileAsFolder { path: folder.to_owned(), below: below.to_owned() }.into()
                    );
                }
                path = folder;
            }
        }
        Ok(())
    }

    fn is_listed(&self, path: &str) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.hash(path).is_some())
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the zip file; `None` for a folder.
    pub(crate) fn zip(&self) -> Option<&Arc<dyn Source>> {
        self.zip.as_ref()
    }

    /// Returns true for a zip file, false for a folder.
    pub fn is_packed(&self) -> bool {
        self.zip.is_some()
    }

    /// Returns the length of the zip file in bytes; 0 for a folder.
    pub fn len(&self) -> u64 {
        self.zip.as_ref().map_or(0, |zip| zip.len())
    }

    /// Checks that the zip file has the same length and modification time as when it was opened. A folder always passes: its
    /// files are opened one by one.
    ///
    /// # Errors
    /// When the zip file changed, or the system does not report its metadata.
    pub fn check_unchanged(&self) -> Result<()> {
        self.zip.as_ref().map_or(Ok(()), |zip| zip.check_unchanged())
    }

    /// Returns true if the carton has no files.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the files in the carton, including MANIFEST and LINKS, sorted by path.
    pub fn entries(&self) -> impl Iterator<Item = &CartonEntry> {
        self.entries.values()
    }

    /// Returns the file at `path`.
    ///
    /// # Errors
    /// When it does not exist; [`Problem::NotFetched`] if LINKS has a URL for it.
    pub fn entry(&self, path: &str) -> Result<&CartonEntry, Problem> {
        if let Some(entry) = self.entries.get(path) {
            return Ok(entry);
        }
        let path = path.to_owned();
        let hash = self.manifest.as_ref().and_then(|manifest| manifest.hash(&path));
        match hash {
            Some(hash) if !self.links.urls(&hash).is_empty() => Err(Problem::NotFetched { path }),
            _ => Err(Problem::Missing { path }),
        }
    }

    /// Returns the MANIFEST; a folder may have none.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Returns the SHA-256 of MANIFEST, which is called the model's hash.
    pub fn manifest_hash(&self) -> Option<[u8; 32]> {
        self.manifest_hash
    }

    /// Returns the LINKS; empty if the carton has none.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the paths and hashes of the files that MANIFEST lists but the carton lacks.
    pub fn absent(&self) -> Vec<(String, [u8; 32])> {
        let lines = self.manifest.iter().flat_map(Manifest::lines);
        lines
            .filter(|(path, _)| !self.entries.contains_key(*path))
            .map(|(path, hash)| (path.to_owned(), hash))
            .collect()
    }

    /// Opens the file at `path` for reading. Its checksum and hash are checked at the end.
    ///
    /// # Errors
    /// When it is not in the carton, or MANIFEST does not list it.
    pub fn read(&self, path: &str) -> Result<EntryReader> {
        let entry = self.entry(path)?;
        let known = [Manifest::PATH, Links::PATH].contains(&path) || entry.is_symbolic_link;
        let mut expected =
            ExpectedSums { crc: entry.data_and_crc.as_ref().map(|(_, crc)| *crc), sha256: None };
        if let Some(manifest) = self.manifest.as_ref().filter(|_| !known) {
            let hash = manifest.hash(path).ok_or_else(|| Problem::Unlisted { path: path.to_owned() })?;
            expected.sha256 = Some(hash);
        }
        self.open_entry(entry, expected)
    }

    fn open_entry(&self, entry: &CartonEntry, expected: ExpectedSums) -> Result<EntryReader> {
        if let Some(file) = &self.zip {
            return EntryReader::zipped(file, entry, expected);
        }
        let path = self.path.join(&entry.path);
        let io = |reason| FileError::Read { path: path.clone(), reason };
        if entry.is_symbolic_link {
            let target = std::fs::read_link(&path).map_err(io)?;
            return Ok(EntryReader::link(target.into_os_string().into_encoded_bytes(), entry));
        }
        Ok(EntryReader::file(File::open(&path).map_err(io)?, entry, expected))
    }

    /// Reads the document at `path` as text and checks its hash.
    ///
    /// # Errors
    /// When it is not in the carton, too large for a document, damaged, or not UTF-8.
    pub fn text(&self, path: &str) -> Result<String> {
        let entry = self.entry(path)?;
        let limit = if path == Manifest::PATH { MANIFEST_MAX } else { TOML_MAX };
        if entry.len > limit {
            return Err(Problem::OversizedDocument { path: path.to_owned(), found: entry.len, limit }.into());
        }
        let mut bytes = Vec::new();
        self.read(path)?.read_to_end(&mut bytes).map_err(|error| self.reader_error(path, error))?;
        Ok(String::from_utf8(bytes).map_err(|_| Problem::TextNotUtf8 { path: path.to_owned() })?)
    }

    /// Converts an I/O error of an [`EntryReader`] of the file at `path`.
    pub fn reader_error(&self, path: &str, error: io::Error) -> Error {
        match Error::from(error) {
            error if error.io_kind().is_none() => error,
            error => FileError::Read { path: self.path.join(path), reason: error.into() }.into(),
        }
    }

    /// Reads and parses carton.toml.
    ///
    /// # Errors
    /// When it is not in the carton, damaged, or does not follow the specification.
    pub fn config(&self) -> Result<Parsed<Config>> {
        Config::parse(&self.text(Config::PATH)?)
    }

    /// Reads `tensor_data/index.toml` and compares it with its files; empty if there is no index.
    ///
    /// # Errors
    /// When it is damaged or does not follow the specification.
    pub fn tensor_index(&self) -> Result<Parsed<TensorIndex>> {
        match self.entry(TensorIndex::PATH) {
            Err(Problem::Missing { .. }) => {
                Ok(Parsed { document: TensorIndex::default(), filled_in: DocumentProblems::default() })
            }
            _ => TensorIndex::parse(&self.text(TensorIndex::PATH)?, &|path| self.file_len(path)),
        }
    }

    fn file_len(&self, path: &str) -> FileLen {
        match self.entry(path) {
            Ok(entry) => FileLen::Bytes(entry.len),
            Err(Problem::NotFetched { .. }) => FileLen::Unknown,
            Err(_) => FileLen::Missing,
        }
    }

    /// Returns true if the file at `path` is in the carton or can be fetched.
    pub fn has_file(&self, path: &str) -> bool {
        self.file_len(path) != FileLen::Missing
    }

    /// Returns the path of the file that the link `entry` leads to, directly or through other links.
    ///
    /// # Errors
    /// When it leads out of `model/`, to nothing or in a circle, or is damaged.
    pub fn link_target(&self, entry: &CartonEntry) -> Result<String> {
        let mut at = entry;
        for _ in 0..LINK_CHAIN_MAX {
            let text = self.link_text(at)?;
            let resolved = resolve_link(&at.path, &text);
            let found = resolved.as_deref().map(|resolved| self.entry(resolved));
            match (found, resolved) {
                (Some(Ok(found)), _) if found.is_symbolic_link => at = found,
                (Some(Ok(_) | Err(Problem::NotFetched { .. })), Some(resolved)) => return Ok(resolved),
                _ => return Err(Problem::BrokenLink { path: at.path.clone(), target: text }.into()),
            }
        }
        Err(Problem::BrokenLink { path: entry.path.clone(), target: self.link_text(entry)? }.into())
    }

    /// Returns the target of the link `entry`. In a folder, an absolute path into the folder's own `model/` is made
    /// relative, as Carton stores it.
    ///
    /// # Errors
    /// When it is longer than a path can be, damaged, or not UTF-8.
    pub fn link_text(&self, entry: &CartonEntry) -> Result<String> {
        let path = &entry.path;
        if entry.len > LINK_TARGET_MAX {
            return Err(Problem::OversizedDocument {
                path: path.clone(),
                found: entry.len,
                limit: LINK_TARGET_MAX,
            }
            .into());
        }
        let mut text = Vec::new();
        self.read(path)?.read_to_end(&mut text).map_err(|error| self.reader_error(path, error))?;
        let text = String::from_utf8(text).map_err(|_| Problem::TextNotUtf8 { path: path.clone() })?;
        let model =
            self.zip.is_none().then(|| std::path::absolute(self.path.join(MODEL_FOLDER)).ok()).flatten();
        let inside = model.and_then(|model| Path::new(&text).strip_prefix(model).ok()?.to_str());
        // Depth of the link below `model/`, in folders.
        let below = path.matches('/').count().saturating_sub(1);
        Ok(inside.map(|inside| "../".repeat(below) + inside).unwrap_or(text))
    }

    /// Returns the file at `path`, or the one that a link there leads to.
    ///
    /// # Errors
    /// Those of [`entry`](Self::entry) and of [`link_target`](Self::link_target).
    pub fn file(&self, path: &str) -> Result<&CartonEntry> {
        let entry = self.entry(path)?;
        if entry.is_symbolic_link { Ok(self.entry(&self.link_target(entry)?)?) } else { Ok(entry) }
    }

    /// Returns the bytes of the file at `path`, such as `model/model.pt`, also if a link leads to it. A stored file is a part of the
    /// carton itself, and nothing is hashed. A compressed file is first decompressed into an unlinked temporary file, and checked,
    /// which `observer` can follow and stop.
    ///
    /// # Errors
    /// When it is not there, cannot be opened or is damaged, and when `observer` stops the work.
    pub fn source(&self, path: &str, observer: &dyn Observer) -> Result<Arc<dyn Source>> {
        let entry = self.file(path)?;
        let Some(((range, _), zip)) = entry.data_and_crc.as_ref().zip(self.zip.as_ref()) else {
            return (self.open_file)(&self.path.join(&entry.path));
        };
        if entry.method == CompressionMethod::Stored {
            let region = Region::new(zip, range.clone());
            return Ok(Arc::new(region.ok_or_else(|| Problem::Missing { path: entry.path.clone() })?));
        }
        let mut file = tempfile::tempfile().map_err(Problem::WriteOutput)?;
        let work = ProgressReporter::new(observer, &entry.path, Action::Verify, Some(entry.len));
        self.copy(&entry.path, &mut file, work)?;
        Ok(Arc::new(MappedFile::from_file(&file, &self.path)?))
    }

    /// Copies the file at `path` to `out` and checks it. `work` is told after each window how many bytes are copied.
    ///
    /// # Errors
    /// When the file is not in the carton or is damaged, `out` fails, or the observer stops the work.
    pub fn copy(&self, path: &str, out: &mut dyn io::Write, work: ProgressReporter<'_>) -> Result<()> {
        let mut reader = self.read(path)?;
        let mut done = 0_u64;
        loop {
            let bytes = reader.fill_buf().map_err(|error| self.reader_error(path, error))?;
            if bytes.is_empty() {
                return Ok(());
            }
            let len = bytes.len();
            out.write_all(bytes).map_err(Problem::WriteOutput)?;
            reader.consume(len);
            done = done.saturating_add(len as u64);
            work.advance(done)?;
        }
    }

    /// Returns the stored, possibly compressed data of the file at `path`, and the CRC-32 of the decompressed data; `None`
    /// for a folder.
    pub fn stored_data(&self, path: &str) -> Option<(Region, u32)> {
        let (range, crc) = self.entries.get(path)?.data_and_crc.clone()?;
        Some((Region::new(self.zip.as_ref()?, range)?, crc))
    }
}
