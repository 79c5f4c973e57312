//! `torch2carton`: the command line's types, dispatch and exit code.

mod beside;
mod cli;
mod cli_carton;
mod convert;
mod fetch;
mod inspect;
mod inspect_carton;
mod merge;
mod model;
mod npy;
mod output;
mod pack;
mod refusals;
mod repack;
mod resolve;
mod scan;
mod select;
mod shrink;
mod sources;
mod terminal;
mod trace;
mod ui;
mod unpack;
mod values;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse_from(cli::with_default_command(std::env::args_os()));
    cli.color.write_global();
    let done = match cli.command {
        Command::Convert(args) => convert::run(&args, cli.quiet),
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
        Command::Pack(args) => pack::run(&args, cli.quiet),
        Command::Unpack(args) => unpack::run(&args, cli.quiet),
        Command::Shrink(args) => shrink::run(&args, cli.quiet),
        Command::Resolve(args) => resolve::run(&args, cli.quiet),
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
            ExitCode::from(if error.is::<cli::Usage>() { 2 } else { 1 })
        }
    }
}
