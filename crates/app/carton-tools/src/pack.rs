//! A folder becomes a carton.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Action, Blob, Observer, Region, Source, UnopenedFile, Work, hex, sha256};
use carton_format::{Config, DataType, MODEL_PT, TensorIndex, TensorSpec};
use carton_reader::{Carton, Entry, MODEL};
use carton_writer::{Compressed, Content, File, Spill, Spilled};
use output::{file_name, folder};
use pipeline::{IfExists, write_carton};
use serde::Serialize;

use crate::arrays::{self, NewFile};
use crate::kept::is_bookkeeping;
use crate::{Error, Note, Result, SCHEMA_VERSION};

const FOLDERS: &[&str] = &[MODEL, "tensor_data/", "misc/"];

/// What to pack, and into what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PackOptions {
    /// The folder. It holds carton.toml and `model/`, and may hold `tensor_data/` and `misc/`.
    pub folder: PathBuf,
    /// Where to write the carton; `None` for a file next to the folder, with its name.
    pub output: Option<PathBuf>,
    /// What happens to a file that exists at the output.
    pub if_exists: IfExists,
    /// How files are compressed.
    pub compression: Compression,
    /// NumPy arrays to add as tensors: names, and paths of `.npy` files.
    pub tensors: Vec<(String, PathBuf)>,
}

impl PackOptions {
    /// Packs `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            output: None,
            if_exists: IfExists::default(),
            compression: Compression::default(),
            tensors: Vec::new(),
        }
    }
}

/// How the files of a carton are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// With Zstandard where that saves something. `model/model.pt` is stored, so that it can be mapped.
    #[default]
    Auto,
    /// Not at all.
    Stored,
    /// All with Deflate.
    Deflate,
    /// All with Zstandard.
    Zstd,
}

/// What was made.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PackReport {
    /// Version of these members.
    pub schema_version: u32,
    /// The folder as it was given.
    pub file: String,
    /// The carton.
    pub output: String,
    /// How many files it holds, MANIFEST and links among them.
    pub files: usize,
    /// Bytes of the carton.
    pub nbytes: u64,
    /// The SHA-256 of MANIFEST, which identifies the model.
    pub manifest_sha256: String,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// Packs a folder into a carton.
///
/// A MANIFEST or LINKS in the folder is ignored: it lists the hashes that the files had, which may have changed.
///
/// # Errors
/// When the folder cannot be read or does not make a carton, the output cannot be written, or `observer` stops the
/// work. No output is left then.
pub fn pack(options: &PackOptions, observer: &dyn Observer) -> Result<PackReport> {
    let root = options.folder.as_path();
    output::refuse_remote(root)?;
    if !root.is_dir() {
        return Err(Error::NotAFolder { path: root.to_owned() });
    }
    let target = options.output.clone().unwrap_or_else(|| next_to(root));
    check_target(&target, root, options.if_exists)?;
    let carton = Carton::open_unlisted(root).map_err(Error::reader(root))?;
    let entries = entries(root, &carton)?;
    let documents = Documents::read(root, &carton, options)?;
    let sources = sources(root, &entries)?;
    let mut contents: Vec<(&str, &dyn Blob)> = Vec::with_capacity(sources.len());
    contents.extend(sources.iter().map(|(path, file)| (path.as_str(), file as &dyn Blob)));
    contents.extend(documents.tensors.iter().map(|(path, file)| (path.as_str(), file.blob())));
    // The model comes last, so that what describes it is near the start.
    contents.sort_by_key(|(path, _)| (path.starts_with(MODEL), *path));
    let (compressed, spilled) = compress(&contents, options.compression, &target, root, observer)?;
    let parts: Vec<Option<Region>> =
        compressed.iter().map(|compressed| compressed.as_ref().map(|it| spilled.part(it))).collect();

    let mut files = vec![
        File::new(Config::PATH, Content::Bytes(documents.config.as_bytes())),
        File::new(TensorIndex::PATH, Content::Bytes(documents.index.as_bytes())),
    ];
    for (((path, blob), compressed), part) in contents.iter().zip(&compressed).zip(&parts) {
        files.push(match (compressed, part) {
            (Some(compressed), Some(part)) => File {
                path: (*path).to_owned(),
                content: compressed.content(part),
                sha256: Some(compressed.sha256()),
            },
            _ => File::new(path, Content::Blob(*blob)),
        });
    }
    let links = links(&carton, &entries, &sources, observer)?;
    files.extend(links.iter().map(|(path, target, sha256)| File {
        path: path.clone(),
        content: Content::Link(target),
        sha256: Some(*sha256),
    }));
    // MANIFEST is written after them.
    let count = files.len().saturating_add(1);
    // The files of the folder are compared when they have been read, since they are not kept open.
    let check_inputs = || documents.maps.iter().try_for_each(|map| map.check_unchanged());
    let packed = carton_writer::Carton::new(files);
    let written = write_carton(&packed, &target, options.if_exists, &check_inputs, observer)?;
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

/// `models/llama` → `models/llama.carton`.
fn next_to(root: &Path) -> PathBuf {
    let whole = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    whole.with_file_name(format!("{}.carton", file_name(&whole)))
}

fn check_target(target: &Path, root: &Path, if_exists: IfExists) -> Result<()> {
    output::check_target(target, &[], if_exists)?;
    if let (Ok(parent), Ok(whole)) = (folder(target).canonicalize(), root.canonicalize())
        && parent.starts_with(whole)
    {
        return Err(Error::OutputInFolder { output: target.to_owned(), folder: root.to_owned() });
    }
    Ok(())
}

/// The files to pack. A file that the format has no place for is an error: it would be left out in silence.
fn entries<'c>(root: &Path, carton: &'c Carton) -> Result<Vec<&'c Entry>> {
    let mut entries = Vec::new();
    for entry in carton.entries() {
        let path = entry.path.as_str();
        let has_place = path == Config::PATH || FOLDERS.iter().any(|folder| path.starts_with(folder));
        if is_bookkeeping(path) {
            continue;
        }
        if !has_place {
            return Err(Error::NoPlace { folder: root.to_owned(), path: path.to_owned() });
        }
        if entry.link {
            carton.link_target(entry).map_err(Error::reader(root))?;
        }
        entries.push(entry);
    }
    if !entries.iter().any(|entry| entry.path.starts_with(MODEL)) {
        return Err(Error::NoModel { folder: root.to_owned() });
    }
    Ok(entries)
}

/// The documents of the carton, and what they were made of.
struct Documents {
    config: String,
    index: String,
    /// Files of the arrays that were added, by path.
    tensors: Vec<(String, NewFile)>,
    /// The files of these arrays.
    maps: Vec<Arc<dyn Source>>,
    notes: Vec<Note>,
}

impl Documents {
    fn read(root: &Path, carton: &Carton, options: &PackOptions) -> Result<Self> {
        let failed = Error::reader(root);
        let config = carton.config().map_err(&failed)?;
        let (arrays, maps) = arrays::read(&options.tensors)?;
        let index = carton.tensor_index().map_err(&failed)?;
        let (new_index, tensors) = arrays::added(carton, &index.document, arrays)?;
        let problems = config.document.check(&new_index, &|path| carton.has(path));
        if !problems.0.is_empty() {
            return Err(Error::Document { path: root.to_owned(), problems });
        }
        for spec in &index.document.tensors {
            if matches!(spec, TensorSpec::Array { dtype: DataType::String, .. }) {
                carton.tensor_data(spec).map_err(&failed)?;
            }
        }
        let mut notes: Vec<Note> = config.added.0.iter().cloned().map(Note::FieldAdded).collect();
        let config = if config.added.0.is_empty() {
            carton.text(Config::PATH).map_err(&failed)?
        } else {
            config.document.to_toml().map_err(Error::Format)?
        };
        let has_index = carton.entry(TensorIndex::PATH).is_ok();
        if !has_index {
            notes.push(Note::IndexAdded);
        }
        notes.extend(index.added.0.iter().cloned().map(Note::FieldAdded));
        let index = if has_index && index.added.0.is_empty() && tensors.is_empty() {
            carton.text(TensorIndex::PATH).map_err(&failed)?
        } else {
            new_index.to_toml().map_err(Error::Format)?
        };
        Ok(Self { config, index, tensors, maps, notes })
    }
}

/// The files that are packed as they are.
fn sources(root: &Path, entries: &[&Entry]) -> Result<Vec<(String, UnopenedFile)>> {
    let is_document = |path: &str| [Config::PATH, TensorIndex::PATH].contains(&path);
    let plain = entries.iter().filter(|entry| !entry.link && !is_document(&entry.path));
    let find = |entry: &&Entry| {
        let file = UnopenedFile::find(&root.join(&entry.path)).map_err(Error::Map)?;
        Ok((entry.path.clone(), file))
    };
    plain.map(find).collect()
}

/// A link's path, its target, and the hash of the file that it leads to.
type Link = (String, Vec<u8>, [u8; 32]);

fn links(
    carton: &Carton,
    entries: &[&Entry],
    sources: &[(String, UnopenedFile)],
    observer: &dyn Observer,
) -> Result<Vec<Link>> {
    let root = carton.path();
    let failed = Error::reader(root);
    let mut hashes: HashMap<String, [u8; 32]> = HashMap::new();
    let mut links = Vec::new();
    for entry in entries.iter().filter(|entry| entry.link) {
        let target = carton.link_target(entry).map_err(&failed)?;
        let hash = if let Some(hash) = hashes.get(&target) {
            *hash
        } else {
            let Some((_, file)) = sources.iter().find(|(path, _)| *path == target) else {
                return Err(Error::LinkNotPacked { folder: root.to_owned(), target });
            };
            let hash = sha256(file, observer).map_err(Error::read)?;
            hashes.insert(target, hash);
            hash
        };
        links.push((entry.path.clone(), carton.link_text(entry).map_err(&failed)?.into_bytes(), hash));
    }
    Ok(links)
}

/// Each file compressed, where the options say so or it is worthwhile.
fn compress(
    contents: &[(&str, &dyn Blob)],
    compression: Compression,
    target: &Path,
    root: &Path,
    observer: &dyn Observer,
) -> Result<(Vec<Option<Compressed>>, Spilled)> {
    let parent = folder(target);
    let failed =
        |reason: std::io::Error| output::Error::CreateIn { folder: parent.to_owned(), kind: reason.kind() };
    let mut spill = Spill::create(parent).map_err(failed)?;
    let how = match compression {
        Compression::Stored => {
            return Ok((contents.iter().map(|_| None).collect(), spill.finish().map_err(failed)?));
        }
        Compression::Deflate => carton_writer::Compression::Deflate,
        Compression::Zstd => carton_writer::Compression::Zstd,
        Compression::Auto => carton_writer::Compression::Worthwhile,
    };
    let total = contents.iter().fold(0_u64, |sum, (_, blob)| sum.saturating_add(blob.len()));
    let name = file_name(root);
    let work = Work::new(observer, &name, Action::Compress, Some(total));
    let mut before = 0_u64;
    let mut compressed = Vec::with_capacity(contents.len());
    for (path, blob) in contents {
        // Weights hardly shrink, and can be mapped in a carton only where they are stored.
        compressed.push(if compression == Compression::Auto && *path == MODEL_PT {
            None
        } else {
            spill.compress(*blob, how, work.after(before)).map_err(|reason| match Error::read(reason) {
                Error::Read(reason) => Error::Compress { path: (*path).to_owned(), reason },
                error => error,
            })?
        });
        before = before.saturating_add(blob.len());
    }
    Ok((compressed, spill.finish().map_err(failed)?))
}
