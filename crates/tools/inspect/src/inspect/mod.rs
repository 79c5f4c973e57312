//! Inspection of a checkpoint: its tensors, its values, and the globals that it names.

pub(crate) mod hashes;
pub(crate) mod module_tree;
pub(crate) mod named;
pub(crate) mod quantized;
pub(crate) mod rows;
pub(crate) mod statistics;

use byte_source::Location;
use foldhash::{HashMap, HashMapExt, HashSet};
use open::files::{FilesNote, ShardPolicy};
use open::{
    AdapterOverview, Model, NamePatterns, Note, OpenOptions, Totals, ValueRow, ValueRows, encode_descriptions,
};
use output::file_name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tensor::Tensors;
use torch_import::{
    Checkpoint, CheckpointItem, CheckpointNote, CheckpointValue, Container, GraphSignature, ItemContent,
    Omission, OmissionReason, Risk, ValueExtent,
};

use self::hashes::hash_rows;
use self::rows::{TensorRow, build_rows};
use crate::{Error, Observer, Problem, Result, TreeRow, module_tree};

/// Version of the fields of [`InspectReport`].
const SCHEMA_VERSION: u32 = 1;

/// Options for inspecting a checkpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct InspectOptions {
    /// Checkpoint file, or folder with a checkpoint. A shard is inspected alone.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub input: Location,
    /// Arrange the tensors by module, with sums; modules that only differ in their number have one row
    #[cfg_attr(feature = "cli", arg(long))]
    pub tree: bool,
    /// Show N levels of the tree; implies --tree
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = parse_depth))]
    pub depth: Option<usize>,
    /// List only the tensors and values with a name that matches; may be repeated
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub include: Vec<String>,
    /// Leave out the tensors and values with a name that matches; may be repeated
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub exclude: Vec<String>,
    /// Sort the tensors [default: the order of the file]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY"))]
    pub sort: Option<TensorSort>,
    /// Compute minimum, maximum, mean and standard deviation of each tensor, and count zeros, NaN and infinities
    #[serde(rename = "stats")]
    #[cfg_attr(feature = "cli", arg(long = "stats"))]
    pub statistics: bool,
    /// True to add a histogram to the statistics of each tensor.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub histograms: bool,
    /// Hash the elements of each tensor (C order, little-endian)
    #[cfg_attr(feature = "cli", arg(long))]
    pub sha256: bool,
    /// List the values that are not tensors, too, and the attributes of pickled modules
    #[serde(rename = "all")]
    #[cfg_attr(feature = "cli", arg(long = "all"))]
    pub values: bool,
    /// List quantized weights as they are stored: codes, scales and zero points
    #[cfg_attr(feature = "cli", arg(long))]
    pub packed: bool,
}

#[cfg(feature = "cli")]
fn parse_depth(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|depth| *depth > 0).ok_or("expected a number from 1 on")
}

/// Order of the tensors in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TensorSort {
    /// Names in ascending order of their bytes
    Name,
    /// Sizes in bytes, the largest first
    Size,
}

impl InspectOptions {
    /// Creates options that list the tensors of `input`.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }

    /// Returns true if the tensors are arranged by module.
    fn has_tree(&self) -> bool {
        self.tree || self.depth.is_some()
    }

    /// Returns true if an option asks for more than a list of contents; that of a carton has its documents and files, too.
    pub fn asks_for_rows(&self) -> bool {
        let has_patterns = !(self.include.is_empty() && self.exclude.is_empty());
        let has_order = self.has_tree() || self.sort.is_some();
        has_patterns || has_order || self.sha256 || self.values || self.packed || self.statistics
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
    /// Settings of the adapter whose tensors these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterOverview>,
    /// Arguments and results of the programs in an archive of `torch.export`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<GraphSignature>,
    /// Tensors in the requested order.
    pub tensors: Vec<TensorRow>,
    /// Modules and tensors as a tree, if the options ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<TreeRow>>,
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

/// Reads a checkpoint and lists its contents. Reads the elements of tensors only to hash them.
///
/// # Errors
/// When the input cannot be read, is not a checkpoint, or is damaged, or `observer` stops the work.
pub fn inspect(options: &InspectOptions, observer: &dyn Observer) -> Result<InspectReport> {
    let mut open = OpenOptions::reading(vec![options.input.clone()], ShardPolicy::ThisFileOnly);
    open.documents = !options.packed;
    let model = Model::open(&open, observer)?;
    let (format, nbytes) = (model.format(), model.nbytes());
    let Model { sources, containers, mut checkpoint, notes, carton, .. } = model;
    let mut rows = carton.map(|carton| carton.values);
    let names: Vec<String> = containers.iter().map(|container| file_name(container.path())).collect();
    encode_descriptions(!options.packed, &mut checkpoint);
    let mut items = std::mem::take(&mut checkpoint.items);
    let mut quantization_notes = Vec::new();
    let schemes = if options.packed {
        HashMap::new()
    } else {
        quantized::replace_stored_parts(&mut items, &sources, &mut quantization_notes)
    };
    let attributes = if options.values { module_attributes(&checkpoint) } else { Vec::new() };
    let attributes = select_items(&mut items, attributes, rows.as_mut(), options)?;
    let value_count = items.iter().filter(|item| matches!(item.content, ItemContent::Value(_))).count();
    let value_count = rows.as_ref().map_or(value_count, Vec::len);
    let adapter = AdapterOverview::read(&sources).ok().flatten();
    let item_names = items.iter().map(|item| item.name.as_str());
    let factors = if adapter.is_none() { Note::of_factors(item_names) } else { None };
    let left_out = Note::omission_notes(&checkpoint.left_out);
    let (programs, damaged) = signatures(&containers);
    let risk = |risk: Risk| Json::from(risk.name());
    // Those of a carton are about the module that was made of the tensors.
    let globals = if rows.is_some() { &[] } else { checkpoint.globals() }.iter();
    let mut report = InspectReport {
        schema_version: SCHEMA_VERSION,
        file: options.input.path().display().to_string(),
        format,
        files: if names.len() > 1 { names } else { Vec::new() },
        nbytes,
        adapter,
        programs,
        globals: globals.clone().map(ToString::to_string).collect(),
        risks: globals.map(|global| (global.to_string(), risk(global.risk()))).collect(),
        values: None,
        value_count,
        totals: Totals::default(),
        left_out_count: checkpoint.left_out.count(),
        notes: notes
            .into_iter()
            .chain(factors)
            .chain(left_out)
            .chain(damaged)
            .chain(quantization_notes)
            .collect(),
        left_out: std::mem::take(&mut checkpoint.left_out.listed),
        tensors: Vec::new(),
        tree: None,
    };
    if options.values {
        let value = |item: &mut CheckpointItem| {
            let ItemContent::Value(value) = &item.content else { return None };
            let value = value.clone();
            Some((std::mem::take(&mut item.name), value))
        };
        let listed = items.iter_mut().filter_map(value).chain(attributes);
        report.values = Some(match rows {
            Some(rows) => ValueRows::from_document(rows),
            None => ValueRows::new(checkpoint, listed.collect()),
        });
    } else {
        // Frees the objects of the pickle, which can take more memory than all following steps.
        drop(checkpoint);
    }
    items.retain(|item| !matches!(item.content, ItemContent::Value(_)));
    items.shrink_to_fit();
    byte_source::report_memory_freed();
    add_tensors(&mut report, items, options, observer)?;
    for row in report.tensors.iter_mut().filter(|_| !schemes.is_empty()) {
        row.quantization = schemes.get(&row.name).cloned().map(Box::new).or(row.quantization.take());
    }
    let tied: HashSet<String> =
        containers.iter().flat_map(Container::tied_names).map(|(name, _)| name.to_owned()).collect();
    for row in report.tensors.iter_mut().filter(|row| row.note.is_none() && tied.contains(&row.name)) {
        row.note = Some("a name from the metadata".into());
    }
    for note in &report.notes {
        observer.note(note);
    }
    Ok(report)
}

/// Returns the signatures of the programs in the files, and a note for each that is damaged: the tensors can be read without it.
fn signatures(containers: &[Container]) -> (Vec<GraphSignature>, Vec<Note>) {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for model in containers.iter().flat_map(Container::exported_models) {
        match model.signature() {
            Ok(signature) => found.extend(signature),
            Err(error) => {
                let note = CheckpointNote::Format { text: error.to_string() };
                notes.push(Note::Sources(FilesNote::Container { files: Vec::new(), note }));
            }
        }
    }
    (found, notes)
}

/// Lists tensors that are not from a checkpoint, such as those that a program holds. `nbytes` is the length of their file, and
/// `options` are those of an inspection; values are not listed.
///
/// # Errors
/// When a tensor cannot be read, no name matches the patterns, or `observer` stops the work.
pub fn inspect_tensors(
    options: &InspectOptions,
    tensors: Tensors,
    (format, nbytes): (&'static str, u64),
    observer: &dyn Observer,
) -> Result<InspectReport> {
    let mut items =
        tensors.into_iter().map(|(name, tensor)| CheckpointItem::from_tensor(name, tensor)).collect();
    select_items(&mut items, Vec::new(), None, options)?;
    let mut report = InspectReport {
        schema_version: SCHEMA_VERSION,
        file: options.input.path().display().to_string(),
        format,
        files: Vec::new(),
        nbytes,
        adapter: None,
        programs: Vec::new(),
        globals: Vec::new(),
        risks: Map::new(),
        values: None,
        value_count: 0,
        totals: Totals::default(),
        left_out_count: 0,
        notes: Vec::new(),
        left_out: Vec::new(),
        tensors: Vec::new(),
        tree: None,
    };
    add_tensors(&mut report, items, options, observer)?;
    Ok(report)
}

/// Adds the rows, totals and statistics of tensors to a report.
fn add_tensors(
    report: &mut InspectReport,
    items: Vec<CheckpointItem>,
    options: &InspectOptions,
    observer: &dyn Observer,
) -> Result<()> {
    report.tensors = build_rows(items);
    report.totals = totals(&report.tensors);
    if options.sha256 {
        hash_rows(&mut report.tensors, options, report.nbytes, observer)?;
    }
    match options.sort {
        None => {}
        Some(TensorSort::Name) => report.tensors.sort_by(|first, second| first.name.cmp(&second.name)),
        Some(TensorSort::Size) => report.tensors.sort_by_key(|row| std::cmp::Reverse(row.stored_nbytes())),
    }
    if options.statistics {
        let (file, nbytes) = (options.input.path(), report.nbytes);
        statistics::add_statistics(&mut report.tensors, options.histograms, file, nbytes, observer)?;
    }
    report.tree = options.has_tree().then(|| module_tree(&report.tensors, options.depth));
    Ok(())
}

/// Sums up the rows that have a storage.
fn totals(rows: &[TensorRow]) -> Totals {
    let shown = rows.iter().filter_map(|row| Some((row.dtype, row.storage?, row.stored()?)));
    Totals::from_shown(shown, rows.len())
}

/// Keeps the items, and the rows of values, whose names match the patterns of the options; returns the values that do.
///
/// # Errors
/// When a pattern is malformed, or no name matches.
fn select_items(
    items: &mut Vec<CheckpointItem>,
    mut values: Vec<(String, CheckpointValue)>,
    mut rows: Option<&mut Vec<ValueRow>>,
    options: &InspectOptions,
) -> Result<Vec<(String, CheckpointValue)>> {
    let patterns = NamePatterns::new(&options.include, &options.exclude)?;
    if options.include.is_empty() && options.exclude.is_empty() {
        return Ok(values);
    }
    items.retain(|item| {
        let parts: Vec<_> = item.tensors().map(|(name, _)| name).collect();
        patterns.select([item.name.as_str()].into_iter().chain(parts.iter().map(AsRef::as_ref)))
    });
    values.retain(|(name, _)| patterns.select(std::iter::once(name.as_str())));
    if let Some(rows) = &mut rows {
        rows.retain(|row| patterns.select(std::iter::once(row.path.as_str())));
    }
    if items.is_empty() && values.is_empty() && rows.is_none_or(|rows| rows.is_empty()) {
        return Err(Error::from(Problem::NoNameMatches).in_file(options.input.path()));
    }
    Ok(values)
}

/// Returns the attributes of pickled modules that are not tensors, which `state_dict()` does not return, with their names.
pub(crate) fn module_attributes(checkpoint: &Checkpoint) -> Vec<(String, CheckpointValue)> {
    let attribute = |omission: &Omission| {
        let is_attribute = omission.reason == OmissionReason::Attribute && omission.file.is_none();
        let object = omission.object.filter(|_| is_attribute)?;
        Some((
            omission.name.clone(),
            CheckpointValue::Object { object, pickle: 0, extent: ValueExtent::Whole },
        ))
    };
    checkpoint.left_out.listed.iter().filter_map(attribute).collect()
}
