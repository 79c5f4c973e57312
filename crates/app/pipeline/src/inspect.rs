//! Inspection of a checkpoint: its tensors, its values, and the globals that it names.

use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{ReadError, Source, hex, sha256};
use checkpoint_files::{CheckpointSources, ShardPolicy};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use output::file_name;
use pickle_vm::PickleLimits;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};
use tensor::{Budget, Dtype, StorageId, Tensor, ViewId};
use torch_import::{Compound, CompoundKind, Item, ItemContent, Omission, Risk};

use crate::{Error, Note, Observer, Result, ValueRows, format_bytes, values};

/// Version of the fields of [`InspectReport`].
const SCHEMA_VERSION: u32 = 1;
/// Options for inspecting a checkpoint.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InspectOptions {
    /// Checkpoint file, or folder with a checkpoint. A shard is inspected alone.
    pub input: PathBuf,
    /// Byte source of the file at `input`, if the file is not on this machine.
    pub source: Option<Arc<dyn Source>>,
    /// True to hash the elements of each tensor.
    pub sha256: bool,
    /// True to list the values that are not tensors.
    pub values: bool,
}

impl InspectOptions {
    /// Creates options that list the tensors of `input`.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }

    /// Creates options that list the tensors of a file read from `source`.
    pub fn from_source(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        Self { source: Some(source), ..Self::new(path) }
    }
}

/// Contents of a checkpoint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InspectReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Path of the input, as given.
    pub file: String,
    /// Container format of the files.
    pub format: &'static str,
    /// Names of the files, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Total length of all files in bytes.
    pub nbytes: u64,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorRow>,
    /// Globals that the pickle names, without duplicates.
    pub globals: Vec<String>,
    /// Risk of each global, by name.
    pub risks: Map<String, Json>,
    /// Values that are not tensors, if the options ask for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<ValueRows>,
    /// Number of values that are not tensors.
    pub value_count: usize,
    /// Totals over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// Tensors, storages and records that neither `tensors` nor the values list, at most 10,000 per file.
    pub left_out: Vec<Omission>,
    /// Number of all omissions.
    pub left_out_count: usize,
    pub notes: Vec<Note>,
}

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
    pub layout: Option<String>,
    /// Scheme and axis of a quantized tensor.
    pub quantizer: Option<Box<Json>>,
    /// Class, shard and other attributes of a tensor subclass, whose parts are the next rows.
    pub subclass: Option<Box<Json>>,
    /// Hash of the elements in C order, little-endian.
    pub sha256: TensorHash,
    /// Remark on the tensor, such as the reason of a missing hash.
    pub note: Option<String>,
}

/// Position of the elements of a row.
#[derive(Clone, Debug)]
pub enum RowView {
    /// View of a storage; the tensor shares the mapping of the file.
    Strided(Tensor),
    /// Shape in elements, for a row whose elements are in the next rows, or that has none.
    Shape(Vec<u64>),
}

impl TensorRow {
    /// Returns the shape in elements.
    pub fn shape(&self) -> &[u64] {
        match &self.view {
            RowView::Strided(tensor) => tensor.shape(),
            RowView::Shape(shape) => shape,
        }
    }

    /// Returns the stride in elements; empty if the row is not a single view.
    pub fn stride(&self) -> &[u64] {
        match &self.view {
            RowView::Strided(tensor) => tensor.stride(),
            RowView::Shape(_) => &[],
        }
    }

    /// Returns the offset of the first element in its storage, in elements.
    pub fn storage_offset(&self) -> u64 {
        match &self.view {
            RowView::Strided(tensor) => tensor.storage_offset(),
            RowView::Shape(_) => 0,
        }
    }
}

impl Serialize for TensorRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        row.serialize_entry("name", &self.name)?;
        row.serialize_entry("dtype", self.dtype)?;
        row.serialize_entry("shape", self.shape())?;
        row.serialize_entry("stride", self.stride())?;
        row.serialize_entry("storage_offset", &self.storage_offset())?;
        row.serialize_entry("storage", &self.storage)?;
        row.serialize_entry("nbytes", &self.nbytes)?;
        if let Some(layout) = &self.layout {
            row.serialize_entry("layout", layout)?;
        }
        if let Some(quantizer) = &self.quantizer {
            row.serialize_entry("quantizer", quantizer)?;
        }
        if let Some(subclass) = &self.subclass {
            row.serialize_entry("subclass", subclass)?;
        }
        if !self.sha256.is_absent() {
            row.serialize_entry("sha256", &self.sha256)?;
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
    /// The views of the file repeat more bytes of their storages than [`PickleLimits`] allows, or the row is not one view.
    /// `null` in JSON.
    TooLarge,
    /// Hash in hexadecimal digits.
    Hex(String),
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

/// Totals over tensors. A tensor with several names counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Number of elements of all tensors.
    pub parameters: u64,
    /// Bytes of the elements by dtype, in the order in which the dtypes first appear.
    #[serde(serialize_with = "as_map")]
    pub bytes_by_dtype: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(pairs: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

impl Totals {
    /// Sums up the elements and bytes of `tensors`.
    pub fn from_tensors<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        Self::from_rows(tensors.map(|tensor| (tensor.dtype(), tensor)))
    }

    /// Sums up the elements and bytes of tensors, each with the dtype that its row shows.
    fn from_rows<'t>(tensors: impl Iterator<Item = (Dtype, &'t Tensor)>) -> Self {
        let mut first_of: HashMap<StorageId, &Tensor> = HashMap::with_capacity(tensors.size_hint().0);
        let mut seen = HashSet::new();
        let mut totals = Self::default();
        for (dtype, tensor) in tensors {
            // Most storages have one tensor, for which no view has to be hashed.
            let first = *first_of.entry(tensor.storage().id()).or_insert(tensor);
            if !std::ptr::eq(first, tensor) {
                seen.insert(first.view_id());
                if !seen.insert(tensor.view_id()) {
                    continue;
                }
            }
            totals.parameters = totals.parameters.saturating_add(tensor.numel());
            let (dtype, nbytes) = (dtype.name(), tensor.nbytes());
            match totals.bytes_by_dtype.iter_mut().find(|(name, _)| *name == dtype) {
                Some((_, sum)) => *sum = sum.saturating_add(nbytes),
                None => totals.bytes_by_dtype.push((dtype, nbytes)),
            }
        }
        totals
    }
}

/// Reads a checkpoint and lists its contents. Reads the elements of tensors only to hash them.
///
/// # Errors
/// When the input cannot be read, is not a checkpoint, or is damaged, or `observer` stops the work.
pub fn inspect(options: &InspectOptions, observer: &dyn Observer) -> Result<InspectReport> {
    output::refuse_remote(&options.input)?;
    let sources = match &options.source {
        Some(source) => CheckpointSources::source(Arc::clone(source)),
        None => CheckpointSources::find(std::slice::from_ref(&options.input), ShardPolicy::ThisFileOnly)?,
    };
    let containers = sources.open()?;
    let (mut checkpoint, notes) =
        sources.read_with_observer::<Error>(&containers, &|_, _| Ok(()), observer)?;
    let names: Vec<String> = containers.iter().map(|container| file_name(container.path())).collect();
    let mut items = std::mem::take(&mut checkpoint.items);
    let value_count = items.iter().filter(|item| matches!(item.content, ItemContent::Value(_))).count();
    let left_out = Note::omission_notes(&checkpoint.left_out);
    let risk = |risk: Risk| Json::from(risk.name());
    let nbytes = containers.iter().fold(0_u64, |sum, container| sum.saturating_add(container.len()));
    let globals = checkpoint.globals.iter();
    let mut report = InspectReport {
        schema_version: SCHEMA_VERSION,
        file: options.input.display().to_string(),
        format: containers.first().map_or("", |container| container.format().name()),
        files: if names.len() > 1 { names } else { Vec::new() },
        nbytes,
        globals: globals.clone().map(ToString::to_string).collect(),
        risks: globals.map(|global| (global.to_string(), risk(global.risk()))).collect(),
        values: None,
        value_count,
        totals: Totals::default(),
        left_out_count: checkpoint.left_out.count(),
        notes: notes.into_iter().map(Note::Sources).chain(left_out).collect(),
        left_out: std::mem::take(&mut checkpoint.left_out.listed),
        tensors: Vec::new(),
    };
    if options.values {
        let value = |item: &mut Item| {
            let ItemContent::Value(value) = &item.content else { return None };
            let value = value.clone();
            Some((std::mem::take(&mut item.name), value))
        };
        report.values = Some(ValueRows::new(checkpoint, items.iter_mut().filter_map(value).collect()));
    } else {
        // Frees the objects of the pickle, which can take more memory than all following steps.
        drop(checkpoint);
    }
    items.retain(|item| !matches!(item.content, ItemContent::Value(_)));
    items.shrink_to_fit();
    byte_source::report_memory_freed();
    report.totals = Totals::from_rows(items.iter().flat_map(row_tensors));
    report.tensors = build_rows(items, options, nbytes, observer)?;
    for note in &report.notes {
        observer.note(note);
    }
    Ok(report)
}

/// Creates the rows of all items: one for a quantized tensor, one each for a sparse tensor and its parts. `nbytes` is the
/// total length of the files.
fn build_rows(
    items: Vec<Item>,
    options: &InspectOptions,
    nbytes: u64,
    observer: &dyn Observer,
) -> Result<Vec<TensorRow>> {
    let room = items.len();
    let hasher = TensorHasher {
        budget: Budget::new(PickleLimits::default().repeat_budget(nbytes)),
        view_hashes: HashMap::new(),
        observer,
    };
    let done = Vec::with_capacity(room);
    let mut rows =
        RowBuilder { storages: HashMap::with_capacity(room), options, hasher, finished_rows: done };
    for item in items {
        match &item.content {
            ItemContent::Tensor(tensor) => rows.push_strided(item.name, tensor)?,
            ItemContent::Compound(compound) => {
                rows.push_compound_row(&item.name, compound)?;
                if !matches!(compound.kind, CompoundKind::Quantized { .. }) {
                    item.tensors().try_for_each(|(name, part)| rows.push_strided(name.into_owned(), part))?;
                }
            }
            ItemContent::Value(_) => {}
        }
    }
    Ok(rows.finished_rows)
}

/// Returns the tensors behind the rows of an item that have elements, each with the dtype that the row shows.
fn row_tensors(item: &Item) -> impl Iterator<Item = (Dtype, &Tensor)> {
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

struct RowBuilder<'o> {
    storages: HashMap<StorageId, usize>,
    options: &'o InspectOptions,
    hasher: TensorHasher<'o>,
    finished_rows: Vec<TensorRow>,
}

impl RowBuilder<'_> {
    fn push_strided(&mut self, name: String, tensor: &Tensor) -> Result<()> {
        let next = self.storages.len();
        let storage = *self.storages.entry(tensor.storage().id()).or_insert(next);
        let (mut sha256, mut note) = (TensorHash::NotRequested, None);
        if self.options.sha256 {
            sha256 = self.hasher.hash(tensor).map_err(|reason| {
                Error::from_read_error(reason.with_tensor(&name), |reason| {
                    Error::at(&self.options.input)(Error::ReadTensor { name: name.clone(), reason })
                })
            })?;
            note = (sha256 == TensorHash::TooLarge).then(|| {
                let (view, storage) = (format_bytes(tensor.nbytes()), format_bytes(tensor.storage().len()));
                format!("not hashed: an expanded view of {view} over a storage of {storage}")
            });
        }
        self.finished_rows.push(TensorRow {
            name,
            dtype: tensor.dtype().name(),
            view: RowView::Strided(tensor.clone()),
            storage: Some(storage),
            nbytes: tensor.nbytes(),
            layout: None,
            quantizer: None,
            subclass: None,
            sha256,
            note,
        });
        Ok(())
    }

    fn push_compound_row(&mut self, name: &str, compound: &Compound) -> Result<()> {
        if let (CompoundKind::Quantized { scheme, axis }, Some((_, integers))) =
            (&compound.kind, compound.parts.first())
        {
            self.push_strided(name.to_owned(), integers)?;
            if let Some(row) = self.finished_rows.last_mut() {
                row.dtype = compound.dtype.name();
                row.quantizer = Some(Box::new(serde_json::json!({ "scheme": scheme, "axis": axis })));
            }
            return Ok(());
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
            subclass: values::subclass(&compound.kind).map(Box::new),
            sha256: if self.options.sha256 { TensorHash::TooLarge } else { TensorHash::NotRequested },
            note,
        });
        Ok(())
    }
}

/// Hashes the elements of tensors, each view once.
struct TensorHasher<'o> {
    /// Limits the bytes hashed, because a scalar can be expanded to terabytes.
    budget: Budget,
    view_hashes: HashMap<ViewId, TensorHash>,
    observer: &'o dyn Observer,
}

impl TensorHasher<'_> {
    fn hash(&mut self, tensor: &Tensor) -> Result<TensorHash, ReadError> {
        let view = tensor.view_id();
        if let Some(known) = self.view_hashes.get(&view) {
            return Ok(known.clone());
        }
        let hash = if self.budget.spend(tensor) {
            TensorHash::Hex(hex(&sha256(&tensor.gathered(), self.observer)?))
        } else {
            TensorHash::TooLarge
        };
        self.view_hashes.insert(view, hash.clone());
        Ok(hash)
    }
}
