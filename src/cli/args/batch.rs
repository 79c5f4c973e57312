//! Arguments of `batch`, and tasks from the options of a manifest's line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use batch::{BatchSettings, BatchTask, BlobFolder, LineTask, ManifestShard};
use byte_source::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use pipeline::{InspectOptions, OutputKind, Resume, ScanOptions};
use serde_json::{Map, Value as Json};

use super::convert::{ToArg, parse_count, parse_size};
use super::{Cli, Command};
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
    pub(crate) task: TaskArg,
    /// The folder for outputs whose line names none [default: next to each input]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
    /// What `convert` writes [default: by the extension of `output`, else a carton]
    #[arg(long, value_name = "KIND")]
    pub(crate) to: Option<ToArg>,
    /// Work on N inputs at the same time, which share the cores [default: as many as the machine runs at once, at most 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// The memory that the inputs may take together; one waits if it does not fit [default: three quarters of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_memory: Option<u64>,
    /// Append the result of each input to FILE instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Go on from the results of an earlier batch: do only what is missing, whose input or options are others, or whose output
    /// is gone
    #[arg(long, requires = "results")]
    pub(crate) resume: bool,
    /// With --resume, read each output as a whole, and compare all hashes and checksums
    #[arg(long, requires = "resume")]
    pub(crate) checksum: bool,
    /// Do only part I of N of the manifest, counted from 0: for N machines without a scheduler
    #[arg(long, value_name = "I/N", value_parser = parse_shard)]
    pub(crate) shard: Option<ManifestShard>,
    /// Keep the large files of cartons in DIR, by their SHA-256, so that files that several cartons have are stored once; as
    /// `torch2carton shrink` does
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "base")]
    pub(crate) blobs: Option<PathBuf>,
    /// The URL under which the files of --blobs will be served
    #[arg(long, value_name = "URL", requires = "blobs", value_parser = parse_base)]
    pub(crate) base: Option<String>,
    /// Do not compute the digest of inputs whose task does not hash the tensors; it reads each input once more
    #[arg(long)]
    pub(crate) no_digest: bool,
    /// Options of the task for all inputs, such as `--dtype bfloat16`
    #[arg(last = true, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
}

/// `--task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskArg {
    /// Convert it, as `torch2carton convert`
    Convert,
    /// Report what it would execute, as `torch2carton scan`
    Scan,
    /// Count its tensors, as `torch2carton inspect`
    Inspect,
    /// Hash its tensors, as `torch2carton digest`
    Digest,
}

impl TaskArg {
    fn subcommand(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::Scan => "scan",
            Self::Inspect => "inspect",
            Self::Digest => "digest",
        }
    }
}

/// Names of options that are about a command rather than about one input.
const COMMAND_OPTIONS: &[&str] = &[
    "all",
    "check",
    "checksum",
    "color",
    "each",
    "files-from",
    "help",
    "jobs",
    "json",
    "lines",
    "output",
    "quiet",
    "results",
    "resume",
    "sarif",
    "version",
];

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

    /// Returns the function that makes tasks of the options of lines.
    pub(crate) fn task_parser(&self) -> TaskFlags {
        let to = self.to.and_then(|to| to.to_possible_value());
        let to = to.map(|to| format!("--to={}", to.get_name()));
        let needs_carton = self.blobs.is_some();
        TaskFlags {
            task: self.task,
            needs_carton,
            words: to.into_iter().chain(self.options.iter().cloned()).collect(),
        }
    }
}

/// Task with the flags for all inputs.
#[derive(Clone, Debug)]
pub(crate) struct TaskFlags {
    task: TaskArg,
    /// True if outputs must be cartons.
    needs_carton: bool,
    words: Vec<String>,
}

impl TaskFlags {
    /// Returns the task with the options of a line added. Of `output`, only the extension counts.
    ///
    /// # Errors
    /// When the task does not have an option, or a value is wrong; the text says which.
    pub(crate) fn parse(
        &self,
        options: &Map<String, Json>,
        output: Option<&Path>,
    ) -> Result<LineTask, String> {
        let subcommand = self.task.subcommand();
        let no_carton = || Err("--blobs is for cartons, and this output is none".to_owned());
        let mut words: Vec<OsString> =
            ["torch2carton", subcommand, "-"].into_iter().map(OsString::from).collect();
        if self.task == TaskArg::Convert
            && let Some(output) = output
        {
            let mut placeholder = Path::new("--output=output").to_owned();
            placeholder.set_extension(output.extension().unwrap_or_default());
            words.push(placeholder.into());
        }
        words.extend(self.words.iter().map(OsString::from));
        for (name, value) in options {
            push_option(&mut words, name, value)?;
        }
        let command = Cli::command().mut_subcommand(subcommand, |command| command.args_override_self(true));
        let parsed = command.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
        let cli = parsed.map_err(|error| first_line(&error))?;
        let (task, remote) = match cli.command {
            Command::Convert(mut convert) => {
                if convert.each || convert.json || convert.output.is_some() && output.is_none() {
                    return Err("--each, --json and --output are not options of one input".to_owned());
                }
                convert.files.clear();
                let options = convert.options().map_err(|error| errors::error_chain_text(&error))?;
                if self.needs_carton && options.target.kind() != OutputKind::Carton {
                    return no_carton();
                }
                (BatchTask::Convert(Box::new(options)), convert.remote)
            }
            _ if self.needs_carton => return no_carton(),
            Command::Scan(scan) => {
                let mut options = ScanOptions::default();
                options.depth = scan.depth();
                (BatchTask::Scan(options), scan.remote)
            }
            Command::Inspect(inspect) => {
                let options: InspectOptions = inspect.options(Path::new(""));
                (BatchTask::Inspect(Box::new(options)), inspect.remote)
            }
            Command::Digest(digest) => {
                (BatchTask::Digest(Box::new(digest.input(PathBuf::new()))), digest.remote)
            }
            _ => return Err(super::super::OTHER_SUBCOMMAND.to_owned()),
        };
        let copies_documents = matches!(task, BatchTask::Convert(_));
        let open_remote = move |path: &Path| {
            let opened = if copies_documents { remote.open_with_documents(path) } else { remote.open(path) };
            opened.map_err(|error| (remote_kind(&error), errors::error_chain_text(&error)))
        };
        Ok(LineTask { task, open_remote: Box::new(open_remote) })
    }
}

/// Appends an option of a line: true for a flag, a text or a number, or a list of them for an option that is repeated. `false`
/// and `null` leave it out.
fn push_option(words: &mut Vec<OsString>, name: &str, value: &Json) -> Result<(), String> {
    let flag = name.replace('_', "-");
    let is_name = !flag.starts_with('-')
        && flag.len() > 1
        && flag.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !is_name || COMMAND_OPTIONS.contains(&flag.as_str()) {
        return Err(format!("`{}` is not an option of one input", name.escape_debug()));
    }
    match value {
        Json::Null | Json::Bool(false) => {}
        Json::Bool(true) => words.push(format!("--{flag}").into()),
        Json::String(text) => words.push(format!("--{flag}={text}").into()),
        Json::Number(number) => words.push(format!("--{flag}={number}").into()),
        Json::Array(values) => {
            for value in values {
                if value.is_array() {
                    return Err(format!("the option `{name}` has a list in a list"));
                }
                push_option(words, name, value)?;
            }
        }
        Json::Object(_) => {
            return Err(format!(
                "the option `{name}` is an object, expected a text, a number, true or a list"
            ));
        }
    }
    Ok(())
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

    fn parse(task: TaskArg, words: &[&str], options: &str, output: Option<&str>) -> Result<String, String> {
        let flags = TaskFlags {
            task,
            needs_carton: false,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        let options = serde_json::from_str(options).expect("an object");
        flags.parse(&options, output.map(Path::new)).map(|task| format!("{task:?}"))
    }

    #[test]
    fn options_of_a_line_are_added_to_the_flags() {
        let words = ["--dtype", "float16", "--include", "a*"];
        let task = parse(
            TaskArg::Convert,
            &words,
            r#"{"dtype":"bfloat16","include":["b*","c*"],"force":true,"key":null}"#,
            None,
        );
        let task = task.expect("they fit");
        assert!(task.contains(r#"include: ["a*", "b*", "c*"]"#), "{task}");
        assert!(task.contains("BFloat16") && !task.contains("Float16 }, Cast"), "{task}");
        assert!(task.contains("if_exists: Replace,"), "{task}");
        let task = parse(TaskArg::Convert, &[], "{\"max_shard_size\":\"5GB\"}", Some("a/b.safetensors"))
            .expect("they fit");
        assert!(task.contains("Safetensors") && task.contains("5000000000"), "{task}");
        assert!(parse(TaskArg::Digest, &[], "{\"key\":\"ema\"}", None).expect("it fits").contains("\"ema\""));
    }

    #[test]
    fn wrong_options_are_refused() {
        let wrong = |options: &str| parse(TaskArg::Convert, &[], options, None).expect_err("wrong");
        assert_eq!(wrong("{\"jobs\":2}"), "`jobs` is not an option of one input");
        assert_eq!(wrong("{\"-o\":\"x\"}"), "`-o` is not an option of one input");
        assert_eq!(wrong("{\"a b\":true}"), "`a b` is not an option of one input");
        assert!(wrong("{\"dtyp\":\"x\"}").contains("unexpected argument '--dtyp'"));
        assert!(wrong("{\"dtype\":\"x\"}").contains("invalid value 'x'"));
        assert!(wrong("{\"dtype\":{}}").contains("is an object"));
        assert!(parse(TaskArg::Scan, &[], "{\"dtype\":\"float16\"}", None).is_err());
        assert!(parse(TaskArg::Convert, &["--each"], "{}", None).is_err());
    }

    #[test]
    fn a_shard_is_below_the_count() {
        assert_eq!(parse_shard("2/3"), Ok(ManifestShard { index: 2, count: 3 }));
        for text in ["3/3", "0/0", "1", "-1/2", "a/b"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }
}
