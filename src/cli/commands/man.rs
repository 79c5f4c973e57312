//! `torch2carton man`: prints or writes the manual pages, one for the program and one for each subcommand.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

use crate::cli::args::{ManArgs, help};
use crate::cli::ui::invocation::UsageError;

/// Prints the page of the program or of one subcommand, or writes all pages into a folder.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let mut command = help::command().disable_help_subcommand(true);
    if let Some(folder) = &args.dir {
        let write = || {
            fs::create_dir_all(folder)?;
            clap_mangen::generate_to(command, folder)
        };
        write().with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    command.build();
    if let Some(name) = &args.command {
        let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let unknown = || UsageError(format!("no command `{name}`; commands are {}", known.join(", ")));
        command = command.find_subcommand(name).cloned().ok_or_else(unknown)?;
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    super::write_stdout(&page)?;
    Ok(ExitCode::SUCCESS)
}
