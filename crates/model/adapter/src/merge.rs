//! Merges adapters into the tensors of their base.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tensor::{Tensor, Tensors, ViewId};

use crate::adapter_merge::AdapterMerge;
use crate::change::ChangedTensor;
use crate::low_rank::{FactorCache, LowRankUpdate};
use crate::{AdapterConfig, AdapterReport, Error, Result};

/// Adapter that was read, with a factor for all of its products.
#[derive(Clone, Debug)]
pub struct Adapter {
    path: String,
    pub(crate) config: AdapterConfig,
    pub(crate) tensors: Tensors,
    pub(crate) weight: f64,
}

impl Adapter {
    /// Creates an adapter of the text of `adapter_config.json` and its tensors. `path` names it in reports.
    ///
    /// # Errors
    /// When the document is not one of a LoRA adapter, or there are no tensors.
    pub fn new(path: impl Into<String>, config: &str, tensors: Tensors, weight: f64) -> Result<Self> {
        if tensors.is_empty() {
            return Err(Error::Empty);
        }
        Ok(Self { path: path.into(), config: AdapterConfig::from_json(config)?, tensors, weight })
    }
}

/// Report of a merge, complete when the merged tensors have been read.
#[derive(Debug)]
pub struct MergeReports {
    reports: Vec<AdapterReport>,
    /// Computations that know the norm of their change after they were read, with their places in the reports.
    computed: Vec<(usize, usize, Arc<LowRankUpdate>)>,
}

impl MergeReports {
    /// Returns the reports. `is_written` says that all merged tensors were read.
    pub fn into_reports(mut self, is_written: bool) -> Vec<AdapterReport> {
        for (report, row, update) in self.computed {
            let row = self.reports.get_mut(report).and_then(|report| report.merged.get_mut(row));
            if let Some(row) = row.filter(|_| is_written) {
                row.norm = update.computed_norm();
            }
        }
        for report in &mut self.reports {
            report.merged.sort_by_key(|row| row.position);
        }
        self.reports
    }
}

/// Merges `adapters` into `base`, one after the other. Tensors that share their elements keep sharing them.
///
/// # Errors
/// When a tensor of an adapter has no counterpart in the base, has another shape, is not used completely, or cannot be read.
pub fn merge(base: &Tensors, adapters: &[Adapter]) -> Result<(Tensors, MergeReports)> {
    let mut merge = Merge::new(base);
    for adapter in adapters {
        merge.add_adapter(adapter)?;
    }
    let Merge { changed, groups, cache, reports, added, .. } = merge;
    let mut results: HashMap<usize, Tensor> = HashMap::new();
    for (position, mut tensor) in changed {
        tensor.evaluate(None, &cache)?;
        results.insert(position, tensor.tensor().clone());
    }
    let mut merged = base.clone();
    for ((_, tensor), group) in merged.tensors_mut().zip(groups) {
        if let Some(result) = results.get(&group) {
            *tensor = result.clone();
        }
    }
    merged.extend(added);
    Ok((merged, reports))
}

/// State of a merge.
pub(crate) struct Merge<'b> {
    pub(crate) base: &'b Tensors,
    /// For each tensor, the position of the first tensor that views the same elements.
    groups: Vec<usize>,
    changed: BTreeMap<usize, ChangedTensor>,
    cache: FactorCache,
    reports: MergeReports,
    /// Tensors that the base does not have.
    added: Vec<(String, Tensor)>,
}

impl<'b> Merge<'b> {
    fn new(base: &'b Tensors) -> Self {
        let mut first: HashMap<ViewId, usize> = HashMap::with_capacity(base.len());
        let views = base.iter().map(|(_, tensor)| tensor.view_id()).enumerate();
        let groups = views.map(|(position, view)| *first.entry(view).or_insert(position)).collect();
        let reports = MergeReports { reports: Vec::new(), computed: Vec::new() };
        Self {
            base,
            groups,
            changed: BTreeMap::new(),
            cache: FactorCache::default(),
            reports,
            added: Vec::new(),
        }
    }

    fn add_adapter(&mut self, adapter: &'b Adapter) -> Result<()> {
        let (mut merged, computed) = AdapterMerge::run(adapter, self)?;
        let report = self.reports.reports.len();
        let rows = computed.into_iter().map(|(row, update)| (report, row, update));
        self.reports.computed.extend(rows);
        let base = self.base;
        for row in &mut merged {
            row.position = base.position(&row.name).unwrap_or(usize::MAX);
        }
        self.reports.reports.push(AdapterReport {
            adapter: adapter.path.clone(),
            weight: adapter.weight,
            adapter_tensors: adapter.tensors.len(),
            merged,
        });
        Ok(())
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
}
