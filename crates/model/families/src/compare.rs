//! Compares the tensors of a folder with those that its model has.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use foldhash::{HashMap, HashMapExt};
use rayon::prelude::*;
use serde::Serialize;

use crate::families;
use crate::groups::{self, TensorGroup};
use crate::model::{Layout, LayoutId, Model};
use crate::tree::{HOLE, Kind};

/// Suffixes of optional companions of quantized weights.
const COMPANIONS: &[&str] = &[
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".weight_zero_point",
    ".weight_g_idx",
    ".k_scale",
    ".v_scale",
];

/// Numbers of a name that a pattern can have.
const NUMBERS_MAX: usize = 4;

/// A tensor that a model has and a folder lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MissingTensor {
    /// Name in the folder's layout.
    pub name: String,
    /// Shape that the tensor has.
    pub shape: Vec<u64>,
}

/// A tensor of another shape than the model's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MisshapedTensor {
    /// Name in the folder.
    pub name: String,
    /// Shape in the folder.
    pub shape: Vec<u64>,
    /// Shape that the model has.
    pub expected: Vec<u64>,
}

impl fmt::Display for MisshapedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}, expected {:?}", self.name, self.shape, self.expected)
    }
}

/// Differences between a folder and its model. Each tensor is in one list, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelComparison {
    /// `released`, or `modules` if the names are those in memory.
    pub layout: &'static str,
    /// Number of tensors that the model has in this layout, without those that a folder may lack.
    pub expected: usize,
    pub missing: Vec<MissingTensor>,
    /// Missing tensors in groups, for people.
    pub groups: Vec<TensorGroup>,
    /// Parts that the configuration declares and of which the folder has nothing: `mtp`, `vision`, `audio`.
    pub absent: Vec<&'static str>,
    /// Names that the model does not have.
    pub unexpected: Vec<String>,
    pub misshaped: Vec<MisshapedTensor>,
    /// Names of tensors that the folder also has in another layout.
    pub other_layout: Vec<String>,
}

impl ModelComparison {
    /// Returns the number of differences.
    pub fn len(&self) -> usize {
        let lists =
            [self.missing.len(), self.unexpected.len(), self.misshaped.len(), self.other_layout.len()];
        lists.into_iter().fold(0, usize::saturating_add)
    }

    /// Returns true if the folder has what the model has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Differences that a text names of each kind.
const SHOWN: usize = 20;

/// Names the differences, as many of each kind as fit into a sentence.
impl fmt::Display for ModelComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("missing: ", self.groups.iter().map(ToString::to_string).collect()),
            ("unexpected: ", self.unexpected.clone()),
            ("misshaped: ", self.misshaped.iter().map(ToString::to_string).collect()),
            ("in two layouts: ", self.other_layout.clone()),
        ];
        let mut separator = "";
        for (kind, lines) in kinds.iter().filter(|(_, lines)| !lines.is_empty()) {
            let shown: Vec<&str> = lines.iter().take(SHOWN).map(String::as_str).collect();
            write!(f, "{separator}{kind}{}", shown.join(", "))?;
            if lines.len() > SHOWN {
                write!(f, " and {} more", lines.len().saturating_sub(SHOWN))?;
            }
            separator = "; ";
        }
        Ok(())
    }
}

/// The numbers of a name.
#[derive(Clone, Default)]
pub(crate) struct Numbered {
    numbers: [u32; NUMBERS_MAX],
    count: u8,
}

impl Numbered {
    pub(crate) fn get(&self) -> &[u32] {
        self.numbers.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// Writes the pattern of a name into `pattern`.
pub(crate) fn parse(name: &str, pattern: &mut String) -> Numbered {
    pattern.clear();
    let mut numbered = Numbered::default();
    // Most parts are not numbers. Adjacent ones are copied together.
    let (mut copied, mut start) = (0, 0);
    let text = |range: Range<usize>| name.get(range).unwrap_or_default();
    loop {
        // Parts are so short that a plain loop finds their ends sooner than `str::find`.
        let mut rest = name.as_bytes().iter().skip(start);
        let end = rest.position(|byte| *byte == b'.').map_or(name.len(), |len| start.saturating_add(len));
        if name.as_bytes().get(start).is_some_and(u8::is_ascii_digit) {
            let part = text(start..end);
            let is_number =
                part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
            let number = if is_number { part.parse().ok() } else { None };
            if let (Some(number), Some(slot)) =
                (number, numbered.numbers.get_mut(usize::from(numbered.count)))
            {
                *slot = number;
                numbered.count = numbered.count.saturating_add(1);
                pattern.push_str(text(copied..start));
                pattern.push_str(HOLE);
                copied = end;
            }
        }
        if end == name.len() {
            break;
        }
        start = end.saturating_add(1);
    }
    pattern.push_str(text(copied..name.len()));
    numbered
}

/// Number of tensors whose patterns one thread finds at a time.
const CHUNK: usize = 4096;

/// The tensors of a folder, by the patterns of their names.
struct Found<'a> {
    tensors: &'a [(&'a str, &'a [u64])],
    /// Numbers of each name.
    numbers: Vec<Numbered>,
    /// Places of the tensors of each pattern, for each chunk.
    patterns: Vec<HashMap<String, Vec<u32>>>,
}

impl<'a> Found<'a> {
    fn new(tensors: &'a [(&'a str, &'a [u64])]) -> Self {
        let mut numbers = vec![Numbered::default(); tensors.len()];
        let chunks = tensors.par_chunks(CHUNK).zip(numbers.par_chunks_mut(CHUNK)).enumerate();
        let patterns = chunks.map(|(chunk, (tensors, numbers))| {
            let first = u32::try_from(chunk.saturating_mul(CHUNK)).unwrap_or(u32::MAX);
            let (mut patterns, mut pattern) = (HashMap::<String, Vec<u32>>::new(), String::new());
            for (place, ((name, _), numbered)) in (first..).zip(tensors.iter().zip(numbers)) {
                *numbered = parse(name, &mut pattern);
                match patterns.get_mut(&pattern) {
                    Some(places) => places.push(place),
                    None => {
                        patterns.insert(pattern.clone(), vec![place]);
                    }
                }
            }
            patterns
        });
        let patterns = patterns.collect();
        Self { tensors, numbers, patterns }
    }

    fn of_pattern(&self, pattern: &str) -> impl Iterator<Item = (usize, &[u32], &'a [u64])> {
        let chunks = self.patterns.iter().filter_map(move |patterns| patterns.get(pattern));
        chunks.flatten().filter_map(|place| {
            let place = *place as usize;
            Some((place, self.numbers.get(place)?.get(), self.tensors.get(place)?.1))
        })
    }
}

/// What a layout lacks and explains.
struct Match<'l> {
    layout: &'l Layout,
    /// Entry and place of each missing tensor.
    missing: Vec<(usize, usize)>,
    /// Entry of each tensor of the folder that the layout has.
    entries: Vec<Option<u32>>,
    misshaped: Vec<usize>,
}

impl Match<'_> {
    fn new<'l>(layout: &'l Layout, found: &Found<'_>, is_open: bool) -> Match<'l> {
        let mut entries = vec![None; found.tensors.len()];
        let (mut missing, mut misshaped, mut is_present) = (Vec::new(), Vec::new(), Vec::new());
        let mut ties: BTreeMap<u8, (bool, usize)> = BTreeMap::new();
        for (number, entry) in layout.entries.iter().enumerate() {
            is_present.clear();
            is_present.resize(entry.count(), false);
            for (place, numbers, shape) in found.of_pattern(&entry.name) {
                let Some(slot) = entry.position(numbers).and_then(|at| is_present.get_mut(at)) else {
                    continue;
                };
                *slot = true;
                if let Some(known) = entries.get_mut(place) {
                    *known = u32::try_from(number).ok();
                }
                if shape != entry.shape && !(is_open && entry.kind == Kind::Linear) {
                    misshaped.push(place);
                }
            }
            if let Some(tie) = entry.tie {
                let group = ties.entry(tie).or_insert((false, number));
                group.0 |= is_present.contains(&true);
            } else if entry.is_required {
                let absent = is_present.iter().enumerate().filter(|(_, is_present)| !**is_present);
                missing.extend(absent.map(|(place, _)| (number, place)));
            }
        }
        missing.extend(ties.values().filter(|(is_present, _)| !is_present).map(|(_, number)| (*number, 0)));
        missing.sort_unstable();
        misshaped.sort_unstable();
        Match { layout, missing, entries, misshaped }
    }

    /// Returns the parts of which all tensors are missing.
    fn absent_parts(&self) -> Vec<&'static str> {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for entry in self.layout.entries.iter().filter(|entry| entry.is_required) {
            let count = counts.entry(entry.part).or_default();
            count.0 = count.0.saturating_add(entry.count());
        }
        for (entry, _) in &self.missing {
            if let Some(count) = self.layout.entries.get(*entry).and_then(|entry| counts.get_mut(entry.part))
            {
                count.1 = count.1.saturating_add(1);
            }
        }
        let absent = counts.into_iter().filter(|(part, (all, missing))| !part.is_empty() && all == missing);
        absent.map(|(part, _)| part).collect()
    }

    fn missing_tensors(&self) -> Vec<MissingTensor> {
        let tensor = |(entry, place): &(usize, usize)| {
            let entry = self.layout.entries.get(*entry)?;
            Some(MissingTensor { name: entry.name_at(*place), shape: entry.shape.clone() })
        };
        self.missing.iter().filter_map(tensor).collect()
    }

    /// Returns the number of tensors of the folder that the layout does not have so. What is missing says nothing: a layout with
    /// fewer tensors would lack fewer.
    fn cost(&self) -> usize {
        let unknown = self.entries.iter().filter(|entry| entry.is_none()).count();
        self.misshaped.len().saturating_add(unknown)
    }
}

impl Model {
    /// Compares the tensors with each layout, up to one that has all of them.
    fn matches(&self, found: &Found<'_>) -> Vec<Match<'_>> {
        let mut matches: Vec<Match<'_>> = Vec::new();
        for layout in &self.layouts {
            if matches.last().is_some_and(|found| found.cost() == 0) {
                break;
            }
            matches.push(Match::new(layout, found, self.is_open));
        }
        matches
    }

    /// Returns the layout that fits best, and the number of tensors that it has.
    pub fn layout_of(&self, tensors: &[(&str, &[u64])]) -> (LayoutId, usize) {
        let matches = self.matches(&Found::new(tensors));
        let best = matches.into_iter().enumerate().min_by_key(|(_, found)| found.cost());
        let known = |found: &Match<'_>| found.entries.iter().flatten().count();
        best.map_or((LayoutId::RELEASED, 0), |(number, found)| (LayoutId(number), known(&found)))
    }

    /// Returns the tensors of a layout that a folder lacks.
    pub fn missing_in(&self, layout: LayoutId, tensors: &[(&str, &[u64])]) -> Vec<MissingTensor> {
        let found = Found::new(tensors);
        let layout = self.layouts.get(layout.0);
        layout.map(|layout| Match::new(layout, &found, self.is_open).missing_tensors()).unwrap_or_default()
    }

    /// Compares names and shapes with those of the model, in the layout that fits best. A name that stands there several times
    /// counts once.
    pub fn compare(&self, tensors: &[(&str, &[u64])]) -> ModelComparison {
        let found = Found::new(tensors);
        let matches = self.matches(&found);
        let Some(best) = matches.iter().min_by_key(|found| found.cost()) else {
            return ModelComparison::default();
        };
        let entries = &best.layout.entries;
        let mut comparison = ModelComparison {
            layout: if best.layout.is_modules { "modules" } else { "released" },
            expected: entries
                .iter()
                .filter(|entry| entry.is_required && entry.tie.is_none())
                .map(super::tree::TensorPattern::count)
                .sum(),
            groups: groups::of(entries, &best.missing),
            absent: best.absent_parts(),
            ..ModelComparison::default()
        };
        comparison.missing = best.missing_tensors();
        comparison.misshaped = best
            .misshaped
            .iter()
            .filter_map(|place| {
                let (name, shape) = tensors.get(*place)?;
                let entry = entries.get((*best.entries.get(*place)?)? as usize)?;
                Some(MisshapedTensor {
                    name: (*name).to_owned(),
                    shape: shape.to_vec(),
                    expected: entry.shape.clone(),
                })
            })
            .collect();
        for (place, _) in best.entries.iter().enumerate().filter(|(_, entry)| entry.is_none()) {
            let Some((name, _)) = tensors.get(place) else { continue };
            let is_companion = self.is_quantized && COMPANIONS.iter().any(|end| name.ends_with(end));
            if self.is_open || is_companion || is_unneeded(name, &self.model_type) {
                continue;
            }
            let in_other = matches.iter().any(|other| other.entries.get(place).is_some_and(Option::is_some));
            let list = if in_other { &mut comparison.other_layout } else { &mut comparison.unexpected };
            list.push((*name).to_owned());
        }
        comparison
    }
}

/// Returns true for a buffer that older files have and no model reads, and for heads that nothing declares.
fn is_unneeded(name: &str, model_type: &str) -> bool {
    let ends = ["rotary_emb.inv_freq", "position_ids", "masked_bias"];
    let of_type = families::find(model_type).map_or(&[][..], |family| family.unread);
    name.starts_with("mtp.")
        || ends.iter().chain(of_type).any(|end| {
            let before = name.strip_suffix(end.trim_start_matches('.'));
            before.is_some_and(|before| before.is_empty() || before.ends_with(['.', '_']))
        })
}
