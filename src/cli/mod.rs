//! Command line of torch2carton; another binary can ship it by calling [`run`].
//!
//! The module `args` defines the arguments, `commands` has one file per subcommand that calls a library and prints its
//! report, and `ui` prints errors, notes and progress. Everything else is in the crates.

#![expect(clippy::arithmetic_side_effects, reason = "it counts what the crates have checked")]

mod args;
mod commands;
mod ui;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::args::{Cli, Command};
use self::ui::{errors, signals, terminal, usage};

/// Runs the command line `args`, whose first item is the program's name, and returns its exit status.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    signals::keep_running_at_size_limit();
    errors::silence_guarded_panics();
    let cli = match args::with_default_command(args.into_iter()) {
        Ok(args) => Cli::try_parse_from(args),
        Err(error) => {
            errors::print_error(&error.into());
            return ExitCode::from(2);
        }
    };
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, &args::subcommands()),
    };
    cli.color.write_global();
    let quiet = cli.quiet;
    let is_scan = matches!(cli.command, Command::Scan(_));
    let done = match cli.command {
        Command::Convert(args) => signals::watch_signals().and_then(|()| commands::convert(&args, quiet)),
        Command::Inspect(args) => commands::inspect(&args, quiet),
        Command::Trace(args) => commands::trace(&args),
        Command::Scan(args) => commands::scan(&args, quiet),
        Command::Run(args) => commands::run(&args, quiet),
        Command::Verify(args) => commands::verify(&args, quiet),
        Command::Pack(args) => signals::watch_signals().and_then(|()| commands::pack(&args, quiet)),
        Command::Unpack(args) => signals::watch_signals().and_then(|()| commands::unpack(&args, quiet)),
        Command::Shrink(args) => signals::watch_signals().and_then(|()| commands::shrink(&args, quiet)),
        #[cfg(feature = "download")]
        Command::Resolve(args) => signals::watch_signals().and_then(|()| commands::resolve(&args, quiet)),
        #[cfg(feature = "serve")]
        Command::Serve(args) => commands::serve(&args, quiet),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man => commands::man(),
    };
    match done {
        Ok(code) => code,
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            errors::print_error(&error);
            ExitCode::from(if is_scan || errors::is_usage_error(&error) { 2 } else { 1 })
        }
    }
}
