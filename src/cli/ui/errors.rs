//! Error output: one line with all causes and advice.

use std::error::Error as StdError;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use byte_source::Detail;

use super::invocation::UsageError;
use super::located_advice::{self, is_address_error};
#[cfg(feature = "serve")]
use super::serve_advice;
use super::stdin;
use super::terminal::escape_hidden;
use super::verb_options::with_verb;
use super::{advice_table, remote_advice, run_advice};

const RED: Style = AnsiColor::Red.on_default().bold();

/// Prints an error and its causes in one line.
pub(crate) fn print_error(error: &anyhow::Error) {
    print_problems(error);
    // A closed stderr leaves nothing to do.
    let _ = writeln!(
        anstream::stderr(),
        "{RED}error:{RED:#} {}",
        escape_hidden(stdin::with_name(error_chain_text(error)))
    );
}

/// Prints an error of several lines.
pub(crate) fn print_text(text: &str) {
    let text: Vec<String> = text.lines().map(escape_hidden).collect();
    let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {}", text.join("\n"));
}

/// Returns the text of an error and its causes. A part that the next cause repeats, such as a path, is printed once. The
/// texts of our libraries contain their causes.
pub(crate) fn error_chain_text(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let advised = library_error_text(cause).or_else(|| stdout_error_text(error, cause));
        let is_whole = advised.is_some();
        let text = advised.unwrap_or_else(|| cause.to_string());
        if texts.last().is_some_and(|last| text.starts_with(last) || text.contains(&format!(" {last}:"))) {
            texts.pop();
        }
        texts.push(text);
        if is_whole {
            break;
        }
    }
    texts.join(": ")
}

/// Returns the text of an I/O error without context. Errors of our libraries name their file, so only standard output is
/// left.
fn stdout_error_text(error: &anyhow::Error, cause: &(dyn StdError + 'static)) -> Option<String> {
    let cause = cause.downcast_ref::<std::io::Error>()?;
    let is_alone = error.chain().next().is_some_and(<dyn StdError>::is::<std::io::Error>);
    is_alone.then(|| format!("cannot write to standard output: {cause}"))
}

/// Returns the full text of an error of our libraries, with advice that fits the typed verb if there is any; `None` for other
/// errors.
fn library_error_text(cause: &(dyn StdError + 'static)) -> Option<String> {
    advised_text(cause).map(with_verb)
}

fn advised_text(cause: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<byte_source::Error>() {
        return Some(located_advice::located_text(error));
    }
    if let Some(error) = cause.downcast_ref::<generate::Error>() {
        return Some(format!("{error}{}", advice_table::advice_on(error.code())));
    }
    if let Some(error) = cause.downcast_ref::<remote_source::Error>() {
        return Some(remote_advice::remote_text(error));
    }
    #[cfg(feature = "serve")]
    if let Some(error) = cause.downcast_ref::<serve::Error>() {
        return Some(serve_advice::serve_text(error));
    }
    None
}

/// Returns true if an argument is wrong, rather than a file.
pub(crate) fn is_usage_error(error: &anyhow::Error) -> bool {
    error.is::<UsageError>()
        || error.downcast_ref().is_some_and(is_located_usage_error)
        || error.downcast_ref().is_some_and(run_advice::is_generate_usage_error)
        || is_serve_usage_error(error)
}

fn is_located_usage_error(error: &byte_source::Error) -> bool {
    // An option of which the file shows that it is wrong names the file.
    let is_option =
        error.detail::<open::InvalidOption>().is_some() || error.detail::<convert::InvalidOption>().is_some();
    let is_option = is_option && error.location().path.is_none();
    let is_argument = matches!(
        error.code(),
        "carton-tools::BaseUrl"
            | "carton-tools::DuplicateName"
            | "carton-tools::NoCheckpoint"
            | "carton-tools::NoName"
            | "inspect::SeveralPickles"
            | "open::NotASet"
    );
    is_option || is_argument || is_address_error(error)
}

/// Installs a panic hook that prints nothing for panics that a library turns into errors.
pub(crate) fn silence_guarded_panics() {
    #[cfg(feature = "tokenizer")]
    {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !generate::is_catching_panics() {
                before(panic);
            }
        }));
    }
}

/// Returns true if two models of `serve` have the same name or one has none.
#[cfg(feature = "serve")]
fn is_serve_usage_error(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(serve::Error::SameName { .. } | serve::Error::NoName | serve::Error::HostName { .. })
    )
}

#[cfg(not(feature = "serve"))]
fn is_serve_usage_error(_: &anyhow::Error) -> bool {
    false
}

/// Prints each problem of a document on its own line, if the error has such a list.
fn print_problems(error: &anyhow::Error) {
    let Some(error) = error.downcast_ref::<byte_source::Error>() else { return };
    let ((Some(carton_format::Problem::Document(problems)), _)
    | (_, Some(open::Problem::Document(problems)))) = (error.detail(), error.detail())
    else {
        return;
    };
    problems.0.iter().for_each(|problem| print_text(&problem.to_string()));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_cause_repeats_is_printed_once() {
        let error = anyhow::anyhow!("cannot read a.pth: gone").context("a.pth").context("2 files");
        assert_eq!(error_chain_text(&error), "2 files: cannot read a.pth: gone");
        assert_eq!(error_chain_text(&anyhow::anyhow!("full").context("full")), "full");
        assert_eq!(error_chain_text(&anyhow::anyhow!("no .npy file").context("file")), "file: no .npy file");
    }

    #[test]
    fn an_io_error_without_context_is_about_standard_output() {
        let io = || anyhow::Error::new(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert!(error_chain_text(&io()).starts_with("cannot write to standard output: "));
        assert_eq!(error_chain_text(&io().context("cannot read list")), "cannot read list: entity not found");
    }

    #[test]
    fn advice_follows_the_error_through_its_context() {
        let error = output::refuse_remote(Path::new("gs:/b/c")).expect_err("an address");
        let error = anyhow::Error::new(error).context("while reading");
        assert!(is_usage_error(&error));
        let texts: Vec<String> = error
            .chain()
            .map(|cause| library_error_text(cause).unwrap_or_else(|| cause.to_string()))
            .collect();
        assert_eq!(
            texts,
            ["while reading", "gs:/b/c is not a local path; first run `gcloud storage cp gs://b/c .`"]
        );
    }
}
