//! Advice about errors of commands on cartons.

use std::path::Path;

use byte_source::{Detail, Error};
use carton_tools::{CartonNote, Problem, TensorError};

use super::advice;
use super::advice_table::advice_on;
use super::invocation::typed_command;
use super::remote_advice::remote_text;
use super::shell::shell_quoted_path;

/// Returns advice on a problem of a command on a carton; empty if there is none.
pub(crate) fn carton_advice(problem: &Problem) -> String {
    match problem {
        Problem::IsCheckpoint { .. } if typed_command().ends_with(" verify") => {
            "; it has no hashes to verify, and --against INPUT compares its tensors with those of another file".to_owned()
        }
        Problem::IsCheckpoint { path, .. } => {
            format!("; `torch2carton {}` makes one", shell_quoted_path(path))
        }
        Problem::NotACarton { path } if path.is_dir() => {
            "; the folder has no carton.toml, as `torch2carton unpack CARTON` writes one".to_owned()
        }
        Problem::NotACarton { path } => {
            format!("; `torch2carton inspect {}` says what it is", shell_quoted_path(path))
        }
        Problem::NoPlace { .. } => {
            "; pack takes the files of a carton, and `torch2carton FOLDER` makes one of a checkpoint".to_owned()
        }
        Problem::IsFolder { path } => {
            format!("; `torch2carton pack {}` makes a carton of it", shell_quoted_path(path))
        }
        Problem::Expansion { stored, nbytes, .. } => {
            format!("; --max-expansion {} writes it", nbytes.div_ceil((*stored).max(1)))
        }
        problem => advice_on(problem.code()).to_owned(),
    }
}

/// Returns the text of an error that the command line words in another way.
pub(crate) fn carton_own_text(error: &Error) -> Option<String> {
    let place = error.location();
    if let Some(Problem::Fetch { entry, failures }) = error.detail() {
        let failures: Vec<String> = failures.iter().map(download_text).collect();
        let path = place.path.unwrap_or_default();
        let (path, entry, failures) = (path.display(), entry.escape_debug(), failures.join("; "));
        return Some(format!("{path}: cannot fetch `{entry}`: {failures}"));
    }
    let problem: &TensorError = error.detail()?;
    Some(format!("--tensor {}: {problem}", place.tensor.unwrap_or_default()))
}

/// Returns advice on a problem of reading the carton `file`; empty if there is none.
pub(crate) fn reader_advice(problem: &carton_format::Problem, file: Option<&Path>) -> String {
    match (problem, file) {
        (carton_format::Problem::NotFetched { .. }, _) if !advice::HAS_RESOLVE => String::new(),
        (carton_format::Problem::NotFetched { .. }, Some(file)) if !file.is_dir() => {
            format!("; `torch2carton resolve {} -o OUTPUT` fetches it", shell_quoted_path(file))
        }
        (carton_format::Problem::NotFetched { .. }, _) => {
            "; before the carton is unpacked, `torch2carton resolve CARTON -o OUTPUT` fetches it".to_owned()
        }
        _ => String::new(),
    }
}

/// Returns the text of an error of a download, which uses no proxy.
fn download_text(error: &remote_source::Error) -> String {
    match error {
        remote_source::Error::Connection { .. } => error.to_string(),
        error => remote_text(error),
    }
}

/// Returns the text of a note, with the option that helps.
pub(crate) fn carton_note_text(note: &CartonNote, file: &str) -> String {
    match note {
        CartonNote::Checkpoint(note) => advice::renamed_note_text(note, file),
        CartonNote::FilesElsewhere { files } if advice::HAS_RESOLVE => {
            let (file, them) = (super::shell::shell_quoted(file), if *files == 1 { "it" } else { "them" });
            format!("{note}: `torch2carton resolve {file} -o OUTPUT` fetches {them}")
        }
        CartonNote::SlowBFloat16 => {
            format!("{note}; a conversion with --dtype float16 makes a file of the same size without that")
        }
        note => note.to_string(),
    }
}
