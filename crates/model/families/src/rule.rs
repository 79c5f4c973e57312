//! Rules that change the names in memory into those that are released.

use crate::indices::Indices;
use crate::tree::{HOLE, Kind, Origin, TensorPattern};

/// Rules for the tensors whose names start with a text.
pub(crate) type Scoped = (String, &'static [Rule]);

/// Change of tensors. Each has an inverse, which [`Model::to_modules`](crate::Model::to_modules) applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Rename,
    /// The first dimension becomes a number in the name, and the rows of each are as many tensors as there are texts. The inverse
    /// concatenates and stacks.
    Unstack,
    /// The last two dimensions are exchanged.
    Transpose,
}

/// Change of all tensors in whose names a text occurs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Text in a name in memory. It starts at a module, and at the start of the name after a `^`.
    pub(crate) modules: &'static str,
    /// Texts in its place in released names.
    pub(crate) released: &'static [&'static str],
    pub(crate) operation: Operation,
}

pub(crate) const fn rename(modules: &'static str, released: &'static [&'static str]) -> Rule {
    Rule { modules, released, operation: Operation::Rename }
}

pub(crate) const fn unstack(modules: &'static str, released: &'static [&'static str]) -> Rule {
    Rule { modules, released, operation: Operation::Unstack }
}

pub(crate) const GATES: Rule =
    unstack("experts.gate_up_proj", &["experts.{}.gate_proj.weight", "experts.{}.up_proj.weight"]);
pub(crate) const DOWN: Rule = unstack("experts.down_proj", &["experts.{}.down_proj.weight"]);
pub(crate) const W1_W3: Rule =
    unstack("experts.gate_up_proj", &["experts.{}.w1.weight", "experts.{}.w3.weight"]);
pub(crate) const W2: Rule = unstack("experts.down_proj", &["experts.{}.w2.weight"]);
pub(crate) const SPARSE: Rule = rename("mlp.", &["block_sparse_moe."]);

/// Released experts are tensors of their own.
pub(crate) const NUMBERED: &[Rule] = &[GATES, DOWN];
pub(crate) const NUMBERED_SPARSE: &[Rule] = &[W1_W3, W2, SPARSE];
pub(crate) const NUMBERED_W: &[Rule] = &[W1_W3, W2];

/// Names that a text model has if it was saved from a multimodal one.
pub(crate) const IN_MULTIMODAL: &[Rule] = &[rename("^model.", &["model.language_model."])];
/// Names of the body alone, which the first files had.
pub(crate) const BARE_TRANSFORMER: &[Rule] = &[rename("^transformer.", &[""])];

/// Published files of some models have the experts [in, out], which loading exchanges.
pub(crate) const TRANSPOSED: &[Rule] = &[
    Rule {
        modules: "experts.gate_up_proj",
        released: &["experts.gate_up_proj"],
        operation: Operation::Transpose,
    },
    Rule { modules: "experts.down_proj", released: &["experts.down_proj"], operation: Operation::Transpose },
];
pub(crate) const LLAVA: &[Rule] = &[
    rename("^model.language_model.", &["language_model.model."]),
    rename("^lm_head.", &["language_model.lm_head."]),
    rename("^model.", &[""]),
];
pub(crate) const LLAVA_BARE: &[Rule] = &[rename("^language_model.", &["language_model.model."])];
pub(crate) const QWEN2_VL: &[Rule] =
    &[rename("^model.visual.", &["visual."]), rename("^model.language_model.", &["model."])];
/// Published towers are a module of a module.
pub(crate) const IN_VISION_MODEL: &[Rule] = &[rename("vision_tower.", &["vision_tower.vision_model."])];

/// Returns the place of a rule's text in a name, which starts at a module.
fn place(name: &str, text: &str) -> Option<usize> {
    if let Some(text) = text.strip_prefix('^') {
        return name.starts_with(text).then_some(0);
    }
    name.match_indices(text)
        .map(|(place, _)| place)
        .find(|place| name.get(..*place).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

/// Returns the name with other modules in the place of `from`; `None` if it has no such modules.
fn replaced(name: &str, from: &str, to: &str) -> Option<String> {
    let place = place(name, from)?;
    let (before, rest) = name.split_at(place);
    Some(format!("{before}{to}{}", rest.get(from.len()..)?))
}

/// Returns the other name that the rules give a module or tensor, or from which they make its name. Only modules change: prefixes
/// and the numbers of experts stay.
pub(crate) fn other_name(rules: &[Rule], name: &str) -> Option<String> {
    let is_rename = |rule: &&Rule| rule.operation == Operation::Rename && !rule.modules.starts_with('^');
    let renames = rules.iter().filter(is_rename);
    let pairs: Vec<_> = renames.filter_map(|rule| Some((rule.modules, *rule.released.first()?))).collect();
    let apply = |name: String, (from, to): (&str, &str)| replaced(&name, from, to).unwrap_or(name);
    let released = pairs.iter().copied().fold(name.to_owned(), apply);
    if released != name {
        return Some(released);
    }
    let memory = pairs.iter().rev().map(|(from, to)| (*to, *from)).fold(name.to_owned(), apply);
    (memory != name).then_some(memory)
}

impl Rule {
    /// Applies the rule to the entries whose names start with `scope`.
    pub(crate) fn apply(&self, entries: Vec<TensorPattern>, scope: &str) -> Vec<TensorPattern> {
        entries.into_iter().flat_map(|entry| self.changed(entry, scope)).collect()
    }

    fn changed(&self, entry: TensorPattern, scope: &str) -> Vec<TensorPattern> {
        let Some(rest) = entry.name.strip_prefix(scope) else { return vec![entry] };
        let Some(place) = place(rest, self.modules) else { return vec![entry] };
        let text = self.modules.trim_start_matches('^');
        let (before, after) = rest.split_at(place);
        let after = after.get(text.len()..).unwrap_or_default();
        let holes = (scope.matches(HOLE).count()).saturating_add(before.matches(HOLE).count());
        let change = |(part, released): (usize, &&str)| {
            let mut changed =
                TensorPattern { name: format!("{scope}{before}{released}{after}"), ..entry.clone() };
            let shape = &mut changed.shape;
            match self.operation {
                Operation::Rename => {}
                Operation::Unstack => {
                    let count = if shape.is_empty() { 0 } else { shape.remove(0) };
                    let parts = self.released.len();
                    if let Some(rows) = shape.first_mut() {
                        *rows = rows.checked_div(parts as u64).unwrap_or_default();
                    }
                    let hole = holes.min(changed.at.len());
                    changed.at.insert(hole, Indices::below(count));
                    changed.kind = Kind::Linear;
                    changed.origin = Origin { stack: Some(hole), part: [part, parts], ..changed.origin };
                }
                Operation::Transpose => {
                    if let [.., rows, columns] = shape.as_mut_slice() {
                        std::mem::swap(rows, columns);
                    }
                    changed.origin.is_transposed ^= true;
                    changed.has_columns_first ^= true;
                }
            }
            changed
        };
        self.released.iter().enumerate().map(change).collect()
    }
}
