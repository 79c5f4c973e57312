//! Recorded steps of an execution: for each instruction the change of stack, metastack and memo, and the texts of the
//! objects that it makes or changes. From the state before the first step, the changes give the state after each one.

use std::fmt::Write;
use std::ops::Range;

use super::event::{Effect, TraceEvent};
use super::options::Annotate;
use super::{effect_text, json};
use crate::error::{Error, ErrorKind, Result};
use crate::heap::Heap;
use crate::limits::PickleLimits;
use crate::machine::Machine;
use crate::object::ObjectId;
use crate::opcode::Opcode;
use crate::reader::Reader;

/// Longest text of an argument or an effect, in characters.
const TEXT_CHARS_MAX: usize = 300;
/// Largest number of objects of each part of the state before the first step.
const STATE_OBJECTS_MAX: usize = 20_000;

/// Change of stack, metastack and memo by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackChange {
    /// No object moved.
    Unchanged,
    /// Objects were popped from the current frame, and then an object was pushed.
    Replace { popped: usize, pushed: Option<ObjectId> },
    /// The current frame went to the metastack.
    Mark,
    /// The frame above the mark was dropped, the one below it came back, and then an object was pushed.
    PopToMark { pushed: Option<ObjectId> },
    /// The topmost object was stored into the memo.
    Store { key: u64, object: ObjectId },
}

impl Effect {
    /// Returns the change of stack, metastack and memo.
    pub fn stack_change(self) -> StackChange {
        let replace = |popped, object| StackChange::Replace { popped, pushed: Some(object) };
        let pop = |popped| StackChange::Replace { popped, pushed: None };
        match self {
            Self::Protocol(_) | Self::Frame(_) | Self::MakeReadOnly(_) => StackChange::Unchanged,
            Self::Push(object) | Self::Duplicate(object) | Self::Get { object, .. } => replace(0, object),
            Self::Tuple { popped, object } => replace(popped, object),
            Self::Global(object) => replace(2, object),
            Self::Persistent { object, .. } => replace(1, object),
            Self::Call { kwargs, object, .. } => replace(if kwargs.is_some() { 3 } else { 2 }, object),
            Self::Stop(_) | Self::Append { .. } | Self::Pop(_) | Self::SetState { .. } => pop(1),
            Self::SetItem { .. } => pop(2),
            Self::Collect { object, .. } => StackChange::PopToMark { pushed: Some(object) },
            Self::Appends { .. }
            | Self::AddItems { .. }
            | Self::SetItems { .. }
            | Self::PopMark
            | Self::PopToMark { .. } => StackChange::PopToMark { pushed: None },
            Self::Mark { .. } => StackChange::Mark,
            Self::Put { key, object } => StackChange::Store { key, object },
        }
    }

    /// Returns the object that an instruction made or changed.
    fn changed_object(self) -> Option<ObjectId> {
        match self {
            Self::Push(object)
            | Self::Collect { object, .. }
            | Self::Tuple { object, .. }
            | Self::Global(object)
            | Self::Call { object, .. }
            | Self::Persistent { object, .. }
            | Self::MakeReadOnly(object) => Some(object),
            Self::Append { target, .. }
            | Self::Appends { target, .. }
            | Self::AddItems { target, .. }
            | Self::SetItem { target, .. }
            | Self::SetItems { target, .. }
            | Self::SetState { target, .. } => Some(target),
            _ => None,
        }
    }
}

/// Stack, metastack and memo at a point of an execution. Of a large state, the newest objects are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineState {
    /// Current frame, bottom first.
    pub stack: Vec<ObjectId>,
    /// Frames below the marks, outermost first.
    pub metastack: Vec<Vec<ObjectId>>,
    /// Memo entries with their keys.
    pub memo: Vec<(u64, ObjectId)>,
}

impl MachineState {
    fn read(machine: &Machine<'_>) -> Self {
        let newest = |frame: &[ObjectId]| {
            frame.get(frame.len().saturating_sub(STATE_OBJECTS_MAX)..).unwrap_or_default().to_vec()
        };
        Self {
            stack: newest(machine.stack()),
            metastack: machine.metastack().map(newest).collect(),
            memo: machine.memo().take(STATE_OBJECTS_MAX).collect(),
        }
    }

    fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let frames = self.metastack.iter().flatten().copied();
        self.stack.iter().copied().chain(frames).chain(self.memo.iter().map(|(_, object)| *object))
    }

    /// Applies the change of a step.
    pub fn apply(&mut self, change: StackChange) {
        match change {
            StackChange::Unchanged => {}
            StackChange::Replace { popped, pushed } => {
                self.stack.truncate(self.stack.len().saturating_sub(popped));
                self.stack.extend(pushed);
            }
            StackChange::Mark => self.metastack.push(std::mem::take(&mut self.stack)),
            StackChange::PopToMark { pushed } => {
                self.stack = self.metastack.pop().unwrap_or_default();
                self.stack.extend(pushed);
            }
            StackChange::Store { key, object } => match self.memo.iter_mut().find(|entry| entry.0 == key) {
                Some(entry) => entry.1 = object,
                None => self.memo.push((key, object)),
            },
        }
    }
}

/// An executed instruction with the texts of what it did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedStep {
    /// Offset of the instruction in the pickle, in bytes.
    pub offset: u64,
    pub opcode: Opcode,
    /// Argument as JSON, cut if it is long; `None` if the opcode has none.
    pub argument: Option<String>,
    /// Effect as text, as the listing of the steps has it.
    pub effect: String,
    pub change: StackChange,
    /// Object that the instruction made or changed, and its text after the instruction.
    pub shown: Option<(ObjectId, String)>,
    /// Keys of a dict that the instruction set, each with its value.
    pub set_keys: Vec<(String, ObjectId)>,
}

/// Recorded part of an execution.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// Number of the first step, counted from 0.
    pub first: u64,
    /// State before the first step, and the texts of the objects in it.
    pub before: MachineState,
    pub texts: Vec<(ObjectId, String)>,
    pub steps: Vec<RecordedStep>,
    /// True if instructions follow the last step.
    pub is_cut: bool,
    /// Error at which the execution ended.
    pub error: Option<Error>,
}

/// Executes a pickle, and records the steps of a range, counted from 0.
///
/// # Errors
/// When the pickle is malformed before the range. A fault inside the range is [`Recording::error`].
pub fn record(
    bytes: &[u8],
    limits: PickleLimits,
    range: Range<u64>,
    annotate: &Annotate<'_>,
) -> Result<Recording> {
    let mut machine = Machine::new(limits);
    let mut reader = Reader::new(bytes);
    let mut recording = Recording {
        first: range.start,
        before: MachineState::default(),
        texts: Vec::new(),
        steps: Vec::new(),
        is_cut: false,
        error: None,
    };
    for number in 0.. {
        if number == range.start {
            recording.before = MachineState::read(&machine);
            let text = |id| (id, text_of(machine.heap(), id, annotate));
            recording.texts = recording.before.objects().map(text).collect();
        }
        let Some(instruction) = reader.next() else {
            let error = Error { kind: ErrorKind::NoStop, offset: reader.offset(), opcode: None };
            return end_of(recording, error, number >= range.start);
        };
        if number >= range.end {
            recording.is_cut = true;
            return Ok(recording);
        }
        let is_set_items = instruction.as_ref().is_ok_and(|it| it.opcode == Opcode::SetItems);
        let frame = if is_set_items { machine.stack().to_vec() } else { Vec::new() };
        let event = match instruction.and_then(|instruction| TraceEvent::execute(&mut machine, instruction)) {
            Ok(event) => event,
            Err(error) => return end_of(recording, error, number >= range.start),
        };
        if number >= range.start {
            recording.steps.push(step(&machine, &event, &frame, annotate));
        }
        if event.result().is_some() {
            break;
        }
    }
    Ok(recording)
}

fn end_of(mut recording: Recording, error: Error, is_in_range: bool) -> Result<Recording> {
    if !is_in_range {
        return Err(error);
    }
    recording.error = Some(error);
    Ok(recording)
}

fn step(
    machine: &Machine<'_>,
    event: &TraceEvent<'_>,
    frame: &[ObjectId],
    annotate: &Annotate<'_>,
) -> RecordedStep {
    let heap = machine.heap();
    let key = |id: ObjectId| heap.text(id).map(|text| cut(&text));
    let set_keys = match event.effect {
        Effect::SetItem { key: id, value, .. } => key(id).map(|key| (key, value)).into_iter().collect(),
        Effect::SetItems { .. } => {
            let pairs = frame.as_chunks::<2>().0.iter();
            pairs.filter_map(|[id, value]| Some((key(*id)?, *value))).collect()
        }
        _ => Vec::new(),
    };
    let mut effect = String::new();
    let mut show = |out: &mut dyn Write, id: ObjectId| out.write_str(&text_of(heap, id, annotate));
    // Memory takes any text.
    let _ = effect_text::effect(&mut effect, event.effect, &mut show);
    let mut argument = String::new();
    let _ = json::arg(&mut argument, &event.instruction.arg);
    RecordedStep {
        offset: event.instruction.offset,
        opcode: event.instruction.opcode,
        argument: (argument != "null").then(|| cut(&argument)),
        effect: cut(&effect),
        change: event.effect.stack_change(),
        shown: event.effect.changed_object().map(|id| (id, text_of(heap, id, annotate))),
        set_keys,
    }
}

fn text_of(heap: &Heap<'_>, id: ObjectId, annotate: &Annotate<'_>) -> String {
    cut(&heap.display(id).annotated(annotate).to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state that follows from the recorded changes is that of the machine, after each step.
    fn check(pickle: &[u8], first: u64) {
        let recording =
            record(pickle, PickleLimits::default(), first..u64::MAX, &|_, _| None).expect("valid");
        let mut machine = Machine::new(PickleLimits::default());
        let mut state = recording.before.clone();
        for (number, instruction) in (0..).zip(Reader::new(pickle)) {
            machine.step(instruction.expect("valid")).expect("valid");
            if number < first {
                continue;
            }
            let step = usize::try_from(number.saturating_sub(first)).expect("few");
            state.apply(recording.steps[step].change);
            assert_eq!(state, MachineState::read(&machine), "step {number}");
        }
        assert!(recording.error.is_none() && !recording.is_cut);
    }

    #[test]
    fn changes_give_the_state_after_each_step() {
        let pickle = b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b](K\x01K\x02eX\x01\x00\x00\x00cccollections\nOrderedDict\n)Rq\x01}b\x88\x850h\x010u.";
        for first in 0..12 {
            check(pickle, first);
        }
        check(b"(K\x01K\x02t.", 0);
    }

    #[test]
    fn a_range_ends_early_and_a_fault_is_kept() {
        let recording =
            record(b"K\x01K\x02\x86.", PickleLimits::default(), 1..2, &|_, _| None).expect("valid");
        assert_eq!((recording.steps.len(), recording.is_cut, recording.before.stack.len()), (1, true, 1));
        let recording = record(b"K\x01\x86.", PickleLimits::default(), 0..9, &|_, _| None).expect("kept");
        assert!(recording.error.is_some());
        assert_eq!(recording.steps.len(), 1);
        record(b"K\x01\x86.", PickleLimits::default(), 2..9, &|_, _| None).expect_err("before the range");
    }
}
