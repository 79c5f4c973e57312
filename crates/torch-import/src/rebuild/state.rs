//! Applies BUILD and attributes to a rebuilt tensor: both may replace its data.
//!
//! Facts: `Tensor.__setstate__` in `torch/_tensor.py`, `_set_obj_state` in `torch/_utils.py` and BUILD in
//! `torch/_weights_only_unpickler.py` of PyTorch 2.15; tests with PyTorch 2.0.1 and 2.15 of the settable names of
//! `dir(torch.nn.Parameter)` and their effect on the values.

use pickle_vm::ObjectId;
use tensor::{Dtype, Tensor};

use super::call::{CallArgs, CallSnapshot, ResultState};
use super::function::tensor_class_dtype;
use super::{Rebuilder, Rebuilt};
use crate::Result;

/// Attributes of a tensor that are views of its values, and its class.
const REFUSED_ATTRIBUTES: [&str; 3] = ["real", "imag", "__class__"];

/// Returns the result of a call after BUILD. A state of four items is passed to `set_`, one of five starts with the
/// data, and one of three only concerns gradients. `made` is the result of the call; `None` for a tensor without
/// elements.
pub(super) fn apply_build<'h>(
    rebuilder: &mut Rebuilder<'h>,
    args: CallArgs<'h>,
    made: Option<Rebuilt>,
    state: ResultState<'h>,
    depth: usize,
) -> Result<Rebuilt> {
    let state = state.items()?;
    let bad = |reason: &str| Err(state.call.call_error(reason));
    match state.all() {
        [storage, _, _, _] => {
            let dtype = match &made {
                Some(Rebuilt::Strided(tensor)) if !tensor.storage().is_computed() => tensor.dtype(),
                Some(_) => return bad("the pickle gives its result another storage (BUILD)"),
                None => class_dtype(args.call),
            };
            let (stored, _) = rebuilder.storage_argument(state.call, *storage, Some(dtype))?;
            if let Some(stored) = stored.filter(|stored| *stored != dtype) {
                return bad(&format!("it is a tensor of {dtype}, and its storage is one of {stored}"));
            }
            rebuilder.strided_view(state, Some(dtype), None).map(Rebuilt::Strided)
        }
        [data, _, _, _, _] => replacement_data(rebuilder, state.call, *data, depth).map(Rebuilt::Strided),
        [requires_grad, _, _] if state.call.bool(*requires_grad).is_some() => match made {
            Some(made) => Ok(made),
            None => bad("expected a tensor"),
        },
        _ => bad("the pickle sets a state on its result (BUILD) that is not the state of a tensor"),
    }
}

/// Returns the dtype of a tensor that a class creates, as in `torch.LongTensor()` or `torch.nn.Parameter()`.
fn class_dtype(call: CallSnapshot<'_>) -> Dtype {
    call.callable().and_then(|(_, name)| tensor_class_dtype(name)).unwrap_or(Dtype::Float32)
}

/// Sets attributes on a rebuilt tensor; the attribute `data` replaces its values.
pub(super) fn with_attributes<'h>(
    rebuilder: &mut Rebuilder<'h>,
    call: CallSnapshot<'h>,
    rebuilt: Rebuilt,
    state: ObjectId,
    depth: usize,
) -> Result<Rebuilt> {
    match (attribute_data(call, state)?, rebuilt) {
        (None, rebuilt) => Ok(rebuilt),
        (Some(data), Rebuilt::Strided(_)) => {
            replacement_data(rebuilder, call, data, depth).map(Rebuilt::Strided)
        }
        (Some(_), Rebuilt::Compound(_)) => {
            Err(call.call_error("its state replaces the data of a tensor with parts"))
        }
    }
}

/// Refuses a state with the attribute `data`, which replaces the data.
pub(super) fn refuse_data(call: CallSnapshot<'_>, state: ObjectId) -> Result<()> {
    match attribute_data(call, state)? {
        None => Ok(()),
        Some(_) => Err(call.call_error("its state replaces the data of a tensor that it may not own")),
    }
}

fn attribute_data(call: CallSnapshot<'_>, state: ObjectId) -> Result<Option<ObjectId>> {
    let dicts = match call.items(state)? {
        Some(&[attributes, slots]) => vec![attributes, slots],
        // Only the class can interpret a tuple of another form.
        Some(_) => Vec::new(),
        None => vec![state],
    };
    let mut data = None;
    for dict in dicts {
        if call.is_none(dict) {
            continue;
        }
        let Some(entries) = call.entries(dict)? else {
            return Err(call.call_error("its state is not a dict of attributes"));
        };
        for (key, value) in entries {
            let name = call.text(key);
            if let Some(name) = REFUSED_ATTRIBUTES.iter().find(|set| Some(**set) == name.as_deref()) {
                return Err(call.call_error(&format!("its state sets `{name}`, which changes the tensor")));
            }
            if name.as_deref() == Some("data") {
                data = Some(value);
            }
        }
    }
    Ok(data)
}

/// Returns the tensor that replaces the data of another one.
fn replacement_data<'h>(
    rebuilder: &mut Rebuilder<'h>,
    call: CallSnapshot<'h>,
    data: ObjectId,
    depth: usize,
) -> Result<Tensor> {
    match rebuilder.tensor_argument(call, data, depth.saturating_add(1))? {
        Rebuilt::Strided(tensor) => Ok(tensor),
        Rebuilt::Compound(_) => Err(call.call_error("its data is not a plain tensor")),
    }
}
