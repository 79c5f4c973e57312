//! Files of a checked input, with the names and shapes of their tensors.

use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{Error, Folder, Location, Observer, Result, Source, map_file_lazily};
use foldhash::HashSet;
use open::files::{CheckpointSources, DocumentCache, ShardPolicy};
use open::{Context, Dequantize, HuggingFaceModel, Model, OpenOptions, Selection, Step, hugging_face_of};
use output::file_name;
use rayon::prelude::*;
use safetensors_format::{Header, INDEX_FILE, SINGLE_MODEL_FILE, is_model_file, is_safetensors};
use tensor::Tensor;

use super::index::Index;
use crate::Problem;

/// Name of the configuration.
const CONFIG: &str = "config.json";
/// Document of a pipeline of `diffusers`, whose models are in folders below.
const PIPELINE_INDEX: &str = "model_index.json";

/// A file with tensors.
pub(super) struct CheckedFile {
    pub(super) name: String,
    /// False if there is an index that does not name it.
    pub(super) is_indexed: bool,
    pub(super) tensors: NamedShapes,
}

/// Names and shapes of the tensors of a file, in its order. A model has 100,000 of them: all names are one text, all shapes one list.
#[derive(Default)]
pub(super) struct NamedShapes {
    names: String,
    sizes: Vec<u64>,
    /// Ends of each name and shape.
    ends: Vec<(usize, usize)>,
}

/// Bytes of a header for each of its tensors, at least, and the share of names in them, at most.
const SHORT_ENTRY: usize = 128;
const NAMES_SHARE: usize = 2;

impl NamedShapes {
    /// Creates lists with room for the tensors of a header of this length.
    fn of_header(len: usize) -> Self {
        let (names, count) = (String::with_capacity(len / NAMES_SHARE), len / SHORT_ENTRY);
        Self { names, sizes: Vec::with_capacity(count.saturating_mul(2)), ends: Vec::with_capacity(count) }
    }

    fn push(&mut self, name: &str, shape: &[u64]) {
        self.names.push_str(name);
        self.sizes.extend_from_slice(shape);
        self.ends.push((self.names.len(), self.sizes.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u64])> {
        self.ends.iter().scan((0, 0), |start, end| {
            let name = self.names.get(start.0..end.0)?;
            let shape = self.sizes.get(start.1..end.1)?;
            *start = *end;
            Some((name, shape))
        })
    }
}

/// What is checked.
pub(super) struct CheckedFiles {
    /// Text of the configuration, and its path.
    pub(super) config: (Option<String>, PathBuf),
    pub(super) files: Vec<CheckedFile>,
    /// Empty without an index.
    pub(super) index: Index,
    /// A model whose names are those of Hugging Face here, and other ones in its GGUF file.
    pub(super) gguf: Option<HuggingFaceModel>,
}

impl CheckedFiles {
    /// Finds the files of an input, and reads their headers.
    ///
    /// # Errors
    /// When nothing is there, or a file cannot be read or is damaged.
    pub(super) fn find(input: &Location, observer: &dyn Observer) -> Result<Self> {
        let path = input.path();
        if input.is_folder() {
            let folder = input.list().map_err(|error| Error::from(error).in_file(path))?;
            // An unpacked carton is a folder, too.
            return if folder.listing.has_file("carton.toml") {
                Self::opened(input, observer)
            } else {
                Self::of_folder(&folder, observer)
            };
        }
        let name = file_name(path);
        if name == INDEX_FILE || name == CONFIG {
            let folder = input.parent();
            let folder = folder.list().map_err(|error| Error::from(error).in_file(folder.path()))?;
            return Self::of_folder(&folder, observer);
        }
        if input.is_file() && input.open().is_ok_and(|source| starts_as_safetensors(&*source)) {
            let tensors = headers(std::slice::from_ref(input), observer)?;
            let file = |tensors| CheckedFile { name: name.clone(), is_indexed: true, tensors };
            let files = tensors.into_iter().map(file).collect();
            let config = config_next_to(input)?;
            return Ok(Self { config, files, index: Index::default(), gguf: None });
        }
        Self::opened(input, observer)
    }

    fn of_folder(folder: &Folder, observer: &dyn Observer) -> Result<Self> {
        let location = &folder.location;
        let config = config_next_to(&location.join(CONFIG))?;
        let names = |keep: &dyn Fn(&str) -> bool| -> Vec<String> {
            folder.listing.files.iter().filter(|name| keep(name)).cloned().collect()
        };
        let mut shards = names(&|name| is_model_file(name) && name.ends_with(".safetensors"));
        let (mut index, mut read) = (Index::default(), None);
        let read_headers = |shards: &[String]| {
            let locations: Vec<Location> = shards.iter().map(|name| location.join(name)).collect();
            headers(&locations, observer)
        };
        shards.sort_unstable();
        // A model in one file is what loaders read, whatever else is there.
        if folder.listing.has_file(SINGLE_MODEL_FILE) {
            shards = vec![SINGLE_MODEL_FILE.to_owned()];
        } else if folder.listing.has_file(INDEX_FILE) {
            let read_index = || Index::read(&location.join(INDEX_FILE));
            // At an address, the index is asked for first.
            let (found, tensors) = if location.is_local() {
                rayon::join(read_index, || Some(read_headers(&shards)))
            } else {
                (read_index(), None)
            };
            index = found?;
            let others =
                |name: &&String| folder.listing.has_file(name) && shards.binary_search(name).is_err();
            let others: Vec<String> = index.files.iter().filter(others).cloned().collect();
            read = tensors.filter(|_| others.is_empty());
            shards.extend(others);
        } else if shards.is_empty() {
            shards = names(&|name| name.ends_with(".safetensors") && !name.starts_with("adapter_"));
            if shards.len() != 1 {
                shards.clear();
            }
        }
        shards.sort_unstable();
        shards.dedup();
        if shards.is_empty() && index.is_empty() {
            // Without a checkpoint, all of the model is missing.
            let is_checkpoint = |name: &str| {
                [".bin", ".pt", ".pth", ".safetensors", ".gguf"].iter().any(|end| name.ends_with(end))
            };
            let is_of_trainer = || {
                let found = CheckpointSources::find(std::slice::from_ref(location), ShardPolicy::RequireAll);
                found.is_ok_and(|found| found.is_of_trainer())
            };
            if names(&is_checkpoint).is_empty() && !is_of_trainer() {
                if folder.listing.has_file(PIPELINE_INDEX) && config.0.is_none() {
                    return Err(Error::from(Problem::Pipeline).in_file(location.path()));
                }
                return Ok(Self { config, files: Vec::new(), index, gguf: None });
            }
            let opened = Self::opened(location, observer)?;
            // Of the documents above a trainer's step, its own count first.
            let is_own = opened.gguf.is_none() && config.0.is_some();
            return Ok(if is_own { Self { config, ..opened } } else { opened });
        }
        let tensors = read.unwrap_or_else(|| read_headers(&shards))?;
        let has_index = folder.listing.has_file(INDEX_FILE) && !index.is_empty();
        // Loaders find a single file by its name.
        let is_single =
            shards.len() == 1 && shards.iter().all(|name| is_model_file(name) && !name.contains("-of-"));
        let indexed: HashSet<&String> = index.files.iter().collect();
        let files = shards.into_iter().zip(tensors).map(|(name, tensors)| CheckedFile {
            is_indexed: if has_index { indexed.contains(&name) } else { is_single },
            name,
            tensors,
        });
        let files = files.collect();
        Ok(Self { config, files, index, gguf: None })
    }

    /// Reads a carton, or a checkpoint that is no safetensors file.
    fn opened(input: &Location, observer: &dyn Observer) -> Result<Self> {
        let mut options = OpenOptions::reading(vec![input.clone()], ShardPolicy::RequireAll);
        options.documents = true;
        let mut model = Model::open(&options, observer)?;
        // As in a conversion, only the tensors under the key of the weights belong to the model.
        let is_gguf = model.format() == "gguf";
        let step: Box<dyn Step> = if is_gguf {
            Box::new(Dequantize::new(Vec::new(), true))
        } else {
            Box::new(Selection::default())
        };
        model.apply(&[step], &Context::new(observer))?;
        let mut config = model.sources.documents.config()?.map(str::to_owned);
        let gguf = is_gguf.then(|| hugging_face_of(&model)).transpose()?;
        let mut tensors = NamedShapes::default();
        let add = |(name, tensor): (&str, &Tensor)| tensors.push(name, tensor.shape());
        match &gguf {
            Some(made) => {
                made.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).for_each(add);
                config = serde_json::to_string(&made.config).ok();
            }
            None => model.tensors().iter().map(|(name, tensor)| (name.as_str(), tensor)).for_each(add),
        }
        let files = vec![CheckedFile { name: file_name(input.path()), is_indexed: true, tensors }];
        let config = (config, input.path().to_owned());
        Ok(Self { config, files, index: Index::default(), gguf })
    }
}

fn config_next_to(file: &Location) -> Result<(Option<String>, PathBuf)> {
    let config = DocumentCache::next_to(file).read(CONFIG)?;
    Ok((config, file.path().with_file_name(CONFIG)))
}

/// Returns true if a file starts as a safetensors file does.
fn starts_as_safetensors(source: &dyn Source) -> bool {
    source.read_range(0..source.len().min(16)).is_ok_and(|start| is_safetensors(&start))
}

/// Reads the headers of safetensors files of one folder.
fn headers(files: &[Location], observer: &dyn Observer) -> Result<Vec<NamedShapes>> {
    let Some(first) = files.first() else { return Ok(Vec::new()) };
    let read = |buffer: &mut Vec<u8>, source: Arc<dyn Source>, file: &Location| -> Result<NamedShapes> {
        observer.check()?;
        shapes(&*source, buffer).or_else(|error| {
            if !starts_as_safetensors(&*source) {
                // The container says what the file is instead.
                CheckpointSources::file(file).open()?;
            }
            Err(error.in_file(file.path()))
        })
    };
    // Of several damaged files, the first one is named.
    if first.is_local() {
        let read = |buffer: &mut _, file: &Location| read(buffer, map_file_lazily(file.path())?, file);
        let found: Vec<Result<_>> = files.par_iter().map_init(Vec::new, read).collect();
        return found.into_iter().collect();
    }
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
    let sources = first.store().open(&paths)?;
    sources.into_iter().zip(files).map(|(source, file)| read(&mut Vec::new(), source, file)).collect()
}

/// Reads the header of a file into `buffer`, which the next file uses again.
fn shapes(source: &dyn Source, buffer: &mut Vec<u8>) -> Result<NamedShapes> {
    let end = Header::end(read_until(source, buffer, Header::LENGTH_FIELD_LEN)?)?;
    let start = read_until(source, buffer, end)?;
    let mut tensors = NamedShapes::of_header(start.len());
    Header::parse_shapes(start, source.len(), |name, shape| tensors.push(name, shape))?;
    Ok(tensors)
}

/// Reads the start of a file, up to `end`, into a buffer that only grows.
fn read_until<'b>(source: &dyn Source, buffer: &'b mut Vec<u8>, end: u64) -> Result<&'b [u8]> {
    let len = usize::try_from(end.min(source.len())).unwrap_or_default();
    buffer.resize(buffer.len().max(len), 0);
    let start = buffer.get_mut(..len).unwrap_or_default();
    source.read_at(start, 0)?;
    Ok(start)
}
