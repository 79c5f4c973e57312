//! Options that advice names, and that the typed verb does not have.

use clap::Command;

use super::invocation::typed_verb;
use crate::cli::args::help;

/// Verb that has the options of conversions.
const CONVERT: &str = "convert";

/// Returns advice in which an option that only `convert` has is said to be its.
pub(crate) fn with_verb(advice: String) -> String {
    let Some(verb) = typed_verb().filter(|_| advice.contains("--")) else { return advice };
    let program = help::command();
    let (Some(verb), Some(convert)) = (program.find_subcommand(verb), program.find_subcommand(CONVERT))
    else {
        return advice;
    };
    let has =
        |command: &Command, option: &str| command.get_arguments().any(|it| it.get_long() == Some(option));
    let mut text = String::with_capacity(advice.len());
    let mut is_command = false;
    for (place, word) in advice.split(' ').enumerate() {
        let gap = if place == 0 { "" } else { " " };
        let name = word.trim_start_matches('(').strip_prefix("--").unwrap_or_default();
        let option = name.split(|found: char| !found.is_ascii_alphanumeric() && found != '-').next();
        let option = option.unwrap_or_default();
        let is_foreign = !is_command && !option.is_empty() && !has(verb, option) && has(convert, option);
        text.extend([gap, if is_foreign { "convert's " } else { "" }, word]);
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
    }
}
