//! What an instruction did to stack, metastack and memo, in the words of the field.
//!
//! Source of the words: the `doc` texts in CPython's `Lib/pickletools.py`.

use std::fmt::{self, Write};

use crate::machine::Machine;
use crate::object::{Instance, ObjectId};
use crate::opcode::Opcode;
use crate::reader::{Arg, Instruction};

/// What the stack looked like before the instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// How many objects the current frame had.
    pub(crate) frame: usize,
    /// The topmost three of them, topmost first.
    pub(crate) top: [Option<ObjectId>; 3],
}

impl Before {
    pub(crate) fn of(machine: &Machine<'_>) -> Before {
        let stack = machine.stack();
        let mut topmost = stack.iter().rev().copied();
        Before { frame: stack.len(), top: [topmost.next(), topmost.next(), topmost.next()] }
    }
}

/// Writes one object in the way of the listing that asks.
pub(crate) type Show<'s> = dyn FnMut(&mut dyn Write, ObjectId) -> fmt::Result + 's;

#[expect(clippy::too_many_lines, reason = "one match with an arm for each opcode, as in the machine")]
/// Writes what the machine did. It has just executed the instruction; `result` is what STOP gave.
pub(crate) fn effect(
    out: &mut dyn Write,
    instruction: &Instruction<'_>,
    before: Before,
    machine: &Machine<'_>,
    result: Option<ObjectId>,
    show: &mut Show<'_>,
) -> fmt::Result {
    let top = result.or_else(|| machine.stack().last().copied());
    let [first, second, _] = before.top;
    let frame = before.frame;
    let mut say = Say { out, show };
    match instruction.opcode {
        Opcode::Proto => say.words(&format!("protocol {}", Number(&instruction.arg))),
        Opcode::Frame => say.words(&format!("a frame of {} bytes begins", Number(&instruction.arg))),
        Opcode::Stop => say.object("pop the result ", top),

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
        | Opcode::PersId => say.object("push ", top),
        Opcode::ReadonlyBuffer => say.object("make read-only ", top),

        Opcode::Tuple | Opcode::List | Opcode::Dict | Opcode::FrozenSet | Opcode::Inst | Opcode::Obj => {
            say.words(&format!("pop {frame} to the mark, "))?;
            say.object("push ", top)
        }
        Opcode::Tuple1 => say.object("pop 1, push ", top),
        Opcode::Tuple2 => say.object("pop 2, push ", top),
        Opcode::Tuple3 => say.object("pop 3, push ", top),
        Opcode::Append => {
            say.object("pop ", first)?;
            say.object(", append it to ", top)
        }
        Opcode::Appends => {
            say.words(&format!("pop {frame} to the mark, "))?;
            say.object("append them to ", top)
        }
        Opcode::AddItems => {
            say.words(&format!("pop {frame} to the mark, "))?;
            say.object("add them to ", top)
        }
        Opcode::SetItem => {
            say.object("pop value ", first)?;
            say.object(" and key ", second)?;
            say.object(", set them on ", top)
        }
        Opcode::SetItems => {
            say.words(&format!("pop {frame} to the mark, "))?;
            say.object(if frame == 2 { "set 1 item on " } else { "set the items on " }, top)
        }

        Opcode::Pop => match first {
            Some(_) => say.object("pop ", first),
            None => say.words("pop the mark"),
        },
        Opcode::Dup => say.object("push again ", top),
        Opcode::Mark => say.words(&format!("push a mark: the frame of {frame} goes to the metastack")),
        Opcode::PopMark => say.words(&format!("pop {frame} to the mark")),
        Opcode::Get | Opcode::BinGet | Opcode::LongBinGet => {
            say.words(&format!("push memo[{}]: ", Number(&instruction.arg)))?;
            say.object("", top)
        }
        Opcode::Put | Opcode::BinPut | Opcode::LongBinPut => {
            say.words(&format!("store into memo[{}]: ", Number(&instruction.arg)))?;
            say.object("", top)
        }
        Opcode::Memoize => {
            // It was the size of the memo before, and nothing can have been there.
            say.words(&format!("store into memo[{}]: ", machine.memo_len().saturating_sub(1)))?;
            say.object("", top)
        }

        Opcode::StackGlobal => say.object("pop name and module, push ", top),
        Opcode::Reduce | Opcode::NewObj | Opcode::NewObjEx => {
            let instance = top.and_then(|top| machine.heap().instance(top));
            if instance.and_then(Instance::kwargs).is_some() {
                say.object("pop keyword arguments ", first)?;
                say.words(", ")?;
            }
            say.object("pop arguments ", instance.map(|instance| instance.args))?;
            say.object(" and callable ", instance.map(|instance| instance.callable))?;
            say.object(", push ", top)
        }
        Opcode::Build => {
            say.object("pop state ", first)?;
            say.object(", give it to ", second)
        }
        Opcode::BinPersId => {
            say.object("pop persistent id ", first)?;
            say.object(", push ", top)
        }
    }
}

struct Say<'a, 's> {
    out: &'a mut dyn Write,
    show: &'a mut Show<'s>,
}

impl Say<'_, '_> {
    fn words(&mut self, words: &str) -> fmt::Result {
        self.out.write_str(words)
    }

    fn object(&mut self, words: &str, id: Option<ObjectId>) -> fmt::Result {
        self.out.write_str(words)?;
        match id {
            Some(id) => (self.show)(self.out, id),
            None => Ok(()),
        }
    }
}

/// A memo key, a protocol or a length.
struct Number<'a>(&'a Arg<'a>);

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Arg::Int(value) => write!(f, "{value}"),
            Arg::FrameLength(value) => write!(f, "{value}"),
            Arg::Bool(value) => write!(f, "{}", u8::from(*value)),
            Arg::None
            | Arg::Long(_)
            | Arg::Float(_)
            | Arg::Text(_)
            | Arg::String(_)
            | Arg::Bytes(_)
            | Arg::Global { .. } => Ok(()),
        }
    }
}
