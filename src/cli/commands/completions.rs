//! `torch2carton completions`: a completion script for a shell.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::args::{Cli, Convert};

/// Prints a completion script. `torch2carton FILE` has the options of `convert`, so the script also completes them without a
/// subcommand.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode> {
    let mut command = Convert::augment_args(Cli::command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "torch2carton", &mut script);
    super::write_stdout(&complete_files_first(shell, script))?;
    Ok(ExitCode::SUCCESS)
}

/// Adds file names to the completions of bash, which completes files only where the script's function finds nothing. A first
/// word without a dash is more often a file than a subcommand.
fn complete_files_first(shell: Shell, script: Vec<u8>) -> Vec<u8> {
    if shell != Shell::Bash {
        return script;
    }
    let text = String::from_utf8_lossy(&script);
    let words = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    let files = "compopt -o filenames 2>/dev/null\n                \
                 mapfile -t COMPREPLY < <(compgen -f -- \"${cur}\"; compgen -W \"${opts}\" -- \"${cur}\")";
    // The first function body is the one of the program itself.
    let first = text.find("torch2carton)\n            opts=").and_then(|start| {
        let at = text.get(start..)?.find(words)?;
        Some(start + at)
    });
    match first.and_then(|at| Some((text.get(..at)?, text.get(at + words.len()..)?))) {
        Some((before, after)) => [before, files, after].concat().into_bytes(),
        None => script,
    }
}
