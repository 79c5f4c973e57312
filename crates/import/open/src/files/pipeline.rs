//! Pipelines of `diffusers`: folders of models, with a document that names them.
//!
//! Facts: `DiffusionPipeline.save_pretrained` in `diffusers` 0.42.

use std::path::{Path, PathBuf};

use byte_source::{Folder, Location};
use output::Scratch;

use crate::files::companions::Companion;
use crate::files::folder_names::{PIPELINE_INDEX, is_checkpoint};
use crate::files::links::link_target_outside;
use crate::files::sources::copy_to_local;
use crate::files::{Error, Result};

/// Extensions of documents, among them those of tokenizers, schedulers and the model's card.
const EXTENSIONS: &[&str] = &["json", "txt", "model", "jinja", "md"];

/// Folder with a pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub folder: Location,
}

/// Documents of a pipeline, except for those of its models.
#[derive(Debug)]
pub struct PipelineDocuments {
    /// Paths below the pipeline, with `/`, and files on this machine. The document that names the parts is the last one.
    pub files: Vec<Companion>,
    /// Paths, relative to the pipeline, of files that are not copied: they are not documents, or are links to files elsewhere.
    pub left_out: Vec<String>,
    /// Files that were copied from elsewhere.
    _copied: Option<Scratch>,
}

impl Pipeline {
    /// Returns the pipeline that a folder is.
    pub fn at(folder: &Location) -> Option<Self> {
        folder.join(PIPELINE_INDEX).is_file().then(|| Self { folder: folder.clone() })
    }

    /// Lists the documents in the pipeline, and in its folders that are not in `models`. Checkpoints and hidden
    /// files are skipped.
    ///
    /// # Errors
    /// When a folder cannot be listed, or a file elsewhere cannot be read.
    pub fn documents(&self, models: &[String]) -> Result<PipelineDocuments> {
        let list =
            |folder: &Location| folder.list().map_err(|error| Error::from(error).in_file(folder.path()));
        let root = list(&self.folder)?;
        let (mut files, mut left_out) = self.files_in(&root, "");
        for name in &root.listing.folders {
            if name.starts_with('.') || models.contains(name) || root.listing.links.contains(name) {
                continue;
            }
            let (more, less) = self.files_in(&list(&self.folder.join(name))?, &format!("{name}/"));
            files.extend(more);
            left_out.extend(less);
        }
        // Libraries look for this one first.
        files.sort_by_key(|(name, _)| name == PIPELINE_INDEX);
        if self.folder.is_local() {
            return Ok(PipelineDocuments { files, left_out, _copied: None });
        }
        let (copied, files) = copy_to_local(&**self.folder.store(), files)?;
        Ok(PipelineDocuments { files, left_out, _copied: Some(copied) })
    }

    /// Returns the documents in a folder of the pipeline, and the names of its other files.
    fn files_in(&self, folder: &Folder, below: &str) -> (Vec<Companion>, Vec<String>) {
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        let is_kept = |name: &&String| !name.starts_with('.') && !is_checkpoint(name);
        for name in folder.listing.files.iter().filter(is_kept) {
            let path: PathBuf = folder.path().join(name);
            let is_outside = folder.listing.links.contains(name)
                && link_target_outside(&path, self.folder.path()).is_some();
            let shown = format!("{below}{name}");
            if is_outside || !is_document(name) {
                left_out.push(shown);
            } else {
                files.push((shown, path));
            }
        }
        (files, left_out)
    }
}

fn is_document(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|it| it.to_str());
    name.starts_with("LICENSE") || extension.is_some_and(|it| EXTENSIONS.contains(&it))
}
