//! What is in a checkpoint: its tensors, its values, and the globals that it names.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use foldhash::{HashMap, HashMapExt};
use mapped::{Blob, Cancelled, Sha256Sink, Sink, Window, hex};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};
use sources::Sources;
use store::file_name;
use tensor::{StorageId, Tensor};
use torch_import::{Checkpoint, Compound, CompoundKind, Content, Risk};

use crate::{Error, Note, Observer, Result, size, values};

/// Version of the members of [`InspectReport`].
const SCHEMA_VERSION: u32 = 1;
/// An expanded view is hashed when it has at most this many bytes, or at most this many times the bytes
/// of its storage: a scalar can be expanded to terabytes.
const EXPANDED_BYTES: u64 = 1 << 30;
const EXPANDED_TIMES: u64 = 16;

/// What to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InspectOptions {
    /// A checkpoint, or a folder that holds one. A shard is inspected alone.
    pub input: PathBuf,
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
}

/// What is in a checkpoint.
#[derive(Clone, Debug, Serialize)]
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
    /// The values that are not tensors, where they were asked for: path, type, value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<Json>>,
    /// How many values there are.
    pub value_count: usize,
    /// Sums over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// How many tensors `state_dict()` of a pickled module would not return.
    pub left_out: usize,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// One tensor.
#[derive(Clone, Debug, Serialize)]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// PyTorch's name of its dtype.
    pub dtype: &'static str,
    /// Its shape, in elements.
    pub shape: Vec<u64>,
    /// Its stride, in elements.
    pub stride: Vec<u64>,
    /// Where it starts in its storage, in elements.
    pub storage_offset: u64,
    /// The number of its storage in the order of first use: equal for tensors that share memory, `None` for a tensor
    /// without a storage of its own.
    pub storage: Option<usize>,
    /// Bytes of its elements.
    pub nbytes: u64,
    /// The layout of a sparse or nested tensor, whose parts follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// The scheme and the axis of a quantized tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantizer: Option<Box<Json>>,
    /// The hash of its elements in C order, little-endian.
    #[serde(skip_serializing_if = "TensorHash::is_absent")]
    pub sha256: TensorHash,
    /// What is unusual about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The SHA-256 of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorHash {
    /// It was not asked for.
    NotAsked,
    /// The view expands its storage beyond what is sensible to hash, or the row is not one view. `null` in JSON.
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
        let mut seen = HashSet::new();
        let mut totals = Self::default();
        for tensor in tensors {
            if !seen.insert(tensor.view()) {
                continue;
            }
            totals.parameters = totals.parameters.saturating_add(tensor.numel());
            let (dtype, nbytes) = (tensor.dtype().name(), tensor.nbytes());
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
    store::refuse_remote(&options.input)?;
    let sources = Sources::find(std::slice::from_ref(&options.input), true)?;
    let containers = sources.open()?;
    let (checkpoint, notes) = sources.read::<Error>(&containers, &|_, _| Ok(()))?;
    let names: Vec<String> = containers.iter().map(|container| file_name(container.path())).collect();
    let values = || {
        let values = checkpoint.values();
        values.map(|(path, value)| values::json(&checkpoint, path, value)).collect()
    };
    let risk = |risk: Risk| Json::from(risk.name());
    let globals = checkpoint.globals.iter();
    let report = InspectReport {
        schema_version: SCHEMA_VERSION,
        file: options.input.display().to_string(),
        format: containers.first().map_or("", |container| container.format().name()),
        files: if names.len() > 1 { names } else { Vec::new() },
        nbytes: containers.iter().fold(0, |sum, container| sum.saturating_add(container.len())),
        globals: globals.clone().map(ToString::to_string).collect(),
        risks: globals.map(|global| (global.to_string(), risk(global.risk()))).collect(),
        values: options.values.then(values),
        value_count: checkpoint.values().count(),
        totals: Totals::from_tensors(checkpoint.tensors().map(|(_, tensor)| tensor)),
        left_out: checkpoint.left_out,
        notes: notes.into_iter().map(Note::Sources).collect(),
        tensors: rows(&checkpoint, options.sha256, observer).map_err(|error| {
            if matches!(error, Error::Cancelled) { error } else { Error::at(&options.input)(error) }
        })?,
    };
    report.notes.iter().for_each(|note| observer.note(note));
    Ok(report)
}

/// A row for each tensor. A quantized tensor has one row, a sparse one and its parts have one each.
fn rows(checkpoint: &Checkpoint, sha256: bool, observer: &dyn Observer) -> Result<Vec<TensorRow>> {
    let room = checkpoint.items.len();
    let done = Vec::with_capacity(room);
    let mut rows = Rows { storages: HashMap::with_capacity(room), sha256, observer, done };
    for item in &checkpoint.items {
        match &item.content {
            Content::Tensor(tensor) => rows.strided(item.name.clone(), tensor)?,
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

struct Rows<'o> {
    storages: HashMap<StorageId, usize>,
    sha256: bool,
    observer: &'o dyn Observer,
    done: Vec<TensorRow>,
}

impl Rows<'_> {
    fn strided(&mut self, name: String, tensor: &Tensor) -> Result<()> {
        let next = self.storages.len();
        let storage = *self.storages.entry(tensor.storage().id()).or_insert(next);
        let (mut sha256, mut note) = (TensorHash::NotAsked, None);
        if self.sha256 {
            sha256 = hash(tensor, self.observer).map_err(|reason| {
                let cancelled = Cancelled::caused(&reason);
                if cancelled { Error::Cancelled } else { Error::ReadTensor { name: name.clone(), reason } }
            })?;
            note = (sha256 == TensorHash::TooLarge).then(|| {
                let (view, storage) = (size(tensor.nbytes()), size(tensor.storage().len()));
                format!("not hashed: an expanded view of {view} over a storage of {storage}")
            });
        }
        self.done.push(TensorRow {
            name,
            dtype: tensor.dtype().name(),
            shape: tensor.shape().to_vec(),
            stride: tensor.stride().to_vec(),
            storage_offset: tensor.storage_offset(),
            storage: Some(storage),
            nbytes: tensor.nbytes(),
            layout: None,
            quantizer: None,
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
            _ => (None, None),
        };
        self.done.push(TensorRow {
            name: name.to_owned(),
            dtype: compound.dtype.name(),
            shape: compound.shape.clone(),
            stride: Vec::new(),
            storage_offset: 0,
            storage: None,
            nbytes: compound.parts.iter().fold(0, |sum, (_, part)| part.nbytes().saturating_add(sum)),
            layout,
            quantizer: None,
            sha256: if self.sha256 { TensorHash::TooLarge } else { TensorHash::NotAsked },
            note,
        });
        Ok(())
    }
}

fn hash(tensor: &Tensor, observer: &dyn Observer) -> io::Result<TensorHash> {
    let allowed = tensor.storage().len().saturating_mul(EXPANDED_TIMES).max(EXPANDED_BYTES);
    if tensor.nbytes() > allowed {
        return Ok(TensorHash::TooLarge);
    }
    let mut sink = Stoppable { sink: Sha256Sink::default(), observer };
    tensor.gathered().write_to(&mut sink)?;
    Ok(TensorHash::Hex(hex(&sink.sink.digest())))
}

/// A hash that the observer can stop between two windows.
struct Stoppable<'o> {
    sink: Sha256Sink,
    observer: &'o dyn Observer,
}

impl Sink for Stoppable<'_> {
    fn write(&mut self, window: Window) -> io::Result<()> {
        if self.observer.is_cancelled() {
            return Err(io::Error::other(Cancelled));
        }
        self.sink.write(window)
    }
}
