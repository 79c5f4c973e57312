//! Jobs of a batch, read from its manifest one at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use byte_source::FileError;
use foldhash::{HashMap, HashMapExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::index::TextIndex;
use crate::input_key::input_key;
use crate::manifest::ManifestReader;
use crate::results::EarlierResults;
use crate::{BatchJob, ManifestEntry, ManifestProblem, Problem, Result, Resume, Task};

/// Number of different options whose tasks are kept.
const TASKS_MAX: usize = 64;

/// Function that makes a task of the options of a line, and of the path of its output. Only the extension of the path counts.
pub type TaskParser = dyn Fn(&Map<String, Json>, Option<&Path>) -> Result<Arc<dyn Task>, String> + Send;

/// Part of a manifest: the entries whose number, divided by `count`, leaves `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ManifestShard {
    pub index: u64,
    pub count: u64,
}

/// Parses `INDEX/COUNT`.
impl FromStr for ManifestShard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        let shard = numbers.map(|(index, count): (u64, u64)| Self { index, count });
        shard.filter(|shard| shard.index < shard.count).ok_or("expected I/N, such as 0/8, with I below N")
    }
}

impl TryFrom<String> for ManifestShard {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ManifestShard> for String {
    fn from(shard: ManifestShard) -> Self {
        format!("{}/{}", shard.index, shard.count)
    }
}

/// Options of a batch, besides those of its tasks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchSettings {
    /// Path of the manifest; `-` is standard input.
    pub manifest: PathBuf,
    /// True if the caller gives the lines, with [`Batch::job_of_line`](crate::Batch::job_of_line), and `manifest` is only the
    /// name of their source.
    pub has_pushed_lines: bool,
    /// File of results, if there is one.
    pub results: Option<PathBuf>,
    /// Results and outputs of an earlier batch that are kept.
    pub resume: Resume,
    /// Folder of outputs without a path of their own.
    pub folder: Option<PathBuf>,
    pub shard: Option<ManifestShard>,
}

impl BatchSettings {
    /// Creates settings for all entries of `manifest`, without a file of results.
    pub fn new(manifest: impl Into<PathBuf>) -> Self {
        Self {
            manifest: manifest.into(),
            has_pushed_lines: false,
            results: None,
            resume: Resume::ConvertAll,
            folder: None,
            shard: None,
        }
    }
}

/// Tasks by the options of lines and the extensions of their outputs, which share one.
pub(crate) struct TaskTable {
    parse: Box<TaskParser>,
    tasks: HashMap<String, Arc<dyn Task>>,
}

impl TaskTable {
    pub(crate) fn new(parse: Box<TaskParser>) -> Self {
        Self { parse, tasks: HashMap::new() }
    }

    /// Returns the task of an entry.
    ///
    /// # Errors
    /// When the task does not have an option, or writes no file and the entry names one.
    pub(crate) fn task(&mut self, entry: &ManifestEntry) -> Result<Arc<dyn Task>, ManifestProblem> {
        let output = entry.output.as_deref().map(Path::new);
        let extension = output.map(Path::extension);
        let key = format!("{} {extension:?}", Json::Object(entry.options.clone()));
        if let Some(task) = self.tasks.get(&key) {
            return Ok(Arc::clone(task));
        }
        let task = (self.parse)(&entry.options, output).map_err(ManifestProblem::Invalid)?;
        if self.tasks.len() >= TASKS_MAX {
            self.tasks.clear();
        }
        self.tasks.insert(key, Arc::clone(&task));
        Ok(task)
    }
}

/// Line of a manifest that was checked.
struct SourceLine {
    entry: ManifestEntry,
    task: Arc<dyn Task>,
    /// True if it belongs to the shard.
    is_own: bool,
}

/// Jobs of a batch, in the order of the manifest.
pub(crate) struct JobSource {
    settings: BatchSettings,
    reader: ManifestReader<Box<dyn BufRead + Send>>,
    tasks: TaskTable,
    inputs: TextIndex,
    /// Outputs by the number of the first line that writes them.
    outputs: TextIndex,
    /// True if the lines were checked before.
    is_checked: bool,
    /// Number of entries that were read, of all shards.
    read: u64,
    pub(crate) earlier: Option<EarlierResults>,
}

impl JobSource {
    /// Opens the manifest. The lines of a file are all checked before the first job; those of a pipe are checked as they come.
    /// Returns the number of jobs, if it is known.
    ///
    /// # Errors
    /// When the manifest cannot be read, or one of its lines is refused.
    pub(crate) fn open(
        settings: &BatchSettings,
        parse: Box<TaskParser>,
        earlier: Option<EarlierResults>,
    ) -> Result<(Self, Option<u64>)> {
        let failed = |reason| FileError::Read { path: settings.manifest.clone(), reason };
        let mut source = Self {
            reader: ManifestReader::new(Box::new(io::empty())),
            tasks: TaskTable::new(parse),
            inputs: TextIndex::default(),
            outputs: TextIndex::default(),
            is_checked: false,
            read: 0,
            earlier,
            settings: settings.clone(),
        };
        if settings.has_pushed_lines {
            return Ok((source, None));
        }
        if settings.manifest == Path::new("-") {
            source.reader = ManifestReader::new(Box::new(BufReader::new(io::stdin())));
            return Ok((source, None));
        }
        let mut file = File::open(&settings.manifest).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            source.reader = ManifestReader::new(Box::new(BufReader::new(file)));
            return Ok((source, None));
        }
        let again = file.try_clone().map_err(failed)?;
        source.reader = ManifestReader::new(Box::new(BufReader::new(again)));
        let mut jobs = 0_u64;
        while let Some(line) = source.next_line()? {
            jobs = jobs.saturating_add(u64::from(line.is_own));
        }
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        source.reader = ManifestReader::new(Box::new(BufReader::new(file)));
        source.is_checked = true;
        source.read = 0;
        Ok((source, Some(jobs)))
    }

    /// Returns the next job; `None` at the end of the manifest.
    ///
    /// # Errors
    /// When the next line is refused, or the results of an earlier batch cannot be read.
    pub(crate) fn next_job(&mut self) -> Result<Option<BatchJob>> {
        while let Some(SourceLine { entry, task, is_own }) = self.next_line()? {
            if is_own {
                let earlier = match &mut self.earlier {
                    Some(earlier) => earlier.find(&entry.input)?,
                    None => None,
                };
                return Ok(Some(BatchJob::new(entry, task, earlier, &self.settings)));
            }
        }
        Ok(None)
    }

    /// Returns the job of the next line of a manifest whose lines the caller gives; `None` if it is empty, or not in the shard.
    ///
    /// # Errors
    /// Those of [`next_job`](Self::next_job).
    pub(crate) fn job_of_line(&mut self, line: &str) -> Result<Option<BatchJob>> {
        self.reader.go_on_with(Box::new(io::Cursor::new(line.as_bytes().to_vec())));
        self.next_job()
    }

    /// Returns true if the manifest has the input. All lines have been read.
    ///
    /// # Errors
    /// When a temporary file cannot be read.
    pub(crate) fn has(&mut self, input: &str) -> Result<bool> {
        Ok(self.inputs.get(&input_key(input)).map_err(Problem::Index)?.is_some())
    }

    fn next_line(&mut self) -> Result<Option<SourceLine>> {
        let read = self.reader.next_entry().and_then(|entry| {
            let Some(entry) = entry else { return Ok(None) };
            let task = self.tasks.task(&entry)?;
            Ok(Some((entry, task)))
        });
        let line = self.reader.line();
        let manifest = &self.settings.manifest;
        let refused = |problem| Problem::Manifest { path: manifest.clone(), line, problem };
        let Some((entry, task)) = read.map_err(refused)? else { return Ok(None) };
        let number = self.read;
        self.read = self.read.saturating_add(1);
        if !self.is_checked
            && let Some(problem) = self.find_repeated(&entry, &*task, line).map_err(Problem::Index)?
        {
            return Err(Problem::Manifest { path: self.settings.manifest.clone(), line, problem }.into());
        }
        let is_own =
            self.settings.shard.is_none_or(|shard| number.checked_rem(shard.count) == Some(shard.index));
        Ok(Some(SourceLine { entry, task, is_own }))
    }

    /// Returns the problem that an earlier line has the same input or output.
    fn find_repeated(
        &mut self,
        entry: &ManifestEntry,
        task: &dyn Task,
        line: u64,
    ) -> io::Result<Option<ManifestProblem>> {
        if let Some(first) = self.inputs.insert(&input_key(&entry.input), line)? {
            return Ok(Some(ManifestProblem::SameInput { input: entry.input.clone(), first }));
        }
        let folder = self.settings.folder.as_deref().filter(|_| entry.output.is_none());
        let Some(output) = task.expected_output(entry, folder) else { return Ok(None) };
        let output = output.display().to_string();
        let first = self.outputs.insert(&input_key(&output), line)?;
        Ok(first.map(|first| ManifestProblem::SameOutput { output, first }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_below_the_count() {
        assert_eq!("2/3".parse(), Ok(ManifestShard { index: 2, count: 3 }));
        for text in ["3/3", "0/0", "1", "-1/2", "a/b"] {
            assert!(text.parse::<ManifestShard>().is_err(), "{text}");
        }
    }
}
