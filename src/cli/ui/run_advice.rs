//! Advice about errors of `run`.

use std::path::Path;

use byte_source::{Detail, Error};
use generate::Error as Generate;
use runtime::Problem;

use super::advice_table::advice_on;
use super::shell::shell_quoted_path;

/// Returns advice on a problem of a carton that does not run; empty if there is none.
pub(crate) fn run_advice(problem: &Problem, file: Option<&Path>) -> String {
    match (problem, file) {
        (Problem::Damaged { .. }, Some(path)) => {
            format!("; `torch2carton verify {}` lists them", shell_quoted_path(path))
        }
        (Problem::ForeignCode { .. }, Some(path)) => foreign_code_advice(path),
        (Problem::NotAModel { path }, _) => {
            format!("; `torch2carton run {} --get NAME -o FILE.npy` writes a tensor", shell_quoted_path(path))
        }
        _ => advice_on(problem.code()).to_owned(),
    }
}

/// Returns the lines that run a TorchScript module in PyTorch and in Carton.
fn foreign_code_advice(path: &Path) -> String {
    if path.extension().is_none_or(|extension| extension != "carton") && path.is_file() {
        return format!(
            "; PyTorch runs it: `torch.jit.load({:?})`; `torch2carton {}` makes a carton that Carton's client runs",
            path.display().to_string(),
            shell_quoted_path(path)
        );
    }
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
        "; PyTorch runs it: {unpack}`torch.jit.load({:?})`; Carton's client runs it: `await cartonml.load({:?})`",
        model.display().to_string(),
        path.display().to_string()
    )
}

/// Returns true if the code of a carton cannot run here, and its tensors can be read.
pub(crate) fn is_foreign_code(error: &Error) -> bool {
    matches!(error.detail(), Some(Problem::ForeignCode { .. }))
}

/// Returns true if an argument is wrong, rather than a file.
pub(crate) fn is_generate_usage_error(error: &Generate) -> bool {
    matches!(error, Generate::Temperature { .. } | Generate::TopP { .. })
}
