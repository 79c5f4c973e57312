//! Recorded calls at the time when they ran: the arguments as the call saw them, and the later changes of the result.
//!
//! The machine leaves every object in its final state, but a call that copies an argument saw an earlier state, and a
//! pickle may change the result of a call. The arguments of a call are therefore read through [`CallSnapshot`], which refuses
//! objects changed after the call, and only together with the recorded changes of the result.
//!
//! Facts: `load_reduce`, `load_build`, `load_setitems` and `load_appends` in CPython's `Lib/pickle.py`.

use std::borrow::Cow;

use pickle_vm::{Heap, Instance, Object, ObjectId, RecordedChanges};

use super::{CalledFunctions, RebuildFunction};
use crate::{Error, Result, encoded, key};

/// A view of a heap as the call `id` saw it at an offset of the pickle.
///
/// Numbers, text and globals never change. Containers that changed after the offset are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSnapshot<'h> {
    heap: &'h Heap<'h>,
    id: ObjectId,
    offset: u64,
}

impl<'h> CallSnapshot<'h> {
    /// Creates the view of the heap at another offset than that of the call.
    pub(super) fn at_offset(heap: &'h Heap<'h>, id: ObjectId, offset: u64) -> Self {
        Self { heap, id, offset }
    }

    /// Creates the view of the call `id`.
    pub(super) fn new(heap: &'h Heap<'h>, id: ObjectId) -> Self {
        Self { heap, id, offset: heap.offset(id) }
    }

    pub(super) fn id(self) -> ObjectId {
        self.id
    }

    /// Returns the module and the name of the function or class that is called.
    pub(super) fn callable(self) -> Option<(&'h str, &'h str)> {
        self.heap.global(self.heap.instance(self.id)?.callable)
    }

    pub(super) fn call_error(self, reason: &str) -> Error {
        super::rebuild_error(self.heap, self.id, reason)
    }

    /// Refuses an object that changed after the call took it.
    pub(super) fn refuse_changed(self, id: ObjectId) -> Result<()> {
        match self.heap.last_change(id) {
            Some(changed) if changed > self.offset => Err(self.call_error(&format!(
                "its argument from offset 0x{:x} ({}) changes afterwards, at offset 0x{changed:x}",
                self.heap.offset(id),
                self.heap.get(id).type_name(),
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the items of a tuple, a list or a set.
    pub(super) fn items(self, id: ObjectId) -> Result<Option<&'h [ObjectId]>> {
        self.refuse_changed(id)?;
        Ok(self.heap.items(id))
    }

    /// Returns the entries of a dict or of an `OrderedDict`, duplicates kept.
    pub(super) fn entries(self, id: ObjectId) -> Result<Option<Vec<(ObjectId, ObjectId)>>> {
        self.refuse_changed(id)?;
        if let Some(entries) = self.heap.entries(id) {
            return Ok(Some(entries.to_vec()));
        }
        let Some(instance) = self.heap.instance(id) else { return Ok(None) };
        if self.heap.global(instance.callable) != Some(("collections", "OrderedDict")) {
            return Ok(None);
        }
        let made = Self { offset: self.heap.offset(id), ..self };
        let mut entries = match self.heap.items(instance.args).unwrap_or_default() {
            [] => Vec::new(),
            &[dict] if self.heap.entries(dict).is_some() => made.entries(dict)?.unwrap_or_default(),
            &[pairs, ..] => made.pairs(pairs)?,
        };
        entries.extend_from_slice(instance.items());
        Ok(Some(entries))
    }

    fn pairs(self, id: ObjectId) -> Result<Vec<(ObjectId, ObjectId)>> {
        let not_pairs = || self.call_error("it takes an OrderedDict that is not made from pairs");
        let mut entries = Vec::new();
        for pair in self.items(id)?.ok_or_else(not_pairs)? {
            let Some(&[key, value]) = self.items(*pair)? else { return Err(not_pairs()) };
            entries.push((key, value));
        }
        Ok(entries)
    }

    /// Returns the only argument of a call of one of `functions`; refuses a result that the pickle changes.
    pub(super) fn only_argument(self, id: ObjectId, functions: &[(&str, &str)]) -> Result<Option<ObjectId>> {
        let Some(instance) = self.heap.instance(id) else { return Ok(None) };
        let is_one = self.heap.global(instance.callable).is_some_and(|names| functions.contains(&names));
        let Some(&[argument]) = self.heap.items(instance.args).filter(|_| is_one) else { return Ok(None) };
        if self.heap.last_change(id).is_some() {
            return Err(self.call_error("the pickle changes one of its arguments"));
        }
        Ok(Some(argument))
    }

    /// Returns the arguments of a call of one of `functions`, and the items of the state that BUILD set on the result
    /// before this call.
    pub(super) fn call_result(
        self,
        id: ObjectId,
        functions: &[(&str, &str)],
    ) -> Result<Option<CallResult<'h>>> {
        let Some(instance) = self.heap.instance(id) else { return Ok(None) };
        if !self.heap.global(instance.callable).is_some_and(|names| functions.contains(&names)) {
            return Ok(None);
        }
        self.refuse_changed(id)?;
        let args = self.heap.items(instance.args).unwrap_or_default();
        let is_plain =
            instance.items().is_empty() && instance.appends().is_empty() && instance.kwargs().is_none();
        let mut built =
            self.heap.recorded_changes(id).into_iter().flat_map(RecordedChanges::states_with_offsets);
        let state = match (is_plain, built.next(), built.next()) {
            (true, None, _) => None,
            (true, Some((state, offset)), None) => Self { offset, ..self }.items(state)?,
            _ => return Err(self.call_error("the pickle changes one of its arguments")),
        };
        Ok(Some(CallResult { args, state }))
    }

    /// Unwraps `torch.jit._pickle.restore_type_tag(dict, type)`, which returns the dict.
    pub(super) fn without_type_tag(self, id: ObjectId) -> Result<Option<ObjectId>> {
        let Some(instance) = self.heap.instance(id) else { return Ok(None) };
        if self.heap.global(instance.callable) != Some(("torch.jit._pickle", "restore_type_tag")) {
            return Ok(None);
        }
        match self.heap.last_change(id) {
            None => Ok(self.heap.items(instance.args).and_then(|args| args.first().copied())),
            Some(_) => Err(self.call_error("the pickle changes one of its arguments")),
        }
    }

    /// Returns the attributes that BUILD set on an object, from dicts or pairs of a dict and a dict of slots.
    pub(super) fn attributes(self, id: ObjectId) -> Result<Vec<(ObjectId, ObjectId)>> {
        self.refuse_changed(id)?;
        let mut attributes = Vec::new();
        for (state, offset) in
            self.heap.recorded_changes(id).into_iter().flat_map(RecordedChanges::states_with_offsets)
        {
            attributes.extend(Self { offset, ..self }.state_attributes(state)?);
        }
        Ok(attributes)
    }

    pub(super) fn state_attributes(self, state: ObjectId) -> Result<Vec<(ObjectId, ObjectId)>> {
        if let Some(entries) = self.entries(state)? {
            return Ok(entries);
        }
        let mut attributes = Vec::new();
        if let Some(dicts @ [_, _]) = self.items(state)? {
            for dict in dicts {
                attributes.extend(self.entries(*dict)?.unwrap_or_default());
            }
        }
        Ok(attributes)
    }

    /// Formats an object as Python would print it, abbreviated.
    pub(super) fn display(self, id: ObjectId) -> String {
        self.heap.display(id).to_string()
    }

    /// Returns the objects in a list, a tuple or a dict, each with its name part.
    pub(super) fn children(self, id: ObjectId) -> Result<Vec<(Cow<'h, str>, ObjectId)>> {
        self.refuse_changed(id)?;
        Ok(match self.heap.get(id) {
            Object::List(_) | Object::Tuple(_) => {
                let items = self.heap.items(id).unwrap_or_default().iter().enumerate();
                items.map(|(index, item)| (Cow::Owned(index.to_string()), *item)).collect()
            }
            Object::Dict(_) => {
                let entries = self.heap.entries(id).unwrap_or_default().iter();
                entries.map(|(key, value)| (key::name_part(self.heap, *key), *value)).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Returns the bytes of a byte string or a bytearray, in any protocol's encoding.
    pub(super) fn bytes(self, id: ObjectId) -> Result<Option<Cow<'h, [u8]>>> {
        self.refuse_changed(id)?;
        Ok(encoded::decode_bytes(self.heap, id))
    }

    /// Returns the name part for a dict's key or an attribute's name.
    pub(super) fn key(self, id: ObjectId) -> Cow<'h, str> {
        key::name_part(self.heap, id)
    }

    /// Returns the module and the name of an object's class.
    pub(super) fn class(self, id: ObjectId) -> Option<(&'h str, &'h str)> {
        self.heap.global(self.heap.instance(id)?.callable)
    }

    /// Returns the arguments of the call that made an object; empty if no call did.
    pub(super) fn call_arguments(self, id: ObjectId) -> Result<&'h [ObjectId]> {
        self.refuse_changed(id)?;
        let args = self.heap.instance(id).and_then(|instance| self.heap.items(instance.args));
        Ok(args.unwrap_or_default())
    }

    /// Returns the module and the name of a global.
    pub(super) fn global(self, id: ObjectId) -> Option<(&'h str, &'h str)> {
        self.heap.global(id)
    }

    pub(super) fn text(self, id: ObjectId) -> Option<Cow<'h, str>> {
        self.heap.text(id)
    }

    /// Returns the value of a 64-bit int.
    pub(super) fn int(self, id: ObjectId) -> Option<i64> {
        self.heap.int(id)
    }

    pub(super) fn float(self, id: ObjectId) -> Option<f64> {
        self.heap.float(id)
    }

    pub(super) fn bool(self, id: ObjectId) -> Option<bool> {
        self.heap.bool(id)
    }

    pub(super) fn is_none(self, id: ObjectId) -> bool {
        self.heap.is_none(id)
    }

    /// Returns a non-negative integer of 64 bits; `what` names the argument in errors.
    pub(super) fn number(self, item: ObjectId, what: &str) -> Result<u64> {
        match self.heap.int(item) {
            Some(number) => {
                u64::try_from(number).map_err(|_| self.call_error(&format!("{what} holds {number}, below 0")))
            }
            None if self.heap.long(item).is_some() => {
                Err(self.call_error(&format!("{what} holds a number of more than 64 bits")))
            }
            None => Err(self.call_error(&format!("{what} holds a {}", self.heap.get(item).type_name()))),
        }
    }
}

/// A recorded call that created an argument, with the state that BUILD set on its result.
pub(super) struct CallResult<'h> {
    pub(super) args: &'h [ObjectId],
    pub(super) state: Option<&'h [ObjectId]>,
}

/// A recorded call of a function that creates tensors. Access to the arguments requires handling the changes of the
/// result.
#[derive(Debug)]
#[must_use]
pub(super) struct RebuildCall<'h> {
    pub(super) function: RebuildFunction,
    pub(super) instance: &'h Instance,
    call: CallSnapshot<'h>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallArgs<'h> {
    pub(super) call: CallSnapshot<'h>,
    items: &'h [ObjectId],
}

/// The state that BUILD sets on the result of a call. The caller must apply or refuse it.
#[derive(Debug)]
#[must_use]
pub(super) struct ResultState<'h> {
    object: ObjectId,
    call: CallSnapshot<'h>,
}

impl<'h> RebuildCall<'h> {
    /// Returns the call `id` if its function creates tensors.
    pub(super) fn new(heap: &'h Heap<'h>, id: ObjectId) -> Option<Self> {
        Self::with_functions(heap, id, &mut CalledFunctions::new(heap))
    }

    /// Returns the call like [`new`](Self::new), for a caller that looks at many.
    pub(super) fn with_functions(
        heap: &'h Heap<'h>,
        id: ObjectId,
        functions: &mut CalledFunctions<'h>,
    ) -> Option<Self> {
        let instance = heap.instance(id)?;
        let function = functions.called_by(instance)?;
        Some(Self { function, instance, call: CallSnapshot::new(heap, id) })
    }

    /// Returns the arguments of a call whose result does not change.
    pub(super) fn args(self) -> Result<CallArgs<'h>> {
        let call = self.call;
        match self.args_and_state()? {
            (args, None) => Ok(args),
            (_, Some(_)) => Err(call.call_error("the pickle sets a state on its result (BUILD)")),
        }
    }

    pub(super) fn args_and_state(self) -> Result<(CallArgs<'h>, Option<ResultState<'h>>)> {
        let Self { instance, call, .. } = self;
        let changes = [
            (instance.items().is_empty(), "sets items of its result (SETITEM)"),
            (instance.appends().is_empty(), "appends to its result (APPEND)"),
            (instance.kwargs().is_none_or(|kwargs| is_empty(call.heap, kwargs)), "calls it with keywords"),
            (instance.state().len() < 2, "sets several states on its result (BUILD)"),
        ];
        if let Some((_, change)) = changes.iter().find(|(is_absent, _)| !is_absent) {
            return Err(call.call_error(&format!("the pickle {change}, which is not supported")));
        }
        let built =
            call.heap.recorded_changes(call.id).and_then(|recorded| recorded.states_with_offsets().next());
        let state =
            built.map(|(object, offset)| ResultState { object, call: CallSnapshot { offset, ..call } });
        Ok((CallArgs { call, items: call.heap.items(instance.args).unwrap_or_default() }, state))
    }
}

/// Returns true if there are no keyword arguments.
fn is_empty(heap: &Heap<'_>, kwargs: ObjectId) -> bool {
    heap.entries(kwargs).is_some_and(<[_]>::is_empty)
}

impl<'h> CallArgs<'h> {
    /// Returns the arguments that a call passes on, such as `args` in `_rebuild_from_type(function, class, args, …)`.
    pub(super) fn passed_on(self, args: ObjectId) -> Result<Self> {
        let items = self.call.items(args)?;
        Ok(Self {
            items: items.ok_or_else(|| self.call.call_error("its arguments are not a tuple"))?,
            ..self
        })
    }

    /// Returns all arguments as a slice.
    pub(super) fn all(&self) -> &'h [ObjectId] {
        self.items
    }

    /// Returns the argument at `index`, counted from 0.
    pub(super) fn nth_argument(&self, index: usize) -> Option<ObjectId> {
        self.items.get(index).copied()
    }

    pub(super) fn skip_to(&self, index: usize) -> Self {
        Self { items: self.items.get(index..).unwrap_or_default(), ..*self }
    }
}

impl<'h> ResultState<'h> {
    /// Returns the items of a state that is a tuple or a list, with the objects as BUILD saw them.
    pub(super) fn items(self) -> Result<CallArgs<'h>> {
        let Self { object, call } = self;
        match call.items(object)? {
            Some(items) => Ok(CallArgs { call, items }),
            None => Err(call.call_error(&format!(
                "the pickle sets a state on its result (BUILD) that is a {}",
                call.heap.get(object).type_name()
            ))),
        }
    }
}
