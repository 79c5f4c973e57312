//! The pickle machine: executes instructions on a stack, a metastack and a memo, and builds inert objects.
//!
//! Sources: the `load_*` functions of CPython's `Lib/pickle.py` and, where that file is accidentally laxer,
//! `Modules/_pickle.c`.

mod objects;
mod state;

use self::state::{MachineState, check_pairs};
use crate::error::{ErrorKind, Result};
use crate::heap::{Heap, Pickle};
use crate::limits::{MEMORY_CHECK_INTERVAL, PickleLimit, PickleLimits};
use crate::object::{Construction, DictEntries, Global, GlobalNames, ItemList, Object, ObjectId};
use crate::opcode::Opcode;
use crate::reader::{Arg, Instruction};

/// Newest pickle protocol, which Python 3.8 introduced.
const HIGHEST_PROTOCOL: i64 = 5;

/// Pickle machine that executes one instruction per step.
///
/// ```
/// use pickle_vm::{PickleLimits, Machine, Reader};
///
/// let mut machine = Machine::new(PickleLimits::default());
/// for instruction in Reader::new(b"(K\x01K\x02t.") {
///     if let Some(root) = machine.step(instruction?)? {
///         assert_eq!(machine.heap().items(root).map(<[_]>::len), Some(2));
///     }
/// }
/// # Ok::<(), pickle_vm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Machine<'p> {
    state: MachineState<'p>,
    opcodes: u64,
}

impl<'p> Machine<'p> {
    /// Creates a machine with an empty stack and an empty memo.
    pub fn new(limits: PickleLimits) -> Self {
        Machine { state: MachineState::new(limits), opcodes: 0 }
    }

    /// Returns the objects created so far.
    pub fn heap(&self) -> &Heap<'p> {
        &self.state.heap
    }

    /// Returns the current frame: the objects above the topmost mark, topmost last.
    pub fn stack(&self) -> &[ObjectId] {
        self.state.frame()
    }

    /// Returns the frames below the topmost mark, bottom first: Python's metastack.
    pub fn metastack(&self) -> impl DoubleEndedIterator<Item = &[ObjectId]> + ExactSizeIterator {
        (0..self.state.marks.len()).map(|frame| self.frame(frame))
    }

    /// Returns a frame of the metastack by its index, counted from the bottom.
    pub(crate) fn frame(&self, frame: usize) -> &[ObjectId] {
        let start = self.state.marks.get(frame).copied().unwrap_or(self.state.base);
        let end = self.state.marks.get(frame.saturating_add(1)).copied().unwrap_or(self.state.base);
        self.state.stack.get(start..end).unwrap_or_default()
    }

    /// Returns the memo entries in ascending order of their keys.
    pub fn memo(&self) -> impl Iterator<Item = (u64, ObjectId)> + '_ {
        self.state.memo.iter()
    }

    /// Returns the number of memo entries.
    pub fn memo_len(&self) -> usize {
        self.state.memo.len()
    }

    /// Returns the number of executed instructions.
    pub fn opcodes(&self) -> u64 {
        self.opcodes
    }

    /// Returns the finished pickle of `len` bytes, with the object that STOP returned as its root.
    pub fn finish(mut self, root: ObjectId, len: u64) -> Pickle<'p> {
        self.state.drop_from(0);
        Pickle { heap: self.state.heap, root, len, opcodes: self.opcodes, memo_len: self.state.memo.len() }
    }

    /// Executes one instruction. Returns the root object if the instruction is STOP, else `None`.
    ///
    /// # Errors
    ///
    /// Returns an error if the instruction is malformed or exceeds a limit. The machine cannot be used after an error.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "an instruction that is executed where it was read is never stored"
    )]
    pub fn step(&mut self, instruction: Instruction<'p>) -> Result<Option<ObjectId>> {
        let Instruction { offset, opcode, arg } = instruction;
        self.execute(offset, opcode, arg).map_err(|kind| kind.at(offset, opcode))
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "an instruction that is executed where it was read is never stored"
    )]
    #[expect(clippy::too_many_lines, reason = "one match with an arm for each opcode is the design")]
    fn execute(&mut self, offset: u64, opcode: Opcode, arg: Arg<'p>) -> Result<Option<ObjectId>, ErrorKind> {
        self.opcodes = self.opcodes.saturating_add(1);
        if self.opcodes > self.state.limits.opcodes {
            return Err(ErrorKind::LimitExceeded {
                limit: PickleLimit::Opcodes,
                max: self.state.limits.opcodes,
            });
        }
        if self.opcodes.is_multiple_of(MEMORY_CHECK_INTERVAL) {
            self.state.check_memory()?;
        }
        let state = &mut self.state;
        match opcode {
            Opcode::Proto => match arg {
                Arg::Int(0..=HIGHEST_PROTOCOL) => {}
                Arg::Int(protocol) => {
                    return Err(ErrorKind::UnsupportedProtocol(u8::try_from(protocol).unwrap_or(u8::MAX)));
                }
                _ => return Err(ErrorKind::WrongArgument),
            },
            // Frames are hints for reading ahead: the machine needs no bytes but those of its instructions. The reader follows them.
            Opcode::Frame => {}
            Opcode::Stop => return state.pop().map(Some),

            Opcode::None => state.push_none(offset)?,
            Opcode::NewTrue => state.push_bool(true, offset)?,
            Opcode::NewFalse => state.push_bool(false, offset)?,
            Opcode::Int
            | Opcode::BinInt
            | Opcode::BinInt1
            | Opcode::BinInt2
            | Opcode::Long
            | Opcode::Long1
            | Opcode::Long4 => state.push_integer(arg, offset)?,
            Opcode::Float | Opcode::BinFloat => {
                let Arg::Float(value) = arg else { return Err(ErrorKind::WrongArgument) };
                state.push_new(Object::Float(value), offset)?;
            }
            Opcode::Unicode | Opcode::ShortBinUnicode | Opcode::BinUnicode | Opcode::BinUnicode8 => {
                let Arg::Text(text) = arg else { return Err(ErrorKind::WrongArgument) };
                state.count_text(text.bytes().len())?;
                state.push_new(Object::Text(text), offset)?;
            }
            Opcode::String | Opcode::BinString | Opcode::ShortBinString => {
                let Arg::String(bytes) = arg else { return Err(ErrorKind::WrongArgument) };
                state.count_text(bytes.len())?;
                state.push_new(Object::String(bytes), offset)?;
            }
            Opcode::BinBytes | Opcode::ShortBinBytes | Opcode::BinBytes8 => {
                let Arg::Bytes(bytes) = arg else { return Err(ErrorKind::WrongArgument) };
                state.count_text(bytes.len())?;
                state.push_new(Object::Bytes(bytes), offset)?;
            }
            Opcode::ByteArray8 => {
                let Arg::Bytes(bytes) = arg else { return Err(ErrorKind::WrongArgument) };
                state.count_text(bytes.len())?;
                state.push_new(Object::ByteArray(bytes), offset)?;
            }
            Opcode::NextBuffer => {
                let index = state.buffers;
                state.buffers = index.saturating_add(1);
                state.push_new(Object::Buffer { index, readonly: false }, offset)?;
            }
            Opcode::ReadonlyBuffer => state.make_buffer_readonly(offset)?,

            Opcode::EmptyTuple => state.push_tuple(0, offset)?,
            Opcode::Tuple1 => state.push_tuple(1, offset)?,
            Opcode::Tuple2 => state.push_tuple(2, offset)?,
            Opcode::Tuple3 => state.push_tuple(3, offset)?,
            Opcode::Tuple => {
                let count = state.pop_mark()?;
                state.push_tuple(count, offset)?;
            }
            Opcode::FrozenSet => {
                let start = state.take_mark()?;
                let span = state.heap.push_items(state.stack.get(start..).unwrap_or_default());
                state.stack.truncate(start);
                state.push_new(Object::FrozenSet(span.ok_or_else(|| state.too_many_objects())?), offset)?;
            }
            Opcode::EmptyList => state.push_new(Object::List(ItemList::default()), offset)?,
            Opcode::EmptyDict => state.push_new(Object::Dict(DictEntries::default()), offset)?,
            Opcode::EmptySet => state.push_new(Object::Set(ItemList::default()), offset)?,
            Opcode::List => {
                let start = state.take_mark()?;
                let (items, allocated) = ItemList::new(state.stack.get(start..).unwrap_or_default());
                state.count_allocated(allocated);
                state.stack.truncate(start);
                state.push_new(Object::List(items), offset)?;
            }
            Opcode::Dict => {
                let start = state.take_mark()?;
                let items = check_pairs(state.stack.get(start..).unwrap_or_default())?;
                let (entries, allocated) = DictEntries::new(items);
                state.count_allocated(allocated);
                state.stack.truncate(start);
                state.push_new(Object::Dict(entries), offset)?;
            }
            Opcode::Append => {
                state.index_of_top(2)?;
                state.append(opcode, 1, offset)?;
            }
            Opcode::Appends | Opcode::AddItems => {
                let count = state.pop_mark()?;
                state.append(opcode, count, offset)?;
            }
            Opcode::SetItem => {
                state.index_of_top(3)?;
                state.set_items(2, offset)?;
            }
            Opcode::SetItems => {
                let count = state.pop_mark()?;
                state.set_items(count, offset)?;
            }

            Opcode::Pop => {
                // POP counts the mark as a stack item, as Python 2 does.
                if let Ok(id) = state.pop() {
                    state.heap.record_dropped(id);
                } else {
                    state.pop_mark()?;
                }
            }
            Opcode::Dup => {
                let top = state.top()?;
                state.stack.push(top);
            }
            Opcode::Mark => {
                state.marks.push(state.base);
                state.base = state.stack.len();
            }
            Opcode::PopMark => {
                let start = state.take_mark()?;
                state.drop_from(start);
            }
            Opcode::Get | Opcode::BinGet | Opcode::LongBinGet => {
                let key = memo_key(&arg)?;
                let missing = ErrorKind::MemoMissing(i64::try_from(key).unwrap_or(i64::MAX));
                state.stack.push(state.memo.get(key).ok_or(missing)?);
            }
            Opcode::Put | Opcode::BinPut | Opcode::LongBinPut => state.memoize(memo_key(&arg)?)?,
            Opcode::Memoize => state.memoize(state.memo.len() as u64)?,

            Opcode::Ext1 | Opcode::Ext2 | Opcode::Ext4 => {
                let Arg::Int(code) = arg else { return Err(ErrorKind::WrongArgument) };
                let code = u32::try_from(code).ok().filter(|&code| code != 0);
                let Some(code) = code else { return Err(extension_code(&arg)) };
                state.push_new(Object::Extension(code), offset)?;
            }
            Opcode::Global => {
                let global = inline_global(&arg)?;
                state.push_new(global, offset)?;
            }
            Opcode::StackGlobal => {
                state.index_of_top(2)?;
                let name = state.pop()?;
                let module = state.pop()?;
                for id in [module, name] {
                    if state.heap.name(id).is_none() {
                        return Err(state.wrong_type("str", id));
                    }
                }
                state.push_new(
                    Object::Global(Box::new(Global(GlobalNames::Stack { module, name }))),
                    offset,
                )?;
            }
            Opcode::Reduce => state.instantiate(Construction::Reduce, offset)?,
            Opcode::NewObj => state.instantiate(Construction::NewObj, offset)?,
            Opcode::NewObjEx => {
                state.index_of_top(3)?;
                let kwargs = state.pop()?;
                if !(matches!(state.heap.get(kwargs), Object::Dict(_)) || state.is_opaque(kwargs)) {
                    return Err(state.wrong_type("dict", kwargs));
                }
                state.instantiate(Construction::NewObjEx, offset)?;
                let instance = state.top()?;
                state.count_new_changes(instance);
                if let Some(recorded) = state.heap.recorded_mut(instance) {
                    recorded.kwargs = Some(kwargs);
                }
            }
            Opcode::Inst => {
                let global = inline_global(&arg)?;
                let count = state.pop_mark()?;
                state.push_tuple(count, offset)?;
                let args = state.pop()?;
                let callable = state.new_object(global, offset)?;
                state.push_instance(callable, args, Construction::Inst, offset)?;
            }
            Opcode::Obj => {
                let count = state.pop_mark()?;
                let count = count.checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
                state.push_tuple(count, offset)?;
                let args = state.pop()?;
                let callable = state.pop()?;
                state.push_instance(callable, args, Construction::Obj, offset)?;
            }
            Opcode::Build => state.build(offset)?,

            Opcode::PersId => {
                let Arg::Text(text) = arg else { return Err(ErrorKind::WrongArgument) };
                if !text.bytes().is_ascii() {
                    return Err(ErrorKind::NotAscii);
                }
                state.count_text(text.bytes().len())?;
                let pid = state.new_object(Object::Text(text), offset)?;
                state.push_new(Object::Persistent(pid), offset)?;
            }
            Opcode::BinPersId => {
                let pid = state.pop()?;
                state.push_new(Object::Persistent(pid), offset)?;
            }
        }
        Ok(None)
    }
}

fn memo_key(arg: &Arg<'_>) -> Result<u64, ErrorKind> {
    match arg {
        Arg::Int(key) => u64::try_from(*key).map_err(|_| ErrorKind::MemoKey),
        Arg::Bool(key) => Ok(u64::from(*key)),
        Arg::Long(_) => Err(ErrorKind::MemoKey),
        _ => Err(ErrorKind::WrongArgument),
    }
}

fn inline_global<'p>(arg: &Arg<'p>) -> Result<Object<'p>, ErrorKind> {
    match *arg {
        Arg::Global { module, name } => {
            Ok(Object::Global(Box::new(Global(GlobalNames::Inline { module, name }))))
        }
        _ => Err(ErrorKind::WrongArgument),
    }
}

fn extension_code(arg: &Arg<'_>) -> ErrorKind {
    match arg {
        Arg::Int(code) => ErrorKind::ExtensionCode(*code),
        _ => ErrorKind::WrongArgument,
    }
}
