//! The safetensors back end: one file, or a folder with the files, the index and the documents of a model.
//!
//! Facts: the Python packages `safetensors` 0.8 and `transformers` 5.23, for the names of files and the metadata that
//! they expect.

use std::path::{Path, PathBuf};

use mapped::Blob;
use safetensors_format::{Archive, INDEX, Index, file_name, is_supported, split};
use serde::Serialize;
use store::Output;

use super::folder::{self, Documents, NewFolder};
use super::ties::{Tied, Ties};
use super::{Job, Made, Outcome, SHOWN, stream};
use crate::observer::{self, Action, Step};
use crate::{Error, Names, Note, Result};

/// The key of the metadata that says which framework's tensors these are; `transformers` refuses files without it.
const FORMAT: (&str, &str) = ("format", "pt");

/// What only the report about safetensors files has.
#[derive(Clone, Debug, Serialize)]
pub struct SafetensorsReport {
    /// The names of the files, also of the documents in a folder.
    pub files: Vec<String>,
    /// The tensors that are not written because another one is the same memory.
    pub ties: Vec<Tie>,
}

/// Two names of the same memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tie {
    /// The name that only the metadata has.
    pub dropped: String,
    /// The name under which the elements are written.
    pub kept: String,
}

/// Writes the tensors as safetensors.
///
/// # Errors
/// When the format has no room for one of the tensors, a file cannot be written, or the observer stops the work.
pub(crate) fn write(job: &Job<'_>, is_folder: bool, notes: &mut Vec<Note>) -> Outcome<SafetensorsReport> {
    refuse_unsupported(job)?;
    let options = &job.options.safetensors;
    // Meta's code looks for each name.
    let handling = if job.options.names == Some(Names::Meta) { Ties::Duplicate } else { options.ties };
    let tied = Tied::find(job.tensors, handling, FORMAT.0);
    let name = |position: usize| job.tensors.get(position).map_or("", |(name, _)| name.as_str());
    if !tied.partial.is_empty() {
        let names = tied.partial.iter().take(SHOWN).map(|it| name(*it).to_owned()).collect();
        notes.push(Note::ViewsSeparated { count: tied.partial.len(), names });
    }
    if !job.compounds.is_empty() {
        let names = job.compounds.iter().take(SHOWN).map(|(name, _)| name.clone()).collect();
        notes.push(Note::PartsSeparated { count: job.compounds.len(), names });
    }
    if job.values.count > 0 {
        notes.push(Note::ValuesLeftOut { values: job.values.count });
    }
    let files = Files::new(job, &tied, is_folder)?;
    let report = SafetensorsReport {
        files: files.paths().map(store::file_name).collect(),
        ties: tied
            .dropped
            .iter()
            .map(|(dropped, kept)| Tie { dropped: name(*dropped).to_owned(), kept: name(*kept).to_owned() })
            .collect(),
    };
    let nbytes = files.nbytes()?;
    job.announce(notes);
    let mut earlier = Vec::new();
    if is_folder {
        earlier = folder::check(job, files.paths())?;
    }
    if !job.options.dry_run {
        let made = if is_folder { Some(NewFolder::create(job.target)?) } else { None };
        files.write(job, nbytes)?;
        folder::remove(&earlier)?;
        if let Some(made) = made {
            made.keep();
        }
    }
    Ok(Made { nbytes, report })
}

/// The format has neither all dtypes nor tensors that consist of several.
fn refuse_unsupported(job: &Job<'_>) -> Result<()> {
    let dtypes = job.tensors.iter().filter(|(_, tensor)| !is_supported(tensor.dtype()));
    let dtypes = dtypes.map(|(name, tensor)| (name.clone(), tensor.dtype().to_string()));
    let mut tensors: Vec<(String, String)> = job.inseparable().chain(dtypes).collect();
    let count = tensors.len();
    tensors.truncate(SHOWN);
    if count == 0 { Ok(()) } else { Err(job.error(Error::NoSafetensors { tensors, count })) }
}

/// The files of an output, laid out and not written.
struct Files<'j> {
    models: Vec<Model<'j>>,
    documents: Documents,
}

/// One safetensors file.
struct Model<'j> {
    path: PathBuf,
    archive: Archive<'j>,
}

impl<'j> Files<'j> {
    fn new(job: &Job<'j>, tied: &Tied, is_folder: bool) -> Result<Self> {
        let kept = || tied.kept.iter().filter_map(|position| job.tensors.get(*position));
        let sizes: Vec<u64> = kept().map(|(_, tensor)| tensor.nbytes()).collect();
        let shards = split(&sizes, job.options.safetensors.max_shard_size.unwrap_or(u64::MAX));
        let count = shards.len();
        let path = |number| {
            if is_folder { job.target.join(file_name(number, count)) } else { job.target.to_owned() }
        };
        let mut models = Vec::with_capacity(count);
        for (number, shard) in shards.iter().enumerate() {
            let positions = shard.iter().filter_map(|it| tied.kept.get(*it));
            let tensors = positions.filter_map(|position| job.tensors.get(*position));
            let mut metadata = vec![(FORMAT.0.to_owned(), FORMAT.1.to_owned())];
            let in_shard = |kept: &usize| {
                tied.kept.binary_search(kept).is_ok_and(|kept| shard.binary_search(&kept).is_ok())
            };
            let names = tied.dropped.iter().filter(|(_, kept)| in_shard(kept));
            metadata.extend(names.filter_map(|(dropped, kept)| {
                Some((job.tensors.get(*dropped)?.0.clone(), job.tensors.get(*kept)?.0.clone()))
            }));
            let archive = Archive::new(tensors, &metadata).map_err(Error::Safetensors)?;
            models.push(Model { path: path(number), archive });
        }
        let mut documents = if is_folder { Documents::find(job)? } else { Documents::default() };
        if count > 1 {
            documents.add(job.target.join(INDEX), index(&models).to_json());
        }
        Ok(Self { models, documents })
    }

    /// Where each file goes.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let models = self.models.iter().map(|model| model.path.as_path());
        models.chain(self.documents.paths())
    }

    /// The bytes of all files.
    fn nbytes(&self) -> Result<u64> {
        let sum = self.documents.nbytes()?;
        Ok(self.models.iter().fold(sum, |sum, model| sum.saturating_add(model.archive.len())))
    }

    /// Writes all files, and gives them their names once all of them are complete: documents and the index last.
    fn write(&self, job: &Job<'_>, nbytes: u64) -> Result<()> {
        let if_exists = job.options.if_exists;
        let mut written: Vec<Output> = Vec::with_capacity(self.models.len());
        let mut done = 0_u64;
        for model in &self.models {
            let archive = &model.archive;
            let mut output = Output::create(&model.path, archive.len())?;
            let name = store::file_name(&model.path);
            let mut progress = |bytes| {
                let done = done.saturating_add(bytes);
                let step = Step { name: &name, action: Action::Write, done, total: Some(nbytes) };
                observer::advance(job.observer, step)
            };
            stream::write(archive, (&mut output, &model.path), &mut progress)?;
            done = done.saturating_add(archive.len());
            written.push(output);
        }
        written.extend(self.documents.write()?);
        let changed = |reason| stream::read_error(job.target, reason);
        job.check_unchanged().map_err(changed)?;
        written.into_iter().try_for_each(|output| output.commit(if_exists)).map_err(Error::Store)
    }
}

/// The index of the files. `transformers` lists only the names that are written.
fn index(models: &[Model<'_>]) -> Index {
    let mut index = Index::default();
    for model in models {
        let file = store::file_name(&model.path);
        for (name, tensor) in model.archive.tensors() {
            index.metadata.total_parameters = index.metadata.total_parameters.saturating_add(tensor.numel());
            index.metadata.total_size = index.metadata.total_size.saturating_add(tensor.nbytes());
            index.weight_map.insert(name.clone(), file.clone());
        }
    }
    index
}
