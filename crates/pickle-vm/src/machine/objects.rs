//! Creation and changes of objects by the machine's opcodes.
//!
//! Source: `_instantiate`, `load_build`, `do_append` and `do_setitems` in CPython's `Modules/_pickle.c`.

use super::state::{MachineState, check_pairs};
use crate::error::ErrorKind;
use crate::limits::PickleLimit;
use crate::object::{Construction, Instance, Object, ObjectId};
use crate::opcode::Opcode;
use crate::reader::Arg;

impl<'p> MachineState<'p> {
    #[inline]
    pub(super) fn new_object(&mut self, object: Object<'p>, offset: u64) -> Result<ObjectId, ErrorKind> {
        if self.heap.len() >= self.limits.objects as usize {
            return Err(self.too_many_objects());
        }
        self.count_allocated(object.owned_nbytes());
        self.heap.push(object, offset).ok_or_else(|| self.too_many_objects())
    }

    #[inline]
    pub(super) fn push_new(&mut self, object: Object<'p>, offset: u64) -> Result<(), ErrorKind> {
        let id = self.new_object(object, offset)?;
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn push_none(&mut self, offset: u64) -> Result<(), ErrorKind> {
        let id = match self.singletons.none {
            Some(id) => id,
            None => self.new_object(Object::None, offset)?,
        };
        self.singletons.none = Some(id);
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn push_bool(&mut self, value: bool, offset: u64) -> Result<(), ErrorKind> {
        let [no, yes] = self.singletons.bools;
        let id = match if value { yes } else { no } {
            Some(id) => id,
            None => self.new_object(Object::Bool(value), offset)?,
        };
        self.singletons.bools = if value { [no, Some(id)] } else { [Some(id), yes] };
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn push_integer(&mut self, arg: Arg<'p>, offset: u64) -> Result<(), ErrorKind> {
        match arg {
            Arg::Int(value) => match self.singletons.int(value) {
                Some(&mut Some(id)) => {
                    self.stack.push(id);
                    Ok(())
                }
                Some(None) => {
                    let id = self.new_object(Object::Int(value), offset)?;
                    self.stack.push(id);
                    if let Some(slot) = self.singletons.int(value) {
                        *slot = Some(id);
                    }
                    Ok(())
                }
                None => self.push_new(Object::Int(value), offset),
            },
            Arg::Bool(value) => self.push_bool(value, offset),
            Arg::Long(value) => {
                self.count_text(value.bytes().len())?;
                self.push_new(Object::Long(value), offset)
            }
            _ => Err(ErrorKind::WrongArgument),
        }
    }

    /// Replaces the topmost `count` objects with a tuple of them.
    pub(super) fn push_tuple(&mut self, count: usize, offset: u64) -> Result<(), ErrorKind> {
        let start = self.index_of_top(count)?;
        let id = match self.singletons.empty_tuple {
            Some(id) if count == 0 => id,
            _ => {
                let span = self.heap.push_items(self.stack.get(start..).unwrap_or_default());
                let id =
                    self.new_object(Object::Tuple(span.ok_or_else(|| self.too_many_objects())?), offset)?;
                if count == 0 {
                    self.singletons.empty_tuple = Some(id);
                }
                id
            }
        };
        self.stack.truncate(start);
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn instantiate(&mut self, how: Construction, offset: u64) -> Result<(), ErrorKind> {
        self.index_of_top(2)?;
        let args = self.pop()?;
        if !(matches!(self.heap.get(args), Object::Tuple(_)) || self.is_opaque(args)) {
            return Err(self.wrong_type("tuple", args));
        }
        let callable = self.pop()?;
        self.push_instance(callable, args, how, offset)
    }

    /// Returns true if the object's class is unknown: it may be a subclass of tuple or dict.
    pub(super) fn is_opaque(&self, id: ObjectId) -> bool {
        matches!(self.heap.get(id), Object::Instance(_) | Object::Persistent(_) | Object::Extension(_))
    }

    pub(super) fn push_instance(
        &mut self,
        callable: ObjectId,
        args: ObjectId,
        how: Construction,
        offset: u64,
    ) -> Result<(), ErrorKind> {
        self.push_new(
            Object::Instance(Instance { callable, args, construction: how, recorded: None }),
            offset,
        )
    }

    pub(super) fn make_buffer_readonly(&mut self, offset: u64) -> Result<(), ErrorKind> {
        let id = self.top()?;
        match *self.heap.get(id) {
            Object::Buffer { readonly: true, .. } | Object::Bytes(_) => Ok(()),
            Object::Buffer { index, readonly: false } => {
                self.pop()?;
                self.push_new(Object::Buffer { index, readonly: true }, offset)
            }
            _ => Err(self.wrong_type("buffer", id)),
        }
    }

    pub(super) fn memoize(&mut self, key: u64) -> Result<(), ErrorKind> {
        let id = self.top()?;
        self.memo.put(key, id);
        if self.memo.len() > self.limits.memo as usize {
            return Err(ErrorKind::LimitExceeded {
                limit: PickleLimit::Memo,
                max: u64::from(self.limits.memo),
            });
        }
        Ok(())
    }

    /// Adds the topmost `count` objects to the list, set or instance below them.
    pub(super) fn append(&mut self, opcode: Opcode, count: usize, offset: u64) -> Result<(), ErrorKind> {
        let (start, target) = self.operand_below(count)?;
        self.count_new_changes(target);
        let items = self.stack.get(start..).unwrap_or_default();
        let to_list = opcode != Opcode::AddItems;
        let wrong = |state: &Self| state.wrong_type(if to_list { "list" } else { "set" }, target);
        let allocated = match self.heap.get_mut(target) {
            // CPython checks the type of the target only if there are items to add.
            _ if items.is_empty() => 0,
            Object::List(list) if to_list => list.extend(items, offset),
            Object::Set(set) if !to_list => set.extend(items, offset),
            // A bytearray has `append` and `extend`, and no `add`.
            Object::ByteArray(_) if !to_list => return Err(wrong(self)),
            _ => match self.heap.changes_mut(target) {
                Some(recorded) => recorded.append(items, offset),
                None => return Err(wrong(self)),
            },
        };
        self.count_allocated(allocated);
        self.stack.truncate(start);
        Ok(())
    }

    /// Sets the topmost `count` objects, alternating keys and values, on the dict or instance below them.
    pub(super) fn set_items(&mut self, count: usize, offset: u64) -> Result<(), ErrorKind> {
        let (start, target) = self.operand_below(count)?;
        self.count_new_changes(target);
        let items = check_pairs(self.stack.get(start..).unwrap_or_default())?;
        let allocated = match self.heap.get_mut(target) {
            _ if items.is_empty() => 0,
            Object::Dict(entries) => entries.extend(items, offset),
            _ => match self.heap.changes_mut(target) {
                Some(recorded) => recorded.add_items(items, offset),
                None => return Err(self.wrong_type("dict", target)),
            },
        };
        self.count_allocated(allocated);
        self.stack.truncate(start);
        Ok(())
    }

    /// Returns the stack index of the first of the topmost `count` objects, and the object below them.
    pub(super) fn operand_below(&self, count: usize) -> Result<(usize, ObjectId), ErrorKind> {
        let start = self.index_of_top(count)?;
        let target = start.checked_sub(1).filter(|&target| target >= self.base);
        let target = target.and_then(|target| self.stack.get(target)).ok_or(ErrorKind::StackUnderflow)?;
        Ok((start, *target))
    }

    pub(super) fn build(&mut self, offset: u64) -> Result<(), ErrorKind> {
        self.index_of_top(2)?;
        let state = self.pop()?;
        let target = self.top()?;
        // A bytearray has no attributes.
        let is_bytes = matches!(self.heap.get(target), Object::ByteArray(_));
        self.count_new_changes(target);
        if !is_bytes && let Some(recorded) = self.heap.changes_mut(target) {
            let allocated = recorded.build(state, offset);
            self.count_allocated(allocated);
        } else if !self.heap.is_none(state) {
            // CPython also ignores a state of None.
            return Err(self.wrong_type("instance", target));
        }
        Ok(())
    }
}
