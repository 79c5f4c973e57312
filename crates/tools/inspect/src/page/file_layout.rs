//! Layout of a file: where each record or storage lies, the gaps between them, and the bytes that no tensor uses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use byte_source::MappedFile;
use serde_json::{Value as Json, json};
use zip_format::ZipIndex;

use crate::InspectReport;

/// Bytes of a storage that tensors view.
struct StorageUse {
    len: u64,
    /// Name of the first tensor.
    name: String,
    tensors: usize,
    spans: Vec<Range<u64>>,
}

/// Returns the parts of the file in order: start, length, kind, name, number of tensors, unused bytes.
pub(crate) fn file_layout(report: &InspectReport, path: &Path) -> Json {
    if !path.is_file() {
        return Json::Null;
    }
    let Ok(file) = MappedFile::open(path).map(Arc::new) else { return Json::Null };
    let mut storages: BTreeMap<u64, StorageUse> = BTreeMap::new();
    for row in &report.tensors {
        let Some(tensor) = row.stored() else { continue };
        let Some(start) = tensor.storage().file_offset() else { continue };
        let used = storages.entry(start).or_insert_with(|| StorageUse {
            len: tensor.storage().len(),
            name: row.name.clone(),
            tensors: 0,
            spans: Vec::new(),
        });
        used.tensors = used.tensors.saturating_add(1);
        used.spans.push(tensor.span());
    }
    let mut parts: Vec<(Range<u64>, &'static str, String, usize, u64)> = Vec::new();
    let index = ZipIndex::read(&*file).ok();
    for entry in index.iter().flat_map(|index| &index.entries) {
        let known = storages.remove(&entry.data.start);
        let (tensors, unused) = known.map_or((0, 0), |mut used| (used.tensors, used.unused()));
        parts.push((entry.data.clone(), "record", entry.name.clone(), tensors, unused));
    }
    parts.sort_by_key(|(range, ..)| range.start);
    let records = parts.len();
    for (start, mut used) in storages {
        let unused = used.unused();
        // A storage inside a record, such as one of a carton's inner archive, is part of the record.
        let known = parts.get(..records).unwrap_or_default();
        let before = known.partition_point(|(range, ..)| range.start <= start).checked_sub(1);
        let is_inside =
            before.and_then(|index| known.get(index)).is_some_and(|(range, ..)| range.contains(&start));
        if !is_inside {
            parts.push((start..start.saturating_add(used.len), "storage", used.name, used.tensors, unused));
        }
    }
    parts.sort_by_key(|(range, ..)| range.start);
    let mut rows = Vec::with_capacity(parts.len().saturating_mul(2));
    let mut end = 0_u64;
    let gap = |from: u64, to: u64| json!([from, to.saturating_sub(from), "gap", "", 0, 0]);
    for (range, kind, name, tensors, unused) in parts {
        if range.start > end {
            rows.push(gap(end, range.start));
        }
        rows.push(json!([range.start, range.end.saturating_sub(range.start), kind, name, tensors, unused]));
        end = end.max(range.end);
    }
    let len = byte_source::Source::len(&*file);
    if end < len {
        rows.push(gap(end, len));
    }
    json!({ "nbytes": len, "parts": rows })
}

impl StorageUse {
    /// Returns the number of bytes of the storage that no tensor's range contains.
    fn unused(&mut self) -> u64 {
        self.spans.sort_by_key(|span| span.start);
        let (mut used, mut end) = (0_u64, 0_u64);
        for span in &self.spans {
            let start = span.start.max(end);
            used = used.saturating_add(span.end.saturating_sub(start));
            end = end.max(span.end);
        }
        self.len.saturating_sub(used)
    }
}
