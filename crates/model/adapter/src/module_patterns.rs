//! `rank_pattern` and `alpha_pattern` of an adapter: numbers for the modules whose names match regular expressions.
//!
//! An adapter may have a pattern for each of its modules, which are tens of thousands in a mixture of experts. Nearly all are names, in
//! which only the dots have a meaning. They are looked up by their length, the places of their dots, and a sum of keys of their other
//! characters, so that a search among those with other dots costs a few additions.
//!
//! Facts: `get_pattern_key` in `peft/utils/other.py` of peft 0.21.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::{Problem, Result};

/// Maximum number of patterns of an adapter that are regular expressions and not names.
pub(crate) const EXPRESSIONS_MAX: usize = 2048;
/// Maximum length in characters of a name that is looked up.
const NAME_LEN_MAX: usize = 256;
/// Maximum size in bytes of a compiled pattern, and of what its search keeps.
const PATTERN_SIZE_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct ModulePatterns {
    expressions: Vec<(usize, Regex, f64)>,
    /// Names that begin at the start of a module's name or after a dot in it.
    names: NamePatterns,
    /// Names that begin at the start, as in `^model.norm`.
    whole_names: NamePatterns,
}

#[derive(Clone, Debug, Default)]
struct NamePatterns {
    /// Places of the dots in the names of each length, counted in characters from the end.
    dots_by_len: HashMap<usize, Vec<Vec<usize>>>,
    /// Names by the sum of the keys of their characters without the dots, with their position among all patterns and their number.
    by_sum: HashMap<u64, Vec<(String, usize, f64)>>,
    keys: RandomState,
}

impl ModulePatterns {
    pub(crate) fn from_json(field: &'static str, patterns: Option<Map<String, Value>>) -> Result<Self> {
        let mut new = Self::default();
        for (at, (pattern, value)) in patterns.into_iter().flatten().enumerate() {
            let invalid = |reason: String| Problem::Pattern { field, pattern: pattern.clone(), reason };
            let number =
                value.as_f64().ok_or_else(|| invalid(format!("its value is {value}, expected a number")))?;
            let name = pattern.strip_prefix('^').unwrap_or(&pattern);
            if is_name(name) {
                let names = if name.len() == pattern.len() { &mut new.names } else { &mut new.whole_names };
                names.insert(name, at, number);
                continue;
            }
            let count = new.expressions.len().saturating_add(1);
            if count > EXPRESSIONS_MAX {
                return Err(
                    Problem::Patterns { count, what: "regular expressions", limit: EXPRESSIONS_MAX }.into()
                );
            }
            let mut builder = RegexBuilder::new(&format!(r"^(?:.*\.)?(?:{pattern})$"));
            let regex = builder.size_limit(PATTERN_SIZE_MAX).dfa_size_limit(PATTERN_SIZE_MAX).build();
            let regex = regex.map_err(|error| {
                invalid(error.to_string().lines().last().unwrap_or_default().replace("error: ", ""))
            })?;
            new.expressions.push((at, regex, number));
        }
        Ok(new)
    }

    pub(crate) fn number(&self, module: &str) -> Option<f64> {
        let expression = self.expressions.iter().find(|(_, regex, _)| regex.is_match(module));
        let mut found = expression.map(|(at, _, number)| (*at, *number));
        let mut keep_first = |next: Option<(usize, f64)>| {
            if next.is_some_and(|(at, _)| found.is_none_or(|(first, _)| at < first)) {
                found = next;
            }
        };
        keep_first(self.whole_names.search(module).first(module));
        let search = self.names.search(module);
        let mut rest = module;
        loop {
            keep_first(search.first(rest));
            // The part before the last dot, `.*` in the expression, has no line feed.
            match rest.split_once('.') {
                Some((part, after)) if !part.contains('\n') => rest = after,
                _ => break,
            }
        }
        found.map(|(_, number)| number)
    }

    pub(crate) fn expression_count(&self) -> usize {
        self.expressions.len()
    }

    /// Returns the largest number of names with which one module's name is compared.
    pub(crate) fn name_kind_count(&self) -> usize {
        let kinds = [&self.names, &self.whole_names].into_iter().flat_map(|names| names.dots_by_len.values());
        kinds.map(Vec::len).fold(0, usize::saturating_add)
    }
}

impl NamePatterns {
    fn insert(&mut self, name: &str, at: usize, number: f64) {
        let dots: Vec<usize> =
            name.chars().rev().enumerate().filter(|(_, char)| *char == '.').map(|(place, _)| place).collect();
        let sums = self.search(name);
        let sum = sums.sum_without(name.chars().count(), &dots);
        self.by_sum.entry(sum).or_default().push((name.to_owned(), at, number));
        let kinds = self.dots_by_len.entry(name.chars().count()).or_default();
        if let Err(place) = kinds.binary_search(&dots) {
            kinds.insert(place, dots);
        }
    }

    fn search(&self, name: &str) -> NameSearch<'_> {
        let chars = name.chars().rev().take(NAME_LEN_MAX);
        let keys: Vec<u64> = chars.enumerate().map(|place| self.keys.hash_one(place)).collect();
        let ends = keys.iter().scan(0_u64, |sum, key| {
            *sum = sum.wrapping_add(*key);
            Some(*sum)
        });
        let sums = std::iter::once(0).chain(ends).collect();
        NameSearch { names: self, keys, sums }
    }
}

struct NameSearch<'n> {
    names: &'n NamePatterns,
    /// Keys of the characters at their places, from the end.
    keys: Vec<u64>,
    /// Sums of the keys of the last characters, by their number.
    sums: Vec<u64>,
}

impl NameSearch<'_> {
    /// Returns the sum of the keys of the last `len` characters without those at these places.
    fn sum_without(&self, len: usize, dots: &[usize]) -> u64 {
        let sum = self.sums.get(len).copied().unwrap_or_default();
        let keys = dots.iter().filter_map(|dot| self.keys.get(*dot));
        keys.fold(sum, |sum, key| sum.wrapping_sub(*key))
    }

    /// Returns the first of the names that match an end of the name, in which a dot stands for any character but a line feed.
    fn first(&self, end: &str) -> Option<(usize, f64)> {
        if self.names.by_sum.is_empty() {
            return None;
        }
        let len = end.chars().take(NAME_LEN_MAX.saturating_add(1)).count();
        let kinds = self.names.dots_by_len.get(&len)?;
        let found = kinds.iter().filter_map(|dots| self.names.by_sum.get(&self.sum_without(len, dots)));
        let found = found.flatten().filter(|(name, ..)| matches_name(name, end));
        found.min_by_key(|(_, at, _)| *at).map(|(_, at, number)| (*at, *number))
    }
}

fn matches_name(pattern: &str, name: &str) -> bool {
    let fits = |(pattern, char): (char, char)| if pattern == '.' { char != '\n' } else { pattern == char };
    pattern.chars().count() == name.chars().count() && pattern.chars().zip(name.chars()).all(fits)
}

/// Returns true for a regular expression that is a name: only its dots have a meaning.
fn is_name(pattern: &str) -> bool {
    let is_literal = |char: char| char.is_alphanumeric() || matches!(char, '.' | '_' | '-' | '/' | ':');
    pattern.chars().take(NAME_LEN_MAX.saturating_add(1)).count() <= NAME_LEN_MAX
        && pattern.chars().all(is_literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(patterns: &[(&str, f64)]) -> ModulePatterns {
        let fields = patterns.iter().map(|(pattern, number)| ((*pattern).to_owned(), Value::from(*number)));
        ModulePatterns::from_json("rank_pattern", Some(fields.collect())).expect("valid")
    }

    /// Returns the number as `get_pattern_key` finds it.
    fn slow_number(patterns: &[(&str, f64)], module: &str) -> Option<f64> {
        let matches = |pattern: &str| {
            Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$")).expect("valid").is_match(module)
        };
        patterns.iter().find(|(pattern, _)| matches(pattern)).map(|(_, number)| *number)
    }

    #[test]
    fn names_are_found_as_expressions_find_them() {
        let all = [
            ("layers.1.q", 1.0),
            ("q", 2.0),
            ("layers.*q", 3.0),
            ("^layers.0.q", 4.0),
            ("a.b", 5.0),
            ("axb", 6.0),
            ("^b", 7.0),
            ("lay.rs.2.k", 8.0),
            ("layers.2.k", 9.0),
            ("é.k", 10.0),
            (".k", 11.0),
            ("k.", 12.0),
            ("", 13.0),
        ];
        let modules = [
            "layers.1.q",
            "model.layers.1.q",
            "layers.0.q",
            "model.layers.0.q",
            "q",
            "xq",
            "x.q",
            "layersx1xq",
            "a.b",
            "axb",
            "a\nb",
            "x.axb",
            "b",
            "x.b",
            "layers.2.k",
            "x.layers.2.k",
            "é.k",
            "éxk",
            "x.é.k",
            "kk",
            "k.",
            "kx",
            "",
            ".",
            "a.",
            "x\ny.q",
            "x.y\nz.q",
            "\n.q",
            "q\n",
            "\0.k",
        ];
        for count in 0..=all.len() {
            for chosen in [all.get(..count), all.get(count..)] {
                let chosen = chosen.expect("a part");
                let fast = patterns(chosen);
                for module in modules {
                    assert_eq!(fast.number(module), slow_number(chosen, module), "{chosen:?} {module:?}");
                }
            }
        }
    }

    #[test]
    fn names_of_modules_are_of_few_kinds() {
        let name = |layer: usize, expert: usize| format!("model.layers.{layer}.mlp.experts.{expert}.up_proj");
        let names: Vec<String> =
            (0..94).flat_map(|layer| (0..128).map(move |expert| name(layer, expert))).collect();
        let fields: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 4.0)).collect();
        let found = patterns(&fields);
        assert_eq!((found.expression_count(), found.name_kind_count()), (0, 6));
        assert_eq!(found.number(&name(93, 127)), Some(4.0));
        assert_eq!(found.number(&name(94, 127)), None);
    }
}
