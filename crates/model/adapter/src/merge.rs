//! Merges adapters into the tensors of their base.

use std::sync::{Arc, OnceLock};

use tensor::Tensors;

use crate::adapter::Adapter;
use crate::adapter_merge::merge_adapter;
use crate::base_changes::BaseChanges;
use crate::{AdapterReport, Result};

/// Report of a merge, complete when the merged tensors have been read.
#[derive(Debug)]
pub struct MergeReports {
    reports: Vec<AdapterReport>,
    /// Norms that are known after the tensors were read, with their places in the reports.
    computed: Vec<(usize, usize, Arc<OnceLock<f64>>)>,
}

impl MergeReports {
    /// Replaces the names of tensors of the base.
    pub fn rename(&mut self, name: impl Fn(&str) -> Option<String>) {
        for row in self.reports.iter_mut().flat_map(|report| &mut report.merged) {
            if let Some(new) = name(&row.name) {
                row.name = new;
            }
        }
    }

    /// Returns the reports. `is_written` says that all merged tensors were read.
    pub fn into_reports(mut self, is_written: bool) -> Vec<AdapterReport> {
        for (report, row, norm) in self.computed {
            let row = self.reports.get_mut(report).and_then(|report| report.merged.get_mut(row));
            if let Some(row) = row.filter(|_| is_written) {
                row.norm = norm.get().copied();
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
    let mut changes = BaseChanges::new(base);
    let mut all = MergeReports { reports: Vec::new(), computed: Vec::new() };
    for adapter in adapters {
        let merged = merge_adapter(adapter, &mut changes);
        let (mut merged, computed) = merged.map_err(|error| error.in_file(adapter.path.as_ref()))?;
        let report = all.reports.len();
        all.computed.extend(computed.into_iter().map(|(row, norm)| (report, row, norm)));
        for row in &mut merged {
            row.position = base.position(&row.name).unwrap_or(usize::MAX);
        }
        all.reports.push(AdapterReport {
            adapter: adapter.path.clone(),
            weight: adapter.weight,
            adapter_tensors: adapter.tensors.len(),
            merged,
        });
    }
    Ok((changes.into_tensors()?, all))
}
