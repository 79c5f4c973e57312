//! Arguments of `batch`, and tasks from the options of a manifest's line.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use batch::{BatchSettings, BatchTask, BlobFolder, LineTask, ManifestShard, TaskKind};
use byte_source::{ErrorKind, Location};
use clap::builder::PossibleValue;
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use convert::{ConvertOptions, OutputKind, Resume};
use inspect::{InputOptions, InspectOptions, ScanOptions};
use open::{add_options, changed_options, parse_size, set_options};
use serde_json::{Map, Value as Json};

use super::convert::parse_count;
use super::{Cli, Command, RemoteArgs};
use crate::cli::ui::errors;

#[derive(Args, Debug)]
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
    pub(crate) manifest: PathBuf,
    /// What to do with each input
    #[arg(long, value_name = "TASK", default_value = "convert")]
    pub(crate) task: TaskKind,
    /// The folder for outputs whose line names none [default: next to each input]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
    /// What `convert` writes [default: by the extension of `output`, else a carton]
    #[arg(long, value_name = "KIND")]
    pub(crate) to: Option<OutputKind>,
    /// Work on N inputs at the same time [default: one for each core, at most 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Let the inputs take SIZE of memory together; others wait [default: three quarters of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_memory: Option<u64>,
    /// Append the result of each input to FILE instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Go on from the results of an earlier batch: do only what is missing or has changed
    #[arg(long, requires = "results")]
    pub(crate) resume: bool,
    /// With --resume, read each output as a whole, and compare all hashes and checksums
    #[arg(long, requires = "resume")]
    pub(crate) checksum: bool,
    /// Do only part I of N of the manifest, counted from 0: for N machines without a scheduler
    #[arg(long, value_name = "I/N", value_parser = parse_shard)]
    pub(crate) shard: Option<ManifestShard>,
    /// Store the large files of cartons in DIR by their SHA-256, equal ones once, as `torch2carton shrink` does
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "base")]
    pub(crate) blobs: Option<PathBuf>,
    /// The URL under which the files of --blobs will be served
    #[arg(long, value_name = "URL", requires = "blobs", value_parser = parse_base)]
    pub(crate) base: Option<String>,
    /// Compute no digest of inputs whose task does not hash the tensors, which reads each input once more
    #[arg(long)]
    pub(crate) no_digest: bool,
    /// Options of the task for all inputs, such as `--dtype bfloat16`
    #[arg(last = true, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
}

impl BatchArgs {
    /// Returns the settings of the batch for the library.
    pub(crate) fn settings(&self) -> BatchSettings {
        let mut settings = BatchSettings::new(&self.manifest);
        settings.results.clone_from(&self.results);
        settings.folder.clone_from(&self.output);
        settings.shard = self.shard;
        settings.has_digest = !self.no_digest;
        settings.blobs = match (&self.blobs, &self.base) {
            (Some(path), Some(base)) => Some(BlobFolder { path: path.clone(), base: base.clone() }),
            _ => None,
        };
        settings.resume = match (self.resume, self.checksum) {
            (false, _) => Resume::ConvertAll,
            (true, false) => Resume::SkipComplete,
            (true, true) => Resume::SkipVerified,
        };
        settings
    }

    /// Returns what makes tasks of the options of lines.
    ///
    /// # Errors
    /// When the task does not have an option for all inputs, or a value is wrong; the text says which.
    pub(crate) fn task_options(&self) -> Result<TaskOptions, String> {
        let mut options = TaskOptions {
            kind: self.task,
            needs_carton: self.blobs.is_some(),
            shared: options_for_all(self.task, &self.options)?,
        };
        if let Some(to) = self.to {
            options.shared.insert("to".to_owned(), to.name().into());
        }
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
            default.target = convert.options.target.kind().unwrap_or_default().into();
            let mut set = changed_options(&convert.options, &default);
            // The output of a line may have an extension.
            let to = matches.subcommand().and_then(|(_, matches)| matches.get_one::<OutputKind>("to"));
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

/// Task with the options for all inputs.
#[derive(Clone, Debug)]
pub(crate) struct TaskOptions {
    kind: TaskKind,
    /// True if outputs must be cartons.
    needs_carton: bool,
    shared: Map<String, Json>,
}

impl TaskOptions {
    /// Returns the task with the options of a line added. Of `output`, only the extension counts.
    ///
    /// # Errors
    /// When the task does not have an option, or a value is wrong; the text says which.
    pub(crate) fn parse(
        &self,
        options: &Map<String, Json>,
        output: Option<&Path>,
    ) -> Result<LineTask, String> {
        let mut all = self.shared.clone();
        add_options(&mut all, options.clone());
        let known = changed_options(&RemoteArgs::default(), &());
        let (remote, own) = all.into_iter().partition(|(name, _)| known.contains_key(name));
        let remote: RemoteArgs =
            set_options(&RemoteArgs::default(), remote).map_err(|error| error.to_string())?;
        let mut task = BatchTask::from_json(self.kind, own, output).map_err(|error| error.to_string())?;
        if let BatchTask::Convert(options) = &mut task {
            remote.locate_others(options).map_err(|error| errors::error_chain_text(&error))?;
        }
        if self.needs_carton && !task.writes_cartons() {
            return Err("--blobs is for cartons, and this output is none".to_owned());
        }
        let copies_documents = matches!(task, BatchTask::Convert(_));
        let locate = move |path: &Path| {
            let found =
                if copies_documents { remote.locate_with_documents(path) } else { remote.locate(path) };
            found.map_err(|error| (remote_kind(&error), errors::error_chain_text(&error)))
        };
        Ok(LineTask { task, locate: Box::new(locate) })
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// Returns the kind of an error of opening an address.
fn remote_kind(error: &anyhow::Error) -> ErrorKind {
    error.downcast_ref::<remote_source::Error>().map_or(ErrorKind::Input, remote_source::Error::kind)
}

fn parse_base(text: &str) -> Result<String, String> {
    carton_tools::base_url(text).map(str::to_owned).map_err(|error| error.to_string())
}

/// Parses `I/N`.
fn parse_shard(text: &str) -> Result<ManifestShard, String> {
    let numbers =
        text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    let shard = numbers.map(|(index, count): (u64, u64)| ManifestShard { index, count });
    shard
        .filter(|shard| shard.index < shard.count)
        .ok_or_else(|| "expected I/N, such as 0/8, with I below N".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: TaskKind, words: &[&str], options: &str, output: Option<&str>) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let task = TaskOptions { kind, needs_carton: false, shared: options_for_all(kind, &words)? };
        let options = serde_json::from_str(options).expect("an object");
        task.parse(&options, output.map(Path::new)).map(|task| format!("{task:?}"))
    }

    #[test]
    fn options_of_a_line_are_added_to_the_flags() {
        let words = ["--dtype", "float16", "--include", "a*"];
        let task = parse(
            TaskKind::Convert,
            &words,
            r#"{"dtype":"bfloat16","include":["b*","c*"],"force":true,"key":null}"#,
            None,
        );
        let task = task.expect("they fit");
        assert!(task.contains(r#"include: ["a*", "b*", "c*"]"#), "{task}");
        assert!(task.contains("dtype: Some(BFloat16)"), "{task}");
        assert!(task.contains("if_exists: Replace,"), "{task}");
        let task = parse(TaskKind::Convert, &[], "{\"max-shard-size\":\"5GB\"}", Some("a/b.safetensors"))
            .expect("they fit");
        assert!(task.contains("Safetensors") && task.contains("5000000000"), "{task}");
        assert!(
            parse(TaskKind::Digest, &[], "{\"key\":\"ema\"}", None).expect("it fits").contains("\"ema\"")
        );
    }

    #[test]
    fn wrong_options_are_refused() {
        let wrong = |options: &str| parse(TaskKind::Convert, &[], options, None).expect_err("wrong");
        assert_eq!(wrong("{\"jobs\":2}"), "there is no option `jobs`");
        assert_eq!(wrong("{\"output\":\"x\"}"), "there is no option `output`");
        assert_eq!(wrong("{\"dtyp\":\"x\"}"), "there is no option `dtyp`");
        assert!(wrong("{\"dtype\":\"x\"}").starts_with("`dtype`: `x` is not a dtype"));
        assert!(wrong("{\"dtype\":{}}").starts_with("`dtype`: invalid type: map"));
        assert!(parse(TaskKind::Scan, &[], "{\"dtype\":\"float16\"}", None).is_err());
        assert!(parse(TaskKind::Convert, &["--each"], "{}", None).is_err());
    }

    #[test]
    fn a_shard_is_below_the_count() {
        assert_eq!(parse_shard("2/3"), Ok(ManifestShard { index: 2, count: 3 }));
        for text in ["3/3", "0/0", "1", "-1/2", "a/b"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }
}
