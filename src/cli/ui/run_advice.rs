//! Advice about errors of `run`.

use std::path::Path;

use generate::Error as Generate;
use runtime::Error;

use super::shell::shell_quoted_path;
use super::{carton_advice, located_advice};

/// Returns the text of an error of a carton that does not run, with advice if there is any.
pub(crate) fn run_error_text(error: &Error) -> String {
    let advice = match error {
        Error::Model(error) => return located_advice::located_text(error),
        Error::Carton { path, reason } => return carton_advice::reader_text(path, reason),
        Error::Damaged { path, .. } => {
            format!("; `torch2carton verify {}` lists them", shell_quoted_path(path))
        }
        Error::ForeignCode { path, .. } => return foreign_code_text(error, path),
        Error::NotAModel { path } => {
            format!("; `torch2carton run {} --get NAME -o FILE.npy` writes a tensor", shell_quoted_path(path))
        }
        _ => String::new(),
    };
    format!("{error}{advice}")
}

/// Returns the text of an error about a TorchScript module, with the lines that run it in PyTorch and in Carton.
fn foreign_code_text(error: &Error, path: &Path) -> String {
    let folder = carton_tools::default_unpack_folder(path);
    let model = folder.join("model/model.pt");
    let is_packed = path.is_file();
    let unpack = if is_packed {
        format!("`torch2carton unpack {}` and ", shell_quoted_path(path))
    } else {
        String::new()
    };
    let model = if is_packed { model } else { path.join("model/model.pt") };
    format!(
        "{error}; PyTorch runs it: {unpack}`torch.jit.load({:?})`; Carton's client runs it: `await cartonml.load({:?})`",
        model.display().to_string(),
        path.display().to_string()
    )
}

/// Unwraps the error of the carton itself, whose problems are printed line by line.
pub(crate) fn unwrap_carton_error(error: runtime::Error) -> anyhow::Error {
    match error {
        runtime::Error::Carton { path, reason } => carton_tools::Error::from_reader(&path)(reason).into(),
        error => error.into(),
    }
}

/// Returns true if an argument is wrong, rather than a file.
pub(crate) fn is_generate_usage_error(error: &Generate) -> bool {
    matches!(error, Generate::Temperature { .. } | Generate::TopP { .. })
}
