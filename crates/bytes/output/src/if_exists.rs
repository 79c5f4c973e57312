//! Policy for an output that exists, as an enum and as two options.

use serde::{Deserialize, Serialize};

/// Policy for a file that already exists at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "ExistingOutput", try_from = "ExistingOutput")]
pub enum IfExists {
    /// Replace the file only if this program wrote it and no other program changed it since; otherwise fail.
    #[default]
    ReplaceOwn,
    /// Replace whatever exists at the target.
    Replace,
    /// Keep the existing file and fail.
    Fail,
}

/// [`IfExists`] as two options.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
struct ExistingOutput {
    /// Fail if the output exists [default: replace it if torch2carton wrote it]
    #[cfg_attr(feature = "cli", arg(long))]
    no_clobber: bool,
    /// Replace an output that torch2carton did not write
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "no_clobber"))]
    force: bool,
}

impl From<IfExists> for ExistingOutput {
    fn from(if_exists: IfExists) -> Self {
        Self { no_clobber: if_exists == IfExists::Fail, force: if_exists == IfExists::Replace }
    }
}

impl TryFrom<ExistingOutput> for IfExists {
    type Error = &'static str;

    fn try_from(options: ExistingOutput) -> Result<Self, &'static str> {
        match options {
            ExistingOutput { no_clobber: true, force: true } => {
                Err("`no_clobber` and `force` exclude each other")
            }
            ExistingOutput { no_clobber: true, .. } => Ok(Self::Fail),
            ExistingOutput { force: true, .. } => Ok(Self::Replace),
            _ => Ok(Self::ReplaceOwn),
        }
    }
}

#[cfg(feature = "cli")]
impl clap::Args for IfExists {
    fn augment_args(command: clap::Command) -> clap::Command {
        ExistingOutput::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        ExistingOutput::augment_args_for_update(command)
    }
}

#[cfg(feature = "cli")]
impl clap::FromArgMatches for IfExists {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let options = ExistingOutput::from_arg_matches(matches)?;
        Self::try_from(options)
            .map_err(|text| clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, text))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
