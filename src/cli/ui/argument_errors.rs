//! Texts of errors about missing, wrong and conflicting arguments.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Arguments that are needed, and why, or what they may be.
const NEEDED: &[(&str, &str)] = &[
    (
        "--temperature",
        "without it the most probable token is chosen, and --seed, --top-k and --top-p change nothing",
    ),
    ("<SHELL>", "bash, elvish, fish, powershell or zsh"),
];

/// Returns true if a word differs from the meant one as by a typing mistake, or is its beginning or end.
pub(crate) fn is_similar(word: &str, meant: &str) -> bool {
    const PART_MIN: usize = 3;
    let [word, meant] = [word, meant].map(|text| text.to_lowercase().replace('_', "-"));
    let mistakes = word.chars().count().div_euclid(3).max(1);
    strsim::osa_distance(&word, &meant) <= mistakes
        || word.len() >= PART_MIN && (meant.starts_with(&word) || meant.ends_with(&word))
}

/// Returns the text of an error in the arguments of `command`, with the next step.
pub(crate) fn argument_text(error: &clap::Error, command: &str) -> String {
    let argument = plain(name_of(&text(error, ContextKind::InvalidArg)));
    let value = text(error, ContextKind::InvalidValue);
    let what = match error.kind() {
        ErrorKind::MissingRequiredArgument => return missing_text(error, command),
        ErrorKind::InvalidValue => value_text(error, &argument, &value),
        ErrorKind::ValueValidation => {
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{argument} {}: {}", value.escape_debug(), expected_text(&reason, &value))
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
    let names: Vec<String> = missing.iter().map(|argument| alternatives(argument)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let names = match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    };
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => {
            let usage = usage.to_string();
            let needed = usage.trim_start_matches("Usage: ").split(' ').filter(|word| !word.starts_with('['));
            plain(&needed.collect::<Vec<_>>().join(" "))
        }
        _ => format!("{command} {names}"),
    };
    let reason = missing.iter().find_map(|argument| NEEDED.iter().find(|(it, _)| *it == name_of(argument)));
    let reason = reason.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
    format!("{names} {verb} missing, as in `{usage}`{reason}; `{command} --help` has examples")
}

/// Returns arguments as they are typed, such as `A B` for `<A> <B>...`; of several kinds that one may have, the first.
fn plain(arguments: &str) -> String {
    let (mut typed, mut depth, mut skipped) = (String::new(), 0_usize, None);
    for c in arguments.replace(['[', ']'], "").replace("...", "").chars() {
        match c {
            '<' => depth = depth.saturating_add(1),
            '>' => {
                depth = depth.saturating_sub(1);
                skipped = skipped.filter(|from| depth >= *from);
            }
            '|' => skipped = skipped.or(Some(depth)),
            c if skipped.is_none() => typed.push(c),
            _ => {}
        }
    }
    typed
}

/// Returns an argument as it is typed, with the options in place of which it stands: `--a X or --b` for `<--a <X>|--b>`.
fn alternatives(argument: &str) -> String {
    let Some(options) = argument.strip_prefix('<').filter(|options| options.starts_with("--")) else {
        return plain(argument);
    };
    let options: Vec<String> = options.split("|--").map(plain).collect();
    options.join(" or --")
}

/// Values that are listed next to the one that is meant.
const LISTED_MAX: usize = 12;

fn value_text(error: &clap::Error, argument: &str, value: &str) -> String {
    let valid = texts(error, ContextKind::ValidValue);
    let expected = match valid.split_last() {
        Some((last, [])) => format!("expected {last}"),
        Some((last, others)) => format!("expected {} or {last}", others.join(", ")),
        None => "expected a value after it".to_owned(),
    };
    let gap = if value.is_empty() { "" } else { " " };
    let meant = match error.get(ContextKind::SuggestedValue) {
        // A long list hides what is meant.
        Some(ContextValue::String(meant)) if is_similar(value, meant) && valid.len() > LISTED_MAX => {
            return format!("{argument}{gap}{}: did you mean `{meant}`?", value.escape_debug());
        }
        Some(ContextValue::String(meant)) if is_similar(value, meant) => format!("; did you mean `{meant}`?"),
        _ => String::new(),
    };
    format!("{argument}{gap}{}: {expected}{meant}", value.escape_debug())
}

/// Returns the reason in words that say what is expected, if it is one of Rust's.
fn expected_text(reason: &str, value: &str) -> String {
    let expected = match reason {
        "invalid digit found in string" if value.starts_with('-') => "a whole number that is not negative",
        "invalid digit found in string" | "number too large to fit in target type" => "a whole number",
        "invalid float literal" | "cannot parse float from empty string" => "a number",
        _ => match reason.split_once(" is not in ").map(|(_, range)| range.split_once("..=")) {
            // The range of a type says only where it begins.
            Some(Some((first, "65535" | "4294967295" | "18446744073709551615"))) => {
                return format!("expected a whole number, {first} or more");
            }
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
