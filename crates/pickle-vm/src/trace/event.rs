//! Effects of one instruction on stack, metastack and memo, as values that a printer can render.
//!
//! Source: the `doc` texts in CPython's `Lib/pickletools.py` describe the operands and results of each opcode.

use crate::error::{ErrorKind, Result};
use crate::machine::Machine;
use crate::object::ObjectId;
use crate::opcode::Opcode;
use crate::reader::{Arg, Instruction};

/// An executed instruction and its effect.
///
/// ```
/// use pickle_vm::trace::{Effect, TraceEvent};
/// use pickle_vm::{PickleLimits, Machine, Reader};
///
/// let mut machine = Machine::new(PickleLimits::default());
/// let mut popped = Vec::new();
/// for instruction in Reader::new(b"(K\x01K\x02t.") {
///     let event = TraceEvent::execute(&mut machine, instruction?)?;
///     if let Effect::Collect { popped: count, .. } = event.effect {
///         popped.push(count);
///     }
/// }
/// assert_eq!(popped, [2]);
/// # Ok::<(), pickle_vm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent<'p> {
    pub instruction: Instruction<'p>,
    pub effect: Effect,
    /// Number of objects in the current frame after the instruction.
    pub stack: usize,
    /// Number of frames on the metastack after the instruction.
    pub metastack: usize,
    /// Number of memo entries after the instruction.
    pub memo: usize,
}

/// Effect of an instruction. Its ids belong to the machine's [heap](Machine::heap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// PROTO named this protocol.
    Protocol(u64),
    /// FRAME announced a frame of this many bytes.
    Frame(u64),
    /// STOP popped the root object.
    Stop(ObjectId),
    /// An object was pushed.
    Push(ObjectId),
    /// The topmost buffer was made read-only.
    MakeReadOnly(ObjectId),
    /// The objects above the mark were popped, and an object made of them was pushed.
    Collect {
        /// Number of objects above the mark.
        popped: usize,
        /// The pushed tuple, list, dict, frozenset or instance.
        object: ObjectId,
    },
    /// A fixed number of objects was popped, and their tuple was pushed.
    Tuple {
        /// Number of objects: 1, 2 or 3.
        popped: usize,
        object: ObjectId,
    },
    /// An object was appended to the object below it.
    Append { item: ObjectId, target: ObjectId },
    /// The objects above the mark were appended to the object below the mark.
    Appends {
        /// Number of objects above the mark.
        popped: usize,
        target: ObjectId,
    },
    /// The objects above the mark were added to the set below the mark.
    AddItems {
        /// Number of objects above the mark.
        popped: usize,
        target: ObjectId,
    },
    /// A key and its value were set on the object below them.
    SetItem { key: ObjectId, value: ObjectId, target: ObjectId },
    /// The keys and values above the mark were set on the object below the mark.
    SetItems {
        /// Number of objects above the mark: twice the number of entries.
        popped: usize,
        target: ObjectId,
    },
    /// The topmost object was popped.
    Pop(ObjectId),
    /// POP found an empty frame and popped its mark.
    PopMark,
    /// The mark and the objects above it were popped.
    PopToMark {
        /// Number of objects above the mark.
        popped: usize,
    },
    /// The topmost object was pushed a second time.
    Duplicate(ObjectId),
    /// A mark was pushed: the current frame went to the metastack.
    Mark {
        /// Number of objects in that frame.
        frame: usize,
    },
    /// An object from the memo was pushed.
    Get {
        /// Key of the memo entry.
        key: u64,
        object: ObjectId,
    },
    /// The topmost object was stored into the memo.
    Put {
        /// Key of the memo entry.
        key: u64,
        object: ObjectId,
    },
    /// A name and a module were popped, and the global of that name was pushed.
    Global(ObjectId),
    /// A call was recorded: arguments and callable were popped, and the instance was pushed.
    Call {
        /// Dict of keyword arguments, which only `NEWOBJ_EX` has.
        kwargs: Option<ObjectId>,
        args: ObjectId,
        /// The object that would have been called.
        callable: ObjectId,
        /// Instance that represents the result of the call.
        object: ObjectId,
    },
    /// BUILD recorded a state on the object below it.
    SetState { state: ObjectId, target: ObjectId },
    /// A persistent id was popped, and the object that it identifies was pushed.
    Persistent { pid: ObjectId, object: ObjectId },
}

impl<'p> TraceEvent<'p> {
    /// Executes one instruction, and returns its effect.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Machine::step`].
    pub fn execute(machine: &mut Machine<'p>, instruction: Instruction<'p>) -> Result<TraceEvent<'p>> {
        let before = StackBefore::new(machine);
        let result = machine.step(instruction.clone())?;
        // The machine has executed the instruction, so its operands existed.
        let effect = before
            .effect(&instruction, machine, result)
            .ok_or_else(|| ErrorKind::StackUnderflow.at(instruction.offset, instruction.opcode))?;
        let (stack, metastack) = (machine.stack().len(), machine.metastack().len());
        Ok(TraceEvent { instruction, effect, stack, metastack, memo: machine.memo_len() })
    }

    /// Returns the root object if the instruction was STOP.
    pub fn result(&self) -> Option<ObjectId> {
        match self.effect {
            Effect::Stop(root) => Some(root),
            _ => None,
        }
    }
}

/// Size and topmost objects of the current frame before an instruction.
struct StackBefore {
    /// Number of objects in the current frame.
    frame: usize,
    /// Topmost object, and the object below it.
    first: Option<ObjectId>,
    second: Option<ObjectId>,
}

impl StackBefore {
    fn new(machine: &Machine<'_>) -> StackBefore {
        let stack = machine.stack();
        let mut topmost = stack.iter().rev().copied();
        StackBefore { frame: stack.len(), first: topmost.next(), second: topmost.next() }
    }

    /// Returns the effect of an instruction that `machine` has executed; `result` is the object that STOP returned.
    fn effect(
        &self,
        instruction: &Instruction<'_>,
        machine: &Machine<'_>,
        result: Option<ObjectId>,
    ) -> Option<Effect> {
        let popped = self.frame;
        let top = || machine.stack().last().copied();
        Some(match instruction.opcode {
            Opcode::Proto => Effect::Protocol(unsigned_argument(&instruction.arg)),
            Opcode::Frame => Effect::Frame(unsigned_argument(&instruction.arg)),
            Opcode::Stop => Effect::Stop(result?),

            Opcode::Int
            | Opcode::BinInt
            | Opcode::BinInt1
            | Opcode::BinInt2
            | Opcode::Long
            | Opcode::Long1
            | Opcode::Long4
            | Opcode::String
            | Opcode::BinString
            | Opcode::ShortBinString
            | Opcode::BinBytes
            | Opcode::ShortBinBytes
            | Opcode::BinBytes8
            | Opcode::ByteArray8
            | Opcode::NextBuffer
            | Opcode::None
            | Opcode::NewTrue
            | Opcode::NewFalse
            | Opcode::Unicode
            | Opcode::ShortBinUnicode
            | Opcode::BinUnicode
            | Opcode::BinUnicode8
            | Opcode::Float
            | Opcode::BinFloat
            | Opcode::EmptyList
            | Opcode::EmptyTuple
            | Opcode::EmptyDict
            | Opcode::EmptySet
            | Opcode::Ext1
            | Opcode::Ext2
            | Opcode::Ext4
            | Opcode::Global
            | Opcode::PersId => Effect::Push(top()?),
            Opcode::ReadonlyBuffer => Effect::MakeReadOnly(top()?),

            Opcode::Tuple | Opcode::List | Opcode::Dict | Opcode::FrozenSet | Opcode::Inst | Opcode::Obj => {
                Effect::Collect { popped, object: top()? }
            }
            Opcode::Tuple1 => Effect::Tuple { popped: 1, object: top()? },
            Opcode::Tuple2 => Effect::Tuple { popped: 2, object: top()? },
            Opcode::Tuple3 => Effect::Tuple { popped: 3, object: top()? },
            Opcode::Append => Effect::Append { item: self.first?, target: top()? },
            Opcode::Appends => Effect::Appends { popped, target: top()? },
            Opcode::AddItems => Effect::AddItems { popped, target: top()? },
            Opcode::SetItem => Effect::SetItem { key: self.second?, value: self.first?, target: top()? },
            Opcode::SetItems => Effect::SetItems { popped, target: top()? },

            Opcode::Pop => self.first.map_or(Effect::PopMark, Effect::Pop),
            Opcode::Dup => Effect::Duplicate(top()?),
            Opcode::Mark => Effect::Mark { frame: popped },
            Opcode::PopMark => Effect::PopToMark { popped },
            Opcode::Get | Opcode::BinGet | Opcode::LongBinGet => {
                Effect::Get { key: unsigned_argument(&instruction.arg), object: top()? }
            }
            Opcode::Put | Opcode::BinPut | Opcode::LongBinPut => {
                Effect::Put { key: unsigned_argument(&instruction.arg), object: top()? }
            }
            Opcode::Memoize => {
                // The key is the previous number of memo entries.
                let key = machine.memo_len().saturating_sub(1) as u64;
                Effect::Put { key, object: top()? }
            }

            Opcode::StackGlobal => Effect::Global(top()?),
            Opcode::Reduce | Opcode::NewObj | Opcode::NewObjEx => {
                let object = top()?;
                let instance = machine.heap().instance(object)?;
                let kwargs = instance.kwargs();
                Effect::Call { kwargs, args: instance.args, callable: instance.callable, object }
            }
            Opcode::Build => Effect::SetState { state: self.first?, target: self.second? },
            Opcode::BinPersId => Effect::Persistent { pid: self.first?, object: top()? },
        })
    }
}

/// Returns a memo key, a protocol or a length, which the machine rejects if it is negative.
fn unsigned_argument(arg: &Arg<'_>) -> u64 {
    match *arg {
        Arg::Int(value) => u64::try_from(value).unwrap_or_default(),
        Arg::FrameLength(value) => value,
        Arg::Bool(value) => u64::from(value),
        Arg::None
        | Arg::Long(_)
        | Arg::Float(_)
        | Arg::Text(_)
        | Arg::String(_)
        | Arg::Bytes(_)
        | Arg::Global { .. } => 0,
    }
}
