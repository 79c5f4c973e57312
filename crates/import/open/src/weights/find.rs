//! Decides which part of a checkpoint are the weights, next to optimizer state, settings and averages.
//!
//! Facts: the keys under which the scripts of torchvision, timm, fairseq, latent diffusion, Lightning and others store weights.

use super::key_totals::{KeyTotal, KeyTotals};
use super::leaf::{LEVELS, Leaf, dict_keys, has_word};
use super::optimizers::{Optimizers, looks_like_weights};

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
/// Words in the keys of averages, and of tensors that no model has: the states of random generators.
const SIDE_WORDS: &[&str] = &[AVERAGE, "swa", "average", "averaged", "avg", "shadow", "rng"];
/// Words in root keys that hold weights but do not belong to the model.
const LOSS_WORDS: &[&str] = &["loss", "losses", "criterion", "metric", "metrics"];

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

/// What the weights of a checkpoint are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WeightChoice {
    /// What is under one key.
    Below { key: KeyTotal, left_out: Vec<KeyTotal> },
    /// All tensors, except those of optimizers. The sets are under these keys of the root.
    All { sets: Vec<KeyTotal> },
    /// What is under one of these keys.
    OneOf(Vec<KeyTotal>),
}

/// Decides what the weights are. A key below the root is taken only if all that it leaves out are optimizers and averages.
pub(crate) fn find_weights<'c, L: Leaf + 'c, I: Iterator<Item = &'c L>>(
    leaves: impl Fn() -> I,
    optimizers: &Optimizers,
) -> WeightChoice {
    let root = |leaf: &'c L| leaf.key_at(0).unwrap_or_default();
    let second = |leaf: &'c L| leaf.key_at(1).or(leaf.key_at(0)).unwrap_or_default();
    // What a key must not leave out.
    let is_weight = |leaf: &L| {
        leaf.total().0 > 0
            && !optimizers.include(leaf.name())
            && !dict_keys(leaf).any(|(_, key)| has_word(key, SIDE_WORDS))
    };
    let [mut roots, mut left_out] = KeyTotals::new(leaves(), root).split(is_weight_key);
    if roots.len() > 1 {
        return WeightChoice::OneOf(roots);
    }
    if optimizers.is_alone {
        return WeightChoice::All { sets: Vec::new() };
    }
    let own = |leaf: &&L| leaf.total().0 > 0 && !optimizers.include(leaf.name());
    let sets = || {
        let in_dicts = leaves().filter(own).filter(|leaf| leaf.is_in_dict_of_root());
        WeightChoice::All { sets: KeyTotals::new(in_dicts, root).all() }
    };
    if let Some(key) = roots.pop() {
        let is_other_set = |leaf: &L| {
            let is_flat = leaf.key_at(0).is_some_and(|root| *root != *key.key) && leaf.key_at(1).is_none();
            is_flat
                && leaf.is_in_dict_of_root()
                && is_weight(leaf)
                && looks_like_weights(leaf.name())
                && !leaf.key_at(0).is_some_and(|root| has_word(root, LOSS_WORDS))
        };
        if leaves().any(is_other_set) {
            return sets();
        }
        let below = || leaves().filter(|leaf| leaf.key_at(0) == Some(key.key.as_str()));
        let [mut inner, rest] = KeyTotals::new(below(), second).split(is_last_weight_key);
        // Tensors that are direct values of the root's dict are weights themselves.
        if inner.iter().all(|inner| inner.key != key.key) {
            if inner.len() > 1 {
                return WeightChoice::OneOf(inner);
            }
            if let Some(inner) = inner.pop()
                && !below().any(|leaf| leaf.key_at(1) != Some(inner.key.as_str()) && is_weight(leaf))
            {
                left_out.extend(rest);
                return WeightChoice::Below { key: inner, left_out };
            }
        }
        return WeightChoice::Below { key, left_out };
    }
    // The outermost level at which there are keys of weights.
    for level in 1..LEVELS {
        let nested = leaves().filter(|leaf| leaf.key_at(level).is_some() && own(leaf));
        let [mut found, _] =
            KeyTotals::new(nested, |leaf| leaf.key_at(level).unwrap_or_default()).split(is_last_weight_key);
        let Some(key) = found.pop() else { continue };
        if !found.is_empty() {
            found.push(key);
            if have_one_parent(&found) {
                return WeightChoice::OneOf(found);
            }
            break;
        }
        let outside = || leaves().filter(|leaf| leaf.key_at(level) != Some(key.key.as_str()));
        if !outside().any(is_weight) {
            let [mut left_out, rest] = KeyTotals::new(outside(), second).split(is_last_weight_key);
            left_out.extend(rest);
            return WeightChoice::Below { key, left_out };
        }
        break;
    }
    // All tensors are in one dict.
    let only = leaves().find(own).and_then(|leaf| leaf.key_at(0)).unwrap_or_default();
    if !only.is_empty()
        && leaves().filter(own).all(|leaf| leaf.key_at(0) == Some(only) && leaf.is_in_dict_of_root())
    {
        let (mut key, left_out): (Vec<_>, _) =
            KeyTotals::new(leaves(), root).all().into_iter().partition(|total| total.key == only);
        if let Some(key) = key.pop() {
            return WeightChoice::Below { key, left_out };
        }
    }
    sets()
}

fn is_last_weight_key(path: &str) -> bool {
    is_weight_key(path.rsplit_once('.').map_or(path, |(_, last)| last))
}

fn have_one_parent(keys: &[KeyTotal]) -> bool {
    let mut parents = keys.iter().map(|it| it.key.rsplit_once('.').map_or("", |(parent, _)| parent));
    parents.next().is_none_or(|first| parents.all(|parent| parent == first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor of one byte whose path has `/` after each key of a dict.
    struct Path {
        name: String,
        ends: Vec<usize>,
    }

    impl Leaf for Path {
        fn name(&self) -> &str {
            &self.name
        }

        fn key_at(&self, level: usize) -> Option<&str> {
            self.name.get(..*self.ends.get(level)?)
        }

        fn is_in_dict_of_root(&self) -> bool {
            !self.ends.is_empty()
        }

        fn total(&self) -> (u64, u64) {
            (1, 1)
        }
    }

    fn leaves(paths: &str) -> Vec<Path> {
        // `KEY!` is an optimizer.
        let with_optimizers = |text: &str| match text.strip_suffix('!') {
            Some(key) => {
                ["state.0.exp_avg", "param_groups.0.params.0"].map(|it| format!("{key}/{it}")).into()
            }
            None => vec![text.to_owned()],
        };
        let path = |text: String| Path {
            name: text.replace('/', "."),
            ends: text.match_indices('/').map(|(end, _)| end).collect(),
        };
        paths.split_whitespace().flat_map(with_optimizers).map(path).collect()
    }

    fn decided(paths: &str) -> String {
        let leaves = leaves(paths);
        let optimizers = Optimizers::find(|| leaves.iter(), &[]);
        let text = |keys: Vec<KeyTotal>| {
            let texts: Vec<_> = keys.iter().map(|it| format!(" {}:{}", it.key, it.tensors)).collect();
            texts.concat()
        };
        match find_weights(|| leaves.iter(), &optimizers) {
            WeightChoice::Below { key, left_out } => {
                format!("{}:{} without{}", key.key, key.tensors, text(left_out))
            }
            WeightChoice::All { sets } => format!("all{}", text(sets)),
            WeightChoice::OneOf(keys) => format!("one of{}", text(keys)),
        }
    }

    #[test]
    fn the_weights_are_where_nothing_else_is_lost() {
        for (paths, expected) in [
            // A key of the root.
            ("model/a.weight step", "model:1 without :1"),
            ("model/a.weight optimizer!", "model:1 without optimizer:2"),
            ("model/a.weight model/ema/a.weight", "model:2 without"),
            ("model/a.weight ema/a.weight", "one of model:1 ema:1"),
            ("model/a.weight model_average/a.weight", "model:1 without model_average:1"),
            ("model/a.weight criterion/weight rng_state/cpu", "model:1 without criterion:1 rng_state:1"),
            ("model/a.weight discriminator/a.weight", "all model:1 discriminator:1"),
            ("state_dict/a.weight state_dict/b.bias", "state_dict:2 without"),
            // A key in a key of weights.
            (
                "state_dict/model/w state_dict/optimizer/m other",
                "state_dict.model:1 without :1 state_dict.optimizer:1",
            ),
            ("state_dict/model/w state_dict/head/w", "state_dict:2 without"),
            ("state_dict/model/w state_dict/model_ema/w", "one of state_dict.model:1 state_dict.model_ema:1"),
            // A deeper key.
            ("run/last/net/w", "run.last.net:1 without"),
            ("run/last/net/w run/last/net_ema/w", "one of run.last.net:1 run.last.net_ema:1"),
            ("last/net/w last/ema~net/w", "last.net:1 without last.ema~net:1"),
            ("last/net/w best/w", "all last:1 best:1"),
            ("last/net/w scale", "all last:1"),
            ("student/model/w teacher/model/w", "all student:1 teacher:1"),
            ("c/base/model/trunk/w c/base/model/heads/w c/optim!", "c.base.model:2 without c.optim:2"),
            ("state/model/w rng/0.torch", "state.model:1 without rng:1"),
            // The only key of the root.
            ("generator/a.weight", "generator:1 without"),
            ("network_weights/w optimizer_state!", "network_weights:1 without optimizer_state:2"),
            ("encoder/a.weight scale", "all encoder:1"),
            ("encoder/a.weight decoder/a.weight", "all encoder:1 decoder:1"),
            ("g/w d/w g_ema/w latent_avg g_optim!", "all g:1 d:1 g_ema:1"),
            // A key of weights in an optimizer is none.
            ("a/w b/w o/state/model/exp_avg o/param_groups.0.params.0", "all a:1 b:1"),
            ("a.weight b", "all"),
            // An optimizer alone is what it is.
            ("optimizer!", "all"),
            ("state/0.exp_avg param_groups/0.params.0", "all"),
            ("state/a.weight", "state:1 without"),
        ] {
            assert_eq!(decided(paths), expected, "{paths}");
        }
    }

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
