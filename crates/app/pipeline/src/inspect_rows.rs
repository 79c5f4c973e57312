//! Rows of an inspected checkpoint: one for each tensor, and one for what several tensors form.

use foldhash::{HashMap, HashMapExt};
use tensor::{Dtype, StorageId, Tensor};
use torch_import::{CheckpointItem, CompoundItem, CompoundKind, ItemContent};

use crate::inspect::{RowView, TensorHash, TensorRow};
use crate::row_statistics::RowStatistics;
use crate::values;

/// Creates the rows of all items: one for a quantized tensor, one each for a sparse tensor and its parts.
pub(crate) fn build_rows(items: Vec<CheckpointItem>) -> Vec<TensorRow> {
    let room = items.len();
    let mut rows =
        RowBuilder { storages: HashMap::with_capacity(room), finished_rows: Vec::with_capacity(room) };
    for item in items {
        match &item.content {
            ItemContent::Tensor(tensor) => rows.push_strided(item.name, tensor),
            ItemContent::Compound(compound) => {
                rows.push_compound_row(&item.name, compound);
                if !matches!(compound.kind, CompoundKind::Quantized { .. }) {
                    item.tensors().for_each(|(name, part)| rows.push_strided(name.into_owned(), part));
                }
            }
            ItemContent::Value(_) => {}
        }
    }
    rows.finished_rows
}

/// Returns the tensors behind the rows of an item that have elements, each with the dtype that the row shows.
pub(crate) fn row_tensors(item: &CheckpointItem) -> impl Iterator<Item = (Dtype, &Tensor)> {
    let quantized = quantized_integers(&item.content);
    let others = item.tensors().filter(move |_| quantized.is_none());
    quantized.into_iter().chain(others.map(|(_, tensor)| (tensor.dtype(), tensor)))
}

/// Returns the integer tensor and the dtype of a quantized tensor, which have a common row.
fn quantized_integers(content: &ItemContent) -> Option<(Dtype, &Tensor)> {
    let ItemContent::Compound(compound) = content else { return None };
    let (_, integers) = compound.parts.first()?;
    matches!(compound.kind, CompoundKind::Quantized { .. }).then_some((compound.dtype, integers))
}

struct RowBuilder {
    storages: HashMap<StorageId, usize>,
    finished_rows: Vec<TensorRow>,
}

impl RowBuilder {
    fn push_strided(&mut self, name: String, tensor: &Tensor) {
        let next = self.storages.len();
        let storage = *self.storages.entry(tensor.storage().id()).or_insert(next);
        self.finished_rows.push(TensorRow {
            name,
            dtype: tensor.dtype().name(),
            view: RowView::Strided(tensor.clone()),
            storage: Some(storage),
            nbytes: tensor.nbytes(),
            layout: None,
            quantizer: None,
            quantization: None,
            subclass: None,
            sha256: TensorHash::NotRequested,
            statistics: RowStatistics::NotRequested,
            note: None,
        });
    }

    fn push_compound_row(&mut self, name: &str, compound: &CompoundItem) {
        if let (CompoundKind::Quantized { scheme, axis }, Some((_, integers))) =
            (&compound.kind, compound.parts.first())
        {
            self.push_strided(name.to_owned(), integers);
            if let Some(row) = self.finished_rows.last_mut() {
                row.dtype = compound.dtype.name();
                row.quantizer = Some(Box::new(serde_json::json!({ "scheme": scheme, "axis": axis })));
            }
            return;
        }
        let (layout, note) = match &compound.kind {
            CompoundKind::Sparse { layout } => (Some(layout.clone()), None),
            CompoundKind::Nested => (Some("nested".to_owned()), None),
            CompoundKind::Jagged => (Some("jagged".to_owned()), None),
            CompoundKind::Meta { what } => (None, Some(format!("no data: {what}"))),
            CompoundKind::Subclass { class, shard, .. } => (
                None,
                Some(shard.as_ref().map_or_else(|| class.clone(), |shard| format!("{shard} ({class})"))),
            ),
            CompoundKind::Quantized { .. } => (None, None),
        };
        self.finished_rows.push(TensorRow {
            name: name.to_owned(),
            dtype: compound.dtype.name(),
            view: RowView::Shape(compound.shape.clone()),
            storage: None,
            nbytes: compound.parts.iter().fold(0, |sum, (_, part)| part.nbytes().saturating_add(sum)),
            layout,
            quantizer: None,
            quantization: None,
            subclass: values::subclass(&compound.kind).map(Box::new),
            sha256: TensorHash::NotRequested,
            statistics: RowStatistics::NotRequested,
            note,
        });
    }
}
