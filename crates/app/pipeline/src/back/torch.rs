//! The back end for PyTorch checkpoints: the zip file that `torch.save` writes.

use std::path::Path;

use serde::Serialize;
use torch_save::Archive;

use super::commit::{Files, Planned};
use super::{Format, Job, Kept, Plan, SHOWN, folder, is_checkpoint};
use crate::notes::Notes;
use crate::{Error, Names, Note, Result};

/// Options for writing a PyTorch checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TorchOptions {
    /// Layout that a language model is translated into; `None` keeps the names and documents.
    pub names: Option<Names>,
}

impl TorchOptions {
    /// Translates a language model into the names and documents of another layout.
    #[must_use]
    pub fn names(self, names: Names) -> Self {
        Self { names: Some(names) }
    }
}

/// Report fields that only a PyTorch checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TorchReport {
    /// Names of all files, including the documents in a folder.
    pub files: Vec<String>,
    /// Number of storages in the checkpoint; tensors that share memory share a storage.
    pub storages: usize,
}

/// Writes an ordered dict of plain tensors.
impl Format for TorchOptions {
    type Report = TorchReport;

    fn plan<'p>(&'p self, job: &Job<'p>, _: Kept, notes: &mut Notes<'_>) -> Result<Plan<'p, TorchReport>> {
        refuse_compounds(job)?;
        let archive =
            Archive::new(job.tensors).map_err(Error::TorchSave).map_err(|error| job.error(error))?;
        let count = archive.newer().len();
        if count > 0 {
            let newer = archive.newer().take(SHOWN);
            let tensors = newer.map(|(name, dtype)| (name.to_owned(), dtype.to_string())).collect();
            notes.push(Note::NewerTorch { tensors, count });
        }
        if job.values > 0 {
            notes.push(Note::ValuesLeftOut { values: job.values });
        }
        let storages = archive.storages();
        let mut files = Files::default();
        if job.is_folder {
            files.weights.push(Planned::new(job.target.join(self.file_in_folder()), archive));
            files.documents = folder::documents(job)?;
            folder::complete(&mut files, job)?;
        } else {
            files.weights.push(Planned::new(job.target.to_owned(), archive));
        }
        let report = TorchReport { files: files.names(), storages };
        Ok(Plan { files, report: Box::new(|| report) })
    }

    fn is_folder(&self, _: Option<&Path>) -> bool {
        // A checkpoint is a single file unless a document describes it.
        self.names.is_some()
    }

    fn names(&self) -> Option<Names> {
        self.names
    }

    fn is_whole(&self, output: &Path) -> bool {
        is_checkpoint(output)
    }
}

impl TorchOptions {
    /// Returns the file name of a checkpoint in a folder that Meta's or Hugging Face's code expects.
    fn file_in_folder(&self) -> &'static str {
        match self.names {
            Some(Names::Meta) => "consolidated.00.pth",
            _ => "pytorch_model.bin",
        }
    }
}

fn refuse_compounds(job: &Job<'_>) -> Result<()> {
    let quantized = job.tensors.iter().filter(|(_, tensor)| tensor.dtype().is_quantized());
    let quantized = quantized.map(|(name, tensor)| (name.clone(), tensor.dtype().to_string()));
    let mut tensors: Vec<(String, String)> = job.inseparable().chain(quantized).collect();
    let count = tensors.len();
    tensors.truncate(SHOWN);
    if count == 0 { Ok(()) } else { Err(job.error(Error::NotPlain { tensors, count })) }
}
