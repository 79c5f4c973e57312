//! Rows of an inspected checkpoint: one for each tensor, and one for what several tensors form.

use std::borrow::Cow;

use foldhash::{HashMap, HashMapExt};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use tensor::{StorageId, Tensor, contiguous_strides};
use torch_import::{CheckpointItem, CompoundItem, CompoundKind, ItemContent};

use super::statistics::RowStatistics;
use crate::RowQuantization;

/// Row of the report for one tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TensorRow {
    pub name: String,
    /// PyTorch's name of the dtype.
    pub dtype: &'static str,
    /// Shape, and position of the elements.
    pub view: RowView,
    /// Number of the storage, in order of first use: equal for tensors that share memory, `None` for a row without a storage
    /// of its own.
    pub storage: Option<usize>,
    /// Bytes of the elements.
    pub nbytes: u64,
    /// Layout of a sparse or nested tensor, whose parts are the next rows.
    pub layout: Option<Box<str>>,
    /// Scheme and axis of a quantized tensor.
    pub quantizer: Option<Box<Json>>,
    /// Scheme of a tensor of numbers that are computed from quantized parts.
    pub quantization: Option<Box<RowQuantization>>,
    /// Class, shard and other attributes of a tensor subclass, whose parts are the next rows.
    pub subclass: Option<Box<Json>>,
    /// Hash of the elements in C order, little-endian.
    pub sha256: TensorHash,
    /// Statistics of the elements.
    pub statistics: RowStatistics,
    /// Remark on the tensor, such as the reason of a missing hash.
    pub note: Option<Box<str>>,
}

/// Position of the elements of a row.
#[derive(Clone, Debug)]
pub enum RowView {
    /// View of a storage; the tensor shares the mapping of the file.
    Strided(Tensor),
    /// Bytes of a whole tensor that have several elements each, and its shape in elements.
    Packed(Box<(Tensor, Vec<u64>)>),
    /// Shape in elements, for a row whose elements are in the next rows, or that has none.
    Shape(Vec<u64>),
}

impl TensorRow {
    /// Returns the shape in elements.
    pub fn shape(&self) -> &[u64] {
        match &self.view {
            RowView::Strided(tensor) => tensor.shape(),
            RowView::Packed(packed) => &packed.1,
            RowView::Shape(shape) => shape,
        }
    }

    /// Returns the bytes of the elements, or of the stored parts of quantized ones.
    pub fn stored_nbytes(&self) -> u64 {
        self.quantization.as_ref().map_or(self.nbytes, |quantization| quantization.nbytes)
    }

    /// Returns the stored elements, or the bytes that they are packed in; `None` if the row is not a single view.
    pub fn stored(&self) -> Option<&Tensor> {
        match &self.view {
            RowView::Strided(tensor) => Some(tensor),
            RowView::Packed(packed) => Some(&packed.0),
            RowView::Shape(_) => None,
        }
    }

    /// Returns the stride in elements; empty if the row is not a single view.
    pub fn stride(&self) -> Cow<'_, [u64]> {
        match &self.view {
            RowView::Strided(tensor) => tensor.stride().into(),
            RowView::Packed(packed) => contiguous_strides(&packed.1).into(),
            RowView::Shape(_) => Cow::Borrowed(&[]),
        }
    }

    /// Returns the offset of the first element in its storage, in elements.
    pub fn storage_offset(&self) -> u64 {
        match &self.view {
            RowView::Strided(tensor) => tensor.storage_offset(),
            RowView::Packed(_) | RowView::Shape(_) => 0,
        }
    }
}

impl Serialize for TensorRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        row.serialize_entry("name", &self.name)?;
        row.serialize_entry("dtype", self.dtype)?;
        row.serialize_entry("shape", self.shape())?;
        row.serialize_entry("stride", &self.stride())?;
        row.serialize_entry("storage_offset", &self.storage_offset())?;
        row.serialize_entry("storage", &self.storage)?;
        row.serialize_entry("nbytes", &self.nbytes)?;
        if let Some(layout) = &self.layout {
            row.serialize_entry("layout", layout)?;
        }
        if let Some(quantizer) = &self.quantizer {
            row.serialize_entry("quantizer", quantizer)?;
        }
        if let Some(quantization) = &self.quantization {
            row.serialize_entry("quantization", quantization)?;
        }
        if let Some(subclass) = &self.subclass {
            row.serialize_entry("subclass", subclass)?;
        }
        if !self.sha256.is_absent() {
            row.serialize_entry("sha256", &self.sha256)?;
        }
        if !matches!(self.statistics, RowStatistics::NotRequested) {
            row.serialize_entry("stats", &self.statistics)?;
        }
        if let Some(note) = &self.note {
            row.serialize_entry("note", note)?;
        }
        row.end()
    }
}

/// SHA-256 of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorHash {
    /// The options do not ask for hashes.
    NotRequested,
    /// The views of the file repeat more bytes of their storages than `PickleLimits` allows, or the row is not one view.
    /// `null` in JSON.
    TooLarge,
    /// Hash in hexadecimal digits.
    Hex(Box<str>),
}

impl TensorHash {
    fn is_absent(&self) -> bool {
        *self == Self::NotRequested
    }
}

impl Serialize for TensorHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Hex(digits) => serializer.serialize_str(digits),
            Self::NotRequested | Self::TooLarge => serializer.serialize_none(),
        }
    }
}

/// Creates the rows of all items: one for a quantized tensor, one each for a sparse tensor and its parts.
pub(crate) fn build_rows(items: Vec<CheckpointItem>) -> Vec<TensorRow> {
    let room = items.len();
    let mut rows =
        RowBuilder { storages: HashMap::with_capacity(room), finished_rows: Vec::with_capacity(room) };
    for item in items {
        if let ItemContent::Compound(compound) = &item.content {
            rows.push_compound_row(&item.name, compound);
            if !matches!(compound.kind, CompoundKind::Quantized { .. }) {
                item.tensors().for_each(|(name, part)| rows.push_strided(name.into_owned(), part.clone()));
            }
        } else if let ItemContent::Tensor(tensor) = item.content {
            rows.push_strided(item.name, tensor);
        }
    }
    rows.finished_rows
}

struct RowBuilder {
    storages: HashMap<StorageId, usize>,
    finished_rows: Vec<TensorRow>,
}

impl RowBuilder {
    fn push_strided(&mut self, name: String, tensor: Tensor) {
        let next = self.storages.len();
        let storage = *self.storages.entry(tensor.storage().id()).or_insert(next);
        let quantization = kept_blocks(&name, &tensor).map(Box::new);
        self.finished_rows.push(TensorRow {
            name,
            dtype: tensor.dtype().name(),
            nbytes: tensor.nbytes(),
            view: RowView::Strided(tensor),
            storage: Some(storage),
            layout: None,
            quantizer: None,
            quantization,
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
            self.push_strided(name.to_owned(), integers.clone());
            if let Some(row) = self.finished_rows.last_mut() {
                row.dtype = compound.dtype.name();
                // Several integers in a byte have a shape of their own.
                if row.shape() != compound.shape {
                    row.view = RowView::Packed(Box::new((integers.clone(), compound.shape.clone())));
                }
                row.quantizer = Some(Box::new(serde_json::json!({ "scheme": scheme, "axis": axis })));
            }
            return;
        }
        let (layout, note) = match &compound.kind {
            CompoundKind::Sparse { layout } | CompoundKind::Blocks { scheme: layout } => {
                (Some(layout.as_str()), None)
            }
            CompoundKind::Nested => (Some("nested"), None),
            CompoundKind::Jagged => (Some("jagged"), None),
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
            layout: layout.map(Box::from),
            quantizer: None,
            quantization: None,
            subclass: open::subclass(&compound.kind).map(Box::new),
            sha256: TensorHash::NotRequested,
            statistics: RowStatistics::NotRequested,
            note: note.map(String::into_boxed_str),
        });
    }
}

/// Describes the blocks that the module of a decoder has in place of the numbers of a matrix.
fn kept_blocks(name: &str, tensor: &Tensor) -> Option<RowQuantization> {
    let nbytes = tensor.kept_q8_0_blocks()?.nbytes();
    let (method, scheme) = ("gguf".to_owned(), "Q8_0".to_owned());
    Some(RowQuantization { method, scheme, bits: 8.5, nbytes, stored: vec![name.to_owned()] })
}
