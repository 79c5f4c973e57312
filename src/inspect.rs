//! `torch2carton inspect`: the tensors of a checkpoint, for people and for programs.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use foldhash::{HashMap, HashMapExt};
use mapped::{Blob, Sink, Window};
use serde::Serialize;
use sha2::{Digest, Sha256};
use store::file_name;
use tensor::{StorageId, Tensor};
use torch_import::{Checkpoint, Compound, CompoundKind, Container, Content, Risk};

use crate::cli;
use crate::cli::Usage;
use crate::inspect_carton;
use crate::terminal::{self, BOLD, DIM, bytes, count, safe};
use crate::values::{self, hex};
use sources::Sources;

/// Version of the object that `--json` prints.
const SCHEMA_VERSION: u32 = 1;
/// An expanded view is hashed when it has at most this many bytes, or at most this many times the bytes
/// of its storage: a scalar can be expanded to terabytes.
const EXPANDED_BYTES: u64 = 1 << 30;
const EXPANDED_TIMES: u64 = 16;

pub(crate) fn run(args: &cli::Inspect) -> Result<()> {
    let several = args.files.len() > 1;
    let mut failed = 0_usize;
    for (index, file) in args.files.iter().enumerate() {
        match inspect(args, file, index) {
            Err(error) if several && !terminal::is_broken_pipe(&error) => {
                terminal::error(&error);
                failed = failed.saturating_add(1);
            }
            done => done?,
        }
    }
    if failed > 0 {
        bail!("{failed} of {} cannot be read", args.files.len());
    }
    Ok(())
}

fn inspect(args: &cli::Inspect, file: &PathBuf, index: usize) -> Result<()> {
    store::refuse_remote(file)?;
    if inspect_carton::is_carton(file) {
        if args.sha256 || args.all {
            bail!(Usage(
                "--sha256 and --all are about checkpoints; `torch2carton verify` compares a carton's hashes"
                    .to_owned()
            ));
        }
        return inspect_carton::run(file, args.json);
    }
    // Here a shard stands for itself.
    let sources = Sources::find(std::slice::from_ref(file), true)?;
    let containers = sources.open()?;
    let (checkpoint, notes) = sources.read::<sources::Error>(&containers, &|_, _| Ok(()))?;
    let rows = rows(&checkpoint, args.sha256).with_context(|| file.display().to_string())?;
    let several = args.files.len() > 1;
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let head = head(several.then_some(file.as_path()), &containers);
        json(&mut out, &head, &checkpoint, &rows, args.all)?;
        out.flush()?;
    } else {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if several {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}{BOLD}{}{BOLD:#}", safe(file.display()))?;
        }
        table(&mut out, &rows)?;
        if args.all {
            list_values(&mut out, &checkpoint)?;
        }
        totals(&mut out, &containers, &checkpoint, rows.len())?;
        notes.iter().try_for_each(|note| writeln!(out, "{DIM}{:<12}{DIM:#}{}", "note", safe(note)))?;
        out.flush()?;
    }
    if !several {
        // The process is about to end, and to free a million objects one by one takes a tenth of its time.
        std::mem::forget(rows);
        std::mem::forget(checkpoint);
        std::mem::forget(containers);
    }
    Ok(())
}

/// The format of the files, which are alike in a set.
fn format(containers: &[Container]) -> &'static str {
    containers.first().map_or("", |container| container.format().name())
}

/// The first members of the object that `--json` prints: which file, of several that were asked for, and
/// which files, of a checkpoint that has several.
fn head(file: Option<&Path>, containers: &[Container]) -> String {
    let names: Vec<String> = containers.iter().map(|container| file_name(container.path())).collect();
    let file = file.map(|file| format!("\"file\": {}, ", serde_json::json!(file.display().to_string())));
    let files = (names.len() > 1).then(|| format!("\"files\": {}, ", serde_json::json!(names)));
    format!(
        "\"schema_version\": {SCHEMA_VERSION}, {}\"format\": \"{}\", {}",
        file.unwrap_or_default(),
        format(containers),
        files.unwrap_or_default()
    )
}

/// One object, a tensor a line.
fn json(
    out: &mut dyn Write,
    head: &str,
    checkpoint: &Checkpoint,
    rows: &[Row<'_>],
    all: bool,
) -> io::Result<()> {
    write!(out, "{{{head}\"tensors\": [")?;
    let mut line = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        line.clear();
        line.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut line, row)?;
        out.write_all(&line)?;
    }
    let globals: Vec<String> = checkpoint.globals.iter().map(ToString::to_string).collect();
    write!(out, "\n], \"globals\": ")?;
    serde_json::to_writer(&mut *out, &globals)?;
    let risks: serde_json::Map<String, serde_json::Value> =
        checkpoint.globals.iter().map(|global| (global.to_string(), global.risk().name().into())).collect();
    write!(out, ", \"risks\": ")?;
    serde_json::to_writer(&mut *out, &risks)?;
    if all {
        write!(out, ", \"values\": [")?;
        for (index, (path, value)) in checkpoint.values().enumerate() {
            let value = values::json(checkpoint, path, value);
            write!(out, "{}{value}", if index == 0 { "\n" } else { ",\n" })?;
        }
        write!(out, "\n]")?;
    }
    writeln!(out, "}}")
}

/// A tensor in the contract of `--json`.
#[derive(Serialize)]
struct Row<'c> {
    name: Cow<'c, str>,
    dtype: &'c str,
    shape: &'c [u64],
    stride: &'c [u64],
    storage_offset: u64,
    /// First use 0; equal for tensors that share memory; `null` for what has no storage of its own.
    storage: Option<usize>,
    nbytes: u64,
    /// Of a sparse or nested tensor, whose parts stand below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<&'c str>,
    /// Of a quantized tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    quantizer: Option<Box<serde_json::Value>>,
    #[serde(skip_serializing_if = "Hash::is_not_asked")]
    sha256: Hash,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// SHA-256 of the elements in C order, little-endian, in hex.
#[derive(Serialize)]
#[serde(untagged)]
enum Hash {
    /// Without `--sha256`.
    NotAsked,
    /// `null`: the view expands its storage to more than is sensible to hash, or the row is no one view.
    TooLarge,
    Hex(String),
}

impl Hash {
    fn is_not_asked(&self) -> bool {
        matches!(self, Self::NotAsked)
    }
}

/// A row a tensor, in the file's order; a quantized tensor has one row, a sparse one and its parts one each.
fn rows<'c>(checkpoint: &'c Checkpoint, sha256: bool) -> Result<Vec<Row<'c>>> {
    let room = checkpoint.items.len();
    let mut rows = Rows { storages: HashMap::with_capacity(room), sha256, done: Vec::with_capacity(room) };
    for item in &checkpoint.items {
        match &item.content {
            Content::Tensor(tensor) => rows.strided(Cow::Borrowed(&item.name), tensor)?,
            Content::Compound(compound) => {
                rows.compound(&item.name, compound)?;
                if !matches!(compound.kind, CompoundKind::Quantized { .. }) {
                    item.tensors().try_for_each(|(name, part)| rows.strided(name, part))?;
                }
            }
            Content::Value(_) => {}
        }
    }
    Ok(rows.done)
}

struct Rows<'c> {
    storages: HashMap<StorageId, usize>,
    sha256: bool,
    done: Vec<Row<'c>>,
}

impl<'c> Rows<'c> {
    fn strided(&mut self, name: Cow<'c, str>, tensor: &'c Tensor) -> Result<()> {
        let next = self.storages.len();
        let storage = *self.storages.entry(tensor.storage().id()).or_insert(next);
        let mut row = Row {
            name,
            dtype: tensor.dtype().name(),
            shape: tensor.shape(),
            stride: tensor.stride(),
            storage_offset: tensor.storage_offset(),
            storage: Some(storage),
            nbytes: tensor.nbytes(),
            layout: None,
            quantizer: None,
            sha256: Hash::NotAsked,
            note: None,
        };
        if self.sha256 {
            row.sha256 = hash(tensor).with_context(|| format!("tensor `{}`", row.name))?;
            if matches!(row.sha256, Hash::TooLarge) {
                row.note = Some(format!(
                    "not hashed: an expanded view of {} over a storage of {}",
                    bytes(tensor.nbytes()),
                    bytes(tensor.storage().len())
                ));
            }
        }
        self.done.push(row);
        Ok(())
    }

    fn compound(&mut self, name: &'c str, compound: &'c Compound) -> Result<()> {
        if let (CompoundKind::Quantized { scheme, axis }, Some((_, integers))) =
            (&compound.kind, compound.parts.first())
        {
            self.strided(Cow::Borrowed(name), integers)?;
            if let Some(row) = self.done.last_mut() {
                row.dtype = compound.dtype.name();
                row.quantizer = Some(Box::new(serde_json::json!({ "scheme": scheme, "axis": axis })));
            }
            return Ok(());
        }
        let (layout, note) = match &compound.kind {
            CompoundKind::Sparse { layout } => (Some(layout.as_str()), None),
            CompoundKind::Nested => (Some("nested"), None),
            CompoundKind::Jagged => (Some("jagged"), None),
            CompoundKind::Meta { what } => (None, Some(format!("no data: {what}"))),
            _ => (None, None),
        };
        self.done.push(Row {
            name: Cow::Borrowed(name),
            dtype: compound.dtype.name(),
            shape: &compound.shape,
            stride: &[],
            storage_offset: 0,
            storage: None,
            nbytes: compound.parts.iter().fold(0, |sum, (_, part)| part.nbytes().saturating_add(sum)),
            layout,
            quantizer: None,
            sha256: if self.sha256 { Hash::TooLarge } else { Hash::NotAsked },
            note,
        });
        Ok(())
    }
}

fn hash(tensor: &Tensor) -> io::Result<Hash> {
    struct Hasher(Sha256);
    impl Sink for Hasher {
        fn write(&mut self, window: Window) -> io::Result<()> {
            self.0.update(&*window);
            Ok(())
        }
    }
    let allowed = tensor.storage().len().saturating_mul(EXPANDED_TIMES).max(EXPANDED_BYTES);
    if tensor.nbytes() > allowed {
        return Ok(Hash::TooLarge);
    }
    let mut hash = Hasher(Sha256::new());
    tensor.gathered().write_to(&mut hash)?;
    Ok(Hash::Hex(hex(&hash.0.finalize())))
}

fn table(out: &mut dyn Write, rows: &[Row<'_>]) -> io::Result<()> {
    let mut first_of: HashMap<Option<usize>, &str> = HashMap::new();
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let shared = match (row.layout, row.note.as_ref(), first_of.get(&row.storage)) {
                (Some(layout), ..) => layout.to_owned(),
                (_, Some(note), _) if row.storage.is_none() => safe(note),
                (.., Some(first)) => format!("shared with {}", safe(first)),
                (.., None) => String::new(),
            };
            if row.storage.is_some() {
                first_of.entry(row.storage).or_insert(&row.name);
            }
            let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
            let shape = format!("[{}]", shape.join(", "));
            [safe(&row.name), row.dtype.to_owned(), shape, bytes(row.nbytes), shared]
        })
        .collect();
    let storage =
        if cells.iter().all(|row| row.last().is_some_and(String::is_empty)) { "" } else { "storage" };
    let head = ["name", "dtype", "shape", "size", storage].map(str::to_owned);
    let mut widths = [0; 5];
    for row in cells.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let [name, dtype, shape, size, _] = widths;
    let mut line = |[a, b, c, d, e]: &[String; 5], style: anstyle::Style| {
        let text = format!("{a:name$}  {b:dtype$}  {c:shape$}  {d:>size$}  {e}");
        writeln!(out, "{style}{}{style:#}", text.trim_end())
    };
    line(&head, BOLD)?;
    cells.iter().try_for_each(|row| line(row, anstyle::Style::new()))?;
    for (index, row) in rows.iter().enumerate() {
        let text = match (&row.sha256, &row.note) {
            (Hash::Hex(hash), _) => hash,
            (Hash::TooLarge, Some(note)) => note,
            (Hash::TooLarge, None) => "-",
            _ => break,
        };
        let gap = if index == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{text}  {}", safe(&row.name))?;
    }
    Ok(())
}

/// The values that are no tensors: path, type, value.
fn list_values(out: &mut dyn Write, checkpoint: &Checkpoint) -> io::Result<()> {
    for (index, (path, value)) in checkpoint.values().enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        let shown = values::json(checkpoint, path, value);
        let type_name = shown.get("type").and_then(serde_json::Value::as_str).unwrap_or_default();
        let text = shown.get("value").map(ToString::to_string).unwrap_or_default();
        writeln!(out, "{gap}{}  {DIM}{}{DIM:#}  {}", safe(path), safe(type_name), safe(text))?;
    }
    Ok(())
}

fn totals(
    out: &mut dyn Write,
    containers: &[Container],
    checkpoint: &Checkpoint,
    tensors: usize,
) -> io::Result<()> {
    let summary = Totals::of(checkpoint.tensors().map(|(_, tensor)| tensor));
    let dtypes: Vec<String> =
        summary.bytes_by_dtype.iter().map(|(dtype, n)| format!("{dtype} {}", bytes(*n))).collect();
    let globals = globals(checkpoint);
    let files = if containers.len() > 1 { format!(", {} files", containers.len()) } else { String::new() };
    let len = containers.iter().fold(0, |sum: u64, container| sum.saturating_add(container.len()));
    writeln!(out)?;
    for (label, value) in [
        ("container", format!("{}{files}, {}", format(containers), bytes(len))),
        ("tensors", tensors.to_string()),
        ("parameters", count(summary.parameters)),
        ("bytes", dtypes.join(", ")),
        ("values", format!("{} beside the tensors", checkpoint.values().count())),
        ("globals", globals),
    ] {
        writeln!(out, "{DIM}{label:<12}{DIM:#}{value}")?;
    }
    if checkpoint.left_out > 0 {
        let n = checkpoint.left_out;
        writeln!(out, "{DIM}{:<12}{DIM:#}{n} tensors lie where state_dict() does not look", "left out")?;
    }
    Ok(())
}

/// The globals by risk: how many are known, and the names of the others.
fn globals(checkpoint: &Checkpoint) -> String {
    let of = |risk: Risk| -> Vec<String> {
        checkpoint.globals.iter().filter(|global| global.risk() == risk).map(safe).collect()
    };
    let mut parts = vec![format!("{} known", of(Risk::Known).len())];
    for risk in [Risk::Unknown, Risk::Dangerous] {
        let names = of(risk);
        if names.is_empty() {
            parts.extend((risk == Risk::Unknown).then(|| "0 unknown".to_owned()));
        } else {
            parts.push(format!("{} {}: {}", names.len(), risk.name(), names.join(", ")));
        }
    }
    parts.join(", ")
}

/// Sums over the tensors of a checkpoint. A tensor that stands under several names counts once.
pub(crate) struct Totals {
    /// Elements of all tensors.
    pub(crate) parameters: u64,
    /// Bytes of the elements, in the order in which the dtypes appear.
    pub(crate) bytes_by_dtype: Vec<(&'static str, u64)>,
}

impl Totals {
    pub(crate) fn of<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        let mut seen = std::collections::HashSet::new();
        let mut totals = Self { parameters: 0, bytes_by_dtype: Vec::new() };
        for tensor in tensors {
            let view = (tensor.storage().id(), tensor.storage_offset(), tensor.shape(), tensor.stride());
            if !seen.insert(view) {
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
