//! The options of all outputs as arguments of a command line.

use std::path::PathBuf;

use clap::builder::EnumValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use open::TargetLayout;

use crate::{CartonOptions, OutputKind, SafetensorsOptions, Target, TorchOptions, TritonOptions};

/// Each output has its own options. An argument that several outputs have is the same for all of them.
impl Args for Target {
    fn augment_args(command: Command) -> Command {
        let to = Arg::new("to")
            .long("to")
            .value_name("KIND")
            .value_parser(EnumValueParser::<OutputKind>::new())
            .help("What to write")
            .long_help(
                "What to write [default: by the extension of the output, else what has the given options]",
            );
        OutputKind::ALL.into_iter().fold(command.arg(to), |command, kind| {
            let is_new = |arg: &&Arg| command.get_arguments().all(|known| known.get_id() != arg.get_id());
            let own = arguments(kind);
            let new: Vec<Arg> = own.get_arguments().filter(is_new).cloned().collect();
            command.args(new)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Target {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given =
            |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let commands = OutputKind::ALL.map(arguments);
        let given = commands.iter().flat_map(Command::get_arguments).filter(is_given);
        let given: Vec<String> = given.filter_map(Arg::get_long).map(|name| name.replace('-', "_")).collect();
        let names: Vec<&str> = given.iter().map(String::as_str).collect();
        let to = matches.get_one::<OutputKind>("to").copied();
        let path = matches.get_one::<PathBuf>("output").map(PathBuf::as_path);
        // Each of many outputs is in a folder, whose name says something only if it is a repository of models.
        let is_each = matches!(matches.try_get_one::<bool>("each"), Ok(Some(true)));
        let path = path.filter(|path| !is_each || OutputKind::from_path(path) == Some(OutputKind::Triton));
        let chosen =
            Self::choose(to, path, &names, matches.get_one::<TargetLayout>("target_layout").copied());
        let chosen =
            chosen.map_err(|error| clap::Error::raw(ErrorKind::ArgumentConflict, error.with_flags()))?;
        Ok(match chosen {
            Self::Carton(CartonOptions { assumed, .. }) => {
                Self::Carton(CartonOptions { assumed, ..CartonOptions::from_arg_matches(matches)? })
            }
            Self::Safetensors(_) => SafetensorsOptions::from_arg_matches(matches)?.into(),
            Self::Torch(_) => TorchOptions::from_arg_matches(matches)?.into(),
            Self::Triton(_) => TritonOptions::from_arg_matches(matches)?.into(),
            other @ Self::Other(_) => other,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns a command that has the options of one output.
fn arguments(kind: OutputKind) -> Command {
    let command = Command::new(kind.name());
    match kind {
        OutputKind::Carton => CartonOptions::augment_args(command),
        OutputKind::Safetensors => SafetensorsOptions::augment_args(command),
        OutputKind::Torch => TorchOptions::augment_args(command),
        OutputKind::Triton => TritonOptions::augment_args(command),
    }
}
