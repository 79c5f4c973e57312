//! Options that advice names, and that the typed verb does not have.

use clap::Command;

use super::invocation::typed_verb;
use crate::cli::args::help;

/// Verb of a command line without one.
const DEFAULT: &str = "convert";
/// Verbs whose options advice names.
const OWNERS: [&str; 2] = [DEFAULT, "run"];

/// Names the verb of each option that the typed one lacks, as in `convert's --dequantize`.
pub(crate) fn with_verb(advice: String) -> String {
    if !advice.contains("--") {
        return advice;
    }
    let program = help::command();
    let verb = typed_verb().unwrap_or_else(|| DEFAULT.to_owned());
    let Some(verb) = program.find_subcommand(verb) else { return advice };
    let owners = OWNERS.iter().filter_map(|owner| program.find_subcommand(owner));
    let owners: Vec<&Command> = owners.collect();
    let has =
        |command: &Command, option: &str| command.get_arguments().any(|it| it.get_long() == Some(option));
    let mut text = String::with_capacity(advice.len());
    let mut is_command = false;
    for (place, word) in advice.split(' ').enumerate() {
        let gap = if place == 0 { "" } else { " " };
        let name = word.trim_start_matches('(').strip_prefix("--").unwrap_or_default();
        let option = name.split(|found: char| !found.is_ascii_alphanumeric() && found != '-').next();
        let option = option.unwrap_or_default();
        let is_foreign = !is_command && !option.is_empty() && !has(verb, option);
        let owner = owners.iter().find(|owner| is_foreign && has(owner, option));
        let owner = owner.map_or_else(String::new, |owner| format!("{}'s ", owner.get_name()));
        text.extend([gap, &owner, word]);
        is_command ^= word.matches('`').count() % 2 == 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ui::invocation::record_subcommand;

    #[test]
    fn an_option_of_another_verb_is_said_to_be_its() {
        let advice = "; --dequantize computes them, or --json, or `torch2carton --single x`, or --single";
        record_subcommand(Some("run"));
        assert_eq!(
            with_verb(advice.to_owned()),
            "; convert's --dequantize computes them, or --json, or `torch2carton --single x`, or convert's --single"
        );
        record_subcommand(Some("convert"));
        assert_eq!(with_verb(advice.to_owned()), advice);
        record_subcommand(None);
        assert_eq!(with_verb(advice.to_owned()), advice);
        record_subcommand(Some("chat"));
        assert_eq!(with_verb("; give ids with --tokens".to_owned()), "; give ids with run's --tokens");
    }
}
