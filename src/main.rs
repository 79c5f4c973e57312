//! `torch2carton`: the command line's types, dispatch and exit code.

mod cli;
mod cli_carton;
mod convert;
mod inspect;
mod inspect_carton;
mod merge;
mod model;
mod npy;
mod pack;
mod repack;
mod resolve;
mod scan;
mod select;
mod shrink;
mod terminal;
mod trace;
mod ui;
mod unpack;
mod values;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::ui::{advice, signals};

fn main() -> ExitCode {
    let cli = Cli::parse_from(cli::with_default_command(std::env::args_os()));
    cli.color.write_global();
    let done = match cli.command {
        Command::Convert(args) => signals::watch().and_then(|()| convert::run(&args, cli.quiet)),
        Command::Inspect(args) => inspect::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Scan(args) => match scan::run(&args, cli.quiet) {
            Ok(outcome) => return outcome.exit_code(),
            Err(error) if terminal::is_broken_pipe(&error) => Ok(()),
            Err(error) => {
                terminal::error(&error);
                return ExitCode::from(2);
            }
        },
        Command::Verify(args) => verify::run(&args, cli.quiet),
        Command::Pack(args) => signals::watch().and_then(|()| pack::run(&args, cli.quiet)),
        Command::Unpack(args) => signals::watch().and_then(|()| unpack::run(&args, cli.quiet)),
        Command::Shrink(args) => signals::watch().and_then(|()| shrink::run(&args, cli.quiet)),
        Command::Resolve(args) => signals::watch().and_then(|()| resolve::run(&args, cli.quiet)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "torch2carton", &mut std::io::stdout());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::error(&error);
            ExitCode::from(if advice::is_usage(&error) { 2 } else { 1 })
        }
    }
}
