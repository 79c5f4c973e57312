//! Tensors that a selection without options leaves out.

use tensor::Tensor;

use super::select::SelectionKey;
use crate::weights::optimizers::Optimizers;
use crate::{Model, Note};

impl Model {
    /// Adds the tensors that the selection left out because they are not under the key of the weights, except those of optimizers. They
    /// get their full names. A comparison needs them: two files with equal weights may differ elsewhere.
    pub fn add_left_out(&mut self) {
        let checkpoint = &self.checkpoint;
        let mut notes = self.notes.iter_mut();
        let Some((key, left_out)) = notes.find_map(|note| match note {
            Note::UsingKey { key, left_out, .. } => Some((key, left_out)),
            _ => None,
        }) else {
            return;
        };
        let rule = SelectionKey::from_option(key, checkpoint);
        let optimizers = Optimizers::find(|| checkpoint.items.iter(), &checkpoint.optimizer_keys);
        let copy = checkpoint.copy_key.as_deref();
        let outside = checkpoint.items.iter().filter(|item| {
            let is_copy = copy.is_some() && item.root_key() == copy;
            rule.below(item, &item.name).is_none() && !optimizers.include(&item.name) && !is_copy
        });
        let outside: Vec<(String, Tensor)> = outside
            .flat_map(|item| item.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone())))
            .collect();
        left_out.retain(|(key, ..)| {
            let is_of = |name: &str| match name.strip_prefix(key.as_str()) {
                Some(_) if key.is_empty() => !name.contains('.'),
                rest => rest.is_some_and(|rest| rest.starts_with('.')),
            };
            !outside.iter().any(|(name, _)| is_of(name))
        });
        let mut tensors = self.take_tensors();
        for (name, tensor) in outside {
            let name = if tensors.contains(&name) { format!("{name} (left out)") } else { name };
            tensors.push(name, tensor);
        }
        self.set_tensors(tensors, None);
    }
}
