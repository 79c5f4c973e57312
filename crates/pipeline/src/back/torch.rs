//! The back end for checkpoints: the zip file that `torch.save` writes.

use std::path::Path;

use mapped::Blob;
use serde::Serialize;
use store::{Output, file_name};
use torch_save::Archive;

use super::folder::{self, Documents, NewFolder};
use super::{Job, Made, Outcome, SHOWN, stream};
use crate::observer::{self, Action, Step};
use crate::{Error, Names, Note, Result};

/// What only the report about a checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TorchReport {
    /// The names of the files, also of the documents in a folder.
    pub files: Vec<String>,
    /// How many storages it has: tensors that share memory share a storage.
    pub storages: usize,
}

/// Writes the tensors as a checkpoint: an ordered dict of plain tensors.
///
/// # Errors
/// When one of the tensors consists of several, the file cannot be written, or the observer stops the work.
pub(crate) fn write(job: &Job<'_>, is_folder: bool, notes: &mut Vec<Note>) -> Outcome<TorchReport> {
    refuse_compounds(job)?;
    let archive = Archive::new(job.tensors).map_err(Error::TorchSave).map_err(|error| job.error(error))?;
    let newer = archive.newer();
    if newer.len() > 0 {
        let count = newer.len();
        let tensors = newer.take(SHOWN).map(|(name, dtype)| (name.to_owned(), dtype.to_string())).collect();
        notes.push(Note::NewerTorch { tensors, count });
    }
    if job.values.count > 0 {
        notes.push(Note::ValuesLeftOut { values: job.values.count });
    }
    let (path, documents) = if is_folder {
        (job.target.join(file_in_folder(job)), Documents::find(job)?)
    } else {
        (job.target.to_owned(), Documents::default())
    };
    let files = || std::iter::once(path.as_path()).chain(documents.paths());
    let nbytes = archive.len().saturating_add(documents.nbytes()?);
    let report = TorchReport { files: files().map(store::file_name).collect(), storages: archive.storages() };
    job.announce(notes);
    let mut earlier = Vec::new();
    if is_folder {
        earlier = folder::check(job, files())?;
    }
    if !job.options.dry_run {
        let made = if is_folder { Some(NewFolder::create(job.target)?) } else { None };
        write_files(job, &archive, &path, &documents)?;
        folder::remove(&earlier)?;
        if let Some(made) = made {
            made.keep();
        }
    }
    Ok(Made { nbytes, report })
}

fn refuse_compounds(job: &Job<'_>) -> Result<()> {
    let quantized = job.tensors.iter().filter(|(_, tensor)| tensor.dtype().is_quantized());
    let quantized = quantized.map(|(name, tensor)| (name.clone(), tensor.dtype().to_string()));
    let mut tensors: Vec<(String, String)> = job.inseparable().chain(quantized).collect();
    let count = tensors.len();
    tensors.truncate(SHOWN);
    if count == 0 { Ok(()) } else { Err(job.error(Error::NotPlain { tensors, count })) }
}

/// What a checkpoint is called in a folder, by Meta's code or by Hugging Face's.
fn file_in_folder(job: &Job<'_>) -> &'static str {
    match job.options.names {
        Some(Names::Meta) => "consolidated.00.pth",
        _ => "pytorch_model.bin",
    }
}

fn write_files(job: &Job<'_>, archive: &Archive, path: &Path, documents: &Documents) -> Result<()> {
    let nbytes = archive.len();
    let mut output = Output::create(path, nbytes)?;
    let name = file_name(path);
    let mut progress = |done| {
        let step = Step { name: &name, action: Action::Write, done, total: Some(nbytes) };
        observer::advance(job.observer, step)
    };
    stream::write(archive, (&mut output, path), &mut progress)
        .map_err(|error| error.with_tensor(job.tensors))?;
    let written = documents.write()?;
    job.check_unchanged().map_err(|reason| stream::read_error(path, reason))?;
    output.commit(job.options.if_exists)?;
    written.into_iter().try_for_each(|output| output.commit(job.options.if_exists)).map_err(Error::Store)
}
