//! Modules that a quantization leaves as they are.
//!
//! Facts: `should_convert_module` in `transformers` 5.23, and `match_name` in `compressed-tensors` 0.20, which matches
//! expressions from the start of a name.

use regex::{Regex, RegexBuilder};

use crate::indices::Indices;
use crate::tree::{HOLE, TensorPattern};

/// Largest memory of an expression, in bytes.
const REGEX_MAX: usize = 1 << 20;

/// Names and expressions of the modules that are not quantized.
#[derive(Clone, Debug, Default)]
pub(crate) struct IgnoredModules {
    names: Vec<String>,
    expressions: Vec<Regex>,
    /// True if some of them depend on the numbers in a name.
    has_numbers: bool,
}

impl IgnoredModules {
    /// Reads a list of a configuration. Returns `None` if an expression is not one of those that are understood here.
    pub(crate) fn new<'n>(list: impl Iterator<Item = &'n str>) -> Option<Self> {
        let mut all = Self::default();
        for item in list {
            let Some(expression) = item.strip_prefix("re:") else {
                all.has_numbers |= item.split('.').any(|part| part.parse::<u32>().is_ok());
                all.names.push(item.to_owned());
                continue;
            };
            all.has_numbers |=
                expression.contains(|c: char| c.is_ascii_digit()) || expression.contains("\\d");
            let expression = RegexBuilder::new(&format!("^(?:{expression})")).size_limit(REGEX_MAX).build();
            all.expressions.push(expression.ok()?);
        }
        Some(all)
    }

    /// Returns true if a module without holes in its name is not quantized.
    fn contain(&self, module: &str) -> bool {
        let is_last = |ignored: &String| module.ends_with(&format!(".{ignored}"));
        let is_part = |ignored: &String| module.split('.').any(|part| part == ignored);
        let is_below = |ignored: &String| {
            module.strip_prefix(ignored.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        self.names
            .iter()
            .any(|ignored| module == ignored || is_below(ignored) || is_part(ignored) || is_last(ignored))
            || self.expressions.iter().any(|expression| expression.is_match(module))
    }

    /// Returns the tensors of an entry whose modules are not quantized (true), and the others.
    pub(crate) fn split(&self, entry: &TensorPattern, module: &str) -> Vec<(bool, TensorPattern)> {
        let at = |numbers: &[u32]| {
            let number = |name: String, number: &u32| name.replacen(HOLE, &number.to_string(), 1);
            self.contain(&numbers.iter().fold(module.to_owned(), number))
        };
        let part = |ignored: bool, at: Vec<Indices>| (ignored, TensorPattern { at, ..entry.clone() });
        match entry.at.as_slice() {
            numbers if !self.has_numbers => vec![part(at(&vec![0; numbers.len()]), numbers.to_vec())],
            [] => vec![part(at(&[]), Vec::new())],
            [all] => {
                let (ignored, kept) = all.partition(|number| at(&[number]));
                vec![part(true, vec![ignored]), part(false, vec![kept])]
            }
            [outer, inner, ..] => {
                let mut parts = Vec::new();
                for number in outer.iter() {
                    let (ignored, kept) = inner.partition(|second| at(&[number, second]));
                    let with = |inner| vec![Indices::one(number), inner];
                    parts.extend([part(true, with(ignored)), part(false, with(kept))]);
                }
                parts
            }
        }
    }
}
