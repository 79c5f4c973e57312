//! Patterns of the names of tensors.

use globset::{Glob, GlobSet, GlobSetBuilder};
use torch_import::{CheckpointItem, ItemContent};

use crate::{InvalidOption, Result};

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
    pub(super) fn may_select(&self, item: &CheckpointItem) -> bool {
        let below = |key: Option<&str>| item.name.strip_prefix(key?)?.strip_prefix('.');
        let relative = [below(item.root_key()), below(item.second_key())];
        let names = [Some(item.name.as_str())].into_iter().chain(relative).flatten();
        // A pattern may be meant for the parts of a compound tensor.
        matches!(item.content, ItemContent::Compound(_)) || self.select(names)
    }
}

/// Returns the patterns that none of the names match.
pub(super) fn unused_patterns<'p>(
    patterns: impl Iterator<Item = &'p String>,
    names: impl Fn(&mut dyn FnMut(&str)),
) -> Vec<String> {
    let unused = |pattern: &&String| {
        let Ok(glob) = Glob::new(pattern) else { return false };
        let (matcher, mut is_used) = (glob.compile_matcher(), false);
        names(&mut |name| is_used = is_used || matcher.is_match(name));
        !is_used
    };
    patterns.filter(unused).cloned().collect()
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
