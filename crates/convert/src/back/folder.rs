//! Output folders: the documents of a model, and the removal of files of an earlier output.

use std::collections::HashSet;
use std::path::Path;

use byte_source::Store;
use output::{IfExists, OutputDocuments, OutputFiles};
use safetensors_format::is_model_file;

use super::OutputJob;
use crate::{InvalidOption, OutputFormat, Problem, Result};

/// Returns true if an output path is that of a folder: it is given as one, or has no extension of a file.
pub(super) fn is_folder_path(path: &Path) -> bool {
    output::is_given_as_folder(path) || OutputFormat::from_path(path).is_none()
}

/// Plans the documents of an output folder: copies of the companions and of the given files, and the generated document that replaces one of them.
/// A companion that is already in the folder stays.
pub(super) fn plan_documents(job: &OutputJob<'_>) -> OutputDocuments {
    let mut documents = OutputDocuments::default();
    for (name, from) in job.misc.iter().filter(|(name, _)| !job.is_replaced_document(name)) {
        let to = job.target.join(name);
        if !same_file::is_same_file(from, &to).unwrap_or(false) {
            documents.copy(from.clone(), to);
        }
    }
    for (name, contents) in job.made_documents() {
        documents.add(job.target.join(name), contents);
    }
    documents
}

/// Plans the creation of the output folder, and the removal of the files of an earlier output from it.
///
/// # Errors
/// When the folder, or one of its files, cannot be written, or the folder contains files of another model.
pub(super) fn plan_output_folder(files: &mut OutputFiles<'_>, job: &OutputJob<'_>) -> Result<()> {
    if let Some(store) = job.destination.store_of(job.target)? {
        return check_stored_folder(store.as_ref(), files, job);
    }
    files.folders = vec![job.target.to_owned()];
    if !job.target.exists() {
        return Ok(());
    }
    if !job.target.is_dir() {
        return Err(InvalidOption::NotAFolder { path: job.target.to_owned() }.into());
    }
    let inputs = job.inputs();
    let mut new = HashSet::new();
    for path in files.paths() {
        output::check_target(path, &inputs, job.if_exists)?;
        new.insert(output::file_name(path));
    }
    // `transformers` prefers a single file to an index, even if the index is newer.
    let io = |error: std::io::Error| byte_source::Error::from(error).in_file(job.target);
    for entry in job.target.read_dir().map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = output::file_name(&path);
        if is_model_file(&name) && !new.contains(&name) {
            let is_path = |input: &&&Path| same_file::is_same_file(&path, input).unwrap_or(false);
            if let Some(input) = inputs.iter().find(is_path) {
                let input = input.to_path_buf();
                return Err(output::Problem::SameFile { output: path, input }.into());
            }
            if !output::is_own_output(&path) || job.if_exists == IfExists::Fail {
                return Err(Problem::OtherModelInFolder { path }.into());
            }
            files.stale_files.push(path);
        }
    }
    Ok(())
}

/// Checks that the files of an output folder may be written into a store. Files of an earlier output are not removed there, so
/// those that would be mistaken for a part of this output are refused.
///
/// # Errors
/// When a file may not be replaced, the folder contains files of another model, or the store does not answer.
fn check_stored_folder(store: &dyn Store, files: &OutputFiles<'_>, job: &OutputJob<'_>) -> Result<()> {
    let mut new = HashSet::new();
    for path in files.paths() {
        job.destination.check_target(path, &job.inputs(), job.if_exists)?;
        new.insert(output::file_name(path));
    }
    let listing = store.list(job.target);
    let listing = listing.map_err(|error| byte_source::Error::from(error).in_file(job.target))?;
    match listing.files.into_iter().find(|name| is_model_file(name) && !new.contains(name)) {
        Some(name) => Err(Problem::OtherModelInFolder { path: job.target.join(name) }.into()),
        None => Ok(()),
    }
}
