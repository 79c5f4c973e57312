//! The back end for PyTorch checkpoints: the zip file that `torch.save` writes.

use std::path::Path;

use open::TargetLayout;
use serde::{Deserialize, Serialize};

use super::{
    NonTensorParts, Output, OutputJob, OutputPlan, SHOWN, can_open_checkpoint, folder, output_format,
};
use crate::note_collector::NoteCollector;
use crate::report::file_names_line;
use crate::torch_save::TorchSaveArchive;
use crate::{Note, OutputFormat, OutputReport, Result};
use output::{OutputFiles, PlannedFile};

pub(crate) static TORCH: OutputFormat =
    output_format!(TorchOptions, "pth", ["pth", "pt", "bin", "ckpt"], "A checkpoint as torch.save writes it");

/// Options for writing a PyTorch checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct TorchOptions {
    /// Give a model these names, or translate a LLaMA of Meta's or into Meta's
    ///
    /// The document is config.json or params.json. The output is a folder, or only the tensors if -o names a file
    #[serde(rename = "names")]
    #[cfg_attr(feature = "cli", arg(long = "names", value_name = "LAYOUT"))]
    pub target_layout: Option<TargetLayout>,
}

impl TorchOptions {
    /// Translates a language model into the names and documents of another layout.
    #[must_use]
    pub fn target_layout(self, names: TargetLayout) -> Self {
        Self { target_layout: Some(names) }
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
    #[serde(skip)]
    in_folder: bool,
}

impl OutputReport for TorchReport {
    fn summary(&self) -> Vec<(&'static str, String)> {
        file_names_line(&self.files, self.in_folder).into_iter().collect()
    }
}

/// Writes an ordered dict of plain tensors.
impl Output for TorchOptions {
    fn format(&self) -> &'static OutputFormat {
        &TORCH
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        _: NonTensorParts,
        notes: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        job.reject_unsupported("a checkpoint of plain tensors", |dtype| !dtype.is_quantized())?;
        let archive = TorchSaveArchive::new(job.tensors).map_err(|error| job.at_input(error))?;
        let count = archive.needs_newer_torch().len();
        if count > 0 {
            let newer = archive.needs_newer_torch().take(SHOWN);
            let tensors = newer.map(|(name, dtype)| (name.to_owned(), dtype.to_string())).collect();
            notes.push(Note::NewerTorch { tensors, count });
        }
        if job.values > 0 {
            notes.push(Note::ValuesLeftOut { values: job.values });
        }
        let storages = archive.storages();
        let mut files = OutputFiles::default();
        if job.is_folder {
            files.weights.push(PlannedFile::new(job.target.join(self.checkpoint_file_name()), archive));
            files.documents = folder::plan_documents(job);
            folder::plan_output_folder(&mut files, job)?;
        } else {
            files.weights.push(PlannedFile::new(job.target.to_owned(), archive));
        }
        let report = TorchReport { files: files.names(), storages, in_folder: job.is_folder };
        Ok(OutputPlan::new(files, || report))
    }

    fn is_folder(&self, path: Option<&Path>, has_documents: bool) -> bool {
        path.map_or(self.target_layout.is_some() || has_documents, folder::is_folder_path)
    }

    fn requested_layout(&self) -> Option<TargetLayout> {
        self.target_layout
    }

    fn is_complete(&self, output: &Path) -> bool {
        can_open_checkpoint(output)
    }
}

impl TorchOptions {
    /// Returns the file name of a checkpoint in a folder that Meta's or Hugging Face's code expects.
    fn checkpoint_file_name(&self) -> &'static str {
        match self.target_layout {
            Some(TargetLayout::Meta) => "consolidated.00.pth",
            _ => "pytorch_model.bin",
        }
    }
}
