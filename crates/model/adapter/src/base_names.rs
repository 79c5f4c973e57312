//! Finds the tensors of a base model by the names that an adapter has for them.
//!
//! An adapter names modules as the class had them that it was trained with. A file can have another prefix: `layers.0` of a
//! bare model, `language_model.model.layers.0` of a model that also sees images.

use tensor::Tensors;

/// Largest number of leading components that a file has in another form.
const PREFIX_LEN_MAX: usize = 3;

#[derive(Debug)]
pub(crate) struct BaseNames<'t> {
    tensors: &'t Tensors,
    sorted: Vec<&'t str>,
    /// Prefix in the adapter, and the one that the base has instead.
    rewrite: (String, String),
}

impl<'t> BaseNames<'t> {
    /// Finds the prefix under which the base has the most modules of an adapter.
    pub(crate) fn new<'m>(tensors: &'t Tensors, modules: impl Iterator<Item = &'m str>) -> Self {
        let mut sorted: Vec<&str> = tensors.names().collect();
        sorted.sort_unstable();
        let mut names = Self { tensors, sorted, rewrite: Default::default() };
        let mut anchors: Vec<&str> = modules.filter_map(anchor).collect();
        anchors.sort_unstable();
        anchors.dedup();
        if let Some(first) = anchors.iter().find(|anchor| !names.has_below(anchor)) {
            let candidates = names.rewrites(first);
            let count =
                |names: &Self| anchors.iter().filter(|a| names.has_below(&names.rewritten(a))).count();
            let mut best = count(&names);
            for rewrite in candidates {
                let before = std::mem::replace(&mut names.rewrite, rewrite);
                let found = count(&names);
                if found > best {
                    best = found;
                } else {
                    names.rewrite = before;
                }
            }
        }
        names
    }

    /// Returns the prefixes that would let the base have `anchor`.
    fn rewrites(&self, anchor: &str) -> Vec<(String, String)> {
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

    pub(crate) fn rewritten(&self, name: &str) -> String {
        let (from, to) = &self.rewrite;
        match name.strip_prefix(from.as_str()) {
            Some(rest) if !from.is_empty() || !to.is_empty() => {
                let moved = format!("{to}{rest}");
                // The head is outside of the part that moved.
                if self.has_below(&moved) || !self.has_below(name) { moved } else { name.to_owned() }
            }
            _ => name.to_owned(),
        }
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
        let tensors = Tensors::from([("model.layers.0.q.weight".to_owned(), tensor)]);
        let other = "model.blocks.0.q.weight";
        assert_eq!(BaseNames::new(&tensors, [other].into_iter()).find(other), None);
    }
}
