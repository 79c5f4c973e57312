//! Request of a batch: the arguments of `batch`, or their JSON.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use batch::{BatchSettings, ManifestShard, Resume};
use byte_source::Location;
use clap::builder::PossibleValue;
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use convert::{ConvertOptions, OutputFormat, output_parser};
use inspect::{InputOptions, InspectOptions, ScanOptions};
use open::{changed_options, parse_size, path_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::convert::parse_count;
use super::{Cli, Command, RemoteArgs};
use crate::cli::tasks::{BlobFolder, TaskKind, TaskOptions};
use crate::cli::ui::located_advice;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(after_help = "\
Examples:
  torch2carton batch models.jsonl -o out/ --to safetensors --results results.jsonl
  torch2carton batch models.jsonl -o out/ --to safetensors --results results.jsonl --resume
  torch2carton batch models.jsonl --task scan --no-digest | jq -r 'select(.verdict == \"unsafe\") | .input'
  torch2carton batch models.jsonl -o out/ -- --dtype bfloat16 --exclude 'optimizer.*'
  torch2carton batch models.jsonl -o out/ --blobs blobs/ --base https://example.org/blobs
  find . -name '*.pt' | jq -R '{input: .}' -c | torch2carton batch - --task digest

A line of the manifest is an object with `input`, and if needed `output` (a path) and
`options`, which are those of the task by their names:
  {\"input\": \"a.pth\", \"output\": \"a.safetensors\", \"options\": {\"dtype\": \"bfloat16\"}}
The options of a line are added to those after `--`, and win where only one counts.

Each result is a line: `input`, `status` (ok or failed), `error`, `code`, `digest`,
`output`, `seconds`, `bytes`, and `verdict` or `tensors`. docs/batch.md has more.
A batch that was ended in any way goes on with --resume.

Exit status: 0 done, 1 an input failed, 2 a line of the manifest is wrong, or bad
usage; then nothing was done, unless the manifest is a pipe.")]
pub(crate) struct BatchArgs {
    /// The manifest: a JSON object for each input, one on each line; `-` is standard input
    #[arg(value_name = "MANIFEST", value_hint = ValueHint::FilePath)]
    #[serde(with = "path_json::one")]
    pub(crate) manifest: PathBuf,
    /// What to do with each input
    #[arg(long, value_name = "TASK", default_value = "convert")]
    pub(crate) task: TaskKind,
    /// The folder for outputs whose line names none [default: next to each input]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[serde(with = "path_json::option")]
    pub(crate) output: Option<PathBuf>,
    /// What `convert` writes [default: by the extension of `output`, else a carton]
    #[arg(long, value_name = "KIND", value_parser = output_parser())]
    pub(crate) to: Option<&'static OutputFormat>,
    /// Work on N inputs at the same time [default: one for each core, at most 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Let the inputs take SIZE of memory together; others wait [default: three quarters of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_memory: Option<u64>,
    /// Append the result of each input to FILE instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[serde(with = "path_json::option")]
    pub(crate) results: Option<PathBuf>,
    /// Go on from the results of an earlier batch: do only what is missing or has changed
    #[arg(long, requires = "results")]
    pub(crate) resume: bool,
    /// With --resume, read each output as a whole, and compare all hashes and checksums
    #[arg(long, requires = "resume")]
    pub(crate) checksum: bool,
    /// Do only part I of N of the manifest, counted from 0: for N machines without a scheduler
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<ManifestShard>,
    /// Store the large files of cartons in DIR by their SHA-256, equal ones once, as `torch2carton shrink` does
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "base")]
    #[serde(with = "path_json::option")]
    pub(crate) blobs: Option<PathBuf>,
    /// The URL under which the files of --blobs will be served
    #[arg(long, value_name = "URL", requires = "blobs", value_parser = parse_base)]
    pub(crate) base: Option<String>,
    /// Compute no digest of inputs whose task does not hash the tensors, which reads each input once more
    #[arg(long)]
    pub(crate) no_digest: bool,
    /// Options of the task for all inputs, such as `--dtype bfloat16`
    #[arg(last = true, value_name = "OPTIONS", allow_hyphen_values = true)]
    #[serde(skip)]
    pub(crate) words: Vec<String>,
    /// The same options by their names.
    #[arg(skip)]
    pub(crate) options: Map<String, Json>,
}

impl BatchArgs {
    /// Returns the settings of the batch for the library.
    pub(crate) fn settings(&self) -> BatchSettings {
        let mut settings = BatchSettings::new(&self.manifest);
        settings.results.clone_from(&self.results);
        settings.folder.clone_from(&self.output);
        settings.shard = self.shard;
        settings.resume = Resume::new(self.resume, self.checksum);
        settings
    }

    /// Returns the request with the options after `--` by their names.
    ///
    /// # Errors
    /// When the task does not have such an option, or a value is wrong; the text says which.
    pub(crate) fn with_named_options(mut self) -> Result<Self, String> {
        self.options.extend(options_for_all(self.task, &std::mem::take(&mut self.words))?);
        Ok(self)
    }

    /// Returns what makes tasks of the options of lines.
    ///
    /// # Errors
    /// When options contradict each other, the task does not have an option for all inputs, or a value is wrong; the text says
    /// which.
    pub(crate) fn task_options(&self) -> Result<TaskOptions, String> {
        let blobs = match (&self.blobs, &self.base) {
            (Some(path), Some(base)) => Some(BlobFolder { path: path.clone(), base: parse_base(base)? }),
            (None, None) => None,
            _ => return Err("`blobs` and `base` need each other".to_owned()),
        };
        if (self.resume && self.results.is_none()) || (self.checksum && !self.resume) {
            return Err("`checksum` needs `resume`, which needs `results`".to_owned());
        }
        if blobs.is_some() {
            let folders = self.blobs.iter().chain(&self.output);
            let is_local = |folder: &PathBuf| output::refuse_remote_output(folder);
            folders
                .into_iter()
                .try_for_each(is_local)
                .map_err(|error| format!("--blobs: {}", located_advice::located_text(&error)))?;
        }
        let mut shared = self.options.clone();
        shared.extend(self.to.map(|to| ("to".to_owned(), to.name().into())));
        let options = TaskOptions { kind: self.task, has_digest: !self.no_digest, blobs, shared };
        options.parse(&Map::new(), None)?;
        Ok(options)
    }
}

/// Parses the options after `--` as the task's subcommand does, and returns those that were set.
fn options_for_all(kind: TaskKind, words: &[String]) -> Result<Map<String, Json>, String> {
    let value = kind.to_possible_value();
    let subcommand = value.as_ref().map_or("", PossibleValue::get_name);
    let line = ["torch2carton", subcommand, "-"].into_iter().chain(words.iter().map(String::as_str));
    let matches = Cli::command().try_get_matches_from(line).map_err(|error| first_line(&error))?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| first_line(&error))?;
    let (set, remote) = match &cli.command {
        Command::Convert(convert) => {
            if convert.each || convert.json || convert.options.output.is_some() {
                return Err("--each, --json and --output are not options of one input".to_owned());
            }
            let mut default = ConvertOptions::default();
            default.target = convert.options.target.format().target();
            let mut set = changed_options(&convert.options, &default);
            // The output of a line may have an extension.
            let to = matches.subcommand().and_then(|(_, matches)| matches.get_one::<&OutputFormat>("to"));
            set.extend(to.map(|to| ("to".to_owned(), to.name().into())));
            (set, &convert.remote)
        }
        Command::Scan(scan) => (changed_options(&scan.options, &ScanOptions::default()), &scan.remote),
        Command::Inspect(inspect) => (
            changed_options(&inspect.options(Location::default()), &InspectOptions::default()),
            &inspect.remote,
        ),
        Command::Digest(digest) => {
            (changed_options(&digest.options, &InputOptions::default()), &digest.remote)
        }
        _ => return Err(super::super::OTHER_SUBCOMMAND.to_owned()),
    };
    Ok(set.into_iter().chain(changed_options(remote, &RemoteArgs::default())).collect())
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn parse_base(text: &str) -> Result<String, String> {
    carton_tools::base_url(text).map(str::to_owned).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&str]) -> Result<BatchArgs, String> {
        let words = ["torch2carton", "batch", "m.jsonl"].iter().chain(words);
        let cli = <Cli as clap::Parser>::try_parse_from(words).expect("arguments");
        let Command::Batch(args) = cli.command else { panic!("another subcommand") };
        args.with_named_options()
    }

    #[test]
    fn a_request_is_its_json() {
        let args = named(&[
            "--task=digest",
            "--results=r",
            "--resume",
            "--shard=1/2",
            "--",
            "--key",
            "ema",
            "--timeout=9",
        ]);
        let args = args.expect("options");
        let json = serde_json::to_value(&args).expect("JSON");
        assert_eq!(json["options"], serde_json::json!({ "key": "ema", "timeout": 9 }));
        assert_eq!((&json["task"], &json["shard"]), (&"digest".into(), &"1/2".into()));
        let again: BatchArgs = serde_json::from_value(json.clone()).expect("a request");
        assert_eq!(serde_json::to_value(&again).expect("JSON"), json);
        assert!(again.task_options().is_ok());
        let wrong = |text: &str| serde_json::from_str::<BatchArgs>(text).map_err(|error| error.to_string());
        assert!(wrong(r#"{"tsk":"scan"}"#).expect_err("wrong").starts_with("unknown field `tsk`"));
        assert!(wrong(r#"{"shard":"2/2"}"#).expect_err("wrong").starts_with("expected I/N"));
        let refused = |text: &str| wrong(text).expect("a request").task_options().expect_err("wrong");
        assert!(refused(r#"{"blobs":"b"}"#).contains("need each other"));
        assert!(refused(r#"{"checksum":true}"#).contains("needs `resume`"));
        assert!(refused(r#"{"options":{"jobs":1}}"#).contains("there is no option `jobs`"));
    }

    #[test]
    fn options_of_many_inputs_are_refused() {
        assert!(named(&["--", "--each"]).is_err());
        assert!(named(&["--task=scan", "--", "--dtype=float16"]).is_err());
    }
}
