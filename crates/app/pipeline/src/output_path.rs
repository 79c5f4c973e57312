//! Default names of outputs and models.

use std::path::{Path, PathBuf};

use byte_source::InputSource;
use checkpoint_files::CheckpointSources;
use output::{file_name, parent_folder};

use crate::ConvertOptions;

/// Stems and prefixes of stems that do not name a model; the name of the folder is used instead.
const GENERIC_STEMS: &[&str] = &["last", "best"];
const GENERIC_STARTS: &[&str] = &["consolidated", "model", "pytorch_model"];
/// Extensions of checkpoints. Other extensions, such as that of `llama-3.1`, belong to the name.
const EXTENSIONS: &[&str] = &[
    "pth",
    "pt",
    "bin",
    "ckpt",
    "pkl",
    "pickle",
    "th",
    "tar",
    "model",
    "safetensors",
    "torch",
    "zip",
    "carton",
];

/// Form of the name of a default output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputNaming {
    /// Name of the checkpoint without its extension, such as `model.carton`.
    Stem,
    /// Whole name of the checkpoint's file, such as `model.pth.carton`.
    FileName,
}

impl OutputNaming {
    /// Returns the name of an output without its extension.
    fn of(self, path: &Path) -> String {
        match self {
            Self::Stem => checkpoint_stem(path),
            Self::FileName => file_name(path),
        }
    }
}

/// Returns the default output path of a conversion: next to the checkpoint, with its name; that of a
/// byte source is in the current folder.
pub(crate) fn default_output_path(
    options: &ConvertOptions,
    sources: &CheckpointSources,
    is_folder: bool,
    naming: OutputNaming,
) -> PathBuf {
    let extension = options.target.format().name();
    // A folder has no extension, and its name must differ from the input's.
    let ending = if is_folder { format!("-{extension}") } else { format!(".{extension}") };
    match input_folder(options) {
        Some((None, name)) => PathBuf::from(name + &ending),
        Some((Some(given), name)) => {
            let name = name + &ending;
            // The paths `.` and `..` have no file name to replace: their output is inside the folder.
            if given.file_name().is_some() { given.with_file_name(name) } else { given.join(name) }
        }
        // A source is not in a folder of this machine.
        None if options.source.is_some() => PathBuf::from(naming.of(&sources.path) + &ending),
        // A name that is not UTF-8 keeps all of its text, except for the last extension.
        None if sources.path.file_name().is_some_and(|name| name.to_str().is_none()) => {
            sources.path.with_extension(extension)
        }
        None => sources.path.with_file_name(naming.of(&sources.path) + &ending),
    }
}

/// Returns the path that a conversion of the first input would write, from the texts of the paths alone: what two inputs
/// of a batch have in common is found before anything is read. `folder` is the folder of the outputs, if there is one.
pub fn expected_output(options: &ConvertOptions, folder: Option<&Path>) -> PathBuf {
    expected_output_named(options, folder, OutputNaming::Stem)
}

/// Returns the path like [`expected_output`], with a name of this form.
pub(crate) fn expected_output_named(
    options: &ConvertOptions,
    folder: Option<&Path>,
    naming: OutputNaming,
) -> PathBuf {
    let input = options.inputs.first().map_or(Path::new(""), PathBuf::as_path);
    let stem = naming.of(input);
    let is_repository = options.target.format().is_repository();
    let default = stem.clone() + "." + options.target.format().name();
    match (&options.output, folder) {
        (Some(output), _) if !is_repository => output.clone(),
        (None, Some(folder)) if !is_repository => folder.join(default),
        (None, None) if !is_repository => input.with_file_name(default),
        (output, folder) => {
            let repository = folder.or(output.as_deref()).unwrap_or_else(|| parent_folder(input));
            let name = options.target.format().model_name().map(str::to_owned);
            let of_folder =
                || parent_folder(input).file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.or_else(|| if is_generic(&stem) { of_folder() } else { None });
            repository.join(name.unwrap_or(stem))
        }
    }
}

/// Returns true for a stem that does not name a model.
fn is_generic(stem: &str) -> bool {
    GENERIC_STEMS.contains(&stem) || GENERIC_STARTS.iter().any(|start| stem.starts_with(start))
}

pub(crate) fn is_folder_input(options: &ConvertOptions) -> bool {
    input_folder(options).is_some()
}

/// Returns the folder that is the only input, unless it is not on this machine, and its name.
fn input_folder(options: &ConvertOptions) -> Option<(Option<&Path>, String)> {
    match &options.source {
        Some(InputSource::Folder { folder, file: None }) => return Some((None, folder.name())),
        Some(_) => return None,
        None => {}
    }
    let [input] = options.inputs.as_slice() else { return None };
    let whole = if input.is_dir() { std::path::absolute(input).ok()? } else { return None };
    let whole = if input.file_name().is_some() { whole } else { whole.canonicalize().ok()? };
    Some((Some(input), whole.file_name()?.to_string_lossy().into_owned()))
}

/// Returns the file name without the extensions of checkpoints.
fn checkpoint_stem(path: &Path) -> String {
    let mut stem = file_name(path);
    while let Some((rest, extension)) = stem.rsplit_once('.') {
        if rest.is_empty() || !EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()) {
            break;
        }
        stem = rest.to_owned();
    }
    stem
}

/// Returns the given name of the model. The default is the stem of the file, or the name of the folder if the stem does not
/// name a model.
pub(crate) fn model_name(options: &ConvertOptions, sources: &CheckpointSources) -> String {
    if let Some(name) = options.target.format().model_name() {
        return name.to_owned();
    }
    if let Some((_, name)) = input_folder(options) {
        return name;
    }
    let stem = checkpoint_stem(&sources.path);
    let folder = match &options.source {
        Some(InputSource::Folder { folder, .. }) => Some(folder.name()),
        Some(InputSource::File(_)) => Some(file_name(parent_folder(&sources.path))),
        None => {
            let folder = std::path::absolute(parent_folder(&sources.path)).ok();
            folder.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
        }
    };
    match folder {
        Some(folder) if is_generic(&stem) => folder,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_keep_what_belongs_to_the_name() {
        let stem = |path: &str| super::checkpoint_stem(Path::new(path));
        assert_eq!(stem("a/consolidated.00.pth"), "consolidated.00");
        assert_eq!(stem("net.pth.tar"), "net");
        assert_eq!(stem("llama-3.1"), "llama-3.1");
        assert_eq!(stem(".pth"), ".pth");
    }
}
