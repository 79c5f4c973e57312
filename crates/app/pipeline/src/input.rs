//! Inputs of a conversion: the files of a checkpoint, or a carton.

use std::path::Path;

use carton_format::Config;
use checkpoint_files::CheckpointSources;

use crate::{ConvertOptions, Result, Target};

/// Finds the files of the inputs, which are a checkpoint, or an unpacked carton if the output can be written from one.
///
/// # Errors
/// When the inputs are not one checkpoint.
pub(crate) fn find_sources(options: &ConvertOptions) -> Result<CheckpointSources> {
    if let Some(source) = &options.source {
        return Ok(CheckpointSources::find_source(source, options.shards())?);
    }
    Ok(match (options.inputs.as_slice(), &options.target) {
        ([folder], Target::Triton(_)) if is_unpacked_carton(folder) => CheckpointSources::file(folder),
        (inputs, _) => CheckpointSources::find(inputs, options.shards())?,
    })
}

/// Returns true if the folder contains the files of a carton.
pub(crate) fn is_unpacked_carton(folder: &Path) -> bool {
    folder.join(Config::PATH).is_file()
}
