//! Steps of a pickle as JSON. Opcodes are numbers in a list of their names, and objects are numbers with texts.

use std::collections::HashMap;
use std::ops::Range;

use pickle_vm::ObjectId;
use pickle_vm::trace::{MachineState, Recording, StackChange, record};
use serde_json::{Value as Json, json};
use torch_import::annotate;

use super::ReportOptions;
use crate::{Error, Problem, Result};

/// Returns the steps of the pickle with the root object.
///
/// # Errors
/// When the file has no pickle, or the pickle is malformed before the range.
pub(crate) fn steps(options: &ReportOptions, range: Range<u64>) -> Result<Json> {
    let (path, pickles) = crate::open_pickles(&options.input)?;
    let at = |error: Error| error.in_file(&path);
    let pickle = pickles.pickle(None).map_err(at)?;
    let annotate = |heap: &pickle_vm::Heap<'_>, id: ObjectId| annotate(pickles.container(), heap, id);
    let recording = record(pickle, pickles.limits(), range, &annotate);
    let recording = recording.map_err(|reason| at(Problem::Pickle { reason }.into()))?;
    Ok(to_json(&recording))
}

fn to_json(recording: &Recording) -> Json {
    let mut opcodes: Vec<&'static str> = Vec::new();
    let mut numbers: HashMap<&'static str, usize> = HashMap::new();
    // The step at which each tensor was built, by the number of its object.
    let mut built: HashMap<usize, usize> = HashMap::new();
    let mut tensors: Vec<Json> = Vec::new();
    let mut rows = Vec::with_capacity(recording.steps.len());
    for (number, step) in recording.steps.iter().enumerate() {
        let name = step.opcode.name();
        let opcode = *numbers.entry(name).or_insert_with(|| {
            opcodes.push(name);
            opcodes.len().saturating_sub(1)
        });
        let shown = step.shown.as_ref().map(|(id, text)| json!([id.index(), text]));
        if let Some((id, text)) = &step.shown
            && (text.starts_with("Tensor(") || text.starts_with("Parameter"))
        {
            built.entry(id.index()).or_insert(number);
        }
        for (key, value) in &step.set_keys {
            if let Some(built) = built.get(&value.index()) {
                tensors.push(json!([key, built]));
            }
        }
        rows.push(json!([step.offset, opcode, step.argument, step.effect, change(step.change), shown]));
    }
    json!({
        "first": recording.first,
        "opcodes": opcodes,
        "before": state(&recording.before),
        "texts": recording.texts.iter().map(|(id, text)| json!([id.index(), text])).collect::<Vec<_>>(),
        "steps": rows,
        "tensors": tensors,
        "is_cut": recording.is_cut,
        "error": recording.error.as_ref().map(ToString::to_string),
    })
}

/// Returns a change as a list whose first item is its kind.
fn change(change: StackChange) -> Json {
    let index = |id: Option<ObjectId>| id.map(ObjectId::index);
    match change {
        StackChange::Replace { popped, pushed } => json!(["r", popped, index(pushed)]),
        StackChange::Mark => json!(["m"]),
        StackChange::PopToMark { pushed } => json!(["p", index(pushed)]),
        StackChange::Store { key, object } => json!(["s", key, object.index()]),
        _ => json!([]),
    }
}

fn state(state: &MachineState) -> Json {
    let ids = |frame: &Vec<ObjectId>| frame.iter().map(|id| id.index()).collect::<Vec<_>>();
    json!({
        "stack": ids(&state.stack),
        "metastack": state.metastack.iter().map(ids).collect::<Vec<_>>(),
        "memo": state.memo.iter().map(|(key, id)| json!([key, id.index()])).collect::<Vec<_>>(),
    })
}
