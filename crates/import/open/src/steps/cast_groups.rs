//! Groups the tensors to cast by storage and dtype, so that each storage is cast once and shared memory stays shared.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tensor::{CastNumbers, Dtype, DtypeConversion, Storage, StorageId, Tensor, ViewedRanges};

use super::cast_options::target_dtype;
use crate::{Cast, Error, Problem, Result};

/// Casts from one dtype to another.
#[derive(Debug)]
pub(super) struct CastRow {
    pub(super) conversion: DtypeConversion,
    pub(super) tensors: usize,
    /// Lazily cast storages of the tensors.
    pub(super) casts: Vec<Arc<CastNumbers>>,
}

/// Storages of the tensors, and the groups of tensors to cast.
#[derive(Default)]
pub(super) struct CastGroups {
    /// Common dtype of the tensors over each storage; `None` if the dtypes differ.
    dtypes: HashMap<StorageId, Option<Dtype>>,
    /// Groups to cast, in the order of their first tensor.
    casts: Vec<CastGroup>,
    group_positions: HashMap<(StorageId, Dtype), usize>,
}

/// Tensors of one dtype over one storage.
struct CastGroup {
    storage: Storage,
    dtype: Dtype,
    /// Range of elements and name of each tensor.
    views: Vec<(Range<u64>, Arc<str>)>,
}

impl CastGroups {
    pub(super) fn record_dtype(&mut self, tensor: &Tensor) {
        let dtype = self.dtypes.entry(tensor.storage().id()).or_insert(Some(tensor.dtype()));
        if *dtype != Some(tensor.dtype()) {
            *dtype = None;
        }
    }

    pub(super) fn add(&mut self, name: &str, tensor: &Tensor) {
        let (storage, dtype) = (tensor.storage(), tensor.dtype());
        let place = *self.group_positions.entry((storage.id(), dtype)).or_insert_with(|| {
            self.casts.push(CastGroup { storage: storage.clone(), dtype, views: Vec::new() });
            self.casts.len().saturating_sub(1)
        });
        if let Some(group) = self.casts.get_mut(place).filter(|_| tensor.numel() > 0) {
            let element = |bytes: u64| bytes.checked_div(dtype.size()).unwrap_or(0);
            let span = tensor.span();
            group.views.push((element(span.start)..element(span.end), name.into()));
        }
    }

    /// Casts the storage of each group once.
    pub(super) fn cast_storages(self, casts: &[Cast]) -> Result<CastStorages> {
        let mut made = CastStorages { rows: Vec::new(), storages: HashMap::with_capacity(self.casts.len()) };
        for group in self.casts {
            let CastGroup { storage, dtype, mut views } = group;
            let cannot = |views: &[(Range<u64>, Arc<str>)]| {
                let to = target_dtype(casts, dtype).unwrap_or(dtype);
                let name = views.first().map_or("", |(_, name)| name);
                Error::from(Problem::CannotCast { from: dtype, to }).in_tensor(name)
            };
            let conversion = target_dtype(casts, dtype).and_then(|to| DtypeConversion::new(dtype, to));
            let conversion = conversion.ok_or_else(|| cannot(&views))?;
            let is_alone = self.dtypes.get(&storage.id()).is_some_and(Option::is_some);
            let range = if is_alone {
                0..storage.len().checked_div(dtype.size()).unwrap_or(0)
            } else {
                // The rest of the storage belongs to tensors of other dtypes.
                let start = views.iter().map(|(range, _)| range.start).min().unwrap_or(0);
                start..views.iter().map(|(range, _)| range.end).max().unwrap_or(0)
            };
            for (view, _) in &mut views {
                *view = view.start.saturating_sub(range.start)..view.end.saturating_sub(range.start);
            }
            let error = cannot(&views);
            let cast =
                CastNumbers::new(&storage, conversion, &range, ViewedRanges::new(views)).ok_or(error)?;
            let cast = Arc::new(cast);
            let known = made.rows.iter().position(|row| row.conversion == conversion);
            let number = known.unwrap_or(made.rows.len());
            if known.is_none() {
                made.rows.push(CastRow { conversion, tensors: 0, casts: Vec::new() });
            }
            if let Some(row) = made.rows.get_mut(number) {
                row.casts.push(Arc::clone(&cast));
            }
            made.storages.insert(
                (storage.id(), dtype),
                CastStorage { row: number, storage: Storage::computed(cast), range },
            );
        }
        Ok(made)
    }
}

/// Cast storages, by original storage and dtype.
pub(super) struct CastStorages {
    pub(super) rows: Vec<CastRow>,
    storages: HashMap<(StorageId, Dtype), CastStorage>,
}

struct CastStorage {
    row: usize,
    storage: Storage,
    /// Range of original elements that the storage contains.
    range: Range<u64>,
}

impl CastStorages {
    /// Returns the cast tensor; `None` if the tensor keeps its dtype.
    pub(super) fn cast_tensor(&mut self, name: &str, tensor: &Tensor) -> Result<Option<Tensor>> {
        let Some(made) = self.storages.get(&(tensor.storage().id(), tensor.dtype())) else { return Ok(None) };
        let Some(row) = self.rows.get_mut(made.row) else { return Ok(None) };
        row.tensors = row.tensors.saturating_add(1);
        let offset = tensor.storage_offset().saturating_sub(made.range.start);
        // An empty tensor may have any offset, even past the end.
        let len = made.range.end.saturating_sub(made.range.start);
        let offset = if tensor.numel() == 0 { offset.min(len) } else { offset };
        let (from, to) = (row.conversion.from(), row.conversion.to());
        let cast = tensor.with_storage(to, offset, made.storage.clone());
        cast.map(Some).map_err(|_| Error::from(Problem::CannotCast { from, to }).in_tensor(name))
    }
}
