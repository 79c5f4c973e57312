//! Finds the state of optimizers in a checkpoint, which is not part of the weights.
//!
//! Facts: `Optimizer.state_dict` in `torch/optim/optimizer.py`, and the names that its subclasses give to their state.

use foldhash::{HashSet, HashSetExt};

use super::leaf::{Leaf, dict_keys, has_word};

/// What an optimizer keeps for a parameter.
const MOMENTS: &[&str] = &[
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
    "square_avg",
    "grad_avg",
    "acc_delta",
    "exp_inf",
];

/// Member of an optimizer's state dict, as a part of a name: a list.
const GROUPS: &str = "param_groups.";

/// Returns true if a path is in one of the members of an optimizer's state dict.
fn is_state_member(path: &str) -> bool {
    path.starts_with("state.") || path.starts_with(GROUPS)
}

fn starts_with_number(path: &str) -> bool {
    path.split('.').next().is_some_and(|part| part.parse::<u64>().is_ok())
}

/// Returns true if trainers keep the state of an optimizer under this key.
pub(crate) fn is_optimizer(key: &str) -> bool {
    let of_gan = key.strip_suffix(['G', 'D']).unwrap_or(key);
    has_word(of_gan, &["optim", "optims", "optimizer", "optimizers"])
        || ["opt", "opt_state"].iter().any(|known| key.eq_ignore_ascii_case(known))
}

/// Returns true if the last part of a name is one that layers give to their parameters.
pub(crate) fn looks_like_weights(name: &str) -> bool {
    let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
    last.starts_with("weight") || last.starts_with("bias")
}

/// Paths of the dicts and objects with the state of optimizers.
#[derive(Debug, Default)]
pub(crate) struct Optimizers {
    /// In the order of the file.
    paths: Vec<String>,
    /// None of these is in another.
    sorted: Vec<String>,
    /// True for the file of an optimizer alone, which is what it is.
    pub(crate) is_alone: bool,
}

impl Optimizers {
    /// Finds dicts and objects with `param_groups`, and dicts that are named as those of optimizers and have no weights; `known` are
    /// others.
    pub(crate) fn find<'c, L: Leaf + 'c, I: Iterator<Item = &'c L>>(
        leaves: impl Fn() -> I,
        known: &[String],
    ) -> Self {
        let built = Self::new(leaves().filter_map(|leaf| optimizer_path(leaf.name())));
        let named = leaves().flat_map(|leaf| {
            let keys = dict_keys(leaf).filter(|(_, key)| is_optimizer(key));
            keys.map(|(path, _)| path).collect::<Vec<_>>()
        });
        let named = Self::new(named);
        let weights = || leaves().filter(|leaf| leaf.total().0 > 0 && looks_like_weights(leaf.name()));
        // An object with an optimizer's members may have the model as well.
        let mut mixed: HashSet<&str> = HashSet::new();
        for leaf in weights() {
            mixed.extend(named.path_of(leaf.name()).filter(|_| !built.has_state(leaf.name())));
            mixed.extend(built.path_of(leaf.name()).filter(|_| !built.has_state(leaf.name())));
        }
        let named = named.paths.iter().filter(|path| !mixed.contains(path.as_str())).cloned();
        let built = built.paths.iter().flat_map(|path| {
            if mixed.contains(path.as_str()) {
                vec![format!("{path}.state"), format!("{path}.param_groups")]
            } else {
                vec![path.clone()]
            }
        });
        let mut paths: Vec<String> = known.to_vec();
        paths.extend(named.chain(built));
        let found = Self::new(paths.iter().map(String::as_str));
        let is_root = leaves().any(|leaf| leaf.name().strip_prefix(GROUPS).is_some_and(starts_with_number));
        let is_state = |name: &str| found.include(name) || is_root && is_state_member(name);
        let is_alone = leaves().filter(|leaf| leaf.total().0 > 0).all(|leaf| is_state(leaf.name()));
        if is_alone && known.is_empty() { Self { is_alone, ..Self::default() } } else { found }
    }

    fn new<'p>(paths: impl Iterator<Item = &'p str>) -> Self {
        let mut seen = HashSet::new();
        let paths: Vec<&str> = paths.filter(|path| !path.is_empty() && seen.insert(*path)).collect();
        let is_in_other = |path: &str| {
            path.match_indices('.').any(|(dot, _)| path.get(..dot).is_some_and(|start| seen.contains(start)))
        };
        let paths: Vec<String> =
            paths.into_iter().filter(|path| !is_in_other(path)).map(str::to_owned).collect();
        let mut sorted = paths.clone();
        sorted.sort_unstable_by(|a, b| with_dot(a).cmp(with_dot(b)));
        Self { paths, sorted, is_alone: false }
    }

    /// Returns true if the tensor of this name belongs to an optimizer.
    pub(crate) fn include(&self, name: &str) -> bool {
        self.path_of(name).is_some()
    }

    /// Returns the path of the optimizer to which the tensor of this name belongs.
    pub(crate) fn path_of(&self, name: &str) -> Option<&str> {
        let after = self.sorted.partition_point(|path| with_dot(path).le(name.bytes()));
        let path = self.sorted.get(after.checked_sub(1)?)?;
        name.strip_prefix(path.as_str())?.starts_with('.').then_some(path)
    }

    /// Returns true if a tensor is in the state of an optimizer, and not a further member of it.
    fn has_state(&self, name: &str) -> bool {
        let below = self.path_of(name).and_then(|path| name.get(path.len().saturating_add(1)..));
        below.is_some_and(is_state_member)
    }
}

/// Returns the bytes of a path and of the dot that follows in the names below it.
fn with_dot(path: &str) -> impl Iterator<Item = u8> {
    path.bytes().chain([b'.'])
}

/// Returns the path of the optimizer in whose groups or whose state the item of this name is.
fn optimizer_path(name: &str) -> Option<&str> {
    if let Some((before, after)) = name.split_once(GROUPS)
        && starts_with_number(after)
    {
        return before.strip_suffix('.');
    }
    let (rest, moment) = name.rsplit_once('.')?;
    let (state, parameter) = rest.rsplit_once('.')?;
    (MOMENTS.contains(&moment) && starts_with_number(parameter))
        .then(|| state.strip_suffix(".state"))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimizers_are_known_by_their_keys() {
        for key in [
            "optimizer",
            "optim",
            "optimizers",
            "optimizer_0",
            "optimizer_states",
            "opt_state",
            "g_optim",
            "optimizerG",
            "last_optimizer_state",
        ] {
            assert!(is_optimizer(key), "{key}");
        }
        for key in ["optimal", "model", "optics", "adopt", "optimized_model"] {
            assert!(!is_optimizer(key), "{key}");
        }
    }

    #[test]
    fn optimizers_are_known_by_their_structure() {
        for (name, expected) in [
            ("optim.param_groups.0.lr", Some("optim")),
            ("a.b.state.3.exp_avg", Some("a.b")),
            ("1.state.torch.Size([2, 2]).exp_avg", None),
            ("param_groups.0.lr", None),
            ("state.0.exp_avg", None),
            ("a.param_groups.weight", None),
            ("model.state.exp_avg", None),
        ] {
            assert_eq!(optimizer_path(name), expected, "{name}");
        }
        let optimizers = Optimizers::new(["a.b", "a", "c-", "a"].into_iter());
        assert_eq!(optimizers.paths, ["a", "c-"]);
        for (name, expected) in
            [("a.b.c", true), ("a", false), ("a-.b", false), ("c-.x", true), ("b.x", false)]
        {
            assert_eq!(optimizers.include(name), expected, "{name}");
        }
    }
}
