//! Commands that a carton supports, each with its effect, as `run` and `inspect` print them.

use std::io::{self, Write};
use std::path::Path;

use carton_tools::ContentsReport;
use runtime::{Runnable, RunnableKind, RunnableOptions};

use super::detokenizer::Detokenizer;
use super::run_text::has_chat_template;
use crate::cli::ui::advice::HAS_RESOLVE;
use crate::cli::ui::escapes::escape_hidden;
use crate::cli::ui::run_advice::is_foreign_code;
use crate::cli::ui::shell::{shell_quoted, shell_quoted_path};
use crate::cli::ui::terminal::DIM;

const MODEL_FILE: &str = "model/model.pt";

/// Command line and its effect.
pub(super) type CartonCommand = (String, String);

pub(super) fn print_commands(out: &mut dyn Write, commands: &[CartonCommand]) -> io::Result<()> {
    for (command, effect) in commands {
        writeln!(out, "{}\n    {DIM}{}{DIM:#}", escape_hidden(command), escape_hidden(effect))?;
    }
    Ok(())
}

pub(super) fn for_runnable(runnable: &Runnable) -> Vec<CartonCommand> {
    let is_model = matches!(runnable.kind(), RunnableKind::Decoder(_));
    let file = shell_quoted_path(runnable.path());
    let run = format!("torch2carton run {file}");
    let mut commands = Vec::new();
    if is_model && Detokenizer::optional(runnable).is_some() {
        commands.push((format!("{run} \"Once upon a time\""), "continues a text".to_owned()));
        if cfg!(feature = "tokenizer") && has_chat_template(runnable) {
            let effect = "talks with it, as its chat template writes the turns".to_owned();
            commands.push((format!("torch2carton chat {file}"), effect));
        }
    }
    if is_model {
        let effect = "lists the most probable next tokens".to_owned();
        commands.push((format!("{run} --tokens 1,2,3 --top 5"), effect));
    }
    if runnable.config().is_some_and(|config| !config.self_tests.is_empty()) {
        let effect = "runs the self tests that are stored in the carton".to_owned();
        commands.push((format!("{run} --self-test"), effect));
    }
    if let Some(name) = runnable.tensors().names().next() {
        commands.push(tensor_command(&run, name));
    }
    if cfg!(feature = "serve") {
        commands.push((format!("torch2carton serve {file}"), "answers requests over HTTP".to_owned()));
    }
    commands
}

/// Returns the commands for a carton whose contents are known. A compressed model is not decompressed to find them.
pub(super) fn from_contents(path: &Path, report: &ContentsReport) -> Vec<CartonCommand> {
    let file = shell_quoted_path(path);
    let run = format!("torch2carton run {file}");
    let verify = (
        format!("torch2carton verify {file}"),
        "checks every hash and rule; --against compares its tensors with a checkpoint".to_owned(),
    );
    let model = report.files.iter().find(|row| row.path == MODEL_FILE);
    let is_stored = model.is_some_and(|row| row.nbytes == row.packed_nbytes && !row.link);
    let mut commands = match (is_stored, model.is_some()) {
        (true, _) => match Runnable::open(path, &RunnableOptions::default(), &()) {
            Ok(runnable) => for_runnable(&runnable),
            Err(error) if is_foreign_code(&error) => for_foreign_code(path, report),
            Err(_) => Vec::new(),
        },
        (false, true) => vec![(run, "decompresses the model, and says what it can do".to_owned())],
        (false, false) if HAS_RESOLVE && !report.absent.is_empty() => vec![(
            format!("torch2carton resolve {file} -o {}", shell_quoted("whole.carton")),
            "fetches the files that the carton leaves out".to_owned(),
        )],
        (false, false) => Vec::new(),
    };
    commands.push(verify);
    commands
}

/// Returns the commands for a module whose code cannot run here.
pub(super) fn for_foreign_code(path: &Path, report: &ContentsReport) -> Vec<CartonCommand> {
    let folder = if path.is_file() { carton_tools::default_unpack_folder(path) } else { path.to_owned() };
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let mut commands = Vec::new();
    if path.is_file() {
        let unpack = format!("torch2carton unpack {}", shell_quoted_path(path));
        commands.push((unpack, "writes its files, for PyTorch".to_owned()));
    }
    let load = format!("torch.jit.load({})", quoted(&folder.join(MODEL_FILE)));
    commands.push((load, "runs the code in PyTorch, in Python".to_owned()));
    let load = format!("await cartonml.load({})", quoted(path));
    commands.push((load, "runs the code in Carton's client, in Python".to_owned()));
    let run = format!("torch2carton run {}", shell_quoted_path(path));
    commands.extend(report.tensors.first().map(|tensor| tensor_command(&run, &tensor.name)));
    commands
}

fn tensor_command(run: &str, name: &str) -> CartonCommand {
    let effect = "writes a tensor for NumPy; `torch2carton inspect` lists all of them";
    (format!("{run} --get {} -o x.npy", shell_quoted(name)), effect.to_owned())
}
