//! Statistics of the tensors of an inspection.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use byte_source::{Action, Observer, ProgressUpdate};
use foldhash::{HashMap, HashMapExt};
use open::{Result, complex, float};
use pickle_vm::PickleLimits;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use tensor::{Budget, ElementValue, RecordChecks, TensorStatistics, ViewId};

use crate::{RowView, TensorRow};

/// Statistics of the elements of a row, where they were requested and exist.
#[derive(Clone, Debug, Default)]
pub enum RowStatistics {
    /// The options do not ask for statistics.
    #[default]
    NotRequested,
    /// The elements are not numbers, the row is not a single view, or the views of the file repeat more bytes of their
    /// storages than [`PickleLimits`] allows. `null` in JSON.
    None,
    Known(Arc<TensorStatistics>),
}

impl RowStatistics {
    /// Returns the statistics if they are known.
    pub fn known(&self) -> Option<&TensorStatistics> {
        match self {
            Self::Known(statistics) => Some(statistics),
            Self::NotRequested | Self::None => None,
        }
    }
}

impl Serialize for RowStatistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Some(statistics) = self.known() else { return serializer.serialize_none() };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &statistics.count)?;
        map.serialize_entry("min", &statistics.min.map(element_json))?;
        map.serialize_entry("max", &statistics.max.map(element_json))?;
        map.serialize_entry("mean", &statistics.mean.map(element_json))?;
        map.serialize_entry("std", &statistics.std.map(float))?;
        map.serialize_entry("zeros", &statistics.zeros)?;
        map.serialize_entry("nan", &statistics.nan)?;
        map.serialize_entry("inf", &statistics.infinite)?;
        if let Some(histogram) = &statistics.histogram {
            let json = serde_json::json!({
                "min": float(histogram.min), "max": float(histogram.max), "counts": histogram.counts,
            });
            map.serialize_entry("histogram", &json)?;
        }
        map.end()
    }
}

/// Returns an element as JSON: a number, or an object for a number that is complex or not finite.
fn element_json(value: ElementValue) -> Json {
    match value {
        ElementValue::Real(number) => float(number),
        ElementValue::Complex(re, im) => complex(re, im),
    }
}

/// Computes the statistics of all rows, those of a view with several names once. `nbytes` is the length of the files.
///
/// # Errors
/// When a tensor cannot be read, or `observer` stops the work.
pub(crate) fn add_statistics(
    rows: &mut [TensorRow],
    with_histograms: bool,
    file: &Path,
    nbytes: u64,
    observer: &dyn Observer,
) -> Result<()> {
    let mut budget = Budget::new(PickleLimits::default().repeat_budget(nbytes));
    let mut known: HashMap<ViewId, RowStatistics> = HashMap::new();
    let tensors = || {
        rows.iter().filter_map(|row| match &row.view {
            RowView::Strided(tensor) => Some(tensor),
            RowView::Packed(_) | RowView::Shape(_) => None,
        })
    };
    // Numbers of a damaged record would say what the weights are not.
    RecordChecks::new(tensors()).verify(observer).map_err(|error| error.in_file(file))?;
    // Each byte is read twice: for the mean, and for the deviations from it.
    let total = tensors().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.nbytes().saturating_mul(2)));
    let (name, done) = (output::file_name(file), AtomicU64::new(0));
    let on_window = |bytes: u64| {
        observer.check()?;
        let done = done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        observer.progress(ProgressUpdate { name: &name, action: Action::Verify, done, total: Some(total) });
        Ok::<(), byte_source::Error>(())
    };
    for row in rows {
        let RowView::Strided(tensor) = &row.view else {
            row.statistics = RowStatistics::None;
            continue;
        };
        let view = tensor.view_id();
        if let Some(statistics) = known.get(&view) {
            row.statistics = statistics.clone();
            continue;
        }
        row.statistics = RowStatistics::None;
        if budget.spend(tensor) {
            let statistics = tensor
                .statistics(with_histograms, &on_window)
                .map_err(|error| error.in_tensor(&row.name).in_file(file))?;
            if let Some(statistics) = statistics {
                row.statistics = RowStatistics::Known(Arc::new(statistics));
            }
        } else if row.note.is_none() {
            row.note = Some("no statistics: an expanded view repeats its storage too often".into());
        }
        known.insert(view, row.statistics.clone());
    }
    Ok(())
}
