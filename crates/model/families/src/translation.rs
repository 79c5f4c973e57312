//! Changes of a folder's tensors into another layout of their names, by the rules and their inverses.

use foldhash::{HashMap, HashMapExt};

use crate::compare::{Numbered, parse};
use crate::error::{Error, Result};
use crate::indices::Indices;
use crate::model::{LayoutId, Model};
use crate::tree::{Origin, TensorPattern, filled};

/// Modules above a tensor whose new names are looked for.
const MODULES_MAX: usize = 16;
/// Words after a name, such as `_scale_inv`, that may be those of a companion.
const WORDS_MAX: usize = 3;

/// A tensor in another layout.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MadeTensor {
    pub name: String,
    /// Places of the tensors that it is made of.
    pub from: Vec<usize>,
    pub recipe: Recipe,
}

/// How a tensor is made of those of another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// It is the tensor.
    Same,
    /// It is the tensor with its last two dimensions exchanged.
    Transposed,
    /// Each `parts` tensors have their rows concatenated, and these are stacked along a new first dimension.
    Stacked { parts: usize },
    /// It is a part of the rows of an index of the first dimension.
    Part { index: u64, part: usize, parts: usize },
}

/// Patterns of a layout by their names, and the new names of modules.
struct Known<'m> {
    patterns: HashMap<&'m str, Vec<&'m TensorPattern>>,
    modules: HashMap<&'m str, &'m str>,
}

/// A tensor that a layout has, or a companion of one.
struct Hit<'m, 'n> {
    pattern: &'m TensorPattern,
    numbers: Numbered,
    suffix: &'n str,
}

impl<'m> Known<'m> {
    /// `pairs` are the patterns of a layout and those of the other one that stand for the same tensors.
    fn new(pairs: &[(&'m TensorPattern, &'m TensorPattern)]) -> Self {
        let mut known = Self { patterns: HashMap::new(), modules: HashMap::new() };
        for (old, new) in pairs {
            let patterns = known.patterns.entry(old.name.as_str()).or_default();
            if !patterns.iter().any(|known| std::ptr::eq(*known, *old)) {
                patterns.push(old);
            }
            if old.origin.stack.is_some() || new.origin.stack.is_some() {
                continue;
            }
            let (mut before, mut after) = (old.name.as_str(), new.name.as_str());
            while let (Some((module, tensor)), Some((new_module, new_tensor))) =
                (before.rsplit_once('.'), after.rsplit_once('.'))
                && tensor == new_tensor
            {
                known.modules.entry(module).or_insert(new_module);
                (before, after) = (module, new_module);
            }
        }
        known
    }

    /// Finds a tensor, or the one whose companion it is: `experts.gate_up_proj_scale_inv` has a suffix.
    fn find<'n>(&self, name: &'n str, leads: impl Fn(&TensorPattern) -> bool) -> Option<Hit<'m, 'n>> {
        let last = name.rfind('.').map_or(0, |dot| dot.saturating_add(1));
        let ends = name.rmatch_indices('_').map(|(place, _)| place).take_while(|place| *place > last);
        let mut text = String::new();
        std::iter::once(name.len()).chain(ends.take(WORDS_MAX)).find_map(|end| {
            let (name, suffix) = name.split_at(end);
            let numbers = parse(name, &mut text);
            let patterns = self.patterns.get(text.as_str())?.iter();
            let pattern = patterns
                .filter(|pattern| suffix.is_empty() || leads(pattern))
                .find(|pattern| pattern.position(numbers.get()).is_some())?;
            Some(Hit { pattern, numbers, suffix })
        })
    }

    /// Returns the name in the other layout of a tensor that neither has: the modules above it are renamed.
    fn renamed(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        let numbers = parse(name, &mut text);
        let mut rest = name;
        for (place, _) in text.rmatch_indices('.').take(MODULES_MAX) {
            rest = rest.rsplit_once('.').map_or("", |(before, _)| before);
            let Some(module) = text.get(..place).and_then(|module| self.modules.get(module)) else {
                continue;
            };
            let tensor = name.get(rest.len()..).unwrap_or_default();
            return Some(filled(module, numbers.get()) + tensor);
        }
        None
    }
}

/// Numbers of a stack's name, with the index that a single tensor has in its name.
fn with_index(numbers: &[u32], hole: usize, index: u32) -> Vec<u32> {
    let mut all = numbers.to_vec();
    all.insert(hole.min(all.len()), index);
    all
}

/// Returns true if the companions of a tensor have to follow it by name: its last word changes, so that no module leads to them.
fn leads(old: &TensorPattern, new: &TensorPattern) -> bool {
    let last = |pattern: &TensorPattern| pattern.name.rsplit('.').next().map(str::to_owned);
    old.origin.stack.is_some() || new.origin.stack.is_some() || last(old) != last(new)
}

/// Returns true for the heads that predict several tokens, which have the same names in all layouts.
fn is_apart(name: &str) -> bool {
    name.starts_with("mtp.")
}

impl Model {
    /// Pairs of the patterns of a layout and of those in memory.
    fn pairs(&self, layout: LayoutId) -> Vec<(&TensorPattern, &TensorPattern)> {
        let plain = |layout: LayoutId| self.layouts.get(layout.0).map_or(&[][..], |layout| &layout.plain);
        let modules = plain(LayoutId::MODULES);
        let patterns = plain(layout).iter();
        patterns.filter_map(|pattern| Some((pattern, modules.get(pattern.origin.entry)?))).collect()
    }

    /// Changes the tensors of a folder in the layout `from` into those in memory. Names that the model does not have follow the
    /// modules above them, or stay.
    ///
    /// # Errors
    /// When a part of a stack is missing, or quantized experts have no stacked form.
    pub fn to_modules(&self, from: LayoutId, tensors: &[(&str, &[u64])]) -> Result<Vec<MadeTensor>> {
        if let Some(method) = self.unstacked {
            return Err(Error::QuantizedExperts { method });
        }
        let pairs = self.pairs(from);
        let known = Known::new(&pairs);
        let modules: HashMap<usize, &TensorPattern> =
            pairs.iter().map(|(old, new)| (old.origin.entry, *new)).collect();
        let mut made: Vec<MadeTensor> = Vec::with_capacity(tensors.len());
        // Parts of each stack: their slots and the places of the tensors.
        let mut stacks: HashMap<String, Stack<'_>> = HashMap::new();
        for (place, (name, shape)) in tensors.iter().enumerate() {
            let alone = |name: String, recipe| MadeTensor { name, from: vec![place], recipe };
            let hit = known.find(name, |old| {
                !shape.is_empty() && modules.get(&old.origin.entry).is_some_and(|new| leads(old, new))
            });
            let Some(Hit { pattern, numbers, suffix }) = hit.filter(|_| !is_apart(name)) else {
                let renamed = if is_apart(name) { None } else { known.renamed(name) };
                made.push(alone(renamed.unwrap_or_else(|| (*name).to_owned()), Recipe::Same));
                continue;
            };
            let Origin { entry, stack, part: [part, parts], is_transposed } = pattern.origin;
            let Some(new) = modules.get(&entry) else { continue };
            let Some((hole, indices)) = stack.and_then(|hole| Some((hole, pattern.at.get(hole)?))) else {
                let recipe = if is_transposed { Recipe::Transposed } else { Recipe::Same };
                made.push(alone(filled(&new.name, numbers.get()) + suffix, recipe));
                continue;
            };
            let mut others = numbers.get().to_vec();
            let index = if hole < others.len() { others.remove(hole) } else { 0 };
            let slot = indices.position(index).unwrap_or_default().saturating_mul(parts).saturating_add(part);
            let stack = stacks.entry(filled(&new.name, &others) + suffix).or_insert_with_key(|name| {
                made.push(MadeTensor {
                    name: name.clone(),
                    from: Vec::new(),
                    recipe: Recipe::Stacked { parts },
                });
                let of = made.len().saturating_sub(1);
                Stack { of, numbers: others, entry, hole, indices, parts, suffix, slots: Vec::new() }
            });
            stack.slots.push((slot, place));
        }
        for (_, mut stack) in stacks {
            stack.slots.sort_unstable();
            stack.refuse_gap(&pairs)?;
            if let Some(tensor) = made.get_mut(stack.of) {
                tensor.from = stack.slots.into_iter().map(|(_, place)| place).collect();
            }
        }
        Ok(made)
    }

    /// Changes the tensors of a folder that has the names in memory into those of the layout `to`: the inverse of
    /// [`to_modules`](Self::to_modules).
    ///
    /// # Errors
    /// When a stack has another size than the model's, or its rows cannot be divided.
    pub fn from_modules(&self, to: LayoutId, tensors: &[(&str, &[u64])]) -> Result<Vec<MadeTensor>> {
        let pairs = self.pairs(to);
        let inverse: Vec<_> = pairs.iter().map(|(new, old)| (*old, *new)).collect();
        let known = Known::new(&inverse);
        let mut released: HashMap<usize, Vec<&TensorPattern>> = HashMap::new();
        for (new, _) in &pairs {
            released.entry(new.origin.entry).or_default().push(new);
        }
        let news = |old: &TensorPattern| released.get(&old.origin.entry).map_or(&[][..], Vec::as_slice);
        let mut made: Vec<MadeTensor> = Vec::with_capacity(tensors.len());
        for (place, (name, shape)) in tensors.iter().enumerate() {
            let mut push = |name: String, recipe| made.push(MadeTensor { name, from: vec![place], recipe });
            let hit = known.find(name, |old| news(old).iter().any(|new| leads(old, new)));
            let Some(Hit { pattern, numbers, suffix }) = hit.filter(|_| !is_apart(name)) else {
                let renamed = if is_apart(name) { None } else { known.renamed(name) };
                push(renamed.unwrap_or_else(|| (*name).to_owned()), Recipe::Same);
                continue;
            };
            for new in news(pattern) {
                let Origin { stack, part: [part, parts], is_transposed, .. } = new.origin;
                let Some((hole, indices)) = stack.and_then(|hole| Some((hole, new.at.get(hole)?))) else {
                    let recipe = if is_transposed { Recipe::Transposed } else { Recipe::Same };
                    push(filled(&new.name, numbers.get()) + suffix, recipe);
                    continue;
                };
                let is_whole = |rows: &u64| rows.checked_rem(parts as u64) == Some(0);
                let is_divisible =
                    if parts == 1 { !shape.is_empty() } else { shape.get(1).is_some_and(is_whole) };
                if shape.first().copied() != Some(indices.len() as u64) || !is_divisible {
                    return Err(Error::Stack { name: (*name).to_owned(), shape: shape.to_vec() });
                }
                for (index, number) in (0..).zip(indices.iter()) {
                    let numbers = with_index(numbers.get(), hole, number);
                    push(filled(&new.name, &numbers) + suffix, Recipe::Part { index, part, parts });
                }
            }
        }
        Ok(made)
    }
}

/// A tensor that is stacked of those of another layout.
struct Stack<'m> {
    /// Place among the tensors that are made.
    of: usize,
    /// Numbers in its name.
    numbers: Vec<u32>,
    entry: usize,
    hole: usize,
    indices: &'m Indices,
    parts: usize,
    suffix: &'m str,
    /// Slots and places of the tensors that are there.
    slots: Vec<(usize, usize)>,
}

impl Stack<'_> {
    /// Refuses a stack of which a part is missing, by the name of the part.
    fn refuse_gap(&self, pairs: &[(&TensorPattern, &TensorPattern)]) -> Result<()> {
        let count = self.indices.len().saturating_mul(self.parts);
        if self.slots.len() == count {
            return Ok(());
        }
        let taken = self.slots.iter().zip(0..).take_while(|((slot, _), number)| slot == number);
        let gap = taken.count();
        let (index, part) = (
            gap.checked_div(self.parts).unwrap_or_default(),
            gap.checked_rem(self.parts).unwrap_or_default(),
        );
        let of_part = |old: &&TensorPattern| old.origin.entry == self.entry && old.origin.part[0] == part;
        let pattern = pairs.iter().map(|(old, _)| *old).find(of_part);
        let number = self.indices.get(index).unwrap_or_default();
        let name = pattern.map_or(String::new(), |pattern| {
            filled(&pattern.name, &with_index(&self.numbers, self.hole, number)) + self.suffix
        });
        Err(Error::MissingPart { name })
    }
}
