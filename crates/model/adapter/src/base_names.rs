//! Finds the tensors of a base model by the names that an adapter has for them.
//!
//! An adapter names modules as the class had them that it was trained with. A file can have another prefix: `layers.0` of a
//! bare model, `language_model.model.layers.0` of a model that also sees images.

use std::collections::BTreeMap;

use tensor::Tensors;

/// Largest number of leading components that a file has in another form.
const PREFIX_LEN_MAX: usize = 3;
/// Prefix in the adapter, and the one that the base has instead.
type Rewrite = (String, String);

#[derive(Debug)]
pub(crate) struct BaseNames<'t> {
    tensors: &'t Tensors,
    sorted: Vec<&'t str>,
    /// Prefixes of the layers of an adapter that the base has in another form: a model that also sees images has two stacks.
    rewrites: Vec<(String, Rewrite)>,
}

impl<'t> BaseNames<'t> {
    /// Finds the prefixes under which the base has the most modules of an adapter.
    pub(crate) fn new<'m>(tensors: &'t Tensors, modules: impl Iterator<Item = &'m str>) -> Self {
        let mut sorted: Vec<&str> = tensors.names().collect();
        sorted.sort_unstable();
        let mut names = Self { tensors, sorted, rewrites: Vec::new() };
        let mut stacks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for module in modules {
            if let Some((stack, _)) = anchor(module).and_then(|anchor| anchor.rsplit_once('.')) {
                stacks.entry(stack).or_default().push(module);
            }
        }
        for (stack, modules) in stacks {
            let first = modules.iter().find_map(|module| anchor(module).filter(|it| !names.has_below(it)));
            let Some(first) = first else { continue };
            let count = |(from, to): &Rewrite| {
                let moved = modules
                    .iter()
                    .filter_map(|module| Some(format!("{to}{}", module.strip_prefix(from.as_str())?)));
                moved.filter(|module| names.has_module(module)).count()
            };
            let mut best = (count(&Rewrite::default()), None);
            for rewrite in names.candidates(first) {
                let found = count(&rewrite);
                if found > best.0 {
                    best = (found, Some(rewrite));
                }
            }
            names.rewrites.extend(best.1.map(|rewrite| (stack.to_owned(), rewrite)));
        }
        names
    }

    /// Returns the prefixes that would let the base have `anchor`.
    fn candidates(&self, anchor: &str) -> Vec<Rewrite> {
        let dots = anchor.match_indices('.').map(|(dot, _)| dot.saturating_add(1));
        let starts = [0].into_iter().chain(dots).take(PREFIX_LEN_MAX.saturating_add(1));
        let mut found = Vec::new();
        for start in starts {
            let (dropped, rest) = anchor.split_at(start);
            // `blocks.0` is not another name of `layers.0`.
            if start > 0 && !rest.contains('.') {
                continue;
            }
            let needle = format!("{rest}.");
            let add = |name: &&str| {
                let at = name.find(&needle)?;
                let before = name.get(..at)?;
                (before.is_empty() || before.ends_with('.')).then(|| before.to_owned())
            };
            let mut added: Vec<String> = self.sorted.iter().filter_map(add).collect();
            added.dedup();
            found.extend(added.into_iter().map(|add| (dropped.to_owned(), add)));
        }
        found
    }

    /// Returns the name that the base has for a module or tensor of the adapter, or would have.
    pub(crate) fn rewritten(&self, name: &str) -> String {
        let stack = anchor(name).and_then(|anchor| anchor.rsplit_once('.')).map(|(stack, _)| stack);
        let own = self.rewrites.iter().position(|(known, _)| Some(known.as_str()) == stack);
        let rewrites = match own {
            Some(own) => self.rewrites.get(own..=own),
            None => self.rewrites.get(..),
        };
        let moved =
            |(_, (from, to)): &(String, Rewrite)| Some(format!("{to}{}", name.strip_prefix(from.as_str())?));
        let mut all = rewrites.unwrap_or_default().iter().filter_map(moved);
        let first = all.next();
        // The head is outside of the part that moved.
        let known = first.iter().cloned().chain(all).find_map(|moved| self.known(moved));
        let name = || name.to_owned();
        known.or_else(|| self.known(name())).or(first).unwrap_or_else(name)
    }

    /// Returns the name, or another form of it, if the base has it.
    fn known(&self, name: String) -> Option<String> {
        if self.has_below(&name) {
            return Some(name);
        }
        // Versions of a class name modules in different ways: `mlp.gate` of Mixtral is `block_sparse_moe.gate` in its files.
        families::other_names(&name).find(|other| self.has_below(other))
    }

    fn has_module(&self, name: &str) -> bool {
        let is_known = |name: &str| self.known(name.to_owned()).is_some();
        // Files have experts in other forms than a class.
        is_known(name) || name.split_once(".experts").is_some_and(|(module, _)| is_known(module))
    }

    /// Returns true if most biases have as many numbers as their weights have columns: GPT-2 has the weights of linear layers as
    /// `in × out`.
    pub(crate) fn has_biases_of_columns(&self) -> bool {
        let are_columns = self.sorted.iter().filter_map(|name| {
            let module = name.strip_suffix(".bias")?;
            let &[bias] = self.tensors.get(name)?.shape() else { return None };
            let &[rows, columns] = self.tensors.get(&format!("{module}.weight"))?.shape() else {
                return None;
            };
            (rows != columns).then_some(bias == columns)
        });
        let (columns, rows): (Vec<bool>, Vec<bool>) = are_columns.partition(|are_columns| *are_columns);
        columns.len() > rows.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, String)> {
        let name = self.rewritten(name);
        Some((self.tensors.position(&name)?, name))
    }

    fn has_below(&self, name: &str) -> bool {
        let at = self.sorted.partition_point(|known| *known < name);
        let rest = self.sorted.get(at..).unwrap_or_default();
        let below =
            |known: &&str| known.strip_prefix(name).is_some_and(|end| end.is_empty() || end.starts_with('.'));
        // Names such as `a-b` sort between `a` and `a.b`.
        rest.iter().take_while(|known| known.starts_with(name)).any(below)
    }
}

/// Returns the path of a module up to its first number, which each base of the same family has.
fn anchor(module: &str) -> Option<&str> {
    let mut end = 0_usize;
    for component in module.split('.') {
        end = end.saturating_add(component.len());
        if component.bytes().all(|byte| byte.is_ascii_digit()) {
            return module.get(..end);
        }
        end = end.saturating_add(1);
    }
    None
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage, Tensor};

    use super::*;

    #[test]
    fn prefixes_follow_from_the_layers() {
        let tensor = Tensor::new(Dtype::UInt8, vec![], vec![], 0, Storage::owned(vec![0])).expect("a byte");
        for (base, adapter) in [
            ("model.layers.0.q.weight", "model.layers.0.q.weight"),
            ("layers.0.q.weight", "model.layers.0.q.weight"),
            ("transformer.h.0.q.weight", "h.0.q.weight"),
            ("language_model.model.layers.0.q.weight", "model.language_model.layers.0.q.weight"),
        ] {
            let tensors = Tensors::from([
                (base.to_owned(), tensor.clone()),
                ("lm_head.weight".to_owned(), tensor.clone()),
            ]);
            let names = BaseNames::new(&tensors, [adapter, "lm_head"].into_iter());
            assert_eq!(names.find(adapter), Some((0, base.to_owned())), "{base}");
            assert_eq!(names.find("lm_head.weight"), Some((1, "lm_head.weight".to_owned())), "{base}");
            assert_eq!(names.find("model.layers.1.q.weight"), None);
        }
        let two = [
            "language_model.model.layers.0.o_proj.weight",
            "vision_tower.vision_model.encoder.layers.0.out_proj.weight",
            "vision_tower.vision_model.post_layernorm.weight",
        ];
        let tensors: Tensors = two.iter().map(|name| ((*name).to_owned(), tensor.clone())).collect();
        let modules = [
            "model.language_model.layers.0.o_proj",
            "model.vision_tower.encoder.layers.0.out_proj",
            "model.vision_tower.post_layernorm",
        ];
        let names = BaseNames::new(&tensors, modules.into_iter());
        for (module, name) in modules.into_iter().zip(two) {
            assert_eq!(names.find(&format!("{module}.weight")).map(|(_, name)| name).as_deref(), Some(name));
        }
        let gate = "model.layers.0.block_sparse_moe.gate.weight";
        let tensors = Tensors::from([(gate.to_owned(), tensor.clone())]);
        let adapter = "model.layers.0.mlp.gate";
        let names = BaseNames::new(&tensors, [adapter].into_iter());
        assert_eq!(names.find("model.layers.0.mlp.gate.weight"), Some((0, gate.to_owned())));
        let tensors = Tensors::from([("model.layers.0.q.weight".to_owned(), tensor)]);
        let other = "model.blocks.0.q.weight";
        assert_eq!(BaseNames::new(&tensors, [other].into_iter()).find(other), None);
    }
}
