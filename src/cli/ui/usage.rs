//! Errors in the command line, with suggestions.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use convert::{InvalidOption, Target};

use super::argument_errors::{argument_text, is_similar};
use super::errors;
use super::invocation::{PROGRAM, UsageError, typed_command, typed_verb};
use super::shell::shell_quoted;
use super::terminal::is_broken_pipe;

/// Command names of other tools, and the commands of this program that do the same.
const COMMAND_SYNONYMS: &[(&[&str], &str)] = &[
    (
        &["list", "ls", "info", "show", "cat", "dump", "summary"],
        "`torch2carton inspect FILE` lists what is in it",
    ),
    (&["compare", "cmp"], "`torch2carton diff A B` compares tensors"),
    (&["hash", "sha256", "sha256sum", "checksum"], "`torch2carton digest FILE` hashes tensors"),
    (
        &["validate", "test"],
        "`torch2carton verify CARTON` checks a carton, `torch2carton scan FILE` a pickle",
    ),
    (
        &["merge", "join", "consolidate"],
        "`torch2carton DIR` merges the shards in a folder, `torch2carton BASE --merge ADAPTER` an adapter",
    ),
    (&["version"], "`torch2carton --version` prints it"),
    (&["extract", "unzip"], "`torch2carton unpack CARTON` writes its files"),
    (&["create", "zip", "build"], "`torch2carton pack DIR` makes a carton from a folder"),
    (
        &["infer", "predict", "chat", "generate", "complete"],
        "`torch2carton run CARTON TEXT` continues a text",
    ),
    #[cfg(feature = "download")]
    (
        &["download", "fetch", "pull", "get"],
        "an address takes the place of a path, as in `torch2carton inspect hf://OWNER/NAME`; `torch2carton resolve CARTON` fetches what \
         a carton leaves out",
    ),
    (&["cast"], "`torch2carton FILE --dtype bfloat16` converts the numbers"),
    (
        &["split", "shard"],
        "`torch2carton FILE --to safetensors --max-shard-size 5GB -o DIR` writes several files",
    ),
    (
        &["quantize", "prune"],
        "`torch2carton DIR -o NAME.gguf --dtype q8_0` quantizes for llama.cpp, `torch2carton FILE --dtype bfloat16` halves float32",
    ),
    (&["completion"], "`torch2carton completions SHELL` prints a completion script"),
];

/// Options of other tools with the option of this program that does the same, or an empty text, and the hint. The first row
/// whose option the command has is taken.
const OPTION_SYNONYMS: &[(&[&str], &str, &str)] = &[
    (VERBOSE, "full", "--full prints everything"),
    (VERBOSE, "all", "--all lists more"),
    (VERBOSE, "log-format", "each request is logged anyway"),
    (VERBOSE, "", "notes and progress are printed anyway; `inspect` and `trace` show more"),
    (REPLACE, "force", "--force replaces an output that exists"),
    (
        &["--quantize", "--quantise", "--bits", "--q", "--load-in-8bit", "--load-in-4bit"],
        "dtype",
        "-o NAME.gguf with --dtype q8_0 or q4_0 quantizes for llama.cpp; --dtype bfloat16 or float16 halves float32",
    ),
    (&["--lora", "--adapter", "--peft"], "merge", "--merge ADAPTER"),
    (&["--chat", "--template"], "", "`torch2carton chat` applies the model's chat template"),
    (&["--fp16", "--half"], "dtype", "--dtype float16"),
    (&["--bf16"], "dtype", "--dtype bfloat16"),
    (&["--fp32", "--float"], "dtype", "--dtype float32"),
    (OUTPUT, "output", "-o PATH"),
    (&["--format", "--type", "--outtype", "--safetensors"], "to", "--to KIND, such as --to safetensors"),
    (&["-r", "-R", "--recursive"], "each", "--each takes folders and converts all checkpoints below them"),
    (&["-r", "-R", "--recursive"], "checksums", "all files below a folder are scanned anyway"),
    (&["--device", "--gpu", "--cuda", "--map-location"], "", "everything runs on the CPU"),
    (&["--model", "--input-dir", "--checkpoint", "--ckpt"], "", "give the path without an option"),
    (&["--prompt", "--text"], "tokens", "give the text after the carton"),
    (&["--max-new-tokens", "--max-length"], "max-tokens", "--max-tokens N"),
    (THREADS, "threads", "--threads N"),
    (THREADS, "each", "--jobs N, with --each, converts N files at the same time"),
    (THREADS, "jobs", "--jobs N works on N inputs at the same time"),
];
const THREADS: &[&str] = &["-j", "-t", "--threads", "--num-threads", "--workers", "--num-workers"];
const VERBOSE: &[&str] = &["-v", "-vv", "--verbose", "--debug"];
const REPLACE: &[&str] = &["-f", "--overwrite", "-y", "--yes", "--replace"];
const OUTPUT: &[&str] = &["--out", "--output-dir", "--output-file", "--outfile", "--outdir", "--save"];

/// Refuses a word that is neither a subcommand nor a path.
pub(crate) fn reject_unknown_word(word: &OsString, subcommands: &[String]) -> Result<(), UsageError> {
    let (path, text) = (Path::new(word), word.to_string_lossy());
    let is_word = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    if !is_word || text.starts_with('-') || path.exists() || path.is_symlink() {
        return Ok(());
    }
    Err(unknown_command_error(&text, subcommands))
}

/// Minimum Jaro-Winkler similarity of a typing mistake in a subcommand.
const SIMILAR: f64 = 0.8;

/// Subcommands that are tasks of `batch`.
const TASKS: [&str; 4] = ["convert", "inspect", "scan", "digest"];

/// Returns the error for an unknown subcommand, with a suggestion if there is one.
fn unknown_command_error(text: &str, subcommands: &[String]) -> UsageError {
    let lower = text.to_lowercase();
    let wish = COMMAND_SYNONYMS.iter().find(|(words, _)| words.contains(&lower.as_str()));
    let scored = subcommands.iter().map(|name| (strsim::jaro_winkler(&lower, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= SIMILAR);
    let hint = match (wish, best) {
        (Some((_, hint)), _) => format!("; {hint}"),
        (None, Some((_, name))) => format!("; did you mean `{PROGRAM} {name}`?"),
        (None, None) => String::new(),
    };
    UsageError(format!(
        "no command `{text}`, and no file of that name{hint}{} commands are {}",
        if hint.ends_with('?') { "" } else { ";" },
        subcommands.join(", ")
    ))
}

/// Prints the error in the arguments, or the requested help.
pub(crate) fn report(error: &clap::Error, program: &clap::Command) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // clap's own `print` leaves the last line to be written at process exit, where errors are lost.
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match printed.map_err(anyhow::Error::new) {
                Err(error) if !is_broken_pipe(&error) => {
                    errors::print_error(&error);
                    ExitCode::FAILURE
                }
                _ => ExitCode::SUCCESS,
            };
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        ErrorKind::UnknownArgument => {
            errors::print_error(&anyhow::Error::new(UsageError(unknown_option(error, program))));
        }
        ErrorKind::InvalidSubcommand => {
            let word = clap_context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let subcommands: Vec<String> =
                program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            errors::print_error(&anyhow::Error::new(unknown_command_error(&word, &subcommands)));
        }
        _ => {
            let text = argument_text(error, &full_command());
            let foreign = clap_context(error, ContextKind::InvalidValue).filter(|value| is_foreign(value));
            let hint = foreign.map(|kind| format!("; `-o x.{kind}` says which program writes it"));
            // The first word was meant as a path.
            let path = typed_verb().filter(|verb| is_missing(error) && Path::new(verb).exists());
            let path = path.map(|verb| format!("; the path of that name here is ./{verb}"));
            let hint = hint.or(path).unwrap_or_default();
            errors::print_error(&anyhow::Error::new(UsageError(text + &hint)));
        }
    }
    ExitCode::from(2)
}

fn is_missing(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::MissingRequiredArgument
}

/// Returns true for the extension of a format that only other programs write.
fn is_foreign(kind: &str) -> bool {
    let target = Target::from_path(Path::new(&format!("x.{kind}")));
    matches!(target, Err(InvalidOption::ForeignOutput { .. }))
}

fn clap_context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the program and the subcommand, with the default one spelled out.
fn full_command() -> String {
    let typed = typed_command();
    if typed == PROGRAM { format!("{PROGRAM} convert") } else { typed }
}

/// Returns true if a command, such as `torch2carton scan`, has the option.
fn has_option(program: &clap::Command, command: &str, name: &str) -> bool {
    let subcommand = command.rsplit(' ').next().and_then(|name| program.find_subcommand(name));
    subcommand.is_some_and(|command| command.get_arguments().any(|option| option.get_long() == Some(name)))
}

fn unknown_option(error: &clap::Error, program: &clap::Command) -> String {
    let option = clap_context(error, ContextKind::InvalidArg).unwrap_or_default();
    let command = full_command();
    if !option.starts_with('-') {
        if command.ends_with(" chat") {
            let text = shell_quoted(&option);
            return format!(
                "`{command}` takes no text; `echo {text} | {command} MODEL` asks it, and `{command} MODEL` waits for texts"
            );
        }
        if command.ends_with(" batch") && program.find_subcommand(&option).is_some() {
            return format!(
                "`{command}` takes no `{option}`; `{command} MANIFEST --task {option}` says what is done"
            );
        }
        if command.ends_with(" run") {
            return format!(
                "`{command}` takes one text, and `{}` follows it; put the text in quotes",
                option.escape_debug()
            );
        }
        return format!("`{command}` takes no `{option}`; see `{command} --help`");
    }
    let has = |name: &str| name.is_empty() || has_option(program, &command, name);
    let mut synonyms = OPTION_SYNONYMS.iter().filter(|(options, ..)| options.contains(&option.as_str()));
    if let Some((.., instead)) = synonyms.find(|(_, name, _)| has(name)) {
        return format!("no option `{option}` for `{command}`; {instead}");
    }
    let name = option.trim_start_matches('-');
    if command.ends_with(" batch") && TASKS.iter().any(|task| has_option(program, task, name)) {
        return format!(
            "`{option}` is an option of the task; those follow `--`, as in `{command} MANIFEST -- {option}`"
        );
    }
    // Subcommands whose options this one is given by mistake.
    let owners: &[&str] = match command.rsplit(' ').next() {
        Some("convert") => &["run"],
        Some("chat" | "serve") => &["convert", "run"],
        _ => &["convert"],
    };
    let is_meant = |meant: &String| is_similar(name, meant.trim_start_matches('-'));
    let meant = clap_context(error, ContextKind::SuggestedArg).filter(is_meant);
    let advice = match owners.iter().find(|verb| has_option(program, verb, name)) {
        Some(verb) => format!("`{PROGRAM} {verb}` has it; "),
        None => meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? ")),
    };
    format!("no option `{option}` for `{command}`; {advice}`{command} --help` lists them")
}
