//! Selection of tensors from a checkpoint, and of their names.

use std::borrow::Cow;
use std::ops::Range;

use foldhash::{HashMap, HashMapExt};
use globset::{Glob, GlobSet, GlobSetBuilder};
use tensor::{StorageId, Tensor, Tensors};
use torch_import::{Checkpoint, Compound, CompoundKind, Item, ItemContent};

use crate::{Error, InvalidOption, Note, Result};

/// Keys under which training scripts store the weights, next to other state.
const WEIGHT_KEYS: &[&str] = &["state_dict", "model_state_dict", "model", "module", "ema"];
/// Prefixes that wrappers add to all tensor names.
const WRAPPER_PREFIXES: &[&str] = &["module.", "_orig_mod."];
/// Maximum number of keys that an error names.
const SHOWN: usize = 8;

/// Selection of tensors by key and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// Key whose contents are selected, such as `state_dict` or `ema.model`; empty for everything. `None` finds the weights
    /// automatically.
    pub key: Option<String>,
    /// Globs of which a tensor name must match at least one; empty for all tensors.
    pub include: Vec<String>,
    /// Globs of which a tensor name must match none.
    pub exclude: Vec<String>,
    /// Prefix to remove from the names.
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

/// Tensors that a [`Selection`] selects.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Tensors with their names in the output.
    pub tensors: Tensors,
    pub notes: Vec<Note>,
}

/// Selects tensors of `checkpoint` by key and name.
///
/// # Errors
/// When a pattern is malformed, several keys contain weights, no tensor is selected, no name begins with the prefix to
/// remove, or a selected tensor has no data.
pub fn select(selection: &Selection, checkpoint: &Checkpoint) -> Result<Selected> {
    let mut notes = Vec::new();
    let key = match &selection.key {
        Some(key) => SelectionKey::from_option(key, checkpoint),
        None => key_of_weights(checkpoint, &mut notes)?.map_or(SelectionKey::All, SelectionKey::Root),
    };
    let rules = SelectionRules {
        key,
        include: compile_globs(&selection.include)?,
        exclude: compile_globs(&selection.exclude)?,
        strip: selection.strip_prefix.clone().unwrap_or_default(),
    };
    let mut tensors = Tensors::with_capacity(checkpoint.items.len());
    let (mut strips, mut without_data) = (rules.strip.is_empty(), None);
    for item in checkpoint.items.iter().filter(|item| rules.key.includes(item)) {
        let named =
            |(name, tensor): (Cow<'_, str>, &Tensor)| Some((rules.output_name(item, &name)?, tensor.clone()));
        strips = strips || item.tensors().any(|(name, _)| rules.has_stripped_prefix(item, &name));
        match (&item.content, rules.output_name(item, &item.name)) {
            (ItemContent::Compound(compound), Some(name)) => {
                let Compound { kind, dtype, shape, .. } = compound.as_ref();
                if let CompoundKind::Meta { what } = kind {
                    without_data.get_or_insert((name.clone(), what));
                }
                let parts = item.tensors().filter_map(named);
                tensors.push_compound(name, (kind.clone(), *dtype, shape.clone()), parts);
            }
            _ => tensors.extend(item.tensors().filter_map(named)),
        }
    }
    if !strips {
        return Err(Error::NoSuchPrefix { prefix: rules.strip });
    }
    cut_to_spans(&mut tensors, &mut notes);
    if let Some((name, what)) = without_data {
        return Err(Error::NoData { name, what: what.clone() });
    }
    if tensors.is_empty() {
        return Err(no_tensors_error(selection, checkpoint));
    }
    let is_common = |prefix: &&&str| tensors.iter().all(|(name, _)| name.starts_with(**prefix));
    if selection.strip_prefix.is_none()
        && let Some(prefix) = WRAPPER_PREFIXES.iter().find(is_common)
    {
        notes.push(Note::CommonPrefix { prefix: (*prefix).to_owned() });
    }
    Ok(Selected { tensors, notes })
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

fn no_tensors_error(selection: &Selection, checkpoint: &Checkpoint) -> Error {
    match &selection.key {
        _ if checkpoint.tensors().next().is_none() => Error::NoTensors,
        Some(key) => {
            let is_tensor = |item: &&Item| !matches!(item.content, ItemContent::Value(_));
            let keys = checkpoint.items.iter().filter(is_tensor).filter_map(Item::root_key);
            let mut under: Vec<String> = keys.map(str::to_owned).collect();
            under.dedup();
            under.truncate(SHOWN);
            Error::NoTensorsUnderKey { key: key.clone(), under }
        }
        None => Error::AllTensorsExcluded,
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
        let is_root = |item: &Item| item.root_key() == Some(key) || (item.is_at_root() && item.name == key);
        if key.is_empty() {
            return Self::All;
        }
        if checkpoint.items.iter().any(is_root) {
            return Self::Root(key.to_owned());
        }
        let begins = |root: &&str| key.strip_prefix(root).is_some_and(|rest| rest.starts_with('.'));
        let roots = checkpoint.items.iter().filter_map(Item::root_key).filter(begins);
        Self::Path(key.to_owned(), roots.max_by_key(|root| root.len()).map(str::to_owned))
    }

    fn includes(&self, item: &Item) -> bool {
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
    fn below<'n>(&self, item: &Item, name: &'n str) -> Option<&'n str> {
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
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    strip: String,
}

impl SelectionRules {
    /// Returns the name relative to the key; `None` if the tensor is not selected.
    fn below<'n>(&self, item: &Item, name: &'n str) -> Option<&'n str> {
        let below = self.key.below(item, name)?;
        // A pattern that matches the name of a compound tensor selects all of its parts.
        let whole =
            matches!(item.content, ItemContent::Compound(_)).then(|| self.key.below(item, &item.name));
        let whole = whole.flatten().unwrap_or(below);
        let matches = |globs: &GlobSet| globs.is_match(below) || globs.is_match(whole);
        let kept = self.include.as_ref().is_none_or(matches)
            && self.exclude.as_ref().is_none_or(|globs| !matches(globs));
        kept.then_some(below)
    }

    /// Returns true if the tensor is selected and its name begins with the prefix to remove.
    fn has_stripped_prefix(&self, item: &Item, name: &str) -> bool {
        self.below(item, name).is_some_and(|below| below.starts_with(&self.strip))
    }

    /// Returns the name of a tensor in the output; `None` if the tensor is not selected.
    fn output_name(&self, item: &Item, name: &str) -> Option<String> {
        let below = self.below(item, name)?;
        let stripped = below.strip_prefix(&self.strip).unwrap_or(below);
        Some(if stripped.is_empty() { "tensor".to_owned() } else { stripped.to_owned() })
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

/// Returns the key of the root dict with the weights, if exactly one of the usual keys contains tensors.
fn key_of_weights(checkpoint: &Checkpoint, notes: &mut Vec<Note>) -> Result<Option<String>> {
    let mut sizes: Vec<(&str, u64, u64)> = Vec::new();
    for item in &checkpoint.items {
        let key = item.root_key().unwrap_or_default();
        for (_, tensor) in item.tensors() {
            match sizes.iter_mut().find(|(other, ..)| *other == key) {
                Some((_, tensors, nbytes)) => {
                    *tensors = tensors.saturating_add(1);
                    *nbytes = nbytes.saturating_add(tensor.nbytes());
                }
                None => sizes.push((key, 1, tensor.nbytes())),
            }
        }
    }
    let owned = |(key, tensors, nbytes): (&str, u64, u64)| (key.to_owned(), tensors, nbytes);
    let (weights, others): (Vec<_>, Vec<_>) =
        sizes.into_iter().partition(|(key, ..)| WEIGHT_KEYS.contains(key));
    match weights.as_slice() {
        [] => Ok(None),
        [(key, tensors, _)] => {
            let left_out = others.into_iter().map(owned).collect();
            notes.push(Note::UsingKey { key: (*key).to_owned(), tensors: *tensors, left_out });
            Ok(Some((*key).to_owned()))
        }
        several => Err(Error::SeveralKeys { keys: several.iter().copied().map(owned).collect() }),
    }
}
