//! Advice about errors of `run`.

use generate::Error as Generate;
use runtime::Error;

use super::carton_advice;
use super::shell::shell_quoted_path;

/// Returns the text of an error of a carton that does not run, with advice if there is any.
pub(crate) fn run_error_text(error: &Error) -> String {
    let advice = match error {
        Error::Carton(error) => return carton_advice::carton_error_text(error),
        Error::Damaged { path, .. } => {
            format!("; `torch2carton verify {}` lists them", shell_quoted_path(path))
        }
        Error::NotAModel { path } => {
            format!("; `torch2carton run {} --get NAME -o FILE.npy` writes a tensor", shell_quoted_path(path))
        }
        _ => String::new(),
    };
    format!("{error}{advice}")
}

/// Unwraps the error of the carton itself, whose problems are printed line by line.
pub(crate) fn unwrap_carton_error(error: runtime::Error) -> anyhow::Error {
    match error {
        runtime::Error::Carton(error) => error.into(),
        error => error.into(),
    }
}

/// Returns the text of an error in tokenizing or generation, with advice if there is any.
pub(crate) fn generate_error_text(error: &Generate) -> String {
    let advice = match error {
        Generate::NoTokenizer | Generate::Unsupported { .. } => "; give token ids with --tokens",
        Generate::Temperature { .. } => "; check --temperature",
        Generate::TopP { .. } => "; check --top-p",
        _ => "",
    };
    format!("{error}{advice}")
}

/// Returns true if an argument is wrong, rather than a file.
pub(crate) fn is_generate_usage_error(error: &Generate) -> bool {
    matches!(error, Generate::Temperature { .. } | Generate::TopP { .. })
}
