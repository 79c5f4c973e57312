//! Arguments of `report`.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use output::IfExists;

use super::RemoteArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton report model.pt                          writes model.report.html
  torch2carton report --stats model.pt -o report.html   with a histogram of each tensor
  torch2carton report --trace model.pt                  with a stepper for the pickle
  torch2carton report --trace=40000..60000 large.pt
  torch2carton report old.pt new.pt                     what differs; writes new.diff.html

The page is one file that loads nothing: open it from disk. Nothing in the
checkpoint is executed, and no text from it can become markup.")]
pub(crate) struct Report {
    /// A checkpoint, its folder, a shard or a carton
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Another one: the page shows what differs from FILE to OTHER, as `diff --html` does
    #[arg(value_name = "OTHER", value_hint = ValueHint::AnyPath, conflicts_with_all = ["stats", "trace"])]
    pub(crate) other: Option<PathBuf>,
    /// Where to write the page, `-` for standard output [default: FILE with the extension .report.html, or OTHER with .diff.html]
    #[arg(short, long, value_name = "HTML", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Add statistics and a histogram of each tensor
    #[arg(long)]
    pub(crate) stats: bool,
    /// Add the steps of the pickle: the first 20000, or those from START up to END, counted from 0
    #[arg(long, value_name = "START..END", num_args = 0..=1, require_equals = true, default_missing_value = "0..20000", value_parser = steps)]
    pub(crate) trace: Option<Range<u64>>,
    #[command(flatten)]
    pub(crate) if_exists: IfExists,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

/// Parses a range of steps.
fn steps(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str, default: u64| if text.is_empty() { Some(default) } else { text.parse().ok() };
    let range =
        text.split_once("..").and_then(|(start, end)| Some(number(start, 0)?..number(end, u64::MAX)?));
    match range {
        Some(range) if range.start < range.end => Ok(range),
        _ => Err("expected two numbers, such as 0..20000, the first one smaller".to_owned()),
    }
}
