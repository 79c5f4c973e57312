//! What the inputs of a conversion are: the files of a checkpoint, or a carton.

use std::path::Path;

use carton_format::Config;
use sources::Sources;

use crate::{ConvertOptions, OutputKind, Result};

/// The files of the only input: a checkpoint, or a carton if such an output can be made of one.
pub(crate) fn sources(options: &ConvertOptions, kind: OutputKind) -> Result<Sources> {
    Ok(match options.inputs.as_slice() {
        [folder] if kind == OutputKind::Triton && is_unpacked_carton(folder) => Sources::file(folder),
        inputs => Sources::find(inputs, options.single)?,
    })
}

/// Whether a folder holds the files of a carton.
pub(crate) fn is_unpacked_carton(folder: &Path) -> bool {
    folder.join(Config::PATH).is_file()
}
