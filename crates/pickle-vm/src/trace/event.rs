//! What one instruction did to stack, metastack and memo, as values that a printer can render.
//!
//! Source: the `doc` texts in CPython's `Lib/pickletools.py`, which describe what each opcode takes and leaves.

use crate::error::{ErrorKind, Result};
use crate::machine::Machine;
use crate::object::ObjectId;
use crate::opcode::Opcode;
use crate::reader::{Arg, Instruction};

/// An instruction that was executed, and what it did.
///
/// ```
/// use pickle_vm::trace::{Effect, Event};
/// use pickle_vm::{Limits, Machine, Reader};
///
/// let mut machine = Machine::new(Limits::default());
/// let mut popped = Vec::new();
/// for instruction in Reader::new(b"(K\x01K\x02t.") {
///     let event = Event::execute(&mut machine, instruction?)?;
///     if let Effect::Collect { popped: count, .. } = event.effect {
///         popped.push(count);
///     }
/// }
/// assert_eq!(popped, [2]);
/// # Ok::<(), pickle_vm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'p> {
    /// The instruction.
    pub instruction: Instruction<'p>,
    /// What it did.
    pub effect: Effect,
    /// How many objects the current frame of the stack has after it.
    pub stack: usize,
    /// How many frames the metastack has after it.
    pub metastack: usize,
    /// How many entries the memo has after it.
    pub memo: usize,
}

/// What an instruction did. Its ids belong to the machine's [heap](Machine::heap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// PROTO named the protocol.
    Protocol(u64),
    /// FRAME announced a frame of this many bytes.
    Frame(u64),
    /// STOP popped the result.
    Stop(ObjectId),
    /// An object was pushed.
    Push(ObjectId),
    /// The topmost buffer was made read-only.
    MakeReadOnly(ObjectId),
    /// Everything above the mark was popped, and an object made of it was pushed.
    Collect {
        /// How many objects were above the mark.
        popped: usize,
        /// What was made of them.
        object: ObjectId,
    },
    /// A fixed number of objects was popped, and their tuple was pushed.
    Tuple {
        /// How many objects: 1, 2 or 3.
        popped: usize,
        /// The tuple.
        object: ObjectId,
    },
    /// An object was appended to the one under it.
    Append {
        /// What was appended.
        item: ObjectId,
        /// What it was appended to.
        target: ObjectId,
    },
    /// Everything above the mark was appended to the object under it.
    Appends {
        /// How many objects were above the mark.
        popped: usize,
        /// What they were appended to.
        target: ObjectId,
    },
    /// Everything above the mark was added to the set under it.
    AddItems {
        /// How many objects were above the mark.
        popped: usize,
        /// What they were added to.
        target: ObjectId,
    },
    /// A key and its value were set on the object under them.
    SetItem {
        /// The key.
        key: ObjectId,
        /// The value.
        value: ObjectId,
        /// What they were set on.
        target: ObjectId,
    },
    /// The keys and values above the mark were set on the object under it.
    SetItems {
        /// How many objects were above the mark: twice the number of items.
        popped: usize,
        /// What they were set on.
        target: ObjectId,
    },
    /// The topmost object was popped.
    Pop(ObjectId),
    /// POP found an empty frame and popped its mark.
    PopMark,
    /// Everything down to the mark was popped.
    PopToMark {
        /// How many objects were above the mark.
        popped: usize,
    },
    /// The topmost object was pushed a second time.
    Duplicate(ObjectId),
    /// A mark was pushed: the current frame went to the metastack.
    Mark {
        /// How many objects the frame had.
        frame: usize,
    },
    /// An object of the memo was pushed.
    Get {
        /// Its key.
        key: u64,
        /// The object.
        object: ObjectId,
    },
    /// The topmost object was stored into the memo.
    Put {
        /// Its key.
        key: u64,
        /// The object.
        object: ObjectId,
    },
    /// A name and a module were popped, and the global of that name was pushed.
    Global(ObjectId),
    /// A call was recorded: arguments and callable were popped, and the instance was pushed.
    Call {
        /// The dict of keyword arguments, which only `NEWOBJ_EX` has.
        kwargs: Option<ObjectId>,
        /// The tuple of arguments.
        args: ObjectId,
        /// What would have been called.
        callable: ObjectId,
        /// The instance that represents the result.
        object: ObjectId,
    },
    /// BUILD recorded a state on the object under it.
    SetState {
        /// The state.
        state: ObjectId,
        /// The object that received it.
        target: ObjectId,
    },
    /// A persistent id was popped, and the object that it identifies was pushed.
    Persistent {
        /// The persistent id.
        pid: ObjectId,
        /// The object.
        object: ObjectId,
    },
}

impl<'p> Event<'p> {
    /// Executes one instruction, and reports what it did.
    ///
    /// # Errors
    ///
    /// Those of [`Machine::step`].
    pub fn execute(machine: &mut Machine<'p>, instruction: Instruction<'p>) -> Result<Event<'p>> {
        let before = Before::new(machine);
        let result = machine.step(instruction.clone())?;
        // The machine has executed the instruction, so its operands were there.
        let effect = before
            .effect(&instruction, machine, result)
            .ok_or_else(|| ErrorKind::StackUnderflow.at(instruction.offset, instruction.opcode))?;
        let (stack, metastack) = (machine.stack().len(), machine.metastack().len());
        Ok(Event { instruction, effect, stack, metastack, memo: machine.memo_len() })
    }

    /// The object that the pickle built, if this was its STOP.
    pub fn result(&self) -> Option<ObjectId> {
        match self.effect {
            Effect::Stop(root) => Some(root),
            _ => None,
        }
    }
}

/// What the stack looked like before the instruction.
struct Before {
    /// How many objects the current frame had.
    frame: usize,
    /// The topmost object, and the one under it.
    first: Option<ObjectId>,
    second: Option<ObjectId>,
}

impl Before {
    fn new(machine: &Machine<'_>) -> Before {
        let stack = machine.stack();
        let mut topmost = stack.iter().rev().copied();
        Before { frame: stack.len(), first: topmost.next(), second: topmost.next() }
    }

    /// What the instruction did between then and now; `result` is what STOP returned.
    fn effect(
        &self,
        instruction: &Instruction<'_>,
        machine: &Machine<'_>,
        result: Option<ObjectId>,
    ) -> Option<Effect> {
        let popped = self.frame;
        let top = || machine.stack().last().copied();
        Some(match instruction.opcode {
            Opcode::Proto => Effect::Protocol(number(&instruction.arg)),
            Opcode::Frame => Effect::Frame(number(&instruction.arg)),
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
                Effect::Get { key: number(&instruction.arg), object: top()? }
            }
            Opcode::Put | Opcode::BinPut | Opcode::LongBinPut => {
                Effect::Put { key: number(&instruction.arg), object: top()? }
            }
            Opcode::Memoize => {
                // The key is the size of the memo before, and nothing can have been there.
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

/// A memo key, a protocol or a length, none of which the machine accepts below zero.
fn number(arg: &Arg<'_>) -> u64 {
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
