//! The pickle machine: executes instructions on stack, metastack and memo, and leaves inert objects.
//!
//! Sources: the `load_*` functions of CPython's `Lib/pickle.py` and, where that one is laxer by accident,
//! `Modules/_pickle.c`.

mod objects;

use crate::error::{ErrorKind, Result};
use crate::heap::Heap;
use crate::limits::{Limit, Limits};
use crate::memo::Memo;
use crate::object::{Construction, Entries, Global, Items, Names, Object, ObjectId};
use crate::opcode::Opcode;
use crate::pickle::Pickle;
use crate::reader::{Arg, Instruction};

/// The newest protocol there is.
const HIGHEST_PROTOCOL: i64 = 5;

/// Executes instructions, one a step.
///
/// ```
/// use pickle_vm::{Limits, Machine, Reader};
///
/// let mut machine = Machine::new(Limits::default());
/// for instruction in Reader::new(b"(K\x01K\x02t.") {
///     if let Some(root) = machine.step(instruction?)? {
///         assert_eq!(machine.heap().items(root).map(<[_]>::len), Some(2));
///     }
/// }
/// # Ok::<(), pickle_vm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Machine<'p> {
    heap: Heap<'p>,
    /// All frames, one after the other.
    stack: Vec<ObjectId>,
    /// Where the frame above the topmost mark starts.
    base: usize,
    /// Where the frames below it start.
    marks: Vec<usize>,
    memo: Memo,
    limits: Limits,
    opcodes: u64,
    text: u64,
    buffers: u32,
    singletons: Singletons,
}

/// Objects of which CPython has one each.
#[derive(Clone, Debug)]
struct Singletons {
    none: Option<ObjectId>,
    bools: [Option<ObjectId>; 2],
    empty_tuple: Option<ObjectId>,
    ints: [Option<ObjectId>; 256],
}

impl Default for Singletons {
    fn default() -> Self {
        Singletons { none: None, bools: [None; 2], empty_tuple: None, ints: [None; 256] }
    }
}

impl Singletons {
    /// The place of a small int. Most of a checkpoint's sizes, strides and offsets are small.
    fn int(&mut self, value: i64) -> Option<&mut Option<ObjectId>> {
        self.ints.get_mut(usize::try_from(value).ok()?)
    }
}

impl<'p> Machine<'p> {
    /// A machine with nothing on its stack or in its memo.
    pub fn new(limits: Limits) -> Self {
        Machine {
            heap: Heap::default(),
            stack: Vec::new(),
            base: 0,
            marks: Vec::new(),
            memo: Memo::default(),
            limits,
            opcodes: 0,
            text: 0,
            buffers: 0,
            singletons: Singletons::default(),
        }
    }

    /// The objects made so far.
    pub fn heap(&self) -> &Heap<'p> {
        &self.heap
    }

    /// The current frame: the objects above the topmost mark, topmost last.
    pub fn stack(&self) -> &[ObjectId] {
        self.stack.get(self.base..).unwrap_or_default()
    }

    /// The frames below the topmost mark, undermost first: Python's metastack.
    pub fn metastack(&self) -> impl DoubleEndedIterator<Item = &[ObjectId]> + ExactSizeIterator {
        (0..self.marks.len()).map(|frame| self.frame(frame))
    }

    /// A frame of the metastack, counted from the undermost.
    pub(crate) fn frame(&self, frame: usize) -> &[ObjectId] {
        let start = self.marks.get(frame).copied().unwrap_or(self.base);
        let end = self.marks.get(frame.saturating_add(1)).copied().unwrap_or(self.base);
        self.stack.get(start..end).unwrap_or_default()
    }

    /// The memo, by ascending key.
    pub fn memo(&self) -> impl Iterator<Item = (u64, ObjectId)> + '_ {
        self.memo.iter()
    }

    /// How many entries the memo has.
    pub fn memo_len(&self) -> usize {
        self.memo.len()
    }

    /// How many instructions were executed.
    pub fn opcodes(&self) -> u64 {
        self.opcodes
    }

    /// Keeps what STOP left, of a pickle of `len` bytes.
    pub fn finish(self, root: ObjectId, len: u64) -> Pickle<'p> {
        Pickle { heap: self.heap, root, len, opcodes: self.opcodes, memo_len: self.memo.len() }
    }

    /// Executes one instruction. STOP gives the object that the pickle built.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the instruction, or which limit it exceeds. The machine is no use after that.
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
        if self.opcodes > self.limits.opcodes {
            return Err(ErrorKind::LimitExceeded { limit: Limit::Opcodes, max: self.limits.opcodes });
        }
        match opcode {
            Opcode::Proto => match arg {
                Arg::Int(0..=HIGHEST_PROTOCOL) => {}
                Arg::Int(protocol) => {
                    return Err(ErrorKind::UnsupportedProtocol(u8::try_from(protocol).unwrap_or(u8::MAX)));
                }
                _ => return Err(ErrorKind::WrongArgument),
            },
            // Frames are hints for reading ahead; the lengths that matter are in the arguments.
            Opcode::Frame => {}
            Opcode::Stop => return self.pop().map(Some),

            Opcode::None => self.push_none(offset)?,
            Opcode::NewTrue => self.push_bool(true, offset)?,
            Opcode::NewFalse => self.push_bool(false, offset)?,
            Opcode::Int
            | Opcode::BinInt
            | Opcode::BinInt1
            | Opcode::BinInt2
            | Opcode::Long
            | Opcode::Long1
            | Opcode::Long4 => self.push_integer(arg, offset)?,
            Opcode::Float | Opcode::BinFloat => {
                let Arg::Float(value) = arg else { return Err(ErrorKind::WrongArgument) };
                self.push_new(Object::Float(value), offset)?;
            }
            Opcode::Unicode | Opcode::ShortBinUnicode | Opcode::BinUnicode | Opcode::BinUnicode8 => {
                let Arg::Text(text) = arg else { return Err(ErrorKind::WrongArgument) };
                self.count_text(text.bytes().len())?;
                self.push_new(Object::Text(text), offset)?;
            }
            Opcode::String | Opcode::BinString | Opcode::ShortBinString => {
                let Arg::String(bytes) = arg else { return Err(ErrorKind::WrongArgument) };
                self.count_text(bytes.len())?;
                self.push_new(Object::String(bytes), offset)?;
            }
            Opcode::BinBytes | Opcode::ShortBinBytes | Opcode::BinBytes8 => {
                let Arg::Bytes(bytes) = arg else { return Err(ErrorKind::WrongArgument) };
                self.count_text(bytes.len())?;
                self.push_new(Object::Bytes(bytes), offset)?;
            }
            Opcode::ByteArray8 => {
                let Arg::Bytes(bytes) = arg else { return Err(ErrorKind::WrongArgument) };
                self.count_text(bytes.len())?;
                self.push_new(Object::ByteArray(bytes), offset)?;
            }
            Opcode::NextBuffer => {
                let index = self.buffers;
                self.buffers = index.saturating_add(1);
                self.push_new(Object::Buffer { index, readonly: false }, offset)?;
            }
            Opcode::ReadonlyBuffer => self.readonly_buffer(offset)?,

            Opcode::EmptyTuple => self.push_tuple(0, offset)?,
            Opcode::Tuple1 => self.push_tuple(1, offset)?,
            Opcode::Tuple2 => self.push_tuple(2, offset)?,
            Opcode::Tuple3 => self.push_tuple(3, offset)?,
            Opcode::Tuple => {
                let count = self.pop_mark()?;
                self.push_tuple(count, offset)?;
            }
            Opcode::FrozenSet => {
                let start = self.take_mark()?;
                let span = self.heap.push_items(self.stack.get(start..).unwrap_or_default());
                self.stack.truncate(start);
                self.push_new(Object::FrozenSet(span.ok_or_else(|| self.too_many_objects())?), offset)?;
            }
            Opcode::EmptyList => self.push_new(Object::List(Items::default()), offset)?,
            Opcode::EmptyDict => self.push_new(Object::Dict(Entries::default()), offset)?,
            Opcode::EmptySet => self.push_new(Object::Set(Items::default()), offset)?,
            Opcode::List => {
                let mut items = Items::default();
                let start = self.take_mark()?;
                items.extend(self.stack.get(start..).unwrap_or_default());
                self.stack.truncate(start);
                self.push_new(Object::List(items), offset)?;
            }
            Opcode::Dict => {
                let mut entries = Entries::default();
                let start = self.take_mark()?;
                entries.extend(even(self.stack.get(start..).unwrap_or_default())?);
                self.stack.truncate(start);
                self.push_new(Object::Dict(entries), offset)?;
            }
            Opcode::Append => {
                self.under(2)?;
                self.append(opcode, 1)?;
            }
            Opcode::Appends | Opcode::AddItems => {
                let count = self.pop_mark()?;
                self.append(opcode, count)?;
            }
            Opcode::SetItem => {
                self.under(3)?;
                self.set_items(2)?;
            }
            Opcode::SetItems => {
                let count = self.pop_mark()?;
                self.set_items(count)?;
            }

            Opcode::Pop => {
                // The mark is an item of the stack here, as it was in Python 2.
                if self.pop().is_err() {
                    self.pop_mark()?;
                }
            }
            Opcode::Dup => {
                let top = self.top()?;
                self.stack.push(top);
            }
            Opcode::Mark => {
                self.marks.push(self.base);
                self.base = self.stack.len();
            }
            Opcode::PopMark => {
                let start = self.take_mark()?;
                self.stack.truncate(start);
            }
            Opcode::Get | Opcode::BinGet | Opcode::LongBinGet => {
                let key = memo_key(&arg)?;
                let missing = ErrorKind::MemoMissing(i64::try_from(key).unwrap_or(i64::MAX));
                self.stack.push(self.memo.get(key).ok_or(missing)?);
            }
            Opcode::Put | Opcode::BinPut | Opcode::LongBinPut => self.memoize(memo_key(&arg)?)?,
            Opcode::Memoize => self.memoize(self.memo.len() as u64)?,

            Opcode::Ext1 | Opcode::Ext2 | Opcode::Ext4 => {
                let Arg::Int(code) = arg else { return Err(ErrorKind::WrongArgument) };
                let code = u32::try_from(code).ok().filter(|&code| code != 0);
                let Some(code) = code else { return Err(extension_code(&arg)) };
                self.push_new(Object::Extension(code), offset)?;
            }
            Opcode::Global => {
                let global = inline_global(&arg)?;
                self.push_new(global, offset)?;
            }
            Opcode::StackGlobal => {
                self.under(2)?;
                let name = self.pop()?;
                let module = self.pop()?;
                for id in [module, name] {
                    if self.heap.name(id).is_none() {
                        return Err(self.wrong_type("str", id));
                    }
                }
                self.push_new(Object::Global(Box::new(Global(Names::Stack { module, name }))), offset)?;
            }
            Opcode::Reduce => self.instantiate(Construction::Reduce, offset)?,
            Opcode::NewObj => self.instantiate(Construction::NewObj, offset)?,
            Opcode::NewObjEx => {
                self.under(3)?;
                let kwargs = self.pop()?;
                if !(matches!(self.heap.get(kwargs), Object::Dict(_)) || self.is_opaque(kwargs)) {
                    return Err(self.wrong_type("dict", kwargs));
                }
                self.instantiate(Construction::NewObjEx, offset)?;
                let instance = self.top()?;
                if let Some(recorded) = self.heap.recorded_mut(instance) {
                    recorded.kwargs = Some(kwargs);
                }
            }
            Opcode::Inst => {
                let global = inline_global(&arg)?;
                let count = self.pop_mark()?;
                self.push_tuple(count, offset)?;
                let args = self.pop()?;
                let callable = self.new_object(global, offset)?;
                self.push_instance(callable, args, Construction::Inst, offset)?;
            }
            Opcode::Obj => {
                let count = self.pop_mark()?;
                let count = count.checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
                self.push_tuple(count, offset)?;
                let args = self.pop()?;
                let callable = self.pop()?;
                self.push_instance(callable, args, Construction::Obj, offset)?;
            }
            Opcode::Build => self.build()?,

            Opcode::PersId => {
                let Arg::Text(text) = arg else { return Err(ErrorKind::WrongArgument) };
                if !text.bytes().is_ascii() {
                    return Err(ErrorKind::NotAscii);
                }
                self.count_text(text.bytes().len())?;
                let pid = self.new_object(Object::Text(text), offset)?;
                self.push_new(Object::Persistent(pid), offset)?;
            }
            Opcode::BinPersId => {
                let pid = self.pop()?;
                self.push_new(Object::Persistent(pid), offset)?;
            }
        }
        Ok(None)
    }

    // The stack.

    fn top(&self) -> Result<ObjectId, ErrorKind> {
        self.stack().last().copied().ok_or(ErrorKind::StackUnderflow)
    }

    #[inline]
    fn pop(&mut self) -> Result<ObjectId, ErrorKind> {
        if self.stack.len() <= self.base {
            return Err(ErrorKind::StackUnderflow);
        }
        self.stack.pop().ok_or(ErrorKind::StackUnderflow)
    }

    /// Where the topmost `count` objects of the frame start.
    #[inline]
    fn under(&self, count: usize) -> Result<usize, ErrorKind> {
        let start = self.stack.len().checked_sub(count).ok_or(ErrorKind::StackUnderflow)?;
        if start < self.base { Err(ErrorKind::StackUnderflow) } else { Ok(start) }
    }

    /// Takes the topmost mark away; says how many objects were above it.
    fn pop_mark(&mut self) -> Result<usize, ErrorKind> {
        let above = self.stack.len().saturating_sub(self.base);
        self.base = self.marks.pop().ok_or(ErrorKind::NoMark)?;
        Ok(above)
    }

    /// Takes the topmost mark away; says where the objects above it start.
    fn take_mark(&mut self) -> Result<usize, ErrorKind> {
        let count = self.pop_mark()?;
        self.under(count)
    }

    // Errors and limits.

    fn count_text(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.text = self.text.saturating_add(bytes as u64);
        if self.text > self.limits.text {
            return Err(ErrorKind::LimitExceeded { limit: Limit::Text, max: self.limits.text });
        }
        Ok(())
    }

    #[cold]
    fn too_many_objects(&self) -> ErrorKind {
        ErrorKind::LimitExceeded { limit: Limit::Objects, max: u64::from(self.limits.objects) }
    }

    #[cold]
    fn wrong_type(&self, expected: &'static str, found: ObjectId) -> ErrorKind {
        ErrorKind::WrongType { expected, found: self.heap.get(found).type_name() }
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
        Arg::Global { module, name } => Ok(Object::Global(Box::new(Global(Names::Inline { module, name })))),
        _ => Err(ErrorKind::WrongArgument),
    }
}

fn extension_code(arg: &Arg<'_>) -> ErrorKind {
    match arg {
        Arg::Int(code) => ErrorKind::ExtensionCode(*code),
        _ => ErrorKind::WrongArgument,
    }
}

fn even(items: &[ObjectId]) -> Result<&[ObjectId], ErrorKind> {
    if items.len().is_multiple_of(2) { Ok(items) } else { Err(ErrorKind::OddItems) }
}
