//! Finds the dict of a checkpoint that holds the weights, next to optimizer state, settings and averages.
//!
//! Facts: the keys under which the scripts of torchvision, timm, fairseq, latent diffusion, Lightning and others store weights.

use foldhash::{HashMap, HashMapExt};
use torch_import::{Checkpoint, CheckpointItem};

use crate::{Note, Problem, Result};

/// Names of the dict of weights.
const WEIGHT_KEYS: &[&str] = &[
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "net",
    "network",
    "params",
    "weights",
    "model_weights",
];
/// Word that marks an average of the weights (exponential moving average), at either end of a key.
const AVERAGE: &str = "ema";

/// Level of the innermost dict, counted from 0, in which weights are looked for.
const DEEPEST_LEVEL: usize = 3;

/// Returns true if training scripts store weights under this key: `state_dict`, `ema`, `model_ema`, `ema_state_dict`.
pub(crate) fn is_weight_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    if key == AVERAGE {
        return true;
    }
    let without_average = key
        .strip_prefix(AVERAGE)
        .and_then(|rest| rest.strip_prefix('_'))
        .or_else(|| key.strip_suffix(AVERAGE)?.strip_suffix('_'))
        .unwrap_or(&key);
    WEIGHT_KEYS.contains(&without_average)
}

/// Tensors below a key.
#[derive(Clone, Copy, Debug, Default)]
struct TensorTotal {
    tensors: u64,
    nbytes: u64,
}

/// Totals of the tensors by key, in the order of the file.
#[derive(Debug)]
struct KeyTotals<'c> {
    keys: Vec<(&'c str, TensorTotal)>,
    places: HashMap<&'c str, usize>,
    /// Place of the last key.
    last: usize,
}

impl<'c> KeyTotals<'c> {
    fn new(
        items: impl Iterator<Item = &'c CheckpointItem>,
        key: impl Fn(&'c CheckpointItem) -> &'c str,
    ) -> Self {
        let mut totals = Self { keys: Vec::new(), places: HashMap::new(), last: 0 };
        for item in items {
            for (_, tensor) in item.tensors() {
                totals.add(key(item), tensor.nbytes());
            }
        }
        totals
    }

    fn add(&mut self, key: &'c str, nbytes: u64) {
        // Most tensors have the key of the one before. Empty texts are not compared: their addresses are not mapped, and masked loads
        // of AVX-512 from there take half a microsecond.
        let is_same = |(last, _): &(&str, _)| last.len() == key.len() && (key.is_empty() || *last == key);
        if !self.keys.get(self.last).is_some_and(is_same) {
            let next = self.keys.len();
            self.last = *self.places.entry(key).or_insert(next);
            if self.last == next {
                self.keys.push((key, TensorTotal::default()));
            }
        }
        if let Some((_, total)) = self.keys.get_mut(self.last) {
            total.tensors = total.tensors.saturating_add(1);
            total.nbytes = total.nbytes.saturating_add(nbytes);
        }
    }

    /// Splits into the keys of weights and the others.
    fn split(self) -> [Vec<(String, u64, u64)>; 2] {
        let is_weight = |key: &str| is_weight_key(key.rsplit_once('.').map_or(key, |(_, last)| last));
        let (weights, others): (Vec<_>, Vec<_>) = self.keys.into_iter().partition(|(key, _)| is_weight(key));
        let owned = |(key, total): (&str, TensorTotal)| (key.to_owned(), total.tensors, total.nbytes);
        [weights, others].map(|keys| keys.into_iter().map(owned).collect())
    }
}

/// Returns the path of the dict with the weights, if exactly one of the usual keys contains tensors that `is_wanted`
/// accepts. The weights may be some levels deeper, such as under `state_dict.model_ema`.
///
/// # Errors
/// When several of the usual keys contain tensors.
pub(crate) fn key_of_weights(
    checkpoint: &Checkpoint,
    is_wanted: &dyn Fn(&CheckpointItem) -> bool,
    notes: &mut Vec<Note>,
) -> Result<Option<String>> {
    let wanted = || checkpoint.items.iter().filter(|item| is_wanted(item));
    let [roots, mut others] = KeyTotals::new(wanted(), |item| item.root_key().unwrap_or_default()).split();
    let only_root = match roots.as_slice() {
        [(root, ..)] => Some(root.clone()),
        _ => None,
    };
    let mut found = roots;
    if let Some(root) = only_root {
        let below = wanted().filter(|item| item.root_key() == Some(root.as_str()));
        let [inner, rest] =
            KeyTotals::new(below, |item| item.second_key().or(item.root_key()).unwrap_or_default()).split();
        // Tensors that are direct values of the root are weights themselves.
        if !inner.is_empty() && inner.iter().all(|(key, ..)| *key != root) {
            others.extend(rest);
            found = inner;
        }
    }
    // The outermost level at which there are keys of weights.
    for level in 1..=DEEPEST_LEVEL {
        if !found.is_empty() {
            break;
        }
        let nested = wanted().filter(|item| item.key_at(level).is_some());
        [found, _] = KeyTotals::new(nested, |item| item.key_at(level).unwrap_or_default()).split();
        let is_inside = |item: &&CheckpointItem| {
            item.key_at(level).is_some_and(|key| found.iter().any(|(it, ..)| it == key))
        };
        let outside = wanted().filter(|item| !is_inside(item));
        let [mut weights, rest] =
            KeyTotals::new(outside, |item| item.second_key().or(item.root_key()).unwrap_or_default()).split();
        weights.extend(rest);
        others = weights;
    }
    match found.as_slice() {
        [] => Ok(None),
        [(key, tensors, _)] => {
            notes.push(Note::UsingKey { key: key.clone(), tensors: *tensors, left_out: others });
            Ok(Some(key.clone()))
        }
        _ => Err(Problem::SeveralKeys { keys: found }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_weights_too() {
        for key in [
            "state_dict",
            "model",
            "ema",
            "model_ema",
            "ema_model",
            "state_dict_ema",
            "params_ema",
            "ema_state_dict",
            "Model_EMA",
            "net",
        ] {
            assert!(is_weight_key(key), "{key}");
        }
        for key in ["", "optimizer", "ema_decay", "schema", "emails", "model_args", "lr", "_ema", "ema_"] {
            assert!(!is_weight_key(key), "{key}");
        }
    }
}
