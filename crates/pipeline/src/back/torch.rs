//! The back end for checkpoints: the zip file that `torch.save` writes.

use mapped::Blob;
use serde::Serialize;
use store::{Output, file_name};
use torch_save::Archive;

use super::{Job, Made, Outcome, SHOWN, stream};
use crate::observer::{self, Action, Step};
use crate::{Error, Note, Result};

/// What only the report about a checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TorchReport {
    /// How many storages it has: tensors that share memory share a storage.
    pub storages: usize,
}

/// Writes the tensors as a checkpoint: an ordered dict of plain tensors.
///
/// # Errors
/// When one of the tensors consists of several, the file cannot be written, or the observer stops the work.
pub(crate) fn write(job: &Job<'_>, notes: &mut Vec<Note>) -> Outcome<TorchReport> {
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
    job.announce(notes);
    if !job.options.dry_run {
        write_file(job, &archive)?;
    }
    Ok(Made { nbytes: archive.len(), report: TorchReport { storages: archive.storages() } })
}

fn refuse_compounds(job: &Job<'_>) -> Result<()> {
    let quantized = job.tensors.iter().filter(|(_, tensor)| tensor.dtype().is_quantized());
    let quantized = quantized.map(|(name, tensor)| (name.clone(), tensor.dtype().to_string()));
    let mut tensors: Vec<(String, String)> = job.inseparable().chain(quantized).collect();
    let count = tensors.len();
    tensors.truncate(SHOWN);
    if count == 0 { Ok(()) } else { Err(job.error(Error::NotPlain { tensors, count })) }
}

fn write_file(job: &Job<'_>, archive: &Archive) -> Result<()> {
    let (target, nbytes) = (job.target, archive.len());
    let mut output = Output::create(target, nbytes)?;
    let name = file_name(target);
    let mut progress = |done| {
        let step = Step { name: &name, action: Action::Write, done, total: Some(nbytes) };
        observer::advance(job.observer, step)
    };
    stream::write(archive, (&mut output, target), &mut progress)
        .map_err(|error| error.with_tensor(job.tensors))?;
    job.check_unchanged().map_err(|reason| stream::read_error(target, reason))?;
    Ok(output.commit(job.options.if_exists)?)
}
