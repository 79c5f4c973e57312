//! Selection of tensors from a checkpoint, and of their names.

use std::borrow::Cow;
use std::ops::Range;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use tensor::{CompoundTensor, StorageId, Tensor, TensorEntry, Tensors};
use torch_import::{Checkpoint, CheckpointItem, CompoundItem, CompoundKind, ItemContent};

use super::weight_keys::{is_weight_key, key_of_weights};
use crate::{Context, InvalidOption, Model, Note, Problem, Result, Step, StepReport};

/// First parts of names that wrappers add to all tensors, besides the keys of weights.
const WRAPPERS: &[&str] = &["_orig_mod"];
/// Maximum number of keys that an error names.
const SHOWN: usize = 8;

/// Selection of tensors by key and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct Selection {
    /// Use what is under this key, such as `ema.model`; '' uses everything
    #[cfg_attr(feature = "cli", arg(long))]
    pub key: Option<String>,
    /// Use only tensors whose names match; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub include: Vec<String>,
    /// Leave out tensors whose names match; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub exclude: Vec<String>,
    /// Remove this from the start of names, such as `module.`
    #[cfg_attr(feature = "cli", arg(long, value_name = "PREFIX"))]
    pub strip_prefix: Option<String>,
}

impl Selection {
    /// Selects only the contents of this key; everything if the key is empty.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Adds a glob for tensors to select.
    #[must_use]
    pub fn include(mut self, glob: impl Into<String>) -> Self {
        self.include.push(glob.into());
        self
    }

    /// Adds a glob for tensors to leave out.
    #[must_use]
    pub fn exclude(mut self, glob: impl Into<String>) -> Self {
        self.exclude.push(glob.into());
        self
    }

    /// Sets the prefix to remove from the names.
    #[must_use]
    pub fn strip_prefix(self, prefix: impl Into<String>) -> Self {
        Self { strip_prefix: Some(prefix.into()), ..self }
    }

    /// Returns true if the selection is the default one.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The first selection of a model takes tensors from the checkpoint, and finds the key of the weights. A later one is about the
/// names that the steps before it left.
impl Step for Selection {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        let selected = if model.is_taken() { self.narrow(model) } else { self.take(model) };
        selected.map_err(|error| error.in_file(model.root()))?;
        Ok(StepReport::Names)
    }
}

impl Selection {
    fn take(&self, model: &mut Model) -> Result<()> {
        let mut origins = model.origins.is_some().then(Vec::new);
        let tensors = select(self, &model.checkpoint, &mut model.notes, origins.as_mut())?;
        model.set_tensors(tensors, origins);
        Ok(())
    }

    /// Selects among tensors that are taken from the checkpoint already, by the names that they have now and had there.
    ///
    /// # Errors
    /// When a pattern is malformed, no tensor is selected, or no name begins with the prefix to remove.
    fn narrow(&self, model: &mut Model) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let patterns = NamePatterns::new(&self.include, &self.exclude)?;
        let key = self.key.as_deref().filter(|key| !key.is_empty()).map(|key| format!("{key}."));
        let strip = self.strip_prefix.clone().filter(|prefix| !prefix.is_empty());
        let below = |name: &str| match &key {
            Some(key) => name.strip_prefix(key.as_str()).map(str::to_owned),
            None => Some(name.to_owned()),
        };
        let mut origins = model.origins.take().map(Vec::into_iter);
        let has_origins = origins.is_some();
        let (all, mut tensors) = (model.take_tensors(), Tensors::default());
        let (mut kept_origins, mut stripped) = (Vec::new(), 0_usize);
        for entry in all.entries() {
            let (whole, parts): (Option<&CompoundTensor>, Vec<(&str, &Tensor)>) = match entry {
                TensorEntry::Tensor(name, tensor) => (None, vec![(name, tensor)]),
                TensorEntry::Quantized(compound, parts) | TensorEntry::Compound(compound, parts) => {
                    (Some(compound), parts.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect())
                }
                _ => continue,
            };
            let mut kept = Vec::with_capacity(parts.len());
            for (name, tensor) in parts {
                let origin = origins.as_mut().and_then(Iterator::next).flatten();
                let Some(below) = below(name) else { continue };
                let names =
                    [Some(name), Some(&below), origin.as_deref(), whole.map(|whole| whole.name.as_str())];
                if patterns.select(names.into_iter().flatten()) {
                    stripped = stripped
                        .saturating_add(usize::from(strip.as_ref().is_some_and(|it| below.starts_with(it))));
                    kept.push((output_name(strip.as_deref(), &below), tensor.clone()));
                    kept_origins.push(origin);
                }
            }
            match whole {
                Some(whole) if !kept.is_empty() => {
                    let name = output_name(strip.as_deref(), &below(&whole.name).unwrap_or_default());
                    let CompoundTensor { kind, dtype, shape, .. } = whole;
                    tensors.push_compound(name, (kind.clone(), *dtype, shape.clone()), kept);
                }
                _ => tensors.extend(kept),
            }
        }
        if let Some(prefix) = strip {
            if stripped == 0 {
                return Err(Problem::NoSuchPrefix { prefix }.into());
            }
            model.notes.push(Note::PrefixRemoved { prefix, names: stripped, of: tensors.len() });
        }
        if tensors.is_empty() {
            return Err(Problem::AllTensorsExcluded.into());
        }
        model.set_tensors(tensors, has_origins.then_some(kept_origins));
        Ok(())
    }
}

/// Returns the name in the output of a tensor whose name relative to the key is `below`.
fn output_name(strip: Option<&str>, below: &str) -> String {
    let stripped = strip.and_then(|prefix| below.strip_prefix(prefix)).unwrap_or(below);
    if stripped.is_empty() { "tensor".to_owned() } else { stripped.to_owned() }
}

/// Selects tensors of `checkpoint` by key and name, and records their names there in `origins`.
///
/// # Errors
/// When a pattern is malformed, several keys contain weights, no tensor is selected, no name begins with the prefix to
/// remove, or a selected tensor has no data.
fn select(
    selection: &Selection,
    checkpoint: &Checkpoint,
    notes: &mut Vec<Note>,
    mut origins: Option<&mut Vec<Option<String>>>,
) -> Result<Tensors> {
    let patterns = NamePatterns::new(&selection.include, &selection.exclude)?;
    let optimizer = OptimizerState { keys: &checkpoint.optimizer_keys };
    let is_copy = |item: &CheckpointItem| {
        checkpoint.copy_key.is_some() && item.root_key() == checkpoint.copy_key.as_deref()
    };
    let found = if selection.key.is_some() {
        None
    } else {
        let is_wanted = |item: &CheckpointItem| patterns.may_select(item) && !is_copy(item);
        key_of_weights(checkpoint, &is_wanted, notes)?
    };
    let omits_optimizer = selection.key.is_none() && found.is_none();
    let key = selection.key.as_ref().or(found.as_ref());
    let key = key.map_or(SelectionKey::All, |key| SelectionKey::from_option(key, checkpoint));
    let rules = SelectionRules {
        key,
        patterns,
        strip: selection.strip_prefix.clone().filter(|prefix| !prefix.is_empty()),
    };
    // Most items of a hostile file are values, for which nothing is reserved.
    let mut tensors =
        Tensors::with_capacity(checkpoint.items.iter().filter(|item| item.tensor().is_some()).count());
    let (mut stripped, mut without_data) = (0_usize, None);
    if omits_optimizer {
        notes.extend(optimizer.note(checkpoint));
    }
    let is_taken = |item: &&CheckpointItem| {
        rules.key.includes(item) && !(omits_optimizer && (optimizer.includes(item) || is_copy(item)))
    };
    for item in checkpoint.items.iter().filter(is_taken) {
        let take_tensor = |(name, tensor): (Cow<'_, str>, &Tensor)| {
            let below = rules.below(item, &name)?;
            let output_name = output_name(rules.strip.as_deref(), below);
            let has_prefix = rules.strip.as_ref().is_some_and(|prefix| below.starts_with(prefix));
            stripped = stripped.saturating_add(usize::from(has_prefix));
            if let Some(origins) = &mut origins {
                origins.push(Some(name.into_owned()));
            }
            Some((output_name, tensor.clone()))
        };
        let compound = match &item.content {
            ItemContent::Compound(compound) => rules.below(item, &item.name).map(|below| (compound, below)),
            _ => None,
        };
        let Some((compound, below)) = compound else {
            tensors.extend(item.tensors().filter_map(take_tensor));
            continue;
        };
        let name = output_name(rules.strip.as_deref(), below);
        let CompoundItem { kind, dtype, shape, .. } = compound.as_ref();
        if let CompoundKind::Meta { what } = kind {
            without_data.get_or_insert((name.clone(), what));
        }
        let parts = item.tensors().filter_map(take_tensor);
        tensors.push_compound(name, (kind.clone(), *dtype, shape.clone()), parts);
    }
    if let Some(prefix) = rules.strip {
        if stripped == 0 {
            return Err(Problem::NoSuchPrefix { prefix }.into());
        }
        notes.push(Note::PrefixRemoved { prefix, names: stripped, of: tensors.len() });
    }
    cut_to_spans(&mut tensors, notes);
    if let Some((name, what)) = without_data {
        return Err(Problem::NoData { name, what: what.clone() }.into());
    }
    if tensors.is_empty() {
        return Err(no_tensors_problem(selection, checkpoint).into());
    }
    if selection.strip_prefix.is_none()
        && let Some(prefix) = wrapper_prefix(&tensors)
    {
        notes.push(Note::CommonPrefix { prefix });
    }
    Ok(tensors)
}

/// State of an optimizer, which a trainer keeps next to the weights.
struct OptimizerState<'c> {
    /// Paths of the dicts.
    keys: &'c [String],
}

impl OptimizerState<'_> {
    fn includes(&self, item: &CheckpointItem) -> bool {
        let below =
            |key: &String| item.name.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.'));
        self.keys.iter().any(below)
    }

    /// Returns the note that the tensors are left out; `None` if there are none.
    fn note(&self, checkpoint: &Checkpoint) -> Option<Note> {
        let items = checkpoint.items.iter().filter(|item| self.includes(item));
        let tensors = items.map(|item| item.tensors().count()).fold(0_usize, usize::saturating_add);
        (tensors > 0).then(|| Note::OptimizerLeftOut { keys: self.keys.to_vec(), tensors })
    }
}

/// Returns the prefix of all names, with its dot, if a wrapper or a training script adds it.
fn wrapper_prefix(tensors: &Tensors) -> Option<String> {
    let (first, _) = tensors.names().next()?.split_once('.')?;
    let is_wrapper = WRAPPERS.contains(&first) || is_weight_key(first);
    let prefix = format!("{first}.");
    (is_wrapper && tensors.names().all(|name| name.starts_with(&prefix))).then_some(prefix)
}

/// Minimum number of unused bytes at the ends of a storage for which it is cut.
const UNUSED_BYTES_MIN: u64 = 4096;

/// Cuts storages to the range that the selected tensors use: a slice keeps its whole storage alive, and the unused ends need
/// not be written.
fn cut_to_spans(tensors: &mut Tensors, notes: &mut Vec<Note>) {
    let mut spans: HashMap<StorageId, Range<u64>> = HashMap::new();
    // Small storages are ignored, because there may be a million of them.
    let is_worthwhile = |tensor: &Tensor| tensor.numel() > 0 && tensor.storage().len() >= UNUSED_BYTES_MIN;
    for (_, tensor) in tensors.iter().filter(|(_, tensor)| is_worthwhile(tensor)) {
        let span = tensor.span();
        let whole = spans.entry(tensor.storage().id()).or_insert_with(|| span.clone());
        *whole = whole.start.min(span.start)..whole.end.max(span.end);
    }
    let mut parts = HashMap::new();
    let mut saved = 0_u64;
    for (_, tensor) in tensors.tensors_mut() {
        let storage = tensor.storage();
        let Some(span) = spans.get(&storage.id()) else { continue };
        let unused = storage.len().saturating_sub(span.end.saturating_sub(span.start));
        if unused < UNUSED_BYTES_MIN {
            continue;
        }
        let part = parts.entry(storage.id()).or_insert_with(|| {
            saved = saved.saturating_add(unused);
            storage.slice(span.clone())
        });
        let before = span.start.checked_div(tensor.dtype().size()).unwrap_or_default();
        // An empty tensor may have any offset, even past the end of the cut storage.
        let start = if tensor.numel() == 0 { before } else { tensor.storage_offset() };
        let offset = start.saturating_sub(before);
        if let Some(part) = part.clone()
            && let Ok(cut) = tensor.with_storage(tensor.dtype(), offset, part)
        {
            *tensor = cut;
        }
    }
    if saved > 0 {
        notes.push(Note::UnusedBytes { bytes: saved });
    }
}

fn no_tensors_problem(selection: &Selection, checkpoint: &Checkpoint) -> Problem {
    match &selection.key {
        _ if checkpoint.tensors().next().is_none() => Problem::NoTensors,
        Some(key) => {
            let is_tensor = |item: &&CheckpointItem| !matches!(item.content, ItemContent::Value(_));
            let tensors = || checkpoint.items.iter().filter(is_tensor);
            // The key that was given may be below others, such as `model_ema` in `state_dict.model_ema`.
            let below = format!(".{key}.");
            let path = |item: &CheckpointItem| {
                let (before, _) = item.name.split_once(&below)?;
                Some(format!("{before}.{key}"))
            };
            let mut under: Vec<String> = tensors().filter_map(path).collect();
            if under.is_empty() {
                under = tensors().filter_map(CheckpointItem::root_key).map(str::to_owned).collect();
            }
            let mut seen = HashSet::new();
            under.retain(|key| seen.insert(key.clone()));
            under.truncate(SHOWN);
            Problem::NoTensorsUnderKey { key: key.clone(), under }
        }
        None => Problem::AllTensorsExcluded,
    }
}

/// Part of the checkpoint that a selection is restricted to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SelectionKey {
    /// The whole checkpoint, without a restriction.
    All,
    /// Key of the root dict. The key may contain dots, and may be a prefix of another key.
    Root(String),
    /// Path prefix without the dot that follows, and the key of the root dict with which it begins, if any.
    Path(String, Option<String>),
}

impl SelectionKey {
    /// Interprets a given key: a key of the root dict if there is one, otherwise a path prefix.
    fn from_option(key: &str, checkpoint: &Checkpoint) -> Self {
        let is_root =
            |item: &CheckpointItem| item.root_key() == Some(key) || (item.is_at_root() && item.name == key);
        if key.is_empty() {
            return Self::All;
        }
        if checkpoint.items.iter().any(is_root) {
            return Self::Root(key.to_owned());
        }
        let begins = |root: &&str| key.strip_prefix(root).is_some_and(|rest| rest.starts_with('.'));
        let roots = checkpoint.items.iter().filter_map(CheckpointItem::root_key).filter(begins);
        Self::Path(key.to_owned(), roots.max_by_key(|root| root.len()).map(str::to_owned))
    }

    fn includes(&self, item: &CheckpointItem) -> bool {
        match self {
            Self::All | Self::Path(_, None) => true,
            Self::Path(_, Some(root)) => item.root_key() == Some(root),
            Self::Root(key) => match item.root_key() {
                Some(root) => root == key,
                None => item.name == *key,
            },
        }
    }

    /// Returns the name relative to the key; `None` if the item is not under the key.
    fn below<'n>(&self, item: &CheckpointItem, name: &'n str) -> Option<&'n str> {
        let key = match self {
            Self::All => return Some(name),
            Self::Root(key) | Self::Path(key, _) => key.as_str(),
        };
        if !self.includes(item) {
            return None;
        }
        if name == key { Some("") } else { name.strip_prefix(key)?.strip_prefix('.') }
    }
}

/// Patterns that select tensors by name.
pub struct NamePatterns {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
}

impl NamePatterns {
    /// Compiles globs.
    ///
    /// # Errors
    /// When a glob is malformed.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self> {
        Ok(Self { include: compile_globs(include)?, exclude: compile_globs(exclude)? })
    }

    /// Returns true if a tensor with these names is selected: in full, as a listing prints it, or relative to the key.
    pub fn select<'n>(&self, names: impl Iterator<Item = &'n str>) -> bool {
        if self.include.is_none() && self.exclude.is_none() {
            return true;
        }
        let names: Vec<&str> = names.collect();
        let matches = |globs: &GlobSet| names.iter().any(|name| globs.is_match(name));
        self.include.as_ref().is_none_or(matches) && self.exclude.as_ref().is_none_or(|globs| !matches(globs))
    }

    /// Returns true if a tensor of the item may be selected, whichever key holds the weights.
    fn may_select(&self, item: &CheckpointItem) -> bool {
        let below = |key: Option<&str>| item.name.strip_prefix(key?)?.strip_prefix('.');
        let relative = [below(item.root_key()), below(item.second_key())];
        let names = [Some(item.name.as_str())].into_iter().chain(relative).flatten();
        // A pattern may be meant for the parts of a compound tensor.
        matches!(item.content, ItemContent::Compound(_)) || self.select(names)
    }
}

struct SelectionRules {
    key: SelectionKey,
    patterns: NamePatterns,
    /// Prefix to remove from the names; not empty.
    strip: Option<String>,
}

impl SelectionRules {
    /// Returns the name relative to the key; `None` if the tensor is not selected.
    fn below<'n>(&self, item: &CheckpointItem, name: &'n str) -> Option<&'n str> {
        let below = self.key.below(item, name)?;
        // A pattern that matches the name of a compound tensor selects all of its parts.
        let whole = matches!(item.content, ItemContent::Compound(_)).then_some(item.name.as_str());
        let whole_below = whole.and_then(|whole| self.key.below(item, whole));
        let names = [Some(below), Some(name), whole, whole_below];
        self.patterns.select(names.into_iter().flatten()).then_some(below)
    }
}

fn compile_globs(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let wrong = |pattern: &str, error: &globset::Error| InvalidOption::Pattern {
        pattern: pattern.to_owned(),
        reason: error.kind().to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| wrong(pattern, &error))?);
    }
    Ok(Some(set.build().map_err(|error| wrong(&patterns.join(" "), &error))?))
}
