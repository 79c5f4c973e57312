//! Missing tensors in groups: whole layers, and names that differ in numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use foldhash::HashMap;
use serde::Serialize;

use crate::tree::{HOLE, TensorPattern};

/// Missing tensors that are named together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorGroup {
    /// Layers that lack all tensors, such as `layers 17-32`, or a name with ranges of numbers, such as
    /// `model.layers.{3,5-7}.mlp.gate.weight`.
    pub name: String,
    /// Number of tensors.
    pub tensors: usize,
    /// True if these are all tensors of their layers.
    pub is_all: bool,
}

impl fmt::Display for TensorGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let s = if self.tensors == 1 { "" } else { "s" };
        match (self.is_all, self.tensors) {
            (true, tensors) => write!(f, ": all {tensors} tensor{s}"),
            (false, 1) => Ok(()),
            (false, tensors) => write!(f, ": {tensors} tensor{s}"),
        }
    }
}

/// Returns the text before the number of a layer in a pattern, with the pattern's first number.
fn list(entry: &TensorPattern) -> Option<&str> {
    let (before, _) = entry.name.split_once(HOLE)?;
    let list = before.strip_suffix('.')?;
    let is_layers = ["layers", "layer", "h", "block", "blocks"].contains(&list.rsplit('.').next()?);
    is_layers.then_some(list)
}

/// Groups the missing tensors, which are given by their entries and places.
pub(crate) fn of(entries: &[TensorPattern], missing: &[(usize, usize)]) -> Vec<TensorGroup> {
    if missing.is_empty() {
        return Vec::new();
    }
    // For each list and each of its layers: the tensors that it has, and those that are missing.
    let mut layers: BTreeMap<(&str, u32), (usize, usize)> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.is_required && entry.tie.is_none()) {
        let (Some(list), Some(first)) = (list(entry), entry.at.first()) else { continue };
        let each = entry.count().checked_div(first.len()).unwrap_or_default();
        for layer in first.iter() {
            let counts = layers.entry((list, layer)).or_default();
            counts.0 = counts.0.saturating_add(each);
        }
    }
    let numbers = |(entry, place): &(usize, usize)| Some((entries.get(*entry)?, *place));
    let layer_of = |entry: &TensorPattern, place: usize| {
        let first = entry.at.first()?;
        let each = entry.count().checked_div(first.len())?;
        first.get(place.checked_div(each)?)
    };
    for (entry, place) in missing.iter().filter_map(numbers) {
        if let (Some(list), Some(layer)) = (list(entry), layer_of(entry, place))
            && let Some(counts) = layers.get_mut(&(list, layer))
        {
            counts.1 = counts.1.saturating_add(1);
        }
    }
    let whole =
        |list: &str, layer: u32| layers.get(&(list, layer)).is_some_and(|(all, missing)| all == missing);
    let mut groups = Vec::new();
    let lists: BTreeSet<&str> = layers.keys().map(|(list, _)| *list).collect();
    for list in lists {
        let gone: Vec<u32> = layers
            .keys()
            .filter(|(of, layer)| *of == list && whole(list, *layer))
            .map(|(_, layer)| *layer)
            .collect();
        let tensors = gone.iter().filter_map(|layer| layers.get(&(list, *layer))).map(|(all, _)| all).sum();
        if !gone.is_empty() {
            let short = list.rsplit_once("model.").map_or(list, |(_, short)| short);
            groups.push(TensorGroup { name: format!("{short} {}", ranges(&gone)), tensors, is_all: true });
        }
    }
    let first: HashMap<&str, usize> =
        entries.iter().enumerate().rev().map(|(number, entry)| (entry.name.as_str(), number)).collect();
    // All others by their patterns, with the numbers of each hole.
    let mut patterns: BTreeMap<(usize, &str), Vec<Vec<u32>>> = BTreeMap::new();
    for (entry, place) in missing.iter().filter_map(numbers) {
        if let (Some(list), Some(layer)) = (list(entry), layer_of(entry, place))
            && whole(list, layer)
        {
            continue;
        }
        let order = first.get(entry.name.as_str()).copied().unwrap_or_default();
        patterns.entry((order, entry.name.as_str())).or_default().push(entry.numbers_at(place));
    }
    for ((_, name), members) in patterns {
        let mut parts = name.split(HOLE);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (hole, part) in parts.enumerate() {
            let mut numbers: Vec<u32> =
                members.iter().filter_map(|member| member.get(hole).copied()).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let range = ranges(&numbers);
            let braces = if numbers.len() > 1 { ["{", "}"] } else { [""; 2] };
            let [open, close] = braces;
            text.extend([open, &range, close]);
            text.push_str(part);
        }
        groups.push(TensorGroup { name: text, tensors: members.len(), is_all: false });
    }
    groups
}

/// Writes ascending numbers as ranges: `1,3-5`.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(*number) => *end = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let text =
        |(start, end): &(u32, u32)| if start == end { start.to_string() } else { format!("{start}-{end}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}
