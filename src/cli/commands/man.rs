//! `torch2carton man`: prints the manual page.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Command;
use clap_mangen::Man;

use crate::cli::args::help;

/// Prints one manual page for the program, with a section on the options and examples of each subcommand.
pub(crate) fn man() -> Result<ExitCode> {
    let mut command = help::command().disable_help_subcommand(true);
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands() {
        render_subcommand(subcommand, &mut page)?;
    }
    // Subcommands have sections of this page instead of pages of their own.
    let mut text = String::from_utf8_lossy(&page).into_owned();
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name();
        text = text.replace(&format!("torch2carton\\-{name}(1)"), &format!("torch2carton {name}"));
    }
    super::write_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn render_subcommand(command: &Command, page: &mut Vec<u8>) -> Result<()> {
    writeln!(page, ".SH {}", command.get_name().to_uppercase())?;
    let man = Man::new(command.clone());
    let mut sections = Vec::new();
    man.render_description_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    man.render_extra_section(&mut sections)?;
    // Sections of a page cannot be nested, so the sections of a subcommand become subsections.
    let text = String::from_utf8_lossy(&sections).replace("\n.SH ", "\n.SS ");
    page.extend_from_slice(
        text.strip_prefix(".SH ").map_or(text.clone(), |rest| format!(".SS {rest}")).as_bytes(),
    );
    Ok(())
}
