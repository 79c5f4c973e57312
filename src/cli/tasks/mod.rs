//! Tasks of `batch`: what the verbs do with an input of a manifest, for the engine in the crate `batch`, which knows no verb.

mod blobs;
mod plan;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::{Failure, ManifestEntry, PlannedTask, Task};
use byte_source::{ErrorKind, Location};
use convert::{CartonOptions, ConvertOptions, InvalidOption, expected_output};
use inspect::{InputOptions, InspectOptions, ScanOptions};
use open::{add_options, changed_options, set_options};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub(crate) use self::blobs::BlobFolder;
use self::plan::PlannedVerb;
use super::args::RemoteArgs;
use super::ui::errors;
use super::ui::located_advice::located_text;

/// Kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskKind {
    /// Convert it, as `torch2carton convert`
    #[default]
    Convert,
    /// Report what it would execute, as `torch2carton scan`
    Scan,
    /// Count its tensors, as `torch2carton inspect`
    Inspect,
    /// Hash its tensors, as `torch2carton digest`
    Digest,
}

/// Verb with its options. The inputs in the options are replaced by those of the manifest.
#[derive(Clone, Debug, Serialize)]
enum Verb {
    Convert(Box<ConvertOptions>),
    Scan(ScanOptions),
    Inspect(Box<InspectOptions>),
    Digest(Box<InputOptions>),
}

impl Verb {
    /// Creates a verb from its options as JSON. Of the path of an output, only the extension counts.
    ///
    /// # Errors
    /// When the verb does not have an option, or a value is wrong.
    fn from_json(
        kind: TaskKind,
        mut options: Map<String, Json>,
        output: Option<&Path>,
    ) -> Result<Self, InvalidOption> {
        if options.contains_key("output") {
            return Err(open::InvalidOption::Unknown { name: "output".to_owned() }.into());
        }
        Ok(match kind {
            TaskKind::Convert => {
                let extension = output.and_then(Path::extension).unwrap_or_default();
                let placeholder = Path::new("output").with_extension(extension).display().to_string();
                options.extend(output.map(|_| ("output".to_owned(), placeholder.into())));
                Self::Convert(Box::new(ConvertOptions::from_json(options)?))
            }
            TaskKind::Scan => Self::Scan(set_options(&ScanOptions::default(), options)?),
            TaskKind::Inspect => Self::Inspect(Box::new(set_options(&InspectOptions::default(), options)?)),
            TaskKind::Digest => Self::Digest(Box::new(set_options(&InputOptions::default(), options)?)),
        })
    }
}

/// Task of lines: a verb with its options, and the way to its inputs.
struct VerbTask {
    verb: Verb,
    /// Settings of the requests, which do not change a result.
    remote: RemoteArgs,
    /// True if a task that does not hash the tensors computes their digest, too.
    has_digest: bool,
    blobs: Option<BlobFolder>,
}

impl fmt::Debug for VerbTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verb.fmt(f)
    }
}

impl VerbTask {
    /// Returns the task and its options as text.
    fn text(&self) -> String {
        let verb = serde_json::to_string(&self.verb).expect("options are texts, numbers and lists");
        format!("{verb} {}", self.has_digest)
    }

    fn locate(&self, path: &Path) -> Result<Location, Failure> {
        let found = match self.verb {
            Verb::Convert(_) => self.remote.locate_with_documents(path),
            _ => self.remote.locate(path),
        };
        found.map_err(|error| {
            let kind = error
                .downcast_ref()
                .map_or(ErrorKind::Input, <remote_source::Error as byte_source::Detail>::kind);
            Failure { kind, text: errors::error_chain_text(&error) }
        })
    }
}

impl Task for VerbTask {
    fn expected_output(&self, entry: &ManifestEntry, folder: Option<&Path>) -> Option<PathBuf> {
        let Verb::Convert(options) = &self.verb else { return None };
        let mut options = options.clone();
        options.output = entry.output.as_ref().map(PathBuf::from);
        Some(expected_output(entry.input.as_ref(), &options, folder))
    }

    fn reads_whole_inputs(&self) -> bool {
        matches!(self.verb, Verb::Scan(_))
    }

    fn plan(
        &self,
        entry: &ManifestEntry,
        folder: Option<&Path>,
    ) -> Result<Box<dyn PlannedTask + '_>, Failure> {
        let input = self.locate(entry.input.as_ref())?;
        Ok(Box::new(PlannedVerb::new(self, input, entry, folder).map_err(failure)?))
    }
}

/// Converts the error of a task, with the advice of the command line.
#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
fn failure(error: byte_source::Error) -> Failure {
    Failure { kind: error.kind(), text: located_text(&error) }
}

/// Task with the options for all inputs.
#[derive(Clone, Debug)]
pub(crate) struct TaskOptions {
    pub(crate) kind: TaskKind,
    pub(crate) has_digest: bool,
    /// Folder for the large files of outputs, which are cartons.
    pub(crate) blobs: Option<BlobFolder>,
    pub(crate) shared: Map<String, Json>,
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
    ) -> Result<Arc<dyn Task>, String> {
        Ok(Arc::new(self.verb_task(options, output)?))
    }

    fn verb_task(&self, options: &Map<String, Json>, output: Option<&Path>) -> Result<VerbTask, String> {
        let mut all = Map::new();
        for given in [&self.shared, options] {
            add_options(&mut all, given.clone());
        }
        let known = changed_options(&RemoteArgs::default(), &());
        let (remote, own) = all.into_iter().partition(|(name, _)| known.contains_key(name));
        let remote: RemoteArgs =
            set_options(&RemoteArgs::default(), remote).map_err(|error| error.to_string())?;
        let mut verb = Verb::from_json(self.kind, own, output).map_err(|error| error.to_string())?;
        if let Verb::Convert(options) = &mut verb {
            remote.locate_others(options).map_err(|error| errors::error_chain_text(&error))?;
        } else if output.is_some() {
            return Err("`output` is for conversions, and this task writes no file".to_owned());
        }
        let writes_cartons =
            matches!(&verb, Verb::Convert(options) if options.target.options::<CartonOptions>().is_some());
        if self.blobs.is_some() && !writes_cartons {
            return Err("--blobs is for cartons, and this output is none".to_owned());
        }
        if self.blobs.is_some() && matches!(&verb, Verb::Convert(options) if options.statement.is_some()) {
            return Err(
                "--blobs changes a carton once it is made, so that no statement is true of it".to_owned()
            );
        }
        Ok(VerbTask { verb, remote, has_digest: self.has_digest, blobs: self.blobs.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: TaskKind, shared: &str, options: &str, output: Option<&str>) -> Result<String, String> {
        let object = |text| serde_json::from_str(text).expect("an object");
        let task = TaskOptions { kind, has_digest: true, blobs: None, shared: object(shared) };
        task.verb_task(&object(options), output.map(Path::new)).map(|task| format!("{task:?}"))
    }

    #[test]
    fn options_of_a_line_are_added_to_those_for_all() {
        let task = parse(
            TaskKind::Convert,
            r#"{"dtype":"float16","include":["a*"]}"#,
            r#"{"dtype":"bfloat16","include":["b*","c*"],"force":true,"key":null}"#,
            None,
        );
        let task = task.expect("they fit");
        assert!(task.contains(r#"include: ["a*", "b*", "c*"]"#), "{task}");
        assert!(task.contains("dtype: Some(Dtype(BFloat16))"), "{task}");
        assert!(task.contains("if_exists: Replace,"), "{task}");
        let task = parse(TaskKind::Convert, "{}", "{\"max-shard-size\":\"5GB\"}", Some("a/b.safetensors"))
            .expect("they fit");
        assert!(task.contains("Safetensors") && task.contains("5000000000"), "{task}");
        assert!(
            parse(TaskKind::Digest, "{}", "{\"key\":\"ema\"}", None).expect("it fits").contains("\"ema\"")
        );
    }

    #[test]
    fn wrong_options_are_refused() {
        let wrong = |options: &str| parse(TaskKind::Convert, "{}", options, None).expect_err("wrong");
        assert_eq!(wrong("{\"jobs\":2}"), "there is no option `jobs`");
        assert_eq!(wrong("{\"output\":\"x\"}"), "there is no option `output`");
        assert_eq!(wrong("{\"dtyp\":\"x\"}"), "there is no option `dtyp`");
        assert!(wrong("{\"dtype\":\"x\"}").starts_with("`dtype`: `x` is not a dtype"));
        assert!(wrong("{\"dtype\":{}}").starts_with("`dtype`: invalid type: map"));
        assert!(parse(TaskKind::Scan, "{}", "{\"dtype\":\"float16\"}", None).is_err());
    }
}
