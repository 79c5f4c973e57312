//! What is in a checkpoint: its tensors, its values, and the globals that it names.

use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{ReadError, Source, hex, sha256};
use checkpoint_files::{Shards, Sources};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use output::file_name;
use pickle_vm::Limits;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};
use tensor::{Budget, Dtype, StorageId, Tensor, ViewId};
use torch_import::{Compound, CompoundKind, Content, Item, Omission, Risk};

use crate::{Error, Note, Observer, Result, ValueRows, size, values};

/// Version of the members of [`InspectReport`].
const SCHEMA_VERSION: u32 = 1;
/// What to look at.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InspectOptions {
    /// A checkpoint, or a folder that holds one. A shard is inspected alone.
    pub input: PathBuf,
    /// What the file at `input` is read from, if it is not on this machine.
    pub source: Option<Arc<dyn Source>>,
    /// Whether to hash the elements of each tensor.
    pub sha256: bool,
    /// Whether to list the values that are not tensors.
    pub values: bool,
}

impl InspectOptions {
    /// Lists the tensors of `input`.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }

    /// Lists the tensors of a file that is read from `source`.
    pub fn from_source(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        Self { source: Some(source), ..Self::new(path) }
    }
}

/// What is in a checkpoint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct InspectReport {
    /// Version of these members.
    pub schema_version: u32,
    /// The input as it was given.
    pub file: String,
    /// The container format of the files.
    pub format: &'static str,
    /// The names of the files, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Bytes of all files.
    pub nbytes: u64,
    /// The tensors, in the file's order.
    pub tensors: Vec<TensorRow>,
    /// The globals that the pickle names, each once.
    pub globals: Vec<String>,
    /// The risk of each global.
    pub risks: Map<String, Json>,
    /// The values that are not tensors, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<ValueRows>,
    /// How many values there are.
    pub value_count: usize,
    /// Sums over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// What the files hold that neither `tensors` nor the values list: tensors, storages and records, at most 10,000 of
    /// each file.
    pub left_out: Vec<Omission>,
    /// How many there are.
    pub left_out_count: usize,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// One tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// PyTorch's name of its dtype.
    pub dtype: &'static str,
    /// Its shape, and where its elements are.
    pub view: RowView,
    /// The number of its storage in the order of first use: equal for tensors that share memory, `None` for a tensor
    /// without a storage of its own.
    pub storage: Option<usize>,
    /// Bytes of its elements.
    pub nbytes: u64,
    /// The layout of a sparse or nested tensor, whose parts follow it.
    pub layout: Option<String>,
    /// The scheme and the axis of a quantized tensor.
    pub quantizer: Option<Box<Json>>,
    /// The class, the shard and the other attributes of a tensor whose parts are its attributes; they follow it.
    pub subclass: Option<Box<Json>>,
    /// The hash of its elements in C order, little-endian.
    pub sha256: TensorHash,
    /// What is unusual about it.
    pub note: Option<String>,
}

/// Where the elements of a row are.
#[derive(Clone, Debug)]
pub enum RowView {
    /// In this tensor, which shares the file's map.
    Strided(Tensor),
    /// In the rows that follow, or nowhere: only the shape, in elements.
    Shape(Vec<u64>),
}

impl TensorRow {
    /// Its shape, in elements.
    pub fn shape(&self) -> &[u64] {
        match &self.view {
            RowView::Strided(tensor) => tensor.shape(),
            RowView::Shape(shape) => shape,
        }
    }

    /// Its stride, in elements; empty where it is not one view.
    pub fn stride(&self) -> &[u64] {
        match &self.view {
            RowView::Strided(tensor) => tensor.stride(),
            RowView::Shape(_) => &[],
        }
    }

    /// Where it starts in its storage, in elements.
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

/// The SHA-256 of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorHash {
    /// It was not asked for.
    NotAsked,
    /// The views of the file repeat more bytes of their storages than [`Limits`] allows, or the row is not one view.
    /// `null` in JSON.
    TooLarge,
    /// In hexadecimal digits.
    Hex(String),
}

impl TensorHash {
    fn is_absent(&self) -> bool {
        *self == Self::NotAsked
    }
}

impl Serialize for TensorHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Hex(digits) => serializer.serialize_str(digits),
            Self::NotAsked | Self::TooLarge => serializer.serialize_none(),
        }
    }
}

/// Sums over tensors. A tensor that has several names counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of the elements by dtype, in the order in which the dtypes first appear.
    #[serde(serialize_with = "as_map")]
    pub bytes_by_dtype: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(pairs: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

impl Totals {
    /// The sums over `tensors`.
    pub fn from_tensors<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        Self::from_rows(tensors.map(|tensor| (tensor.dtype(), tensor)))
    }

    /// The sums over what is listed: tensors, and the dtypes that they are listed with.
    fn from_rows<'t>(tensors: impl Iterator<Item = (Dtype, &'t Tensor)>) -> Self {
        let mut first_of: HashMap<StorageId, &Tensor> = HashMap::with_capacity(tensors.size_hint().0);
        let mut seen = HashSet::new();
        let mut totals = Self::default();
        for (dtype, tensor) in tensors {
            // Most storages have one tensor, whose shape then need not be hashed.
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

/// Reads a checkpoint and lists what is in it. Only hashing reads the elements of its tensors.
///
/// # Errors
/// When the input cannot be read, is not a checkpoint, or is damaged, or `observer` stops the work.
pub fn inspect(options: &InspectOptions, observer: &dyn Observer) -> Result<InspectReport> {
    output::refuse_remote(&options.input)?;
    let sources = match &options.source {
        Some(source) => Sources::source(Arc::clone(source)),
        None => Sources::find(std::slice::from_ref(&options.input), Shards::ThisFileOnly)?,
    };
    let containers = sources.open()?;
    let (mut checkpoint, notes) = sources.read_checked::<Error>(&containers, &|_, _| Ok(()), observer)?;
    let names: Vec<String> = containers.iter().map(|container| file_name(container.path())).collect();
    let mut items = std::mem::take(&mut checkpoint.items);
    let value_count = items.iter().filter(|item| matches!(item.content, Content::Value(_))).count();
    let left_out = Note::left_out(&checkpoint.left_out);
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
            let Content::Value(value) = &item.content else { return None };
            let value = value.clone();
            Some((std::mem::take(&mut item.name), value))
        };
        report.values = Some(ValueRows::new(checkpoint, items.iter_mut().filter_map(value).collect()));
    } else {
        // The objects of a pickle can take more memory than all that follows.
        drop(checkpoint);
    }
    items.retain(|item| !matches!(item.content, Content::Value(_)));
    items.shrink_to_fit();
    byte_source::memory_freed();
    report.totals = Totals::from_rows(items.iter().flat_map(listed));
    report.tensors = rows(items, options, nbytes, observer)?;
    for note in &report.notes {
        observer.note(note);
    }
    Ok(report)
}

/// A row for each tensor. A quantized tensor has one row, a sparse one and its parts have one each.
/// `nbytes` are those of the files.
fn rows(
    items: Vec<Item>,
    options: &InspectOptions,
    nbytes: u64,
    observer: &dyn Observer,
) -> Result<Vec<TensorRow>> {
    let room = items.len();
    let hasher = Hasher {
        budget: Budget::new(Limits::default().repeated_of(nbytes)),
        known: HashMap::new(),
        observer,
    };
    let done = Vec::with_capacity(room);
    let mut rows = Rows { storages: HashMap::with_capacity(room), options, hasher, done };
    for item in items {
        match &item.content {
            Content::Tensor(tensor) => rows.strided(item.name, tensor)?,
            Content::Compound(compound) => {
                rows.compound(&item.name, compound)?;
                if !matches!(compound.kind, CompoundKind::Quantized { .. }) {
                    item.tensors().try_for_each(|(name, part)| rows.strided(name.into_owned(), part))?;
                }
            }
            Content::Value(_) => {}
        }
    }
    Ok(rows.done)
}

/// The tensors of an item's rows that have elements, and the dtypes of these rows.
fn listed(item: &Item) -> impl Iterator<Item = (Dtype, &Tensor)> {
    let quantized = integers(&item.content);
    let others = item.tensors().filter(move |_| quantized.is_none());
    quantized.into_iter().chain(others.map(|(_, tensor)| (tensor.dtype(), tensor)))
}

/// The integers of a quantized tensor, which its row is about, and its dtype.
fn integers(content: &Content) -> Option<(Dtype, &Tensor)> {
    let Content::Compound(compound) = content else { return None };
    let (_, integers) = compound.parts.first()?;
    matches!(compound.kind, CompoundKind::Quantized { .. }).then_some((compound.dtype, integers))
}

struct Rows<'o> {
    storages: HashMap<StorageId, usize>,
    options: &'o InspectOptions,
    hasher: Hasher<'o>,
    done: Vec<TensorRow>,
}

impl Rows<'_> {
    fn strided(&mut self, name: String, tensor: &Tensor) -> Result<()> {
        let next = self.storages.len();
        let storage = *self.storages.entry(tensor.storage().id()).or_insert(next);
        let (mut sha256, mut note) = (TensorHash::NotAsked, None);
        if self.options.sha256 {
            sha256 = self.hasher.hash(tensor).map_err(|reason| {
                Error::of_read(reason.with_tensor(&name), |reason| {
                    Error::at(&self.options.input)(Error::ReadTensor { name: name.clone(), reason })
                })
            })?;
            note = (sha256 == TensorHash::TooLarge).then(|| {
                let (view, storage) = (size(tensor.nbytes()), size(tensor.storage().len()));
                format!("not hashed: an expanded view of {view} over a storage of {storage}")
            });
        }
        self.done.push(TensorRow {
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

    fn compound(&mut self, name: &str, compound: &Compound) -> Result<()> {
        if let (CompoundKind::Quantized { scheme, axis }, Some((_, integers))) =
            (&compound.kind, compound.parts.first())
        {
            self.strided(name.to_owned(), integers)?;
            if let Some(row) = self.done.last_mut() {
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
        self.done.push(TensorRow {
            name: name.to_owned(),
            dtype: compound.dtype.name(),
            view: RowView::Shape(compound.shape.clone()),
            storage: None,
            nbytes: compound.parts.iter().fold(0, |sum, (_, part)| part.nbytes().saturating_add(sum)),
            layout,
            quantizer: None,
            subclass: values::subclass(&compound.kind).map(Box::new),
            sha256: if self.options.sha256 { TensorHash::TooLarge } else { TensorHash::NotAsked },
            note,
        });
        Ok(())
    }
}

/// Hashes elements, each view once.
struct Hasher<'o> {
    /// A scalar can be expanded to terabytes.
    budget: Budget,
    known: HashMap<ViewId, TensorHash>,
    observer: &'o dyn Observer,
}

impl Hasher<'_> {
    fn hash(&mut self, tensor: &Tensor) -> Result<TensorHash, ReadError> {
        let view = tensor.view_id();
        if let Some(known) = self.known.get(&view) {
            return Ok(known.clone());
        }
        let hash = if self.budget.spend(tensor) {
            TensorHash::Hex(hex(&sha256(&tensor.gathered(), self.observer)?))
        } else {
            TensorHash::TooLarge
        };
        self.known.insert(view, hash.clone());
        Ok(hash)
    }
}
