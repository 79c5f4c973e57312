//! Digest of everything that an output is made from: the options, the input files and the documents next to them.
//!
//! The digest of a zip archive covers its length, its pickles and its directory, which has a checksum of each record, so the
//! weights are not read. A large file without checksums, such as a safetensors file, is recognised by its times instead.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Blob, Checks, FileStat, Location, MappedFile, Region, Sha256, Sink, Source, Stat, Window, hex,
};
use output::{FileRecord, file_name};
use serde_json::Value as Json;
use zip_format::{Entry, ZipIndex};

use crate::input::misc;
use crate::{ConvertOptions, Error, PlannedConversion, Result};
use open::to_object;

const VERSION: u64 = 2;
/// Largest length in bytes of a file without checksums that is read as a whole.
const READ_WHOLE_MAX: u64 = 16 << 20;

/// Number of bytes at the start and at the end of a file without a version by which a change is noticed.
const EDGE: u64 = 64 << 10;

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
    for file in sources.locations() {
        digest.text(&file_name(file.path()));
        digest.input(&file)?;
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
    for file in &conversion.other_inputs {
        // An adapter may have no settings next to it, which is reported when it is merged.
        if file.is_file() {
            digest.input(file)?;
        }
    }
    if conversion.options.dequantize {
        for name in quantization::QUANTIZATION_DOCUMENTS {
            digest.text(&documents.read(name)?.unwrap_or_default());
        }
    }
    for path in conversion.options.target.output().read_files() {
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

/// Computes the digest, in hexadecimal, of a text that names a task with its options, and of files or folders.
///
/// # Errors
/// When an input cannot be read.
pub fn inputs_digest(task: &str, inputs: &[Location], content: InputContent) -> Result<String> {
    let mut digest = InputDigest::default();
    digest.number(VERSION);
    digest.text(task);
    for input in inputs {
        digest.text(&file_name(input.path()));
        if input.is_local() && content == InputContent::Bytes && !input.is_folder() {
            digest.whole(input.path())?;
        } else {
            digest.input(input)?;
        }
    }
    Ok(hex(&digest.0.digest()))
}

/// Returns the options that change an output, as JSON.
fn options_text(options: &ConvertOptions) -> String {
    /// Options of which the bytes of an output do not depend.
    const OTHERS: &[&str] =
        &["output", "no_clobber", "force", "dry_run", "no_sync", "statement", "max_expansion"];
    let mut changing = to_object(options);
    changing.retain(|name, _| !OTHERS.contains(&name.as_str()));
    if !options.target.output().has_digest() {
        changing.remove("digest");
    }
    changing.sort_keys();
    Json::Object(changing).to_string()
}

/// SHA-256 of fields, each of which begins with its length.
#[derive(Default)]
struct InputDigest(Sha256);

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
        read.map_err(|error| error.in_file(path))
    }

    /// Adds all bytes of a document.
    fn file(&mut self, path: &Path) -> Result<()> {
        let source: Arc<dyn Source> = Arc::new(open(path)?);
        self.region(&Region::whole(&source))
    }

    /// Adds all bytes of a small file, or the times of a large one. A pipe or a device has only times.
    fn whole(&mut self, path: &Path) -> Result<()> {
        let metadata = path.metadata().map_err(|error| byte_source::Error::from(error).in_file(path))?;
        self.number(metadata.len());
        if metadata.is_file() && metadata.len() <= READ_WHOLE_MAX {
            self.file(path)
        } else {
            self.times(path)
        }
    }

    /// Adds an input: a file, or all files below a folder. Elsewhere than on this machine, their versions are added.
    fn input(&mut self, input: &Location) -> Result<()> {
        let unread = |error: io::Error| byte_source::Error::from(error).in_file(input.path());
        match input.stat().map_err(unread)? {
            Some(Stat::Folder) if input.is_local() => self.folder(input.path()),
            Some(Stat::Folder) => {
                let files = input.files_below().map_err(unread)?;
                files.into_iter().try_for_each(|file| self.input(&input.join(file)))
            }
            _ if input.is_local() => self.local_file(input.path()),
            Some(Stat::File(FileStat { len: Some(len), etag: Some(version), .. })) => {
                self.text(&input.path().to_string_lossy());
                self.number(len);
                self.text(&version);
                Ok(())
            }
            _ => self.edges(&*input.open().map_err(|error| error.in_file(input.path()))?),
        }
    }

    /// Adds a file of this machine: the pickles and the directory of an archive, all bytes of a small file, or the times of a large
    /// one.
    fn local_file(&mut self, path: &Path) -> Result<()> {
        let source: Arc<dyn Source> = Arc::new(open(path)?);
        self.number(source.len());
        match ZipIndex::open(Arc::clone(&source), Checks::WhenRead, &()) {
            Ok((index, archive)) if index.entries.iter().all(has_checksum) => self.archive(&index, &archive),
            _ if source.len() <= READ_WHOLE_MAX => self.region(&Region::whole(&source)),
            _ => self.times(path),
        }
    }

    /// Adds the length, the first and the last bytes of a file.
    fn edges(&mut self, source: &dyn Source) -> Result<()> {
        self.text(&source.path().to_string_lossy());
        let (len, edge) = (source.len(), source.len().min(EDGE));
        self.number(len);
        for range in [0..edge, len.saturating_sub(edge)..len] {
            let bytes = source.read_range(range);
            self.bytes(bytes.map_err(|error| error.in_file(source.path()))?.to_vec());
        }
        Ok(())
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
        let metadata = path.metadata().map_err(|error| byte_source::Error::from(error).in_file(path))?;
        let FileRecord { modified, changed, .. } = FileRecord::new("", &metadata, None);
        let numbers = [metadata.len(), modified.unwrap_or(0), changed.unwrap_or(0), inode(&metadata)];
        self.numbers(&numbers);
        Ok(())
    }

    /// Adds the paths and times of all files below a folder.
    fn folder(&mut self, folder: &Path) -> Result<()> {
        let mut paths: Vec<PathBuf> = vec![folder.to_owned()];
        while let Some(next) = paths.pop() {
            let mut below = Vec::new();
            let io = |error: io::Error| Error::from(error).in_file(&next);
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

fn open(path: &Path) -> Result<MappedFile> {
    Ok(MappedFile::open(path)?)
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}
