//! Groups the options of `convert` in its help. `-h` shows the options that most users need, `--help` all of them.

use std::any::TypeId;
use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// Headings of the help, each with its options in order: first those that most users need.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Output",
        &[
            "output",
            "to",
            "max-shard-size",
            "dry-run",
            "force",
            "each",
            "no-clobber",
            "no-sync",
            "digest",
            "statement",
            "json",
            "single",
            "incomplete",
            "ties",
            "split-max-size",
            "pre-tokenizer",
            "keep-values",
        ],
    ),
    (
        "Tensors",
        &[
            "key",
            "include",
            "exclude",
            "strip-prefix",
            "rename",
            "names",
            "part",
            "complete-from",
            "dtype",
            "cast",
            "dequantize",
            "merge",
            "add",
            "average",
            "common",
        ],
    ),
    ("Many checkpoints", &["resume", "checksum", "files-from", "jobs", "results"]),
    (
        "Model",
        &[
            "arch",
            "require-model",
            "n-heads",
            "rope-theta",
            "rope-factor",
            "norm-eps",
            "keep-extra",
            "errors",
            "self-test",
        ],
    ),
    ("TorchScript modules", &["input", "output-type", "output-names", "no-wrap"]),
    (
        "Fields and files of a carton",
        &[
            "name",
            "license",
            "misc",
            "description",
            "short-description",
            "repository",
            "homepage",
            "config",
            "no-values",
            "torch",
        ],
    ),
    ("Addresses", &["allow-http", "timeout", "offline", "cache"]),
    ("Files that are not trusted", &["deny-unknown", "allow-dangerous", "max-expansion"]),
];

/// Options that `-h` shows.
const MOST_USED: &[&str] =
    &["output", "to", "max-shard-size", "dry-run", "force", "key", "include", "names", "dtype", "each"];

/// Returns the command line with the options of `convert` in groups.
pub(crate) fn command() -> Command {
    Cli::command()
        .mut_subcommand("convert", |convert| convert.mut_args(group_option))
        .mut_subcommands(|command| command.mut_args(take_negative_number))
}

/// Makes an option of a number take a negative one, so that the error says which numbers it may have.
fn take_negative_number(option: Arg) -> Arg {
    let parsed = option.get_value_parser().type_id();
    let is_number = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f64>(),
        TypeId::of::<NonZeroU32>(),
        TypeId::of::<NonZeroUsize>(),
    ]
    .iter()
    .any(|number| parsed == *number);
    if is_number && option.get_long().is_some() { option.allow_negative_numbers(true) } else { option }
}

fn group_option(option: Arg) -> Arg {
    let Some(name) = option.get_long().map(str::to_owned) else { return option };
    let option = option.hide_short_help(!MOST_USED.contains(&name.as_str()));
    let mut groups = GROUPS.iter().enumerate();
    let found = groups.find_map(|(number, (heading, names))| {
        let place = names.iter().position(|known| *known == name)?;
        Some((*heading, number.saturating_mul(100).saturating_add(place)))
    });
    match found {
        Some((heading, order)) => option.help_heading(heading).display_order(order),
        None => option,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_of_convert_is_in_a_group() {
        let command = command();
        let convert = command.find_subcommand("convert").expect("the command");
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let known: Vec<&str> = convert.get_arguments().filter_map(Arg::get_long).collect();
        for name in &known {
            let is_global =
                convert.get_arguments().any(|arg| arg.get_long() == Some(name) && arg.is_global_set());
            assert!(grouped.contains(name) || is_global || *name == "help", "{name} is in no group");
        }
        for name in grouped {
            assert!(known.contains(&name), "there is no option {name}");
        }
    }

    #[test]
    fn the_short_help_of_convert_is_short() {
        let mut command = command().term_width(100);
        let convert = command.find_subcommand_mut("convert").expect("the command");
        let help = convert.render_help().to_string();
        assert!(help.lines().count() <= 30, "{help}");
    }
}
