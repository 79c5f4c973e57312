//! Checkpoints that are put together from tensors and values of several files, as the trainers of large models write them.

use tensor::Tensor;

use crate::checkpoint::find_duplicate_name;
use crate::item::KeyEnds;
use crate::{
    Checkpoint, CheckpointItem, CheckpointValue, Global, ItemContent, PickledObjects, Problem, Result,
};

/// Name of an item in a checkpoint that is put together, and the ends of its first two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPath {
    name: String,
    /// Positions in the name at which its first two parts end, if these are keys of dicts.
    ends: [Option<usize>; 2],
}

/// A checkpoint to which tensors, values and whole checkpoints are added.
#[derive(Debug, Default)]
pub struct CheckpointAssembly {
    checkpoint: Checkpoint,
}

impl ItemPath {
    /// Creates a path of one part, of which nothing is known to be a key.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ends: [None; 2] }
    }

    /// Creates the path of nested dicts: the keys, joined by dots.
    pub fn from_keys<K: AsRef<str>>(keys: &[K]) -> Self {
        let (mut name, mut ends) = (String::new(), [None; 2]);
        for (part, key) in keys.iter().enumerate() {
            if part > 0 {
                name.push('.');
            }
            name.push_str(key.as_ref());
            if let Some(end) = ends.get_mut(part) {
                *end = Some(name.len());
            }
        }
        Self { name, ends }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn key_ends(&self) -> KeyEnds {
        let mut keys = KeyEnds::NONE;
        for (part, end) in self.ends.iter().enumerate() {
            keys.set(part, *end);
        }
        keys
    }
}

impl CheckpointAssembly {
    /// Creates an empty checkpoint.
    pub fn new() -> Self {
        Self { checkpoint: Checkpoint::default() }
    }

    /// Adds a tensor.
    pub fn push_tensor(&mut self, path: &ItemPath, tensor: Tensor) {
        let (name, content) = (path.name.clone(), ItemContent::Tensor(tensor));
        self.checkpoint.items.push(CheckpointItem { name, content, keys: path.key_ends() });
    }

    /// Adds the tensors and values of a checkpoint under a path. An item at the root of the checkpoint gets the path
    /// itself as its name. Under the empty path, the items keep their names.
    pub fn push_checkpoint(&mut self, path: &ItemPath, checkpoint: Checkpoint) {
        let keys = path.key_ends();
        let globals = checkpoint.globals().to_vec();
        let first = u32::try_from(self.checkpoint.pickles.len()).unwrap_or(u32::MAX);
        for CheckpointItem { name, mut content, keys: own } in checkpoint.items {
            if let ItemContent::Value(CheckpointValue::Object { pickle, .. }) = &mut content {
                *pickle = pickle.saturating_add(first);
            }
            let (name, keys) = match (path.name.is_empty(), name.is_empty()) {
                (true, _) => (name, own),
                (false, true) => (path.name.clone(), keys),
                (false, false) => (format!("{}.{name}", path.name), keys),
            };
            self.checkpoint.items.push(CheckpointItem { name, content, keys });
        }
        self.checkpoint.add_globals(globals);
        self.checkpoint.pickles.extend(checkpoint.pickles);
        self.checkpoint.left_out.merge(checkpoint.left_out);
        for note in checkpoint.notes {
            if !self.checkpoint.notes.contains(&note) {
                self.checkpoint.notes.push(note);
            }
        }
    }

    /// Adds the globals of a pickle whose objects are not items.
    pub fn add_globals_of(&mut self, objects: &PickledObjects) {
        self.checkpoint.add_globals(Global::all(objects.heap()));
    }

    /// Sets the keys under which the trainer keeps the state of its optimizer.
    pub fn set_optimizer_keys(&mut self, keys: Vec<String>) {
        self.checkpoint.optimizer_keys = keys;
    }

    /// Sets the key under which the trainer keeps the weights once more.
    pub fn set_copy_key(&mut self, key: String) {
        self.checkpoint.copy_key = Some(key);
    }

    /// Returns the checkpoint.
    ///
    /// # Errors
    /// When two items have the same name.
    pub fn finish(self) -> Result<Checkpoint> {
        if let Some((name, _)) = find_duplicate_name(&self.checkpoint.items) {
            return Err(Problem::DuplicateInParts { name }.into());
        }
        Ok(self.checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_joined_by_dots_and_stay_keys() {
        let tensor = || {
            Tensor::new(tensor::Dtype::UInt8, vec![1], vec![1], 0, tensor::Storage::owned(vec![1]))
                .expect("a byte")
        };
        let mut assembly = CheckpointAssembly::new();
        assembly.push_tensor(&ItemPath::from_keys(&["model", "layers.0", "w"]), tensor());
        assembly.push_tensor(&ItemPath::new("flat.w"), tensor());
        let checkpoint = assembly.finish().expect("the names differ");
        let item = &checkpoint.items[0];
        assert_eq!(
            (item.name.as_str(), item.root_key(), item.second_key()),
            ("model.layers.0.w", Some("model"), Some("model.layers.0"))
        );
        assert_eq!(checkpoint.items[1].root_key(), None);
    }

    #[test]
    fn two_items_of_one_name_are_refused() {
        let tensor = Tensor::new(tensor::Dtype::UInt8, vec![1], vec![1], 0, tensor::Storage::owned(vec![1]))
            .expect("a byte");
        let mut assembly = CheckpointAssembly::new();
        assembly.push_tensor(&ItemPath::from_keys(&["a", "b"]), tensor.clone());
        assembly.push_tensor(&ItemPath::new("a.b"), tensor);
        assert_eq!(
            assembly.finish().expect_err("twice").to_string(),
            "two parts of the checkpoint have the name `a.b`"
        );
    }
}
