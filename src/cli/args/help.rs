//! Groups the options of `convert` in its help. `-h` shows the options that most users need, `--help` all of them.

use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// Headings of the help, each with the ids of its options in order.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Output",
        &[
            "output",
            "to",
            "no_clobber",
            "force",
            "dry_run",
            "no_sync",
            "digest",
            "json",
            "each",
            "files_from",
            "jobs",
            "results",
            "resume",
            "checksum",
            "single",
        ],
    ),
    (
        "Tensors",
        &[
            "key",
            "include",
            "exclude",
            "strip_prefix",
            "rename",
            "names",
            "dequantize",
            "add",
            "average",
            "common",
            "merge",
            "dtype",
            "cast",
        ],
    ),
    (
        "Model",
        &[
            "arch",
            "required",
            "n_heads",
            "rope_theta",
            "rope_factor",
            "norm_eps",
            "keep_extra",
            "errors",
            "self_test",
        ],
    ),
    ("TorchScript modules", &["inputs", "output_types", "output_names", "no_wrap"]),
    (
        "Fields and files of a carton",
        &[
            "name",
            "description",
            "short_description",
            "license",
            "repository",
            "homepage",
            "misc",
            "config",
            "no_values",
            "torch",
        ],
    ),
    ("safetensors", &["max_shard_size", "ties"]),
    ("Addresses", &["allow_http", "timeout", "offline", "cache"]),
    ("Files that are not trusted", &["deny_unknown", "allow_dangerous", "max_expansion"]),
];

/// Ids of the options that `-h` shows.
const MOST_USED: &[&str] =
    &["output", "to", "force", "dry_run", "each", "key", "include", "names", "dtype", "max_shard_size"];

/// Returns the command line with the options of `convert` in groups.
pub(crate) fn command() -> Command {
    Cli::command().mut_subcommand("convert", |convert| convert.mut_args(group_option))
}

fn group_option(option: Arg) -> Arg {
    let id = option.get_id().as_str().to_owned();
    let mut groups = GROUPS.iter().enumerate();
    let found = groups.find_map(|(number, (heading, ids))| {
        let place = ids.iter().position(|known| *known == id)?;
        Some((*heading, number.saturating_mul(100).saturating_add(place)))
    });
    match found {
        Some((heading, order)) => {
            let is_hidden = !MOST_USED.contains(&id.as_str());
            option.help_heading(heading).display_order(order).hide_short_help(is_hidden)
        }
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
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        for option in convert.get_arguments().filter(|option| !option.is_positional()) {
            let id = option.get_id().as_str();
            assert!(grouped.contains(&id) || option.is_global_set() || id == "help", "{id} is in no group");
        }
        for id in grouped.iter().chain(MOST_USED) {
            assert!(convert.get_arguments().any(|option| option.get_id() == id), "there is no option {id}");
        }
    }
}
