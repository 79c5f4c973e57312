//! State of the machine between two instructions: heap, stack, metastack and memo, within their limits.
//!
//! Source: the attributes of `_Unpickler` in CPython's `Lib/pickle.py`.

use crate::error::ErrorKind;
use crate::heap::Heap;
use crate::limits::ALLOCATION;
use crate::limits::{PickleLimit, PickleLimits};
use crate::memo::Memo;
use crate::object::{Object, ObjectId, RecordedChanges};

#[derive(Clone, Debug)]
pub(super) struct MachineState<'p> {
    pub(super) heap: Heap<'p>,
    /// Objects of all frames, one frame after the other.
    pub(super) stack: Vec<ObjectId>,
    /// Stack index of the first object above the topmost mark.
    pub(super) base: usize,
    /// Stack index of the first object of each frame below `base`.
    pub(super) marks: Vec<usize>,
    pub(super) memo: Memo,
    pub(super) limits: PickleLimits,
    /// Total bytes of the text, byte strings and long integers so far.
    text: u64,
    /// Bytes of the blocks that objects own.
    allocated: usize,
    /// Number of out-of-band buffers pushed so far.
    pub(super) buffers: u32,
    pub(super) singletons: Singletons,
}

/// Bytes of a record of changes: a block of its own, or an entry of a map, whose nodes are two thirds full.
const RECORD: usize = size_of::<RecordedChanges>() + size_of::<RecordedChanges>() / 2 + ALLOCATION;

/// Ids of the objects that exist only once, as in CPython.
#[derive(Clone, Debug, Default)]
pub(super) struct Singletons {
    pub(super) none: Option<ObjectId>,
    pub(super) bools: [Option<ObjectId>; 2],
    pub(super) empty_tuple: Option<ObjectId>,
    /// Ids of the ints from 0 to 255; empty until there is one, because a scan runs a machine on every record.
    ints: Vec<Option<ObjectId>>,
}

impl Singletons {
    /// Returns the slot of an int from 0 to 255; most sizes, strides and offsets in a checkpoint are small.
    #[inline]
    pub(super) fn int(&mut self, value: i64) -> Option<&mut Option<ObjectId>> {
        if self.ints.is_empty() {
            self.ints = vec![None; 256];
        }
        self.ints.get_mut(usize::try_from(value).ok()?)
    }
}

impl MachineState<'_> {
    pub(super) fn new(limits: PickleLimits) -> Self {
        MachineState {
            heap: Heap::default(),
            stack: Vec::new(),
            base: 0,
            marks: Vec::new(),
            memo: Memo::default(),
            limits,
            text: 0,
            allocated: 0,
            buffers: 0,
            singletons: Singletons::default(),
        }
    }

    /// Returns the current frame: the objects above the topmost mark, topmost last.
    pub(super) fn frame(&self) -> &[ObjectId] {
        self.stack.get(self.base..).unwrap_or_default()
    }

    // The stack.

    pub(super) fn top(&self) -> Result<ObjectId, ErrorKind> {
        self.frame().last().copied().ok_or(ErrorKind::StackUnderflow)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<ObjectId, ErrorKind> {
        if self.stack.len() <= self.base {
            return Err(ErrorKind::StackUnderflow);
        }
        self.stack.pop().ok_or(ErrorKind::StackUnderflow)
    }

    /// Returns the stack index of the first of the topmost `count` objects. Fails if the current frame has fewer.
    #[inline]
    pub(super) fn index_of_top(&self, count: usize) -> Result<usize, ErrorKind> {
        let start = self.stack.len().checked_sub(count).ok_or(ErrorKind::StackUnderflow)?;
        if start < self.base { Err(ErrorKind::StackUnderflow) } else { Ok(start) }
    }

    /// Removes the topmost mark and returns the number of objects above it.
    pub(super) fn pop_mark(&mut self) -> Result<usize, ErrorKind> {
        let above = self.stack.len().saturating_sub(self.base);
        self.base = self.marks.pop().ok_or(ErrorKind::NoMark)?;
        Ok(above)
    }

    /// Removes the topmost mark and returns the stack index of the first object above it.
    pub(super) fn take_mark(&mut self) -> Result<usize, ErrorKind> {
        let count = self.pop_mark()?;
        self.index_of_top(count)
    }

    /// Drops the stack's objects from index `start` on, and records them as dropped.
    pub(super) fn drop_from(&mut self, start: usize) {
        for id in self.stack.drain(start.min(self.stack.len())..) {
            self.heap.record_dropped(id);
        }
    }

    // Errors and limits.

    pub(super) fn count_text(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.text = self.text.saturating_add(bytes as u64);
        if self.text > self.limits.text {
            return Err(ErrorKind::LimitExceeded { limit: PickleLimit::Text, max: self.limits.text });
        }
        Ok(())
    }

    /// Counts the bytes of blocks that objects allocated.
    #[inline]
    pub(super) fn count_allocated(&mut self, nbytes: usize) {
        self.allocated = self.allocated.saturating_add(nbytes);
    }

    pub(super) fn count_new_changes(&mut self, target: ObjectId) {
        let has_record = match self.heap.get(target) {
            Object::List(_) | Object::Dict(_) | Object::Set(_) => true,
            _ => self.heap.recorded_changes(target).is_some(),
        };
        if !has_record {
            self.count_allocated(RECORD);
        }
    }

    /// Fails if the objects, the stack and the memo take more memory than is allowed.
    #[cold]
    pub(super) fn check_memory(&self) -> Result<(), ErrorKind> {
        let stack = self.stack.capacity().saturating_mul(size_of::<ObjectId>());
        let marks = self.marks.capacity().saturating_mul(size_of::<usize>());
        let parts = [self.heap.nbytes(), self.allocated, stack, marks, self.memo.nbytes()];
        let max = self.limits.memory;
        if parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part as u64)) > max {
            return Err(ErrorKind::LimitExceeded { limit: PickleLimit::Memory, max });
        }
        Ok(())
    }

    #[cold]
    pub(super) fn too_many_objects(&self) -> ErrorKind {
        ErrorKind::LimitExceeded { limit: PickleLimit::Objects, max: u64::from(self.limits.objects) }
    }

    #[cold]
    pub(super) fn wrong_type(&self, expected: &'static str, found: ObjectId) -> ErrorKind {
        ErrorKind::WrongType { expected, found: self.heap.get(found).type_name() }
    }
}

/// Returns `items` if they are pairs of keys and values; fails if their number is odd.
pub(super) fn check_pairs(items: &[ObjectId]) -> Result<&[ObjectId], ErrorKind> {
    if items.len().is_multiple_of(2) { Ok(items) } else { Err(ErrorKind::OddItems) }
}
