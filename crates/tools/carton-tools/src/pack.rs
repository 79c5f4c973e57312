//! Packs a folder into a carton.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use byte_source::{
    Action, Blob, FileError, LazyFile, Location, Observer, ProgressReporter, Region, Source, each_window,
    hex, sha256,
};
use carton_format::{Carton, CartonEntry, Config, DataType, MODEL_FOLDER, MODEL_PT, TensorIndex, TensorSpec};
use carton_writer::{
    CartonMember, CompressedFile, CompressedFiles, CompressionSpill, EntryContent, write_carton,
};
use open::path_json;
use output::{IfExists, Scratch, file_name, parent_folder};
use serde::{Deserialize, Serialize};

use crate::arrays::{self, TensorFile};
use crate::error::at;
use crate::kept_entry::is_manifest_or_links;
use crate::{CartonNote, Error, Problem, Result, SCHEMA_VERSION};

const CARTON_FOLDERS: &[&str] = &[MODEL_FOLDER, "tensor_data/", "misc/"];
/// Largest number of files that are not on this machine and open at the same time.
const OPENED_MAX: usize = 16;

/// Options for packing a folder into a carton.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct PackOptions {
    /// Folder to pack. It holds carton.toml and `model/`, and may hold `tensor_data/` and `misc/`.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub folder: Location,
    /// Where to write the carton [default: next to the folder, or of one at an address in the current folder]
    #[serde(with = "path_json::option")]
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "CARTON"))]
    pub output: Option<PathBuf>,
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub if_exists: IfExists,
    /// How to compress files; auto stores what does not become smaller
    #[cfg_attr(feature = "cli", arg(long, value_name = "METHOD", default_value = "auto"))]
    pub compression: PackCompression,
    /// An array to add to the tensors; repeatable
    #[serde(rename = "tensor")]
    #[cfg_attr(feature = "cli", arg(long = "tensor", value_name = "NAME=FILE.npy"))]
    pub tensors: Vec<ArrayFile>,
}

impl PackOptions {
    /// Creates options that pack `folder` with the default compression, next to the folder.
    pub fn new(folder: impl Into<Location>) -> Self {
        Self { folder: folder.into(), ..Self::default() }
    }
}

/// NumPy array to add to the tensors of a carton.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayFile {
    /// Name of the tensor.
    pub name: String,
    /// Path of the `.npy` file.
    #[serde(with = "path_json::one")]
    pub path: PathBuf,
}

impl FromStr for ArrayFile {
    type Err = &'static str;

    /// Parses `NAME=FILE.npy`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (name, path) = text.split_once('=').ok_or("expected NAME=FILE.npy")?;
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

/// Compression of the files in a carton.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum PackCompression {
    /// Zstandard where it helps; model/model.pt is stored, so that it can be mapped
    #[default]
    Auto,
    /// All files as they are
    Stored,
    /// All files with Deflate
    Deflate,
    /// All files with Zstandard
    Zstd,
}

/// Number of packed files, with the size and the hash of the carton.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PackReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the folder, as the caller gave it.
    pub file: String,
    /// Path of the carton.
    pub output: String,
    /// Number of files in the carton, including MANIFEST and links.
    pub files: usize,
    /// Size of the carton in bytes.
    pub nbytes: u64,
    /// SHA-256 of MANIFEST, which identifies the model.
    pub manifest_sha256: String,
    pub notes: Vec<CartonNote>,
}

/// Packs a folder into a carton.
///
/// A MANIFEST or LINKS in the folder is ignored: it lists earlier hashes of the files, which may have changed. The files of a
/// folder that is not on this machine are copied into a temporary folder next to the carton first, because each is read to compress
/// it and again to write it.
///
/// # Errors
/// Returns an error if the folder cannot be read or does not make a carton, the output cannot be written, or `observer`
/// stops the work. No output is left then.
pub fn pack(options: &PackOptions, observer: &dyn Observer) -> Result<PackReport> {
    let folder = &options.folder;
    let root = folder.path();
    if !folder.is_folder() {
        return Err(Problem::NotAFolder { path: root.to_owned() }.into());
    }
    let default = || {
        if folder.is_local() {
            default_output(root)
        } else {
            format!("{}.carton", folder.folder_name()).into()
        }
    };
    let target = options.output.clone().unwrap_or_else(default);
    check_target(&target, root, options.if_exists)?;
    if folder.is_local() {
        return pack_files(root, root, &target, options, observer);
    }
    let files = folder.files_below().map_err(Error::from)?;
    if let Some(path) = files.iter().find(|path| !is_manifest_or_links(path) && !has_place(path)) {
        return Err(at(root)(Problem::NoPlace { path: path.clone() }));
    }
    if !files.iter().any(|path| path == Config::PATH) {
        return Err(Problem::NotACarton { path: root.to_owned() }.into());
    }
    let scratch = Scratch::create(parent_folder(&target))?;
    copy_files(folder, &files, scratch.path(), observer)?;
    pack_files(scratch.path(), root, &target, options, observer)
}

/// Copies the files that are packed into a local folder.
fn copy_files(folder: &Location, files: &[String], copy: &Path, observer: &dyn Observer) -> Result<()> {
    let names: Vec<&String> = files.iter().filter(|path| !is_manifest_or_links(path)).collect();
    let name = folder.folder_name();
    let work = ProgressReporter::new(observer, &name, Action::Download, None);
    let mut done = 0_u64;
    for names in names.chunks(OPENED_MAX) {
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
        let sources = folder.store().open(&paths)?;
        let needed = sources.iter().fold(0_u64, |sum, source| sum.saturating_add(source.len()));
        // The copy, and the carton.
        output::require_free_space(needed.saturating_mul(2), copy)?;
        for (name, source) in names.iter().zip(sources) {
            let path = copy.join(name);
            let parent = parent_folder(&path);
            let made = std::fs::create_dir_all(parent);
            made.map_err(|reason| FileError::Create { path: parent.to_owned(), reason })?;
            let failed = |reason| FileError::Write { path: path.clone(), reason };
            let mut file = File::create_new(&path).map_err(failed)?;
            let copied = each_window(&*source, 0..source.len(), |window| {
                file.write_all(&window)?;
                done = done.saturating_add(window.len() as u64);
                Ok(work.advance(done)?)
            });
            copied?;
        }
    }
    Ok(())
}

/// Packs the files of the folder `files`, which messages call `root`, into a carton at `target`.
fn pack_files(
    files: &Path,
    root: &Path,
    target: &Path,
    options: &PackOptions,
    observer: &dyn Observer,
) -> Result<PackReport> {
    let carton = Carton::open_unlisted(files).map_err(at(root))?;
    let entries = entries_to_pack(root, &carton)?;
    let documents = PackDocuments::read(root, &carton, options)?;
    let sources = plain_files(files, &entries)?;
    let mut contents: Vec<(&str, &dyn Blob)> = Vec::with_capacity(sources.len());
    contents.extend(sources.iter().map(|(path, file)| (path.as_str(), file as &dyn Blob)));
    contents.extend(documents.tensors.iter().map(|(path, file)| (path.as_str(), file.blob())));
    // The model comes last, so that the documents are near the start of the file.
    contents.sort_by_key(|(path, _)| (path.starts_with(MODEL_FOLDER), *path));
    let (compressed, spilled) = compress(&contents, options.compression, target, root, observer)?;
    let parts: Vec<Option<Region>> = compressed
        .iter()
        .map(|compressed| compressed.as_ref().map(|it| spilled.compressed_bytes(it)))
        .collect();

    let mut files = vec![
        CartonMember::new(Config::PATH, EntryContent::Bytes(documents.config.as_bytes())),
        CartonMember::new(TensorIndex::PATH, EntryContent::Bytes(documents.index.as_bytes())),
    ];
    for (((path, blob), compressed), part) in contents.iter().zip(&compressed).zip(&parts) {
        files.push(match (compressed, part) {
            (Some(compressed), Some(part)) => CartonMember {
                path: (*path).to_owned(),
                content: compressed.content(part),
                sha256: Some(compressed.sha256()),
            },
            _ => CartonMember::new(path, EntryContent::Blob(*blob)),
        });
    }
    let links = links(&carton, &entries, &sources, observer)?;
    files.extend(links.iter().map(|(path, target, sha256)| CartonMember {
        path: path.clone(),
        content: EntryContent::Link(target),
        sha256: Some(*sha256),
    }));
    // The writer adds MANIFEST.
    let count = files.len().saturating_add(1);
    // Array files are checked for changes after they have been read, since the folder's files are not kept open.
    let check_inputs = || documents.maps.iter().try_for_each(|map| map.check_unchanged());
    let packed = carton_writer::CartonLayout::new(files);
    let written = write_carton(&packed, target, options.if_exists, &check_inputs, observer)?;
    Ok(PackReport {
        schema_version: SCHEMA_VERSION,
        file: root.display().to_string(),
        output: target.display().to_string(),
        files: count,
        nbytes: written.len,
        manifest_sha256: hex(&written.manifest_hash),
        notes: documents.notes,
    })
}

/// Returns the default output of a folder: `models/llama` → `models/llama.carton`.
fn default_output(root: &Path) -> PathBuf {
    let whole = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    whole.with_file_name(format!("{}.carton", file_name(&whole)))
}

fn check_target(target: &Path, root: &Path, if_exists: IfExists) -> Result<()> {
    output::check_target(target, &[], if_exists)?;
    if let (Ok(parent), Ok(whole)) = (parent_folder(target).canonicalize(), root.canonicalize())
        && parent.starts_with(whole)
    {
        return Err(Problem::OutputInFolder { output: target.to_owned(), folder: root.to_owned() }.into());
    }
    Ok(())
}

/// Returns the entries to pack. A file for which the format has no place is an error, since it would be left out silently.
fn entries_to_pack<'c>(root: &Path, carton: &'c Carton) -> Result<Vec<&'c CartonEntry>> {
    let mut entries = Vec::new();
    for entry in carton.entries() {
        let path = entry.path.as_str();
        if is_manifest_or_links(path) {
            continue;
        }
        if !has_place(path) {
            return Err(at(root)(Problem::NoPlace { path: path.to_owned() }));
        }
        if entry.is_symbolic_link {
            carton.link_target(entry).map_err(at(root))?;
        }
        entries.push(entry);
    }
    if !entries.iter().any(|entry| entry.path.starts_with(MODEL_FOLDER)) {
        return Err(at(root)(Problem::NoModel));
    }
    Ok(entries)
}

/// Returns true if the format has a place for the file.
fn has_place(path: &str) -> bool {
    path == Config::PATH || CARTON_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// Documents of the new carton, with the arrays that were added.
struct PackDocuments {
    config: String,
    index: String,
    /// Files of the added arrays, by path in the carton.
    tensors: Vec<(String, TensorFile)>,
    /// Mapped `.npy` files of the added arrays.
    maps: Vec<Arc<dyn Source>>,
    notes: Vec<CartonNote>,
}

impl PackDocuments {
    fn read(root: &Path, carton: &Carton, options: &PackOptions) -> Result<Self> {
        let failed = at::<Error>(root);
        let config = carton.config().map_err(&failed)?;
        let (arrays, maps) = arrays::read_arrays(&options.tensors)?;
        let index = carton.tensor_index().map_err(&failed)?;
        let (new_index, tensors) = arrays::add_arrays(carton, &index.document, arrays)?;
        let problems = config.document.check(&new_index, &|path| carton.has_file(path));
        if !problems.0.is_empty() {
            return Err(failed(carton_format::Problem::Document(problems).into()));
        }
        for spec in &index.document.tensors {
            if matches!(spec, TensorSpec::Array { dtype: DataType::String, .. }) {
                carton.tensor_data(spec).map_err(&failed)?;
            }
        }
        let mut notes: Vec<CartonNote> =
            config.filled_in.0.iter().cloned().map(CartonNote::FieldAdded).collect();
        let config = if config.filled_in.0.is_empty() {
            carton.text(Config::PATH).map_err(&failed)?
        } else {
            config.document.to_toml()?
        };
        let has_index = carton.entry(TensorIndex::PATH).is_ok();
        if !has_index {
            notes.push(CartonNote::IndexAdded);
        }
        notes.extend(index.filled_in.0.iter().cloned().map(CartonNote::FieldAdded));
        let index = if has_index && index.filled_in.0.is_empty() && tensors.is_empty() {
            carton.text(TensorIndex::PATH).map_err(&failed)?
        } else {
            new_index.to_toml()?
        };
        Ok(Self { config, index, tensors, maps, notes })
    }
}

/// Returns the files that are packed unchanged, by path.
fn plain_files(root: &Path, entries: &[&CartonEntry]) -> Result<Vec<(String, LazyFile)>> {
    let is_document = |path: &str| [Config::PATH, TensorIndex::PATH].contains(&path);
    let plain = entries.iter().filter(|entry| !entry.is_symbolic_link && !is_document(&entry.path));
    let find = |entry: &&CartonEntry| {
        let file = LazyFile::find(&root.join(&entry.path))?;
        Ok((entry.path.clone(), file))
    };
    plain.map(find).collect()
}

/// Path of a link, its target, and the hash of the file to which it leads.
type PackedLink = (String, Vec<u8>, [u8; 32]);

fn links(
    carton: &Carton,
    entries: &[&CartonEntry],
    sources: &[(String, LazyFile)],
    observer: &dyn Observer,
) -> Result<Vec<PackedLink>> {
    let root = carton.path();
    let failed = at::<Error>(root);
    let mut hashes: HashMap<String, [u8; 32]> = HashMap::new();
    let mut links = Vec::new();
    for entry in entries.iter().filter(|entry| entry.is_symbolic_link) {
        let target = carton.link_target(entry).map_err(&failed)?;
        let hash = if let Some(hash) = hashes.get(&target) {
            *hash
        } else {
            let Some((_, file)) = sources.iter().find(|(path, _)| *path == target) else {
                return Err(at(root)(Problem::LinkNotPacked { target }));
            };
            let hash = sha256(file, observer)?;
            hashes.insert(target, hash);
            hash
        };
        links.push((entry.path.clone(), carton.link_text(entry).map_err(&failed)?.into_bytes(), hash));
    }
    Ok(links)
}

/// Compresses each file if the options demand it or, with [`PackCompression::Auto`], if it saves space.
fn compress(
    contents: &[(&str, &dyn Blob)],
    compression: PackCompression,
    target: &Path,
    root: &Path,
    observer: &dyn Observer,
) -> Result<(Vec<Option<CompressedFile>>, CompressedFiles)> {
    let parent = parent_folder(target);
    let failed =
        |reason: std::io::Error| output::Problem::CreateIn { folder: parent.to_owned(), kind: reason.kind() };
    std::fs::create_dir_all(parent).map_err(failed)?;
    let mut spill = CompressionSpill::create(parent).map_err(failed)?;
    let how = match compression {
        PackCompression::Stored => {
            return Ok((contents.iter().map(|_| None).collect(), spill.finish().map_err(failed)?));
        }
        PackCompression::Deflate => carton_writer::Compression::Deflate,
        PackCompression::Zstd => carton_writer::Compression::Zstd,
        PackCompression::Auto => carton_writer::Compression::ZstdIfSmaller,
    };
    let total = contents.iter().fold(0_u64, |sum, (_, blob)| sum.saturating_add(blob.len()));
    let name = file_name(root);
    let work = ProgressReporter::new(observer, &name, Action::Compress, Some(total));
    let mut before = 0_u64;
    let mut compressed = Vec::with_capacity(contents.len());
    for (path, blob) in contents {
        // Weights hardly shrink, and can be mapped in a carton only if they are stored.
        compressed.push(if compression == PackCompression::Auto && *path == MODEL_PT {
            None
        } else {
            spill.compress(*blob, how, work.resumed_at(before)).map_err(|reason| {
                if reason.io_kind().is_none() {
                    return reason;
                }
                Problem::Compress { path: (*path).to_owned(), reason: reason.into() }.into()
            })?
        });
        before = before.saturating_add(blob.len());
    }
    Ok((compressed, spill.finish().map_err(failed)?))
}
