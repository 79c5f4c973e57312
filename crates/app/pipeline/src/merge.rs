//! Merging of adapters into the selected tensors.

use std::path::{Path, PathBuf};

use adapter::{Adapter, MergeReports};
use checkpoint_files::CheckpointSources;
use tensor::Tensors;
use torch_import::{Checkpoint, Container};

use crate::{Error, Observer, Result};

/// File names of an adapter's tensors, the preferred one first.
pub(crate) const ADAPTER_FILES: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

/// Adapter to merge, and a factor for all of its changes.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterInput {
    /// Folder with `adapter_config.json` and the tensors, or the file of the tensors in such a folder.
    pub path: PathBuf,
    /// Factor for all products and biases; 1 for the adapter as it was trained.
    pub weight: f64,
}

/// Base with merged adapters.
pub(crate) struct MergedAdapters {
    pub(crate) tensors: Tensors,
    pub(crate) reports: MergeReports,
    /// Files of the adapters, which are compared with what they were before the output is committed.
    pub(crate) containers: Vec<Container>,
}

/// Reads the adapters and merges them into `base`, one after the other.
///
/// # Errors
/// When an adapter cannot be read, or does not fit the base.
pub(crate) fn merge_adapters(
    base: &Tensors,
    inputs: &[AdapterInput],
    judge: &dyn Fn(&Path, &Checkpoint) -> Result<()>,
    observer: &dyn Observer,
) -> Result<MergedAdapters> {
    let (mut adapters, mut containers) = (Vec::with_capacity(inputs.len()), Vec::new());
    for input in inputs {
        let failed = |reason| Error::Adapter { path: input.path.clone(), reason: Box::new(reason) };
        let sources = CheckpointSources::file(&tensor_file(&input.path)?);
        let config = sources.documents.adapter()?;
        let config = config.ok_or_else(|| Error::NoAdapter { path: input.path.clone() })?;
        let opened = sources.open()?;
        let (checkpoint, _) = sources.read_with_observer::<Error>(&opened, judge, observer)?;
        let name = input.path.display().to_string();
        adapters.push(Adapter::new(name, config, checkpoint.to_tensors(), input.weight).map_err(failed)?);
        containers.extend(opened);
    }
    let (tensors, reports) = adapter::merge(base, &adapters).map_err(|reason| {
        let path = match inputs {
            [input] => input.path.clone(),
            _ => PathBuf::from("adapters"),
        };
        Error::Adapter { path, reason: Box::new(reason) }
    })?;
    Ok(MergedAdapters { tensors, reports, containers })
}

/// Returns the file with the tensors of an adapter.
///
/// # Errors
/// When a folder has no such file.
pub(crate) fn tensor_file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let files = ADAPTER_FILES.iter().map(|name| path.join(name));
    files.into_iter().find(|file| file.is_file()).ok_or_else(|| Error::NoAdapter { path: path.to_owned() })
}
