//! `torch2carton inspect`: the tensors of a checkpoint, for people and for programs.

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::{Context, Result};
use mapped::{Blob, Sink, Window};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tensor::{StorageId, Tensor};
use torch_import::{Checkpoint, Container};

use crate::cli;
use crate::terminal::{BOLD, DIM, bytes, count, safe};

/// Version of the object that `--json` prints.
const SCHEMA_VERSION: u32 = 1;
/// An expanded view is hashed when it has at most this many bytes, or at most this many times the bytes
/// of its storage: a scalar can be expanded to terabytes.
const EXPANDED_BYTES: u64 = 1 << 30;
const EXPANDED_TIMES: u64 = 16;

pub(crate) fn run(args: &cli::Inspect) -> Result<()> {
    let container = Container::open(&args.file).with_context(|| path(args))?;
    let checkpoint = Checkpoint::read(&container).with_context(|| path(args))?;
    let rows = rows(&checkpoint, args.sha256).with_context(|| path(args))?;
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        json(&mut out, &container, &checkpoint, &rows)?;
        out.flush()?;
    } else {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        table(&mut out, &rows)?;
        totals(&mut out, &container, &checkpoint)?;
        out.flush()?;
    }
    Ok(())
}

fn path(args: &cli::Inspect) -> String {
    args.file.display().to_string()
}

/// One object, a tensor a line.
fn json(
    out: &mut dyn Write,
    container: &Container,
    checkpoint: &Checkpoint<'_>,
    rows: &[Row<'_>],
) -> io::Result<()> {
    let format = container.format().name();
    write!(out, "{{\"schema_version\": {SCHEMA_VERSION}, \"format\": \"{format}\", \"tensors\": [")?;
    for (index, row) in rows.iter().enumerate() {
        write!(out, "{}", if index == 0 { "\n" } else { ",\n" })?;
        serde_json::to_writer(&mut *out, row)?;
    }
    let globals: Vec<String> = checkpoint.globals.iter().map(ToString::to_string).collect();
    write!(out, "\n], \"globals\": ")?;
    serde_json::to_writer(&mut *out, &globals)?;
    writeln!(out, "}}")
}

/// A tensor in the contract of `--json`.
#[derive(Serialize)]
struct Row<'c> {
    name: &'c str,
    dtype: &'static str,
    shape: &'c [u64],
    stride: &'c [u64],
    storage_offset: u64,
    /// First use 0; equal for tensors that share memory.
    storage: usize,
    nbytes: u64,
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
    /// `null`: the view expands its storage to more than is sensible to hash.
    TooLarge,
    Hex(String),
}

impl Hash {
    fn is_not_asked(&self) -> bool {
        matches!(self, Self::NotAsked)
    }
}

fn rows<'c>(checkpoint: &'c Checkpoint<'_>, sha256: bool) -> Result<Vec<Row<'c>>> {
    let mut storages: HashMap<StorageId, usize> = HashMap::new();
    let row = |(name, tensor): &'c (String, Tensor<'_>)| {
        let next = storages.len();
        let mut row = Row {
            name,
            dtype: tensor.dtype().name(),
            shape: tensor.shape(),
            stride: tensor.stride(),
            storage_offset: tensor.storage_offset(),
            storage: *storages.entry(tensor.storage().id()).or_insert(next),
            nbytes: tensor.nbytes(),
            sha256: Hash::NotAsked,
            note: None,
        };
        if sha256 {
            row.sha256 = hash(tensor).with_context(|| format!("tensor `{name}`"))?;
            if matches!(row.sha256, Hash::TooLarge) {
                row.note = Some(format!(
                    "not hashed: an expanded view of {} over a storage of {}",
                    bytes(tensor.nbytes()),
                    bytes(tensor.storage().len())
                ));
            }
        }
        Ok(row)
    };
    checkpoint.tensors.iter().map(row).collect()
}

fn hash(tensor: &Tensor<'_>) -> io::Result<Hash> {
    struct Hasher(Sha256);
    impl<'a> Sink<'a> for Hasher {
        fn write(&mut self, window: Window<'a>) -> io::Result<()> {
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
    Ok(Hash::Hex(hex(&hash.0.finalize().into())))
}

pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn table(out: &mut dyn Write, rows: &[Row<'_>]) -> io::Result<()> {
    let head = ["name", "dtype", "shape", "size", "storage"].map(str::to_owned);
    let mut first_of: HashMap<usize, &str> = HashMap::new();
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let shared = match first_of.get(&row.storage) {
                Some(first) => format!("shared with {}", safe(first)),
                None => String::new(),
            };
            first_of.entry(row.storage).or_insert(row.name);
            let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
            let shape = format!("[{}]", shape.join(", "));
            [safe(row.name), row.dtype.to_owned(), shape, bytes(row.nbytes), shared]
        })
        .collect();
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
            _ => break,
        };
        let gap = if index == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{text}  {}", safe(row.name))?;
    }
    Ok(())
}

fn totals(out: &mut dyn Write, container: &Container, checkpoint: &Checkpoint<'_>) -> io::Result<()> {
    let summary = Totals::of(&checkpoint.tensors);
    let dtypes: Vec<String> =
        summary.bytes_by_dtype.iter().map(|(dtype, n)| format!("{dtype} {}", bytes(*n))).collect();
    let (known, unknown): (Vec<_>, Vec<_>) = checkpoint.globals.iter().partition(|global| global.is_known());
    let unknown_names: Vec<String> = unknown.iter().map(safe).collect();
    let globals = match unknown_names.as_slice() {
        [] => format!("{} known, 0 unknown", known.len()),
        names => format!("{} known, {} unknown: {}", known.len(), names.len(), names.join(", ")),
    };
    writeln!(out)?;
    for (label, value) in [
        ("container", format!("{}, {}", container.format().name(), bytes(container.len()))),
        ("tensors", checkpoint.tensors.len().to_string()),
        ("parameters", count(summary.parameters)),
        ("bytes", dtypes.join(", ")),
        ("values", format!("{} beside the tensors", checkpoint.values)),
        ("globals", globals),
    ] {
        writeln!(out, "{DIM}{label:<12}{DIM:#}{value}")?;
    }
    container.notes().iter().try_for_each(|note| writeln!(out, "{DIM}{:<12}{DIM:#}{}", "note", safe(note)))
}

/// Sums over the tensors of a checkpoint. A tensor that stands under several names counts once.
pub(crate) struct Totals {
    /// Elements of all tensors.
    pub(crate) parameters: u64,
    /// Bytes of the elements, in the order in which the dtypes appear.
    pub(crate) bytes_by_dtype: Vec<(&'static str, u64)>,
}

impl Totals {
    pub(crate) fn of(tensors: &[(String, Tensor<'_>)]) -> Self {
        let mut seen = std::collections::HashSet::new();
        let mut totals = Self { parameters: 0, bytes_by_dtype: Vec::new() };
        for (_, tensor) in tensors {
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
