//! The tensors of a base with the changes that all adapters make to them.

use std::collections::{BTreeMap, HashMap};

use tensor::{Tensor, Tensors, ViewId};

use crate::Result;
use crate::change::ChangedTensor;
use crate::factor_cache::FactorCache;

pub(crate) struct BaseChanges<'b> {
    pub(crate) base: &'b Tensors,
    /// For each tensor, the position of the first tensor that views the same elements.
    groups: Vec<usize>,
    changed: BTreeMap<usize, ChangedTensor>,
    cache: FactorCache,
    /// Tensors that the base does not have.
    added: Vec<(String, Tensor)>,
}

impl<'b> BaseChanges<'b> {
    pub(crate) fn new(base: &'b Tensors) -> Self {
        let mut first: HashMap<ViewId, usize> = HashMap::with_capacity(base.len());
        let views = base.iter().map(|(_, tensor)| tensor.view_id()).enumerate();
        let groups = views.map(|(position, view)| *first.entry(view).or_insert(position)).collect();
        Self { base, groups, changed: BTreeMap::new(), cache: FactorCache::default(), added: Vec::new() }
    }

    /// Adds a tensor that the base does not have. That of a later adapter replaces it.
    pub(crate) fn add_tensor(&mut self, name: &str, tensor: &Tensor) {
        self.added.retain(|(known, _)| known != name);
        self.added.push((name.to_owned(), tensor.clone()));
    }

    /// Returns the changes of a tensor of the base, and the cache of the factors.
    pub(crate) fn changed(&mut self, position: usize) -> Option<(&mut ChangedTensor, &FactorCache)> {
        let group = *self.groups.get(position)?;
        let (name, tensor) = self.base.get_index(group)?;
        let changed = self.changed.entry(group).or_insert_with(|| ChangedTensor::new(name, tensor));
        Some((changed, &self.cache))
    }

    /// Returns the base with all changes. Tensors that shared their elements share the changed ones.
    ///
    /// # Errors
    /// When a changed tensor cannot be computed.
    pub(crate) fn into_tensors(self) -> Result<Tensors> {
        let mut results: HashMap<usize, Tensor> = HashMap::new();
        for (position, changed) in self.changed {
            results.insert(position, changed.finish(&self.cache)?);
        }
        let mut merged = self.base.clone();
        for ((_, tensor), group) in merged.tensors_mut().zip(self.groups) {
            if let Some(result) = results.get(&group) {
                *tensor = result.clone();
            }
        }
        merged.extend(self.added);
        Ok(merged)
    }
}
