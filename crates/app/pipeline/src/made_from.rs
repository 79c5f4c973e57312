//! Digest of everything that an output is made from: the options, the input files and the documents next to them.
//!
//! The digest of a zip archive covers its length, its pickles and its directory, which has a checksum of each record, so the
//! weights are not read. A large file without checksums, such as a safetensors file, is recognised by its times instead.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Blob, InputSource, MappedFile, Region, Sha256Sink, Sink, Source, SourceFolder, Window, hex,
};
use checkpoint_files::{CheckpointSources, ShardPolicy, is_companion_name};
use output::{FileRecord, file_name};
use serde_json::Value as Json;
use zip_format::{Entry, ZipIndex};

use crate::{ConvertOptions, Error, PlannedConversion, Result, misc, option_json};

const VERSION: u64 = 2;
/// Largest length in bytes of a file without checksums that is read as a whole.
const READ_WHOLE_MAX: u64 = 16 << 20;

/// Number of bytes at the start and at the end of a file that is not on this machine by which a change is noticed.
const GIVEN_EDGE: u64 = 64 << 10;

/// Computes the digest, in hexadecimal, of all that the output of `conversion` is made from.
///
/// # Errors
/// When an input or a document cannot be read.
pub(crate) fn made_from_digest(conversion: &PlannedConversion) -> Result<String> {
    let mut digest = InputDigest::default();
    digest.number(VERSION);
    digest.text(&options_text(&conversion.options));
    digest.text(&conversion.name);
    let sources = &conversion.sources;
    for path in sources.inputs() {
        digest.text(&file_name(path));
        if path.is_dir() {
            digest.folder(path)?;
        } else {
            digest.input(path)?;
        }
    }
    if let Some(source) = &conversion.options.source {
        digest.given(source, Some(conversion.options.shards()))?;
    }
    let (documents, _) = misc::find_misc_files(conversion)?;
    for (name, path) in documents {
        digest.text(&name);
        digest.file(&path)?;
    }
    // The architecture is read from these documents even if they are links out of the folder, which are not copied.
    let documents = &sources.documents;
    for text in [documents.params()?, documents.config()?, documents.adapter()?] {
        digest.text(text.unwrap_or_default());
    }
    for source in conversion.options.other_paths().filter_map(|path| conversion.options.given.find(path)) {
        digest.given(source, Some(ShardPolicy::default()))?;
    }
    for path in &conversion.other_inputs {
        // An adapter may have no settings next to it, which is reported when it is merged.
        if path.is_file() {
            digest.input(path)?;
        }
    }
    if conversion.options.dequantize {
        for name in quantization::QUANTIZATION_DOCUMENTS {
            digest.text(&documents.read(name)?.unwrap_or_default());
        }
    }
    if let Some(path) = conversion.options.target.as_carton().and_then(|carton| carton.config.as_ref()) {
        digest.file(path)?;
    }
    Ok(hex(&digest.0.digest()))
}

/// Part of an input on which a result depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputContent {
    /// The tensors and values: of an archive, its length, its pickles and its directory.
    Tensors,
    /// All bytes: of a file above 16 MiB, its length and its times.
    Bytes,
}

/// Computes the digest, in hexadecimal, of a text that names a task with its options, and of files or unpacked cartons.
///
/// # Errors
/// When an input cannot be read.
pub fn inputs_digest<'p>(
    task: &str,
    inputs: impl Iterator<Item = &'p Path>,
    content: InputContent,
) -> Result<String> {
    let mut digest = InputDigest::default();
    digest.number(VERSION);
    digest.text(task);
    for path in inputs {
        digest.text(&file_name(path));
        if path.is_dir() {
            digest.folder(path)?;
        } else if content == InputContent::Tensors {
            digest.input(path)?;
        } else {
            digest.whole(path)?;
        }
    }
    Ok(hex(&digest.0.digest()))
}

/// Computes the digest, in hexadecimal, of a text that names a task with its options, and of an input that is not on this machine.
/// Returns it with the length of the files in bytes. With `shards`, these are the files of the one checkpoint, otherwise all of a
/// folder.
///
/// # Errors
/// When the input is not one checkpoint, or a file cannot be read.
pub fn given_digest(task: &str, input: &InputSource, shards: Option<ShardPolicy>) -> Result<(String, u64)> {
    let mut digest = InputDigest::default();
    digest.number(VERSION);
    digest.text(task);
    let nbytes = digest.given(input, shards)?;
    Ok((hex(&digest.0.digest()), nbytes))
}

/// Returns the options that change an output, as JSON.
fn options_text(options: &ConvertOptions) -> String {
    /// Options of which the bytes of an output do not depend.
    const OTHERS: &[&str] = &["output", "no_clobber", "force", "dry_run", "no_sync", "max_expansion"];
    let mut changing = option_json::to_object(options);
    changing.retain(|name, _| !OTHERS.contains(&name.as_str()));
    if options.target.as_carton().is_none() {
        // Only carton.toml has the digest.
        changing.remove("digest");
    }
    changing.sort_keys();
    Json::Object(changing).to_string()
}

/// SHA-256 of fields, each of which begins with its length.
#[derive(Default)]
struct InputDigest(Sha256Sink);

impl InputDigest {
    fn bytes(&mut self, bytes: Vec<u8>) {
        self.number(bytes.len() as u64);
        self.window(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes().to_vec());
    }

    fn number(&mut self, number: u64) {
        self.window(number.to_le_bytes().to_vec());
    }

    fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.number(*number);
        }
    }

    fn window(&mut self, bytes: Vec<u8>) {
        self.0.write(Window::owned(bytes)).expect("a hash takes any bytes");
    }

    /// Adds the length and all bytes of a part of a file.
    fn region(&mut self, region: &Region) -> Result<()> {
        self.number(Blob::len(region));
        let read = region.write_to(&mut self.0);
        let path = region.source().path();
        read.map_err(|reason| {
            Error::from_read_error(reason, |reason| Error::Io { path: path.to_owned(), reason })
        })
    }

    /// Adds all bytes of a document.
    fn file(&mut self, path: &Path) -> Result<()> {
        let source: Arc<dyn Source> = Arc::new(open(path)?);
        self.region(&Region::whole(&source))
    }

    /// Adds all bytes of a small file, or the times of a large one. A pipe or a device has only times.
    fn whole(&mut self, path: &Path) -> Result<()> {
        let metadata = path.metadata().map_err(|reason| Error::Io { path: path.to_owned(), reason })?;
        self.number(metadata.len());
        if metadata.is_file() && metadata.len() <= READ_WHOLE_MAX {
            self.file(path)
        } else {
            self.times(path)
        }
    }

    /// Adds an input file: the pickles and the directory of an archive, all bytes of a small file, or the times of a large
    /// one.
    fn input(&mut self, path: &Path) -> Result<()> {
        let source: Arc<dyn Source> = Arc::new(open(path)?);
        self.number(source.len());
        match ZipIndex::read_directory(&source) {
            Ok((index, archive)) if index.entries.iter().all(has_checksum) => self.archive(&index, &archive),
            _ if source.len() <= READ_WHOLE_MAX => self.region(&Region::whole(&source)),
            _ => self.times(path),
        }
    }

    /// Adds the versions of the files of an input that is not on this machine, and of the documents next to them. Returns the length
    /// of the files in bytes.
    fn given(&mut self, input: &InputSource, shards: Option<ShardPolicy>) -> Result<u64> {
        let (folder, file) = match input {
            InputSource::File(source) => return self.edges(source),
            InputSource::Folder { folder, file } => (folder, file),
        };
        let files: Vec<String> = match (shards, file) {
            (Some(shards), _) => {
                let sources = CheckpointSources::find_source(input, shards)?;
                sources.files.iter().map(|path| file_name(path)).collect()
            }
            (None, Some(file)) => vec![file.clone()],
            (None, None) => folder.files().to_vec(),
        };
        let nbytes = self.listed(folder, &files.iter().map(String::as_str).collect::<Vec<_>>())?;
        let names = folder.files().iter().map(String::as_str);
        let documents: Vec<&str> = names.filter(|name| is_document(name)).collect();
        self.listed(folder, &documents)?;
        Ok(nbytes)
    }

    /// Adds what the listing says of files, or their lengths, starts and ends if it says too little. Returns their length in bytes.
    fn listed(&mut self, folder: &Arc<dyn SourceFolder>, files: &[&str]) -> Result<u64> {
        let mut nbytes = 0_u64;
        let mut unlisted = Vec::new();
        for file in files {
            let (Some(len), Some(version)) = (folder.len_of(file), folder.version_of(file)) else {
                unlisted.push(*file);
                continue;
            };
            self.text(&folder.path_of(file).to_string_lossy());
            self.number(len);
            self.text(&version);
            nbytes = nbytes.saturating_add(len);
        }
        let sources = folder.open(&unlisted);
        for source in sources.map_err(|reason| Error::unread_input(folder.path(), reason))? {
            nbytes = nbytes.saturating_add(self.edges(&source)?);
        }
        Ok(nbytes)
    }

    /// Adds the length, the first and the last bytes of a file that is not on this machine. Returns its length in bytes.
    fn edges(&mut self, source: &Arc<dyn Source>) -> Result<u64> {
        self.text(&source.path().to_string_lossy());
        let (len, edge) = (source.len(), source.len().min(GIVEN_EDGE));
        self.number(len);
        for range in [0..edge, len.saturating_sub(edge)..len] {
            let bytes = source.read_range(range);
            self.bytes(bytes.map_err(|reason| Error::unread_input(source.path(), reason))?.to_vec());
        }
        Ok(len)
    }

    fn archive(&mut self, index: &ZipIndex, archive: &Arc<dyn Source>) -> Result<()> {
        self.number(index.entries.len() as u64);
        for entry in &index.entries {
            self.text(&entry.name);
            self.text(&format!("{:?}", entry.method));
            let numbers = [entry.header_offset, entry.stored_len(), entry.len, u64::from(entry.crc)];
            self.numbers(&numbers);
            if is_pickle(entry)
                && let Some(pickle) = Region::new(archive, entry.data.clone())
            {
                self.region(&pickle)?;
            }
        }
        Ok(())
    }

    /// Adds the times of a file, and its number in its filesystem.
    fn times(&mut self, path: &Path) -> Result<()> {
        let metadata = path.metadata().map_err(|reason| Error::Io { path: path.to_owned(), reason })?;
        let FileRecord { modified, changed, .. } = FileRecord::new("", &metadata, None);
        let numbers = [metadata.len(), modified.unwrap_or(0), changed.unwrap_or(0), inode(&metadata)];
        self.numbers(&numbers);
        Ok(())
    }

    /// Adds the paths and times of all files below a folder.
    fn folder(&mut self, folder: &Path) -> Result<()> {
        let mut paths: Vec<PathBuf> = vec![folder.to_owned()];
        while let Some(next) = paths.pop() {
            let io = |reason| Error::Io { path: next.clone(), reason };
            let mut below = Vec::new();
            for entry in next.read_dir().map_err(io)? {
                below.push(entry.map_err(io)?);
            }
            below.sort_by_key(std::fs::DirEntry::file_name);
            for entry in below {
                self.text(&entry.path().strip_prefix(folder).unwrap_or(&next).to_string_lossy());
                if entry.file_type().map_err(io)?.is_dir() {
                    paths.push(entry.path());
                } else {
                    self.times(&entry.path())?;
                }
            }
        }
        Ok(())
    }
}

/// Returns true if the directory has a checksum of the entry. Archives can be written without checksums, which are 0 then.
fn has_checksum(entry: &Entry) -> bool {
    entry.crc != 0 || entry.len == 0
}

/// Returns true for the pickles that name the tensors, whose 32-bit checksums are not trusted alone.
fn is_pickle(entry: &Entry) -> bool {
    ["data.pkl", "constants.pkl"].iter().any(|name| entry.name.ends_with(name))
}

/// Returns true for the files next to a checkpoint that say what its tensors mean, or are copied.
fn is_document(name: &str) -> bool {
    let is_json = Path::new(name).extension().is_some_and(|extension| extension == "json");
    is_companion_name(name) || is_json && !name.contains('/')
}

fn open(path: &Path) -> Result<MappedFile> {
    MappedFile::open(path).map_err(Error::Map)
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}
