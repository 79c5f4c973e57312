//! Finds texts in a pickle that matter after it was loaded: those that programs call, evaluate or run, as in documents, and places of
//! other pickles.
//!
//! Facts: the same programs as in `judge`; `filesystem.py` of `torch.distributed.checkpoint`, which unpickles bytes of other files.

use pickle_vm::{Heap, Object, ObjectId, RecordedChanges};

use super::found::Found;
use super::judge::{FOUND_MAX, Judge};
use super::python_text::runs_code_in_pickle;
use super::value_texts::{is_evaluated, shown};
use crate::scan::Finding;
use crate::scan::budget::{ScanBudget, truncate_name};
use crate::scan::report::NamedRange;

/// Keys of dicts whose values are judged.
const KEYS: [&str; 13] = [
    "_target_",
    "_component_",
    "class_path",
    "_instantiator",
    "activation",
    "architecture",
    "backbone",
    "head",
    "meta",
    "runtime_info",
    "network_class_name",
    "target",
    "type",
];
/// End of the name of a tensor that Transformer Engine unpickles.
pub(in crate::scan) const EXTRA_STATE: &str = "_extra_state";
/// Key of the file in the place of a part.
const FILE: &str = "relative_path";

/// Findings of the texts of a pickle.
#[derive(Default)]
pub(in crate::scan) struct PickledTexts {
    pub(in crate::scan) found: Found,
    pub(in crate::scan) ranges: Vec<NamedRange>,
    /// True if a tensor may hold a pickle.
    pub(in crate::scan) has_extra_state: bool,
}

/// Reads the texts in the dicts of a pickle; `None` if the budget is spent.
pub(in crate::scan) fn read(heap: &Heap<'_>, budget: &mut ScanBudget<'_>) -> Option<PickledTexts> {
    let mut texts = PickledTexts::default();
    let mut has_key = false;
    for id in heap.ids() {
        if let Object::Text(_) | Object::String(_) = heap.get(id)
            && let Some(text) = heap.text(id)
        {
            has_key |= text == FILE || is_judged(&text);
            if texts.found.findings.len() < FOUND_MAX && runs_code_in_pickle(&text) {
                let text = format!("the text `{}`, which runs code if a program evaluates it", shown(&text));
                texts.found.findings.push(Finding { kind: "expression", text });
            }
            texts.has_extra_state |= text.ends_with(EXTRA_STATE);
        }
    }
    if !has_key {
        return Some(texts);
    }
    let mut judge = Judge::new(&|_| false);
    for id in heap.ids() {
        // A dict, a call that makes one of its pairs, or an object with keys.
        let pair = match heap.items(id) {
            Some(&[key, value]) => Some([(key, value)]),
            _ => None,
        };
        let recorded = || heap.recorded_changes(id).map(RecordedChanges::items);
        let pair = pair.as_ref().map(<[_; 1]>::as_slice);
        let Some(entries) = heap.entries(id).or(pair).or_else(recorded) else { continue };
        let mut has_file = false;
        for (key, value) in entries {
            match heap.text(*key).as_deref() {
                Some(FILE) => has_file = true,
                Some(key) if is_judged(key) => {
                    let at = heap.offset(*value);
                    judge.open(true);
                    judge.text(key, at);
                    feed(heap, *value, &mut judge, budget)?;
                    judge.close(at);
                }
                _ => {}
            }
        }
        if has_file {
            let range = named_range(heap, entries);
            budget.spend(range.file.len() as u64).then_some(())?;
            texts.ranges.push(range);
        }
    }
    judge.found.findings.append(&mut texts.found.findings);
    texts.found = judge.found;
    Some(texts)
}

fn is_judged(key: &str) -> bool {
    KEYS.contains(&key) || is_evaluated(key)
}

/// Gives a value to the judge: a text, the texts of a list, or the configuration in a dict.
fn feed(heap: &Heap<'_>, value: ObjectId, judge: &mut Judge<'_>, budget: &mut ScanBudget<'_>) -> Option<()> {
    let mut stack = vec![Some(value)];
    while let Some(next) = stack.pop() {
        budget.spend(1).then_some(())?;
        let Some(id) = next else {
            judge.close(0);
            continue;
        };
        let at = heap.offset(id);
        if let Some(text) = heap.text(id) {
            budget.spend(text.len() as u64).then_some(())?;
            judge.text(&text, at);
        } else if let Some(items) = heap.items(id) {
            if judge.open(false) {
                stack.push(None);
                stack.extend(items.iter().rev().copied().map(Some));
            }
        } else {
            let entries = heap.entries(id).unwrap_or_default();
            judge.open(true);
            for (key, value) in entries {
                if let (Some(key @ ("cfg" | "config" | "module")), Some(text)) =
                    (heap.text(*key).as_deref(), heap.text(*value))
                {
                    judge.text(key, at);
                    judge.text(&text, at);
                }
            }
            judge.close(at);
        }
    }
    Some(())
}

/// Returns the place of a part, without its range if that is not plain.
fn named_range(heap: &Heap<'_>, entries: &[(ObjectId, ObjectId)]) -> NamedRange {
    let attribute = |name: &str| {
        let mut values = entries.iter().filter(|(key, _)| heap.text(*key).as_deref() == Some(name));
        values.next().map(|(_, value)| *value).filter(|_| values.next().is_none())
    };
    let number = |name: &str| u64::try_from(heap.int(attribute(name)?)?).ok();
    let range = || {
        let start = number("offset")?;
        Some(start..start.checked_add(number("length")?)?)
    };
    let is_transformed = entries.iter().any(|(key, value)| {
        heap.text(*key).as_deref() == Some("transform_descriptors") && !heap.is_none(*value)
    });
    let file = attribute(FILE).and_then(|file| heap.text(file)).unwrap_or_default().into_owned();
    NamedRange { file: truncate_name(file), range: range(), is_transformed }
}
