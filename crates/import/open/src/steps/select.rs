//! Selection of tensors from a checkpoint, and of their names.

use std::borrow::Cow;
use std::ops::Range;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use serde::{Deserialize, Serialize};
use tensor::{CompoundTensor, StorageId, Tensor, TensorEntry, Tensors};
use torch_import::{
    Checkpoint, CheckpointItem, CompoundItem, CompoundKind, Container, ItemContent, OmissionReason,
    OmissionTotal,
};

use super::name_patterns::{NamePatterns, unused_patterns};
use super::rename::same_name;
use super::twins::{SelectedTwins, original_name};
use crate::error::with_constants;
use crate::weights::find::{WeightChoice, find_weights};
use crate::weights::key_totals::KeyTotal;
use crate::weights::optimizers::Optimizers;
use crate::weights::wrapper_names::wrapper_note;
use crate::{Context, Model, Note, Problem, Result, Step, StepReport};

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
        let patterns = NamePatterns::new(&self.include, &self.exclude)?;
        let is_selected = |(name, _): &(String, _)| patterns.select(std::iter::once(name.as_str()));
        let unread: Vec<String> = model.checkpoint.unreadable.iter().map(|(name, _)| name.clone()).collect();
        model.checkpoint.unreadable.retain(is_selected);
        model.checkpoint.refuse_unreadable()?;
        let mut origins = model.origins.is_some().then(Vec::new);
        let everything = self.names_only_program(model).then(|| self.clone().key(""));
        let selection = everything.as_ref().unwrap_or(self);
        let tensors = select(selection, &model.checkpoint, &mut model.notes, origins.as_mut());
        let tensors = tensors.map_err(|error| with_constants(error, &model.containers))?;
        // A pattern that leaves out a tensor which cannot be read has a use.
        let names_unread = |pattern: &String| {
            let names = |each: &mut dyn FnMut(&str)| unread.iter().for_each(|name| each(name));
            unused_patterns(std::iter::once(pattern), names).is_empty()
        };
        model.notes.retain(|note| !matches!(note, Note::PatternUnused { pattern } if names_unread(pattern)));
        if self.strip_prefix.is_none() {
            let names: Vec<&str> = tensors.names().collect();
            let note = wrapper_note(&names, || has_own_prefix(model));
            model.notes.extend(note);
        }
        model.notes.extend(Note::of_factors(tensors.names()));
        model.set_tensors(tensors, origins);
        Ok(())
    }

    /// Returns true if the key is the name of the only model of an exported program, whose tensors have their own names.
    fn names_only_program(&self, model: &Model) -> bool {
        let mut programs = model.containers.iter().flat_map(Container::exported_models);
        let Some(key) =
            self.key.as_deref().filter(|key| programs.next().is_some_and(|only| only.name == *key))
        else {
            return false;
        };
        let is_below = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
        programs.next().is_none() && !model.checkpoint.items.iter().any(|item| is_below(&item.name))
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
        let mut before_strip = Vec::new();
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
                    before_strip.push(below);
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
        model.notes.extend(prefix_note(strip, stripped, &tensors, &before_strip)?);
        if tensors.is_empty() {
            return Err(Problem::AllTensorsExcluded.into());
        }
        model.set_tensors(tensors, has_origins.then_some(kept_origins));
        Ok(())
    }
}

/// Returns true if the names are those of the model's class: a document describes it, or they come from a pickled module.
fn has_own_prefix(model: &Model) -> bool {
    let is_of_module =
        |total: &OmissionTotal| matches!(total.reason, OmissionReason::Attribute | OmissionReason::Hook);
    model.checkpoint.left_out.totals.iter().any(is_of_module)
        || matches!(model.sources.documents.config(), Ok(Some(text)) if text.contains("\"architectures\""))
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
    let optimizers = Optimizers::find(|| checkpoint.items.iter(), &checkpoint.optimizer_keys);
    let is_copy = |item: &CheckpointItem| {
        checkpoint.copy_key.is_some() && item.root_key() == checkpoint.copy_key.as_deref()
    };
    let found = if selection.key.is_some() {
        None
    } else {
        let is_wanted = |item: &&CheckpointItem| patterns.may_select(item) && !is_copy(item);
        key_of_weights(find_weights(|| checkpoint.items.iter().filter(is_wanted), &optimizers), notes)?
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
    let mut before_strip = Vec::new();
    if omits_optimizer {
        notes.extend(optimizer_note(&optimizers, checkpoint));
    }
    let is_taken = |item: &&CheckpointItem| {
        rules.key.includes(item) && !(omits_optimizer && (optimizers.include(&item.name) || is_copy(item)))
    };
    let mut twins = SelectedTwins::new(&checkpoint.twins);
    for item in checkpoint.items.iter().filter(is_taken) {
        let take_tensor = |(name, tensor): (Cow<'_, str>, &Tensor)| {
            let below = rules.below(item, &name)?;
            twins.select(&item.name);
            let below = &*original_name(&checkpoint.twins, below, item);
            let output_name = output_name(rules.strip.as_deref(), below);
            let has_prefix = rules.strip.as_ref().is_some_and(|prefix| below.starts_with(prefix));
            stripped = stripped.saturating_add(usize::from(has_prefix));
            if rules.strip.is_some() {
                before_strip.push(below.to_owned());
            }
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
        let name = output_name(rules.strip.as_deref(), &original_name(&checkpoint.twins, below, item));
        let CompoundItem { kind, dtype, shape, .. } = compound.as_ref();
        if let CompoundKind::Meta { what } = kind {
            without_data.get_or_insert((name.clone(), what));
        }
        let parts = item.tensors().filter_map(take_tensor);
        tensors.push_compound(name, (kind.clone(), *dtype, shape.clone()), parts);
    }
    twins.refuse_pairs()?;
    let names = |each: &mut dyn FnMut(&str)| {
        for item in &checkpoint.items {
            for name in std::iter::once(Cow::from(&item.name)).chain(item.tensors().map(|(name, _)| name)) {
                each(&name);
                rules.key.below(item, &name).into_iter().for_each(&mut *each);
            }
        }
    };
    let unused = unused_patterns(selection.include.iter().chain(&selection.exclude), names);
    notes.extend(unused.into_iter().map(|pattern| Note::PatternUnused { pattern }));
    notes.extend(prefix_note(rules.strip, stripped, &tensors, &before_strip)?);
    cut_to_spans(&mut tensors, notes);
    if let Some((name, what)) = without_data {
        return Err(Problem::NoData { name, what: what.clone() }.into());
    }
    if tensors.is_empty() {
        return Err(no_tensors_problem(selection, checkpoint).into());
    }
    Ok(tensors)
}

/// Returns the note that a prefix was removed from names, if one is to be removed.
///
/// # Errors
/// When no name began with it, or two names are equal without it.
fn prefix_note(
    prefix: Option<String>,
    names: usize,
    tensors: &Tensors,
    before: &[String],
) -> Result<Option<Note>> {
    let Some(prefix) = prefix else { return Ok(None) };
    if names == 0 {
        return Err(Problem::NoSuchPrefix { prefix }.into());
    }
    if let Some([name, first, second]) = same_name(tensors.names().zip(before.iter().map(String::as_str))) {
        return Err(Problem::SameNameWithoutPrefix { name, first, second }.into());
    }
    Ok(Some(Note::PrefixRemoved { prefix, names, of: tensors.len() }))
}

/// Returns the key to use, if there is one, and notes what it leaves out.
///
/// # Errors
/// When the weights may be under several keys.
fn key_of_weights(weights: WeightChoice, notes: &mut Vec<Note>) -> Result<Option<String>> {
    let totals = |keys: Vec<KeyTotal>| keys.into_iter().map(Into::into).collect();
    match weights {
        WeightChoice::Below { key: KeyTotal { key, tensors, .. }, left_out } => {
            notes.push(Note::UsingKey { key: key.clone(), tensors, left_out: totals(left_out) });
            Ok(Some(key))
        }
        WeightChoice::All { sets } => {
            if (2..=SHOWN).contains(&sets.len()) {
                notes
                    .push(Note::SetsKept { keys: sets.into_iter().map(|it| (it.key, it.tensors)).collect() });
            }
            Ok(None)
        }
        WeightChoice::OneOf(keys) => Err(Problem::SeveralKeys { keys: totals(keys) }.into()),
    }
}

/// Returns the note that the tensors of optimizers are left out; `None` if there are none.
fn optimizer_note(optimizers: &Optimizers, checkpoint: &Checkpoint) -> Option<Note> {
    let (mut keys, mut tensors) = (Vec::new(), 0_usize);
    for item in &checkpoint.items {
        if let Some(path) = optimizers.path_of(&item.name)
            && let count @ 1.. = item.tensors().count()
        {
            tensors = tensors.saturating_add(count);
            if keys.last() != Some(&path) && !keys.contains(&path) {
                keys.push(path);
            }
        }
    }
    let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    (tensors > 0).then_some(Note::OptimizerLeftOut { keys, tensors })
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
        _ if checkpoint.tensors().next().is_none() => Problem::NoTensors { constants: 0 },
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
pub(super) enum SelectionKey {
    /// The whole checkpoint, without a restriction.
    All,
    /// Key of the root dict. The key may contain dots, and may be a prefix of another key.
    Root(String),
    /// Path prefix without the dot that follows, and the key of the root dict with which it begins, if any.
    Path(String, Option<String>),
}

impl SelectionKey {
    /// Interprets a given key: a key of the root dict if there is one, otherwise a path prefix.
    pub(super) fn from_option(key: &str, checkpoint: &Checkpoint) -> Self {
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
    pub(super) fn below<'n>(&self, item: &CheckpointItem, name: &'n str) -> Option<&'n str> {
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
