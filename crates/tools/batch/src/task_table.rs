//! Tasks of the options of lines. Lines with the same options share one.

use std::path::Path;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use serde_json::{Map, Value as Json};

use crate::{BatchTask, LineTask, ManifestEntry, ManifestProblem};

/// Number of different options whose tasks are kept.
const TASKS_MAX: usize = 64;

/// Function that makes a task of the options of a line, and of the path of its output. Only the extension of the path counts.
pub type TaskParser = dyn Fn(&Map<String, Json>, Option<&Path>) -> Result<LineTask, String> + Send;

/// Tasks by the options and the extension of the output.
pub(crate) struct TaskTable {
    parse: Box<TaskParser>,
    tasks: HashMap<String, Arc<LineTask>>,
}

impl TaskTable {
    pub(crate) fn new(parse: Box<TaskParser>) -> Self {
        Self { parse, tasks: HashMap::new() }
    }

    /// Returns the task of an entry.
    ///
    /// # Errors
    /// When the task does not have an option, or writes no file and the entry names one.
    pub(crate) fn task(&mut self, entry: &ManifestEntry) -> Result<Arc<LineTask>, ManifestProblem> {
        let output = entry.output.as_deref().map(Path::new);
        let extension =
            output.and_then(Path::extension).map(|extension| extension.to_string_lossy().into_owned());
        let key = format!("{} {} {extension:?}", Json::Object(entry.options.clone()), output.is_some());
        if let Some(task) = self.tasks.get(&key) {
            return Ok(Arc::clone(task));
        }
        let task = (self.parse)(&entry.options, output).map_err(ManifestProblem::Option)?;
        if output.is_some() && !matches!(task.task, BatchTask::Convert(_)) {
            let text = "`output` is for conversions, and this task writes no file".to_owned();
            return Err(ManifestProblem::Option(text));
        }
        if self.tasks.len() >= TASKS_MAX {
            self.tasks.clear();
        }
        let task = Arc::new(task);
        self.tasks.insert(key, Arc::clone(&task));
        Ok(task)
    }
}
