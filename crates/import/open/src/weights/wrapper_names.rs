//! Finds the parts that wrappers of modules add to names.
//!
//! Facts: `torch.compile`, `DistributedDataParallel`, `FullyShardedDataParallel`, `checkpoint_wrapper` and `AveragedModel` of
//! PyTorch 2.15, `_forward_module` of Lightning's strategies, `GradSampleModule` of Opacus; the `base_model_prefix` of transformers.

use crate::Note;
use crate::weights::find::is_weight_key;

/// Parts that wrappers add wherever they are.
const WRAPPERS: &[&str] =
    &["_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
/// Parts that wrappers add at the start of names, or next to another wrapper's.
const OUTER_WRAPPERS: &[&str] = &["module", "_module"];
/// Buffer that `AveragedModel` has next to the module.
const AVERAGED: &str = "n_averaged";
/// All parameters of a module in one tensor, of which a rank has a part.
const FLAT_PARAMETER: &str = "_flat_param";
/// Maximum number of different chains of wrappers that a note names.
const SHOWN: usize = 4;

/// Parts of names that show a model whose own class has `model.` in front of them: language models and detectors.
const OWN_PREFIX: &[&str] = &["embed_tokens", "cv1", "dfl"];

/// Returns a note on the parts that wrappers, or a training script, add to these names. `is_own` says whether `model.` belongs to the
/// class of the model.
pub(crate) fn wrapper_note<'n>(names: &[&'n str], is_own: impl FnOnce() -> bool) -> Option<Note> {
    if names.iter().any(|name| name.ends_with(FLAT_PARAMETER)) {
        return None;
    }
    let in_wrapper: Vec<&'n str> = names.iter().copied().filter(|name| *name != AVERAGED).collect();
    let outer = outer_chain(&in_wrapper);
    let mut inner: Vec<&str> = Vec::new();
    let mut count = 0_usize;
    for name in &in_wrapper {
        let mut chains = inner_chains(name.get(outer.len()..).unwrap_or_default()).peekable();
        count = count.saturating_add(usize::from(chains.peek().is_some()));
        for chain in chains {
            if !inner.contains(&chain) && inner.len() < SHOWN {
                inner.push(chain);
            }
        }
    }
    if inner.is_empty() && in_wrapper.len() == names.len() {
        let prefix = if outer.is_empty() { weight_key_prefix(names)? } else { outer };
        let is_of_script = OUTER_WRAPPERS.iter().chain(WRAPPERS).any(|it| prefix.starts_with(it));
        return (is_of_script || !is_own()).then(|| Note::CommonPrefix { prefix: prefix.to_owned() });
    }
    let wrapped = if outer.is_empty() { count } else { in_wrapper.len() };
    let parts: Vec<String> = Some(outer)
        .filter(|it| !it.is_empty())
        .into_iter()
        .chain(inner.iter().copied())
        .map(str::to_owned)
        .collect();
    if parts.is_empty() {
        return None;
    }
    // The longest chain first: the expression takes the first alternative that fits.
    inner.sort_by_key(|chain| std::cmp::Reverse(chain.len()));
    let escaped = |chain: &str| chain.replace('.', r"\.");
    let outer_pattern = Some(format!("^{}", escaped(outer))).filter(|_| !outer.is_empty());
    let alternatives: Vec<String> =
        outer_pattern.into_iter().chain(inner.iter().map(|it| escaped(it))).collect();
    let pattern = alternatives.join("|");
    let is_unique = keep_apart(names, &pattern);
    Some(Note::WrapperParts { parts, names: wrapped, of: names.len(), pattern: is_unique.then_some(pattern) })
}

/// Returns true if the names are different ones without what the expression matches.
fn keep_apart(names: &[&str], pattern: &str) -> bool {
    let Ok(regex) = regex::Regex::new(pattern) else { return false };
    let mut seen = foldhash::HashSet::default();
    names.iter().all(|name| seen.insert(regex.replace_all(name, "")))
}

/// Returns the wrappers' parts with which all names begin, with their dots.
fn outer_chain<'n>(names: &[&'n str]) -> &'n str {
    let Some(first) = names.first() else { return "" };
    let mut end = 0_usize;
    for part in first.split_inclusive('.') {
        let next = end.saturating_add(part.len());
        let is_wrapper =
            part.strip_suffix('.').is_some_and(|it| WRAPPERS.contains(&it) || OUTER_WRAPPERS.contains(&it));
        let start = first.get(..next).unwrap_or_default();
        if !is_wrapper || !names.iter().all(|name| name.starts_with(start)) {
            break;
        }
        end = next;
    }
    first.get(..end).unwrap_or_default()
}

/// Returns the chains of wrappers' parts in a name, with their dots.
fn inner_chains(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        // Most names have none.
        while rest.contains("_orig_mod.") || rest.contains("_module.") {
            let mut end = 0_usize;
            let mut has_wrapper = false;
            for part in rest.split_inclusive('.') {
                let Some(part_name) = part.strip_suffix('.') else { break };
                let is_wrapper = WRAPPERS.contains(&part_name);
                if !is_wrapper && !OUTER_WRAPPERS.contains(&part_name) {
                    break;
                }
                has_wrapper |= is_wrapper;
                end = end.saturating_add(part.len());
            }
            let (chain, after) = rest.split_at(end);
            rest = after.split_once('.').map_or("", |(_, after)| after);
            if has_wrapper {
                rest = after;
                return Some(chain);
            }
        }
        None
    })
}

/// Returns the key of weights with which all names begin, with its dot, unless the names are those of a class that has it.
fn weight_key_prefix<'n>(names: &[&'n str]) -> Option<&'n str> {
    let first = *names.first()?;
    let (key, _) = first.split_once('.').filter(|(key, _)| is_weight_key(key))?;
    let prefix = first.get(..key.len().saturating_add(1))?;
    let is_own = |name: &&str| name.split('.').any(|part| OWN_PREFIX.contains(&part));
    (names.iter().all(|name| name.starts_with(prefix)) && !names.iter().any(is_own)).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(names: &str) -> String {
        let names: Vec<&str> = names.split_whitespace().collect();
        match wrapper_note(&names, || false) {
            Some(Note::WrapperParts { parts, names, of, pattern }) => {
                format!("{} {names}/{of} {}", parts.join(" "), pattern.unwrap_or_default())
            }
            Some(Note::CommonPrefix { prefix }) => prefix,
            _ => String::new(),
        }
    }

    #[test]
    fn wrappers_are_named_together() {
        for (names, expected) in [
            ("a.w b.w", ""),
            ("module.a.w module.b", "module."),
            ("_orig_mod.module.a _orig_mod.module.b.w", "_orig_mod.module."),
            ("_module.a _module.b", "_module."),
            ("model.a model.b", "model."),
            ("model.embed_tokens.weight model.norm.weight", ""),
            ("model.0.conv.weight model.2.cv1.conv.weight", ""),
            ("_forward_module.model.a _forward_module.model.b", "_forward_module."),
            ("n_averaged module.a module.b", "module. 2/3 ^module\\."),
            ("model._orig_mod.a model._orig_mod.b loss", "_orig_mod. 2/3 _orig_mod\\."),
            (
                "module.a._checkpoint_wrapped_module.w module.b._orig_mod.w",
                "module. _checkpoint_wrapped_module. _orig_mod. 2/2 ^module\\.|_checkpoint_wrapped_module\\.|_orig_mod\\.",
            ),
            (
                "m._orig_mod.module.a m._orig_mod.b",
                "_orig_mod.module. _orig_mod. 2/2 _orig_mod\\.module\\.|_orig_mod\\.",
            ),
            ("a._fsdp_wrapped_module._flat_param b", ""),
            // A submodule of this name.
            ("a.module.w b.w", ""),
            // The names would be equal.
            ("_orig_mod.a a", "_orig_mod. 1/2 "),
            (
                "a._orig_mod.b._fsdp_wrapped_module.w c",
                "_orig_mod. _fsdp_wrapped_module. 1/2 _fsdp_wrapped_module\\.|_orig_mod\\.",
            ),
        ] {
            assert_eq!(note(names), expected, "{names}");
        }
    }

    #[test]
    fn a_prefix_of_the_class_is_kept() {
        assert!(wrapper_note(&["model.a", "model.b"], || true).is_none());
        assert!(wrapper_note(&["module.a", "module.b"], || true).is_some());
    }
}
