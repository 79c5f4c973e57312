//! Files to keep with the tensors: the companions of the checkpoint, and the files given in the options.

use std::path::PathBuf;

use open::CartonInput;
use open::files::{CheckpointSources, Companion, DOCUMENT_MAX, FilesNote, is_companion_name, read_document};
use output::file_name;

use crate::{InvalidOption, Note, PlannedConversion, Result};

/// Reads the model's documents among the given files. A trainer writes them elsewhere, or not at all.
///
/// # Errors
/// When a document cannot be read or is too large.
pub(crate) fn take_documents(given: &[PathBuf], sources: &mut CheckpointSources) -> Result<()> {
    if !sources.is_of_trainer() {
        return Ok(());
    }
    for path in given.iter().filter(|path| path.is_file()) {
        match file_name(path).as_str() {
            "config.json" => sources.documents.replace_config(read_document(&path.into(), DOCUMENT_MAX)?),
            "params.json" => sources.documents.replace_params(read_document(&path.into(), DOCUMENT_MAX)?),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the given files and the companions of the checkpoint, sorted by name, and a note on each companion that is left
/// out. A given file replaces the companion of the same name.
///
/// # Errors
/// When a given file does not exist, its name is not UTF-8, or two given files have the same name.
pub(crate) fn find_misc_files(conversion: &PlannedConversion) -> Result<(Vec<Companion>, Vec<Note>)> {
    let PlannedConversion { sources, options, .. } = conversion;
    let given = options.target.output().misc();
    let mut all: Vec<Companion> = Vec::new();
    for path in given {
        if !path.is_file() {
            return Err(InvalidOption::MiscMissing { path: path.clone() }.into());
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(InvalidOption::MiscName { path: path.clone() }.into());
        };
        if all.iter().any(|(other, _)| other == name) {
            return Err(InvalidOption::MiscTwice { name: name.to_owned() }.into());
        }
        all.push((name.to_owned(), path.clone()));
    }
    let (mut companions, mut left_out) = if may_keep_companions(conversion) {
        find_companions(sources, conversion.carton.as_deref())?
    } else {
        Default::default()
    };
    let is_given = |name: &str| all.iter().any(|(other, _)| other == name);
    let is_of_other_part = |name: &str| conversion.part.is_some() && name.contains("processor_config");
    companions.retain(|(name, _)| !is_given(name) && !is_of_other_part(name));
    left_out.retain_mut(|note| match note {
        FilesNote::LinkLeftOut { path, .. } => !is_given(&file_name(path)),
        FilesNote::CodeLeftOut { files } => {
            files.retain(|name| !is_given(name));
            conversion.is_folder && !files.is_empty()
        }
        _ => true,
    });
    all.extend(companions);
    all.sort();
    Ok((all, left_out.into_iter().map(|note| open::Note::Sources(note).into()).collect()))
}

/// Returns the documents of a model, with notes on those that are left out: those in the carton, or those next to the checkpoint.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn find_companions(
    sources: &CheckpointSources,
    carton: Option<&CartonInput>,
) -> Result<(Vec<Companion>, Vec<FilesNote>)> {
    match carton {
        Some(carton) => Ok((carton.documents()?, Vec::new())),
        None => Ok(sources.companions()?),
    }
}

/// Returns false if the output has no room for companions and its path is none of theirs. They need not be looked up then, which
/// takes milliseconds in a folder of thousands of checkpoints.
fn may_keep_companions(conversion: &PlannedConversion) -> bool {
    conversion.is_folder
        || !conversion.options.target.output().is_tensor_file()
        || conversion.sources.folder().is_some()
        || is_companion_name(&file_name(&conversion.output))
}
