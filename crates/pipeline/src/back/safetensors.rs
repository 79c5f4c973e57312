//! The safetensors back end: one file, or a folder with the files, the index and the documents of a model.
//!
//! Facts: the Python packages `safetensors` 0.8 and `transformers` 5.23, for the names of files and the metadata that
//! they expect.

use std::io::Write;
use std::path::{Path, PathBuf};

use mapped::Blob;
use safetensors_format::{Archive, INDEX, Index, file_name, is_supported, split};
use serde::Serialize;
use store::Output;
use tensor::Tensor;

use super::ties::{Tied, Ties};
use super::{Job, Made, Outcome, SHOWN, stream};
use crate::observer::{self, Action, Step};
use crate::{Error, InvalidOption, Names, Note, Result};

/// The key of the metadata that says which framework's tensors these are; `transformers` refuses files without it.
const FORMAT: (&str, &str) = ("format", "pt");
/// Documents that describe Meta's files, not Hugging Face's.
const METAS_OWN: &[&str] = &["params.json"];

/// How safetensors files are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafetensorsOptions {
    /// What is written of tensors that are the same memory.
    pub ties: Ties,
    /// The most bytes of tensors in one file; `None` for one file. A larger tensor has a file of its own.
    pub max_shard_size: Option<u64>,
}

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
    let tied = Tied::find(job.tensors, options.ties, FORMAT.0);
    let name = |position: usize| job.tensors.get(position).map_or("", |(name, _)| name.as_str());
    if !tied.partial.is_empty() {
        let names = tied.partial.iter().take(SHOWN).map(|it| name(*it).to_owned()).collect();
        notes.push(Note::ViewsSeparated { count: tied.partial.len(), names });
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
    if is_folder {
        check_folder(job, &files)?;
    }
    if !job.options.dry_run {
        let made = if is_folder { Some(NewFolder::create(job.target)?) } else { None };
        files.write(job, nbytes)?;
        if let Some(made) = made {
            made.keep();
        }
    }
    Ok(Made { nbytes, report })
}

/// Fails if the folder, or one of the files in it, cannot be written.
fn check_folder(job: &Job<'_>, files: &Files) -> Result<()> {
    if !job.target.exists() {
        return Ok(());
    }
    if !job.target.is_dir() {
        return Err(InvalidOption::NotAFolder { path: job.target.to_owned() }.into());
    }
    let inputs: Vec<&Path> = job.sources.inputs().collect();
    let check = |path: &Path| store::check_target(path, &inputs, job.options.if_exists);
    Ok(files.paths().try_for_each(check)?)
}

/// A folder that is removed again if nothing was put into it.
struct NewFolder<'p> {
    path: &'p Path,
    is_new: bool,
}

impl<'p> NewFolder<'p> {
    fn create(path: &'p Path) -> Result<Self> {
        let is_new = !path.exists();
        std::fs::create_dir_all(path)
            .map_err(|reason| Error::CreateFolder { path: path.to_owned(), reason })?;
        Ok(Self { path, is_new })
    }

    fn keep(mut self) {
        self.is_new = false;
    }
}

impl Drop for NewFolder<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // Fails if somebody put a file into it.
            let _ = std::fs::remove_dir(self.path);
        }
    }
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
struct Files {
    models: Vec<Model>,
    /// Documents that are made: where, and their text.
    texts: Vec<(PathBuf, String)>,
    /// Documents that are copied: from, to.
    copies: Vec<(PathBuf, PathBuf)>,
}

/// One safetensors file.
struct Model {
    path: PathBuf,
    tensors: Vec<(String, Tensor)>,
    metadata: Vec<(String, String)>,
}

impl Files {
    fn new(job: &Job<'_>, tied: &Tied, is_folder: bool) -> Result<Self> {
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
            let tensors = positions.filter_map(|position| job.tensors.get(*position)).cloned().collect();
            let mut metadata = vec![(FORMAT.0.to_owned(), FORMAT.1.to_owned())];
            let in_shard = |kept: &usize| {
                tied.kept.binary_search(kept).is_ok_and(|kept| shard.binary_search(&kept).is_ok())
            };
            let names = tied.dropped.iter().filter(|(_, kept)| in_shard(kept));
            metadata.extend(names.filter_map(|(dropped, kept)| {
                Some((job.tensors.get(*dropped)?.0.clone(), job.tensors.get(*kept)?.0.clone()))
            }));
            models.push(Model { path: path(number), tensors, metadata });
        }
        let (mut texts, mut copies) = (Vec::new(), Vec::new());
        if is_folder {
            copies = companions(job)?;
            let document = job.document.iter().map(|(name, text)| (job.target.join(name), text.clone()));
            texts.extend(document);
        }
        if count > 1 {
            texts.push((job.target.join(INDEX), index(&models).to_json()));
        }
        Ok(Self { models, texts, copies })
    }

    /// Where each file goes.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let models = self.models.iter().map(|model| model.path.as_path());
        let documents = self.copies.iter().map(|(_, to)| to).chain(self.texts.iter().map(|(path, _)| path));
        models.chain(documents.map(PathBuf::as_path))
    }

    /// The bytes of all files.
    fn nbytes(&self) -> Result<u64> {
        let mut sum = 0_u64;
        for model in &self.models {
            sum = sum.saturating_add(model.archive()?.len());
        }
        for (from, _) in &self.copies {
            let len = from.metadata().map_err(|reason| Error::Io { path: from.clone(), reason })?.len();
            sum = sum.saturating_add(len);
        }
        Ok(self.texts.iter().fold(sum, |sum, (_, text)| sum.saturating_add(text.len() as u64)))
    }

    /// Writes all files, and gives them their names once all of them are complete: documents and the index last.
    fn write(&self, job: &Job<'_>, nbytes: u64) -> Result<()> {
        let if_exists = job.options.if_exists;
        let mut written: Vec<Output> = Vec::with_capacity(self.models.len());
        let mut done = 0_u64;
        for model in &self.models {
            let archive = model.archive()?;
            let mut output = Output::create(&model.path, archive.len())?;
            let name = store::file_name(&model.path);
            let mut progress = |bytes| {
                let done = done.saturating_add(bytes);
                let step = Step { name: &name, action: Action::Write, done, total: Some(nbytes) };
                observer::advance(job.observer, step)
            };
            stream::write(&archive, (&mut output, &model.path), &mut progress)?;
            done = done.saturating_add(archive.len());
            written.push(output);
        }
        for (from, to) in &self.copies {
            let bytes = std::fs::read(from).map_err(|reason| Error::Io { path: from.clone(), reason })?;
            written.push(whole(to, &bytes)?);
        }
        for (path, text) in &self.texts {
            written.push(whole(path, text.as_bytes())?);
        }
        let changed = |reason| stream::read_error(job.target, reason);
        job.check_unchanged().map_err(changed)?;
        written.into_iter().try_for_each(|output| output.commit(if_exists)).map_err(Error::Store)
    }
}

impl Model {
    fn archive(&self) -> Result<Archive<'_>> {
        Archive::new(&self.tensors, &self.metadata).map_err(Error::Safetensors)
    }
}

/// The index of the files. `transformers` lists only the names that are written.
fn index(models: &[Model]) -> Index {
    let mut index = Index::default();
    for model in models {
        let file = store::file_name(&model.path);
        for (name, tensor) in &model.tensors {
            index.metadata.total_parameters = index.metadata.total_parameters.saturating_add(tensor.numel());
            index.metadata.total_size = index.metadata.total_size.saturating_add(tensor.nbytes());
            index.weight_map.insert(name.clone(), file.clone());
        }
    }
    index
}

/// The documents next to the checkpoint that a folder gets, too: from, to. Those that are there already stay.
fn companions(job: &Job<'_>) -> Result<Vec<(PathBuf, PathBuf)>> {
    let (companions, _) = sources::companions(&job.sources.path)?;
    let is_metas = job.options.names == Some(Names::Meta);
    let wanted = companions
        .into_iter()
        .filter(|(name, _)| !job.is_replaced(name) && (is_metas || !METAS_OWN.contains(&name.as_str())));
    let copies = wanted.map(|(name, from)| (from, job.target.join(name)));
    Ok(copies.filter(|(from, to)| !same_file::is_same_file(from, to).unwrap_or(false)).collect())
}

/// A small file that is complete and has not taken its place yet.
fn whole(path: &Path, bytes: &[u8]) -> Result<Output> {
    let mut output = Output::create(path, bytes.len() as u64)?;
    output.write_all(bytes).map_err(|reason| Error::Write { path: path.to_owned(), reason })?;
    Ok(output)
}
