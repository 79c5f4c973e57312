//! Renaming of tensors by regular expressions.
//!
//! Facts: the syntax of expressions and replacements is that of the crate `regex`; every match is replaced, as `re.sub`
//! of Python does.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use regex::Regex;

use tensor::Tensors;

use crate::{Context, InvalidOption, Model, Note, Problem, Result, Step, StepReport};

/// Replacement in tensor names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// Regular expression, in the syntax of the crate `regex`.
    pub pattern: String,
    /// Replacement for each match; `$1` and `${name}` stand for groups.
    pub to: String,
}

impl FromStr for Rename {
    type Err = &'static str;

    /// Parses `REGEX=TO`. The replacement begins after the last `=`, because a name rarely contains one.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parts = text.rsplit_once('=').filter(|(pattern, _)| !pattern.is_empty());
        let (pattern, to) = parts.ok_or("expected REGEX=TO")?;
        Ok(Self { pattern: pattern.to_owned(), to: to.to_owned() })
    }
}

impl fmt::Display for Rename {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.to)
    }
}

tensor::serde_as_text!(Rename);

impl Rename {
    /// Compiles the regular expression.
    ///
    /// # Errors
    /// When the expression cannot be parsed, or the replacement uses a group that the expression does not have.
    fn regex(&self) -> Result<Regex, InvalidOption> {
        let regex = Regex::new(&self.pattern).map_err(|error| InvalidOption::Regex {
            pattern: self.pattern.clone(),
            // All lines but the last one only mark a position in the expression.
            reason: error.to_string().lines().last().unwrap_or_default().replace("error: ", ""),
        })?;
        let is_known = |group: &str| match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|name| name == group),
        };
        match replacement_groups(&self.to).find(|group| !is_known(group)) {
            Some(group) => {
                let (pattern, group) = (self.pattern.clone(), group.to_owned());
                Err(InvalidOption::NoGroup { pattern, group })
            }
            None => Ok(regex),
        }
    }
}

/// Returns the groups that a replacement uses, by the rules of the crate `regex`.
fn replacement_groups(to: &str) -> impl Iterator<Item = &str> {
    let mut rest = to;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once('$')?;
            rest = after;
            if let Some(after) = after.strip_prefix('$') {
                rest = after;
            } else if let Some((group, after)) = after.strip_prefix('{').and_then(|it| it.split_once('}')) {
                rest = after;
                return Some(group);
            } else {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let (group, after) = after.split_at(end.unwrap_or(after.len()));
                rest = after;
                if !group.is_empty() {
                    return Some(group);
                }
            }
        }
    })
}

/// Checks expressions and replacements before any file is opened.
///
/// # Errors
/// When an expression cannot be parsed, or a replacement uses a group that its expression does not have.
pub fn check_renames(renames: &[Rename]) -> Result<()> {
    Ok(renames.iter().try_for_each(|rename| rename.regex().map(drop))?)
}

impl Step for Vec<Rename> {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        apply_renames(self, model.tensors_mut()).map_err(|error| error.in_file(model.root()))?;
        if !self.is_empty() {
            // The hint is how to rename them.
            model.notes.retain(|note| !matches!(note, Note::WrapperParts { .. }));
        }
        Ok(StepReport::Names)
    }
}

/// Applies the replacements to the names of the tensors, in order. For a compound tensor, the name itself is changed, and
/// the names of its parts follow.
///
/// # Errors
/// When an expression matches no name, a new name is empty, or two tensors have the same new name.
fn apply_renames(renames: &[Rename], tensors: &mut Tensors) -> Result<()> {
    let whole: HashSet<&str> = tensors.compounds().iter().map(|compound| compound.name.as_str()).collect();
    let split = |name: &str| {
        let mut dots = name.rmatch_indices('.').map(|(dot, _)| name.split_at(dot));
        let (name, part) = dots.find(|(name, _)| whole.contains(name)).unwrap_or((name, ""));
        (name.to_owned(), part.to_owned())
    };
    // A compound tensor's own name has no part suffix.
    let of_compounds = tensors.compounds().iter().map(|compound| (compound.name.clone(), String::new()));
    let mut names: Vec<(String, String)> = tensors.names().map(split).chain(of_compounds).collect();
    for rename in renames {
        let regex = rename.regex()?;
        let mut matches = false;
        for (name, _) in &mut names {
            if regex.is_match(name) {
                matches = true;
                *name = regex.replace_all(name, rename.to.as_str()).into_owned();
            }
        }
        if !matches {
            return Err(Problem::NothingRenamed { pattern: rename.pattern.clone() }.into());
        }
    }
    let names: Vec<String> = names.into_iter().map(|(name, part)| name + &part).collect();
    if let Some((_, old)) = names.iter().zip(tensors.names()).find(|(new, _)| new.is_empty()) {
        return Err(Problem::EmptyName { name: old.to_owned() }.into());
    }
    if let Some([name, first, second]) = same_name(names.iter().map(String::as_str).zip(tensors.names())) {
        return Err(Problem::SameName { name, first, second }.into());
    }
    tensors.names_mut().zip(names).for_each(|(name, new)| *name = new);
    Ok(())
}

/// Finds two equal names; returns the name and the two names that it replaces.
pub(super) fn same_name<'n>(renamed: impl Iterator<Item = (&'n str, &'n str)>) -> Option<[String; 3]> {
    let mut seen = HashMap::with_capacity(renamed.size_hint().0);
    let (new, [first, second]) = renamed
        .map(|(new, old)| (new, [seen.insert(new, old), Some(old)]))
        .find(|(_, olds)| olds.iter().all(Option::is_some))?;
    Some([new, first?, second?].map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage, Tensor};

    use super::*;

    fn rename(pattern: &str, to: &str) -> Rename {
        Rename { pattern: pattern.to_owned(), to: to.to_owned() }
    }

    fn renamed(names: &[&str], renames: &[Rename]) -> Result<Vec<String>> {
        let tensor = Tensor::new(Dtype::UInt8, vec![], vec![], 0, Storage::owned(vec![0])).expect("a byte");
        let mut tensors = names.iter().map(|name| ((*name).to_owned(), tensor.clone())).collect();
        apply_renames(renames, &mut tensors)?;
        Ok(tensors.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn every_match_is_replaced_and_the_order_counts() {
        let layers = rename(r"^h\.(\d+)\.", "layers.$1.");
        let weight = rename("(?<what>w|b)$", "${what}_");
        let names = renamed(&["h.0.w", "h.12.b", "ln.w"], &[layers, weight, rename("l", "L")]);
        assert_eq!(names.expect("they differ"), ["Layers.0.w_", "Layers.12.b_", "Ln.w_"]);
        let names = renamed(&["a.b.c"], &[rename(r"\.", "$$/")]);
        assert_eq!(names.expect("one name"), ["a$/b$/c"]);
        // Swaps two names.
        let places = [rename("^a$", "x"), rename("^b$", "a"), rename("^x$", "b")];
        assert_eq!(renamed(&["a", "b"], &places).expect("they differ"), ["b", "a"]);
    }

    #[test]
    fn collisions_and_useless_expressions_are_errors() {
        let error = |renames: &[Rename]| {
            renamed(&["layers.0.w", "layers.1.w", "norm"], renames).expect_err("refused").to_string()
        };
        assert_eq!(
            error(&[rename(r"\.\d+\.", ".")]),
            "`layers.0.w` and `layers.1.w` would both be called `layers.w`"
        );
        assert_eq!(error(&[rename("^norm$", "")]), "`norm` would have no name");
        assert_eq!(error(&[rename("^model", "")]), "no tensor that is kept has a name that matches `^model`");
    }

    #[test]
    fn wrong_expressions_are_found_before_any_file_is_opened() {
        let error = |pattern, to| check_renames(&[rename(pattern, to)]).expect_err("wrong").to_string();
        assert_eq!(error("(", ""), "`(` is not a regular expression: unclosed group");
        assert_eq!(
            error("(a)", "$1_b"),
            "the replacement for `(a)` uses a group `1_b` that it does not have"
        );
        assert_eq!(error("a", "x$$${1}"), "the replacement for `a` uses a group `1` that it does not have");
        for (pattern, to) in [("(a)", "$0${1}_b"), ("a", "$$1"), ("a", "$"), ("a", "$."), ("a", "${")] {
            check_renames(&[rename(pattern, to)]).expect("right");
        }
    }
}
