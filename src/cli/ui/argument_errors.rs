//! Texts of errors about missing, wrong and conflicting arguments.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options that others need, and why.
const NEEDED: &[(&str, &str)] = &[(
    "--temperature",
    "without it the most probable token is chosen, and --seed, --top-k and --top-p change nothing",
)];

/// Returns the text of an error in the arguments of `command`, with the next step.
pub(crate) fn argument_text(error: &clap::Error, command: &str) -> String {
    let argument = plain(name_of(&text(error, ContextKind::InvalidArg)));
    let value = text(error, ContextKind::InvalidValue);
    let what = match error.kind() {
        ErrorKind::MissingRequiredArgument => return missing_text(error, command),
        ErrorKind::InvalidValue => value_text(error, &argument, &value),
        ErrorKind::ValueValidation => {
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{argument} {}: {}", value.escape_debug(), expected_text(&reason))
        }
        ErrorKind::ArgumentConflict if !argument.is_empty() => {
            let others = texts(error, ContextKind::PriorArg);
            let others: Vec<String> = others.iter().map(|other| plain(name_of(other))).collect();
            if others.contains(&argument) {
                format!("{argument} is given twice; give it once")
            } else {
                format!("{argument} cannot be used with {}; leave out one or the other", others.join(" and "))
            }
        }
        // The errors of our own parsers say what helps.
        ErrorKind::ArgumentConflict => return first_line(error),
        _ => first_line(error),
    };
    let gap = if what.ends_with('?') { "" } else { ";" };
    format!("{what}{gap} `{command} --help` lists the options")
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn missing_text(error: &clap::Error, command: &str) -> String {
    let missing = texts(error, ContextKind::InvalidArg);
    let names: Vec<String> = missing.iter().map(|argument| plain(argument)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let names = match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    };
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => plain(usage.to_string().trim_start_matches("Usage: ")),
        _ => format!("{command} {names}"),
    };
    let reason = missing.iter().find_map(|argument| NEEDED.iter().find(|(it, _)| *it == name_of(argument)));
    let reason = reason.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
    format!("{names} {verb} missing, as in `{usage}`{reason}; `{command} --help` has examples")
}

/// Returns arguments as they are typed, such as `A B` for `<A> <B>...`; of several kinds that one may have, the first.
fn plain(arguments: &str) -> String {
    let plain = arguments.replace(['<', '>', '[', ']'], "").replace("...", "");
    let words: Vec<&str> = plain.split(' ').filter_map(|word| word.split('|').next()).collect();
    words.join(" ")
}

fn value_text(error: &clap::Error, argument: &str, value: &str) -> String {
    let valid = texts(error, ContextKind::ValidValue);
    let expected = match valid.split_last() {
        Some((last, [])) => format!("expected {last}"),
        Some((last, others)) => format!("expected {} or {last}", others.join(", ")),
        None => "expected a value after it".to_owned(),
    };
    let meant = match error.get(ContextKind::SuggestedValue) {
        Some(ContextValue::String(meant)) => format!("; did you mean `{meant}`?"),
        _ => String::new(),
    };
    let gap = if value.is_empty() { "" } else { " " };
    format!("{argument}{gap}{}: {expected}{meant}", value.escape_debug())
}

/// Returns the reason in words that say what is expected, if it is one of Rust's.
fn expected_text(reason: &str) -> String {
    let expected = match reason {
        "invalid digit found in string" | "number too large to fit in target type" => "a whole number",
        "invalid float literal" | "cannot parse float from empty string" => "a number",
        _ => match reason.split_once(" is not in ").map(|(_, range)| range.split_once("..=")) {
            Some(Some((first, last))) => return format!("expected a number from {first} to {last}"),
            _ => return reason.to_owned(),
        },
    };
    format!("expected {expected}")
}

/// Returns the option without its placeholder, such as `--to` for `--to <KIND>`.
fn name_of(argument: &str) -> &str {
    argument.split_once(' ').map_or(argument, |(name, _)| name)
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    texts(error, kind).into_iter().next().unwrap_or_default()
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}
