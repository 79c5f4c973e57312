//! The options of all outputs as arguments of a command line.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use open::TargetLayout;
use serde::de::DeserializeOwned;

use crate::Target;
use crate::back::Output;
use crate::options::output_format::{Arguments, OutputFormat, outputs};

impl OutputFormat {
    /// Adds the options to the command line. The name of an argument is that of its field.
    #[must_use]
    pub const fn with_arguments<O: Output + Default + DeserializeOwned + Args>(mut self) -> Self {
        let read = |matches: &ArgMatches| O::from_arg_matches(matches).map(Target::from);
        self.arguments = Some(Arguments { augment: O::augment_args, read });
        self
    }

    /// Returns a command that has the options of this output.
    fn command(&self) -> Command {
        let command = Command::new(self.name());
        match &self.arguments {
            Some(arguments) => (arguments.augment)(command),
            None => command,
        }
    }
}

/// Parses the name of an output format.
pub fn output_parser() -> impl TypedValueParser<Value = &'static OutputFormat> {
    let values = outputs().map(|format| PossibleValue::new(format.name()).help(format.help()));
    PossibleValuesParser::new(values)
        .map(|name| OutputFormat::named(&name).expect("it is one of the possible values"))
}

/// Each output has its own options. An argument that several outputs have is the same for all of them.
impl Args for Target {
    fn augment_args(command: Command) -> Command {
        let to = Arg::new("to")
            .long("to")
            .value_name("KIND")
            .value_parser(output_parser())
            .help("Its kind")
            .long_help(
                "What to write [default: by the extension of the output, else what has the given options]",
            );
        outputs().fold(command.arg(to), |command, format| {
            let is_new = |arg: &&Arg| command.get_arguments().all(|known| known.get_id() != arg.get_id());
            let own = format.command();
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
        let commands: Vec<Command> = outputs().map(OutputFormat::command).collect();
        let given = commands.iter().flat_map(Command::get_arguments).filter(is_given);
        let given: Vec<String> = given.filter_map(Arg::get_long).map(|name| name.replace('-', "_")).collect();
        let names: Vec<&str> = given.iter().map(String::as_str).collect();
        let to = matches.get_one::<&OutputFormat>("to").copied();
        let path = matches.get_one::<PathBuf>("output").map(PathBuf::as_path);
        // Each of many outputs is in a folder, whose name says something only if it is a repository of models.
        let is_each = matches!(matches.try_get_one::<bool>("each"), Ok(Some(true)));
        let is_repository = |path| {
            OutputFormat::from_path(path).is_some_and(|format| format.target().output().is_repository())
        };
        let path = path.filter(|path| !is_each || is_repository(path));
        let layout = matches.get_one::<TargetLayout>("target_layout").copied();
        let is_present =
            |id: &str| matches.try_contains_id(id).unwrap_or_default() && matches.value_source(id).is_some();
        let makes_folder = is_present("part") || is_present("complete_from");
        let chosen = Self::choose(to, path, &names, layout, makes_folder)
            .map_err(|error| clap::Error::raw(ErrorKind::ArgumentConflict, error.with_flags()))?;
        match &chosen.format().arguments {
            Some(arguments) => Ok((arguments.read)(matches)?.assumed_as(&chosen)),
            None => Ok(chosen),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
