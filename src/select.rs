//! Which of a checkpoint's tensors are converted, and under which names.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Result, bail};
use globset::{Glob, GlobSet, GlobSetBuilder};
use tensor::{StorageId, Tensor};
use torch_import::{Checkpoint, Compound, CompoundKind, Content};

use crate::cli::{self, Usage};
use crate::terminal::{bytes, count};

/// Keys under which training scripts keep the weights beside what else they save.
const WEIGHTS: &[&str] = &["state_dict", "model_state_dict", "model", "module", "ema"];
/// What wrappers put before every name.
const WRAPPERS: &[&str] = &["module.", "_orig_mod."];

/// The tensors to convert.
pub(crate) struct Selected {
    pub(crate) tensors: Vec<(String, Tensor)>,
    /// Those that the tensors are parts of, by name.
    pub(crate) compounds: Vec<(String, Compound)>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

/// Applies `--key`, `--include`, `--exclude` and `--strip-prefix`, or finds the weights by itself.
pub(crate) fn select(args: &cli::Select, checkpoint: &Checkpoint) -> Result<Selected> {
    let mut notes = Vec::new();
    let key = match &args.key {
        Some(key) => key.clone(),
        None => key_of_weights(checkpoint, &mut notes)?.unwrap_or_default(),
    };
    let rules = Rules {
        key,
        include: globs(&args.include)?,
        exclude: globs(&args.exclude)?,
        strip: args.strip_prefix.clone().unwrap_or_default(),
    };
    let mut tensors: Vec<(String, Tensor)> = checkpoint
        .tensors()
        .filter_map(|(name, tensor)| Some((rules.name(&name)?, tensor.clone())))
        .collect();
    if !rules.strip.is_empty() && !checkpoint.tensors().any(|(name, _)| rules.strips(&name)) {
        bail!("--strip-prefix {}: no name that is kept starts so", rules.strip);
    }
    cut_to_spans(&mut tensors, &mut notes);
    let named = checkpoint.compounds();
    let compounds: Vec<(String, Compound)> =
        named.filter_map(|(name, compound)| Some((rules.name(name)?, compound.clone()))).collect();
    for (name, compound) in &compounds {
        if let CompoundKind::Meta { what } = &compound.kind {
            bail!("tensor `{name}` has no data: it is {what}; leave it out with --exclude '{name}'");
        }
    }
    if tensors.is_empty() {
        bail!(nothing_left(args, checkpoint));
    }
    if args.strip_prefix.is_none()
        && let Some(wrapper) =
            WRAPPERS.iter().find(|wrapper| tensors.iter().all(|(name, _)| name.starts_with(**wrapper)))
    {
        notes.push(format!("every name starts with `{wrapper}`; --strip-prefix {wrapper} removes it"));
    }
    Ok(Selected { tensors, compounds, notes })
}

/// The most keys that a message names.
const SHOWN: usize = 8;

/// Storages whose unused ends are larger than this are cut.
const WORTH_CUTTING: u64 = 4096;

/// A slice drags its whole storage along: what no kept tensor touches at a storage's ends is left behind.
fn cut_to_spans(tensors: &mut [(String, Tensor)], notes: &mut Vec<String>) {
    let mut spans: HashMap<StorageId, Range<u64>> = HashMap::new();
    for (_, tensor) in tensors.iter().filter(|(_, tensor)| tensor.numel() > 0) {
        let span = tensor.span();
        let whole = spans.entry(tensor.storage().id()).or_insert_with(|| span.clone());
        *whole = whole.start.min(span.start)..whole.end.max(span.end);
    }
    let mut parts = HashMap::new();
    let mut saved = 0_u64;
    for (_, tensor) in tensors {
        let storage = tensor.storage();
        let Some(span) = spans.get(&storage.id()) else { continue };
        let unused = storage.len().saturating_sub(span.end.saturating_sub(span.start));
        if unused < WORTH_CUTTING {
            continue;
        }
        let part = parts.entry(storage.id()).or_insert_with(|| {
            saved = saved.saturating_add(unused);
            storage.slice(span.clone())
        });
        let before = span.start.checked_div(tensor.dtype().size()).unwrap_or_default();
        // Where an empty tensor starts means nothing, and may be behind the cut.
        let start = if tensor.numel() == 0 { before } else { tensor.storage_offset() };
        let offset = start.saturating_sub(before);
        let (shape, stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
        if let Some(part) = part.clone()
            && let Ok(cut) = Tensor::new(tensor.dtype(), shape, stride, offset, part)
        {
            *tensor = cut;
        }
    }
    if saved > 0 {
        notes.push(format!("{} of storages that no tensor touches stay behind", bytes(saved)));
    }
}

fn nothing_left(args: &cli::Select, checkpoint: &Checkpoint) -> String {
    match &args.key {
        _ if checkpoint.tensors().next().is_none() => "there are no tensors in it".to_owned(),
        Some(key) => {
            let mut tops: Vec<&str> = tensor_items(checkpoint).filter_map(|item| item.root_key()).collect();
            tops.dedup();
            let tops = tops.iter().take(SHOWN).map(|top| format!("`{top}`")).collect::<Vec<_>>().join(", ");
            let there = if tops.is_empty() { tops } else { format!("; tensors lie under {tops}") };
            format!("no tensor lies under `{key}`, or none that --include and --exclude leave{there}")
        }
        None => "--include and --exclude leave no tensor".to_owned(),
    }
}

fn tensor_items(checkpoint: &Checkpoint) -> impl Iterator<Item = &torch_import::Item> {
    checkpoint.items.iter().filter(|item| !matches!(item.content, Content::Value(_)))
}

struct Rules {
    key: String,
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    strip: String,
}

impl Rules {
    /// The name below the key; `None` when the tensor is left out.
    fn below<'n>(&self, name: &'n str) -> Option<&'n str> {
        let below = match self.key.as_str() {
            "" => name,
            key if name == key => "",
            key => name.strip_prefix(key)?.strip_prefix('.')?,
        };
        let kept = self.include.as_ref().is_none_or(|globs| globs.is_match(below))
            && self.exclude.as_ref().is_none_or(|globs| !globs.is_match(below));
        kept.then_some(below)
    }

    /// Whether `--strip-prefix` changes the name of a tensor that is kept.
    fn strips(&self, name: &str) -> bool {
        self.below(name).is_some_and(|below| below.starts_with(&self.strip))
    }

    /// The name that a tensor gets; `None` when it is left out.
    fn name(&self, name: &str) -> Option<String> {
        let below = self.below(name)?;
        let stripped = below.strip_prefix(&self.strip).unwrap_or(below);
        Some(if stripped.is_empty() { "tensor".to_owned() } else { stripped.to_owned() })
    }
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = Glob::new(pattern);
        set.add(glob.map_err(|error| Usage(format!("`{pattern}` is no pattern: {}", error.kind())))?);
    }
    Ok(Some(set.build()?))
}

/// The key of the root that holds the weights, when exactly one of the usual ones holds tensors.
fn key_of_weights(checkpoint: &Checkpoint, notes: &mut Vec<String>) -> Result<Option<String>> {
    let mut sizes: Vec<(&str, u64, u64)> = Vec::new();
    let tensors =
        checkpoint.items.iter().flat_map(|item| item.tensors().map(move |(_, tensor)| (item, tensor)));
    for (item, tensor) in tensors {
        let top = item.root_key().unwrap_or_default();
        match sizes.iter_mut().find(|(key, ..)| *key == top) {
            Some((_, tensors, nbytes)) => {
                *tensors = tensors.saturating_add(1);
                *nbytes = nbytes.saturating_add(tensor.nbytes());
            }
            None => sizes.push((top, 1, tensor.nbytes())),
        }
    }
    let (weights, others): (Vec<_>, Vec<_>) = sizes.iter().partition(|(key, ..)| WEIGHTS.contains(key));
    match weights.as_slice() {
        [] => Ok(None),
        [(key, tensors, _)] => {
            let mut note = format!("using key `{key}` ({} tensors)", grouped(*tensors));
            let left_out = others.iter().map(|(key, tensors, nbytes)| {
                let place = if key.is_empty() { "beside it".to_owned() } else { format!("under `{key}`") };
                format!("{} ({}) {place}", grouped(*tensors), bytes(*nbytes))
            });
            let left_out: Vec<String> = left_out.collect();
            if !left_out.is_empty() {
                note = format!("{note}; left out {}; --key '' keeps everything", left_out.join(", "));
            }
            notes.push(note);
            Ok(Some((*key).to_owned()))
        }
        several => {
            let list: Vec<String> = several
                .iter()
                .map(|(key, tensors, nbytes)| {
                    format!("`{key}` ({} tensors, {})", count(*tensors), bytes(*nbytes))
                })
                .collect();
            bail!(
                "several keys hold weights: {}; choose one with --key, or keep everything with --key ''",
                list.join(", ")
            )
        }
    }
}

/// A number with its thousands apart, such as `1,372`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(686), "686");
        assert_eq!(grouped(1372), "1,372");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn keys_end_at_dots() {
        let rules = Rules { key: "a".to_owned(), include: None, exclude: None, strip: "m.".to_owned() };
        assert_eq!(rules.name("a.m.w").as_deref(), Some("w"));
        assert_eq!(rules.name("a.w").as_deref(), Some("w"));
        assert_eq!(rules.name("a").as_deref(), Some("tensor"));
        assert_eq!(rules.name("ab.w"), None);
    }
}
