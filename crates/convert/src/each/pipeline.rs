//! Pipelines of `diffusers` in a batch, whose outputs are pipelines again.

use std::path::{Path, PathBuf};

use byte_source::Location;
use open::files::{Pipeline, PipelineDocuments};
use output::{CommitTarget, OutputFiles, file_name, shown_path};
use serde::Serialize;

use super::input::EachInput;
use crate::{ConvertOptions, Result};

/// Version of the fields of [`PipelineReport`].
const SCHEMA_VERSION: u32 = 1;

/// Result of copying the documents of a pipeline, after its models were converted.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PipelineReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Folder of the pipeline.
    pub file: String,
    /// Folder of the output.
    pub output: String,
    /// Format of the models in the output.
    pub to: &'static str,
    /// False for a dry run.
    pub written: bool,
    /// Paths of the documents below the folder.
    pub files: Vec<String>,
    /// Paths of files that are neither documents nor checkpoints, or links to files outside of the pipeline.
    pub left_out: Vec<String>,
}

/// Pipeline among the inputs of a batch.
#[derive(Debug)]
pub(crate) struct PipelineInput {
    pipeline: Pipeline,
    /// Path below the folder of all outputs.
    below: PathBuf,
}

impl PipelineInput {
    /// Returns the pipeline that a folder is. Its output gets the path `below` in the folder of all outputs.
    pub(crate) fn at(folder: &Location, below: &Path) -> Option<Self> {
        Some(Self { pipeline: Pipeline::at(folder)?, below: below.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.pipeline.folder.path()
    }

    fn output(&self, options: &ConvertOptions) -> Option<PathBuf> {
        Some(options.output.as_ref()?.join(&self.below))
    }

    /// Returns the name of a model's folder in the pipeline, given the folder or files in it, and whether `diffusers` loads these files
    /// by default, because they are not a variant such as `fp16`. Returns `None` for files elsewhere.
    fn model(&self, files: &[Location]) -> Option<(String, bool)> {
        let first = files.first()?;
        let (folder, is_main) = if first.is_folder() {
            (first.path(), true)
        } else {
            (first.path().parent()?, file_name(first.path()).matches('.').count() == 1)
        };
        (folder.parent() == Some(self.path())).then(|| (file_name(folder), is_main))
    }

    /// Returns the names of the models among the inputs.
    pub(crate) fn models(&self, inputs: &[EachInput]) -> Vec<String> {
        inputs.iter().filter_map(|input| Some(self.model(&input.files)?.0)).collect()
    }

    /// Returns the output folder of a model, and whether `diffusers` loads the model by default; `None` if the format has no folders for
    /// models.
    pub(crate) fn model_output(
        &self,
        options: &ConvertOptions,
        files: &[Location],
    ) -> Option<(PathBuf, bool)> {
        let (name, is_main) = self.model(files).filter(|_| options.target.output().is_folder(None, true))?;
        Some((self.output(options)?.join(name).join(""), is_main))
    }

    /// Copies the documents of the pipeline, other than those of its models, into the output.
    ///
    /// # Errors
    /// When a document cannot be read or written.
    pub(crate) fn copy_documents(
        &self,
        options: &ConvertOptions,
        models: &[String],
    ) -> Result<Option<PipelineReport>> {
        let is_folder = options.target.output().is_folder(None, true);
        let Some(output) = self.output(options).filter(|_| is_folder) else { return Ok(None) };
        let documents = self.pipeline.documents(models)?;
        let PipelineDocuments { files, left_out, .. } = &documents;
        let mut copies = OutputFiles::default();
        for (name, from) in files {
            let to = output.join(name);
            options.destination.check_target(&to, &[from], options.if_exists)?;
            copies.documents.copy(from.clone(), to);
        }
        if !options.dry_run {
            let (if_exists, destination) = (options.if_exists, &options.destination);
            let target = CommitTarget { path: &output, if_exists, destination };
            output::commit(copies, target, &|| Ok(()), &())?;
        }
        Ok(Some(PipelineReport {
            schema_version: SCHEMA_VERSION,
            file: shown_path(self.path()).display().to_string(),
            output: output.display().to_string(),
            to: options.target.format().name(),
            written: !options.dry_run,
            files: files.iter().map(|(name, _)| name.clone()).collect(),
            left_out: left_out.clone(),
        }))
    }
}
