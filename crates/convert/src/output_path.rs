//! Default names of outputs and models.

use std::path::{Path, PathBuf};

use open::files::CheckpointSources;
use output::{file_name, parent_folder};
use torch_import::is_checkpoint_extension;

use crate::ConvertOptions;

/// Stems and prefixes of stems that do not name a model; the name of the folder is used instead.
const GENERIC_STEMS: &[&str] = &["last", "best"];
const GENERIC_STARTS: &[&str] = &["consolidated", "model", "pytorch_model"];
/// Extensions of inputs, besides those of container formats. Others, such as that of `llama-3.1`, belong to the name.
const EXTENSIONS: &[&str] = &["tar", "model", "zip", "carton"];

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
            Self::FileName => member_name(path),
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
    let is_local = sources.location().is_local();
    match sources.folder() {
        Some(folder) if is_local => {
            let (given, name) = (folder.path(), folder.folder_name() + &ending);
            // The paths `.` and `..` have no file name to replace: their output is inside the folder.
            if given.file_name().is_some() { given.with_file_name(name) } else { given.join(name) }
        }
        // The output of an input elsewhere is in the current folder.
        Some(folder) => PathBuf::from(folder.folder_name() + &ending),
        None if !is_local => PathBuf::from(naming.of(&sources.path) + &ending),
        // A name that is not UTF-8 keeps all of its text, except for the last extension.
        None if sources.path.file_name().is_some_and(|name| name.to_str().is_none()) => {
            sources.path.with_extension(extension)
        }
        None => sources.path.with_file_name(naming.of(&sources.path) + &ending),
    }
}

/// Returns the path that a conversion of `input` would write, from the texts of the paths alone: what two inputs
/// of a batch have in common is found before anything is read. `folder` is the folder of the outputs, if there is one.
pub fn expected_output(input: &Path, options: &ConvertOptions, folder: Option<&Path>) -> PathBuf {
    expected_output_named(input, options, folder, OutputNaming::Stem)
}

/// Returns the path like [`expected_output`], with a name of this form.
pub(crate) fn expected_output_named(
    input: &Path,
    options: &ConvertOptions,
    folder: Option<&Path>,
    naming: OutputNaming,
) -> PathBuf {
    let stem = naming.of(input);
    let is_repository = options.target.output().is_repository();
    let default = stem.clone() + "." + options.target.format().name();
    match (&options.output, folder) {
        (Some(output), _) if !is_repository => output.clone(),
        (None, Some(folder)) if !is_repository => folder.join(default),
        (None, None) if !is_repository => input.with_file_name(default),
        (output, folder) => {
            let repository = folder.or(output.as_deref()).unwrap_or_else(|| parent_folder(input));
            let name = options.target.output().model_name().map(str::to_owned);
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

/// Returns the name of a file, which may be in an archive, as in `x.zip::folder/model.pth`.
fn member_name(path: &Path) -> String {
    let name = file_name(path);
    name.rsplit_once("::").map_or_else(|| name.clone(), |(_, member)| member.to_owned())
}

/// Returns the file name without the extensions of checkpoints.
fn checkpoint_stem(path: &Path) -> String {
    let mut stem = member_name(path);
    while let Some((rest, extension)) = stem.rsplit_once('.') {
        let extension = extension.to_ascii_lowercase();
        let is_known = EXTENSIONS.contains(&extension.as_str()) || is_checkpoint_extension(&extension);
        if rest.is_empty() || !is_known {
            break;
        }
        stem = rest.to_owned();
    }
    stem
}

/// Returns the given name of the model. The default is the stem of the file, or the name of the folder if the stem does not
/// name a model.
pub(crate) fn model_name(options: &ConvertOptions, sources: &CheckpointSources) -> String {
    if let Some(name) = options.target.output().model_name() {
        return name.to_owned();
    }
    if let Some(folder) = sources.folder() {
        return folder.folder_name();
    }
    let stem = checkpoint_stem(&sources.path);
    let folder = sources.location().parent().folder_name();
    if is_generic(&stem) && !folder.is_empty() { folder } else { stem }
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
