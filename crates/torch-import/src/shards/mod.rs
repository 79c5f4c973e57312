//! Merges checkpoints that are split over several files: Meta's model-parallel shards, and sets in which each tensor is
//! whole in one file.
//!
//! Facts: the index files of Hugging Face's `transformers`.

mod equal_shards;
mod model_parallel;

pub use model_parallel::{ModelSizes, merge_model_parallel};

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value};
use tensor::StorageId;

use crate::{Checkpoint, CheckpointItem, CheckpointNote, Error, ItemContent, Problem, Result};

/// One file of a checkpoint that is split over several.
#[derive(Debug)]
pub struct Shard {
    /// Name of the file, for messages.
    pub file: String,
    pub checkpoint: Checkpoint,
}

/// The index of a set of files, which maps tensor names to file names.
#[derive(Clone, Debug)]
pub struct WeightMapIndex {
    /// Name of the index file, for messages.
    name: String,
    /// File names by tensor name.
    files: HashMap<String, String>,
}

impl WeightMapIndex {
    /// Reads the text of a `*.index.json`; `name` is its file name.
    ///
    /// # Errors
    /// When the text is not JSON, has no `weight_map`, or names a file in another folder.
    pub fn from_json(name: &str, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct IndexDocument {
            weight_map: Map<String, Value>,
        }
        let wrong = |reason: String| Problem::Document { file: name.to_owned(), reason };
        let document: IndexDocument = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut files = HashMap::with_capacity(document.weight_map.len());
        for (tensor, file) in document.weight_map {
            let Value::String(file) = file else {
                return Err(
                    wrong(format!("`weight_map` has no file name for `{}`", tensor.escape_debug())).into()
                );
            };
            if file.is_empty() || file == "." || file == ".." || file.contains(['/', '\\', '\0']) {
                let (tensor, file) = (tensor.escape_debug(), file.escape_debug());
                return Err(wrong(format!(
                    "`{tensor}` is in `{file}`, which is not the name of a file in this folder"
                ))
                .into());
            }
            files.insert(tensor, file);
        }
        if files.is_empty() {
            return Err(wrong("`weight_map` is empty".to_owned()).into());
        }
        Ok(Self { name: name.to_owned(), files })
    }

    /// Returns true if it lists a tensor whose name ends like this.
    pub fn lists_end(&self, end: &str) -> bool {
        self.files.keys().any(|name| name.ends_with(end))
    }

    /// Returns the names of the files, sorted.
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.files.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// A checkpoint that was merged from several files.
#[derive(Debug)]
pub struct MergedCheckpoint {
    /// Tensors of all files, and values of the first.
    pub checkpoint: Checkpoint,
    /// Notes about the values that were left out.
    pub notes: Vec<CheckpointNote>,
}

impl MergedCheckpoint {
    /// Starts from the checkpoint of the first file.
    fn new(checkpoint: Checkpoint) -> Self {
        Self { checkpoint, notes: Vec::new() }
    }

    /// Adds the tensors of another file, and a note about its values.
    fn add(&mut self, file: &str, other: Checkpoint) {
        let values = other.notable_values().count();
        let merged = &mut self.checkpoint;
        merged.add_globals(other.globals().iter().cloned());
        merged.left_out.merge(other.left_out);
        merged.unreadable.extend(other.unreadable);
        match (values, self.notes.last_mut()) {
            (0, _) => {}
            (more, Some(CheckpointNote::ValuesLeftOut { files, count })) => {
                files.push(file.to_owned());
                *count = count.saturating_add(more);
            }
            (count, _) => {
                self.notes.push(CheckpointNote::ValuesLeftOut { files: vec![file.to_owned()], count });
            }
        }
        let tensors = other.items.into_iter().filter(|item| !matches!(item.content, ItemContent::Value(_)));
        merged.items.extend(tensors);
    }
}

/// Merges a set of files in which each tensor is whole in one file.
///
/// # Errors
/// When two files hold a tensor of the same name. Tensors about which the index disagrees with the files are listed as unreadable.
pub fn merge_whole_tensors(
    mut shards: Vec<Shard>,
    index: Option<&WeightMapIndex>,
) -> Result<MergedCheckpoint> {
    if index.is_none() && shards.len() == 1 {
        // The names within one file are known to differ.
        return shards.pop().map(|shard| MergedCheckpoint::new(shard.checkpoint)).ok_or_else(empty_set_error);
    }
    let mut holder: HashMap<String, String> = HashMap::new();
    let mut merged: Option<MergedCheckpoint> = None;
    let mut disagreements: Vec<(String, Error)> = Vec::new();
    for Shard { file, checkpoint } in shards {
        if let Some(index) = index {
            disagreements.extend(index.disagreements(&checkpoint, &file));
        }
        for name in listed_tensor_names(&checkpoint) {
            if let Some(first) = holder.insert(name.to_owned(), file.clone()) {
                return Err(Problem::TensorInTwoFiles { tensor: name.to_owned(), first, second: file }.into());
            }
        }
        let Some(merged) = &mut merged else {
            merged = Some(MergedCheckpoint::new(checkpoint));
            continue;
        };
        merged.add(&file, checkpoint);
    }
    let mut merged = merged.ok_or_else(empty_set_error)?;
    if let Some(index) = index {
        let known: HashSet<&String> = merged.checkpoint.unreadable.iter().map(|(name, _)| name).collect();
        let is_missing = |name: &String| !holder.contains_key(name) && !known.contains(name);
        let mut missing: Vec<_> = index.files.iter().filter(|(name, _)| is_missing(name)).collect();
        missing.sort_unstable();
        disagreements.extend(missing.into_iter().map(|(tensor, file)| {
            let (tensor, file, index) = (tensor.clone(), file.clone(), index.name.clone());
            let found = "the file does not have it".to_owned();
            (tensor.clone(), Problem::IndexDisagrees { index, tensor, file, found }.into())
        }));
    }
    merged.checkpoint.unreadable.extend(disagreements);
    Ok(merged)
}

/// Returns the names of the tensors; a compound tensor counts as one.
fn listed_tensor_names(checkpoint: &Checkpoint) -> impl Iterator<Item = &str> {
    let tensors = checkpoint.items.iter().filter(|item| !matches!(item.content, ItemContent::Value(_)));
    tensors.map(|item| item.name.as_str())
}

impl WeightMapIndex {
    /// Returns the tensors of a file that the index does not list for it, each with the error. Of tensors that share a storage, the
    /// index may list only one.
    fn disagreements(&self, checkpoint: &Checkpoint, file: &str) -> Vec<(String, Error)> {
        let mut found = Vec::new();
        let is_listed = |item: &&CheckpointItem| self.files.contains_key(&item.name);
        let mut listed: Option<HashSet<StorageId>> = None;
        for item in &checkpoint.items {
            let (index, tensor) = (self.name.clone(), item.name.clone());
            match (&item.content, self.files.get(&item.name)) {
                (ItemContent::Value(_), _) => {}
                (_, Some(holder)) if holder != file => {
                    let (name, place) = (tensor.clone(), format!("it is in {file}"));
                    let problem =
                        Problem::IndexDisagrees { index, tensor, file: holder.clone(), found: place };
                    found.push((name, problem.into()));
                }
                (_, Some(_)) => {}
                (content, None) => {
                    let listed = listed.get_or_insert_with(|| {
                        checkpoint
                            .items
                            .iter()
                            .filter(is_listed)
                            .filter_map(|it| storage(&it.content))
                            .collect()
                    });
                    if !storage(content).is_some_and(|storage| listed.contains(&storage)) {
                        let problem = Problem::Unlisted { file: file.to_owned(), tensor, index };
                        found.push((item.name.clone(), problem.into()));
                    }
                }
            }
        }
        found
    }
}

fn storage(content: &ItemContent) -> Option<StorageId> {
    match content {
        ItemContent::Tensor(tensor) => Some(tensor.storage().id()),
        _ => None,
    }
}

/// Builds the error for a set without files.
fn empty_set_error() -> Error {
    Problem::Document { file: "the set".to_owned(), reason: "it has no files".to_owned() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_stays_in_its_folder() {
        let read = |text: &str| WeightMapIndex::from_json("i.json", text).map_err(|error| error.to_string());
        let index = read(r#"{"metadata": {}, "weight_map": {"a": "2.bin", "b": "1.bin", "c": "2.bin"}}"#);
        assert_eq!(index.expect("right").files(), ["1.bin", "2.bin"]);
        let error = |text: &str| read(text).expect_err("wrong");
        assert_eq!(
            error(r#"{"weight_map": {"a": "../x.bin"}}"#),
            "i.json: `a` is in `../x.bin`, which is not the name of a file in this folder"
        );
        assert_eq!(error(r#"{"weight_map": {"a": 7}}"#), "i.json: `weight_map` has no file name for `a`");
        assert_eq!(error(r#"{"weight_map": {}}"#), "i.json: `weight_map` is empty");
        assert!(error("{}").starts_with("i.json: missing field `weight_map`"));
    }
}
