//! Tensors and values of a checkpoint by name.

use tensor::Tensor;
use torch_import::{CheckpointItem, CheckpointValue, CompoundKind, ItemContent};

use open::files::ShardPolicy;
use open::{Model, OpenOptions, ValueRow, ValueRows};

use super::module_attributes;
use crate::{Error, InspectOptions, Observer, Problem, Result};

/// Names below this similarity are not suggested.
const SIMILARITY_MIN: f64 = 0.8;

/// Tensor or value with its name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamedItem {
    pub name: String,
    pub content: NamedContent,
}

/// Content of a [`NamedItem`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NamedContent {
    Tensor(Tensor),
    /// Tensor that consists of several ones: the names of the parts, and the parts.
    Parts(Vec<(String, Tensor)>),
    /// Reason for which a tensor has no data.
    NoData(String),
    /// Number, text or other object.
    Value(ValueRow),
    /// Values below a name.
    Values(Vec<ValueRow>),
}

/// Finds tensors and values by their names, in the order of `names`. The parts of a compound tensor have names of their own.
/// The name of a dict or list stands for the values in it.
///
/// # Errors
/// When the input cannot be read, or has nothing of a name.
pub fn find_named(
    options: &InspectOptions,
    names: &[String],
    observer: &dyn Observer,
) -> Result<Vec<NamedItem>> {
    let open = OpenOptions::reading(vec![options.input.clone()], ShardPolicy::ThisFileOnly);
    let Model { checkpoint, .. } = Model::open(&open, observer)?;
    let mut found = Vec::with_capacity(names.len());
    let mut wanted_values = Vec::new();
    for name in names {
        let item = checkpoint.items.iter().find(|item| item.name == *name);
        let content = match item.map(|item| &item.content) {
            Some(ItemContent::Tensor(tensor)) => Some(NamedContent::Tensor(tensor.clone())),
            Some(ItemContent::Compound(compound)) => Some(match &compound.kind {
                CompoundKind::Meta { what } => NamedContent::NoData(what.clone()),
                _ => NamedContent::Parts(
                    item.into_iter()
                        .flat_map(CheckpointItem::tensors)
                        .map(|(name, tensor)| (name.into_owned(), tensor.clone()))
                        .collect(),
                ),
            }),
            Some(ItemContent::Value(value)) => {
                wanted_values.push((name.clone(), value.clone()));
                None
            }
            None => {
                let mut parts = checkpoint.tensors();
                parts.find(|(part, _)| part == name).map(|(_, tensor)| NamedContent::Tensor(tensor.clone()))
            }
        };
        found.push((name.clone(), content));
    }
    let attributes = module_attributes(&checkpoint);
    let values = || checkpoint.values();
    for (name, content) in &found {
        if content.is_some() || wanted_values.iter().any(|(wanted, _)| wanted == name) {
            continue;
        }
        let is_below =
            |path: &str| path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let all = values().chain(attributes.iter().map(|(name, value)| (name.as_str(), value)));
        let before = wanted_values.len();
        wanted_values.extend(
            all.filter(|(path, _)| is_below(path)).map(|(path, value)| (path.to_owned(), value.clone())),
        );
        if wanted_values.len() == before {
            let tensors = checkpoint.tensors();
            let mut known: Vec<String> = tensors.map(|(name, _)| name.into_owned()).collect();
            known.extend(values().map(|(name, _)| name.to_owned()));
            let is_group = known.iter().filter(|known| is_below(known)).nth(1).is_some();
            let similar = if is_group { None } else { most_similar(name, &known) };
            let problem = Problem::NoSuchName { name: name.clone(), similar, is_group };
            return Err(Error::from(problem).in_file(options.input.path()));
        }
    }
    Ok(join_rows(found, &value_rows(checkpoint, wanted_values)))
}

fn value_rows(checkpoint: torch_import::Checkpoint, values: Vec<(String, CheckpointValue)>) -> Vec<ValueRow> {
    if values.is_empty() { Vec::new() } else { ValueRows::new(checkpoint, values).rows().collect() }
}

fn join_rows(found: Vec<(String, Option<NamedContent>)>, rows: &[ValueRow]) -> Vec<NamedItem> {
    let rows_of = |name: &str| {
        if let Some(row) = rows.iter().find(|row| row.path == name) {
            return NamedContent::Value(row.clone());
        }
        let is_below =
            |row: &&ValueRow| row.path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        NamedContent::Values(rows.iter().filter(is_below).cloned().collect())
    };
    let join = |(name, content): (String, Option<NamedContent>)| {
        let content = content.unwrap_or_else(|| rows_of(&name));
        NamedItem { name, content }
    };
    found.into_iter().map(join).collect()
}

pub(crate) fn most_similar(name: &str, known: &[String]) -> Option<String> {
    let ends = |known: &str| known.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    if let Some(longer) = known.iter().find(|known| ends(known)) {
        return Some(longer.clone());
    }
    let similarity = |known: &&String| strsim::jaro_winkler(name, known);
    let best = known.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)))?;
    (similarity(&best) >= SIMILARITY_MIN).then(|| best.clone())
}
