//! Command line of torch2carton; another binary can ship it by calling [`run`].
//!
//! The module `args` defines the arguments, `commands` has one file per subcommand that calls a library and prints its
//! report, and `ui` prints errors, notes and progress. Everything else is in the crates.

#![expect(clippy::arithmetic_side_effects, reason = "it counts what the crates have checked")]

mod args;
mod commands;
mod tasks;
mod ui;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use byte_source::Location;
use clap::FromArgMatches;
use convert::ConvertOptions;

use self::args::{BatchArgs, Cli, Command, RemoteArgs};
use self::ui::{argument_errors, errors, signals, terminal, usage};

/// Sets the inputs of a conversion, some of which may be at addresses, and where its output goes.
///
/// # Errors
/// When an address cannot be read.
pub fn locate(options: &mut ConvertOptions, files: &[PathBuf]) -> crate::Result<()> {
    let remote = RemoteArgs::default();
    options.inputs = remote.locate_all(files).map_err(read_error)?;
    remote.locate_others(options).map_err(read_error)
}

/// Returns where the input at `path` is; one at an address is opened.
///
/// # Errors
/// When the address cannot be read.
pub fn locate_input(path: &Path) -> crate::Result<Location> {
    RemoteArgs::default().locate(path).map_err(read_error)
}

fn read_error(error: anyhow::Error) -> crate::Error {
    args::into_io_error(error).into()
}

/// Batch of a request, for a program that runs its jobs elsewhere.
pub struct BatchPlan {
    pub settings: batch::BatchSettings,
    /// Makes the task of a line.
    pub parse: Box<batch::TaskParser>,
    /// Makes the text of a result.
    pub encode: batch::LineEncoder,
}

/// Returns the JSON of the request that the arguments of the subcommand `batch` are.
///
/// # Errors
/// When an argument is unknown, misplaced or has an invalid value; the text says which.
pub fn batch_request(args: impl IntoIterator<Item = OsString>) -> std::result::Result<String, String> {
    let words = ["torch2carton", "batch"].into_iter().map(OsString::from);
    let cli = <Cli as clap::Parser>::try_parse_from(words.chain(args))
        .map_err(|error| argument_errors::argument_text(&error, "torch2carton batch"))?;
    let Command::Batch(args) = cli.command else { return Err(OTHER_SUBCOMMAND.to_owned()) };
    serde_json::to_string(&args.with_named_options()?).map_err(|error| error.to_string())
}

/// Returns the batch of a request: an object with the options of the subcommand `batch` by their names, the path `manifest`, and
/// in `options` those of the task. The limits of one machine are not among them.
///
/// # Errors
/// When an option is unknown or has a wrong value; the text says which.
pub fn batch_plan(request: &str) -> std::result::Result<BatchPlan, String> {
    let request: BatchArgs = serde_json::from_str(request).map_err(|error| error.to_string())?;
    if request.jobs.is_some() || request.max_memory.is_some() {
        return Err("`jobs` and `max_memory` are limits of one machine".to_owned());
    }
    let task = request.task_options()?;
    let parse = Box::new(move |options: &_, output: Option<&_>| task.parse(options, output));
    Ok(BatchPlan { settings: request.settings(), parse, encode: commands::encode_batch_line })
}

/// Error for arguments that name another subcommand.
const OTHER_SUBCOMMAND: &str = "these are not arguments of this subcommand";

/// Runs the command line `args`, whose first item is the program's name, and returns its exit status.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    signals::keep_running_at_size_limit();
    errors::silence_guarded_panics();
    let args: Vec<_> = args.into_iter().collect();
    if args::is_verbose_version(&args) {
        return finish(commands::version(), false);
    }
    let cli = match args::with_default_command(args) {
        Ok(args) => {
            let matches = args::help::command().try_get_matches_from(args);
            matches.and_then(|matches| Cli::from_arg_matches(&matches))
        }
        Err(error) => {
            errors::print_error(&error.into());
            return ExitCode::from(2);
        }
    };
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, &args::help::command()),
    };
    cli.color.write_global();
    let quiet = cli.quiet;
    let has_own_statuses = match &cli.command {
        Command::Verify(args) => args.statement.is_some(),
        command => matches!(command, Command::Scan(_) | Command::Check(_) | Command::Diff(_)),
    };
    let done = match cli.command {
        Command::Convert(args) => signals::watch_signals().and_then(|()| commands::convert(&args, quiet)),
        Command::Batch(args) => signals::watch_signals().and_then(|()| commands::batch(args, quiet)),
        Command::Inspect(args) => commands::inspect(&args, quiet),
        Command::Report(args) => commands::report(&args, quiet),
        Command::Trace(args) => commands::trace(&args),
        Command::Scan(args) => commands::scan(&args, quiet),
        Command::Check(args) => commands::check(&args, quiet),
        Command::Diff(args) => commands::diff(&args, quiet),
        Command::Digest(args) => commands::digest(&args, quiet),
        Command::Run(args) => commands::run(&args, quiet),
        #[cfg(feature = "tokenizer")]
        Command::Chat(args) => commands::chat(&args, quiet),
        Command::Verify(args) => commands::verify(&args, quiet),
        Command::Pack(args) => signals::watch_signals().and_then(|()| commands::pack(&args, quiet)),
        Command::Unpack(args) => signals::watch_signals().and_then(|()| commands::unpack(&args, quiet)),
        Command::Shrink(args) => signals::watch_signals().and_then(|()| commands::shrink(&args, quiet)),
        #[cfg(feature = "download")]
        Command::Resolve(args) => signals::watch_signals().and_then(|()| commands::resolve(&args, quiet)),
        #[cfg(feature = "serve")]
        Command::Serve(args) => commands::serve(&args, quiet),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man(args) => commands::man(&args),
    };
    finish(done, has_own_statuses)
}

/// Prints the error of a command, and returns the exit status.
fn finish(done: anyhow::Result<ExitCode>, has_own_statuses: bool) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            errors::print_error(&error);
            ExitCode::from(if has_own_statuses || errors::is_usage_error(&error) { 2 } else { 1 })
        }
    }
}
