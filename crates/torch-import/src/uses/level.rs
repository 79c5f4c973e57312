//! Judges what a function that reads its arguments may run: plain data runs nothing, an instance its own methods.

use pickle_vm::{Heap, Object, ObjectId};

use crate::judged_calls;

/// What a function finds that reads an object and everything in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Data,
    /// Data, classes and functions.
    Named,
    /// Data, classes, functions, and instances whose own methods may run.
    Active,
}

/// What the search does with an instance, a global, or an object that a persistent id stands for.
pub(super) enum Reading {
    /// The instance is data, made of these objects.
    Content(Vec<ObjectId>),
    /// The instance is data, whatever it contains.
    Opaque,
    /// It is a class or a function.
    Named,
    /// A function that reads the instance may run its methods.
    Active,
}

/// Largest number of items of a tuple that are looked at without a search, such as those of a shape.
const SHORT_TUPLE: usize = 16;

/// Levels of the objects of one pickle.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// Level of each object that was judged, by its index.
    known: Vec<Option<Level>>,
    work: usize,
    /// Objects that a search has visited, and those that it has not yet: empty, and kept for their memory.
    visited: Vec<ObjectId>,
    waiting: Vec<ObjectId>,
}

/// Returns true for an object that has no contents and runs nothing.
fn is_plain(heap: &Heap<'_>, id: ObjectId) -> bool {
    judged_calls::is_plain(heap, id) || matches!(heap.get(id), Object::ByteArray(_))
}

impl Levels {
    /// Returns the level of an object that was judged, or that has no contents but a few numbers and texts.
    pub(super) fn known_level(&self, heap: &Heap<'_>, id: ObjectId) -> Option<Level> {
        match heap.get(id) {
            Object::Tuple(_) => {
                let items = heap.items(id).unwrap_or_default();
                if items.len() <= SHORT_TUPLE && items.iter().all(|item| is_plain(heap, *item)) {
                    return Some(Level::Data);
                }
            }
            _ if is_plain(heap, id) => return Some(Level::Data),
            _ => {}
        }
        self.known.get(id.index()).copied().flatten()
    }

    /// Finds the level of an object that is not [known](Self::known_level); `reading` judges an instance, a global, or a persistent object. After too much work, every object is active.
    pub(super) fn search(
        &mut self,
        heap: &Heap<'_>,
        id: ObjectId,
        reading: &mut dyn FnMut(ObjectId) -> Reading,
    ) -> Level {
        if self.known.is_empty() {
            self.known = vec![None; heap.len()];
        }
        let limit = heap.len().saturating_mul(8).saturating_add(1 << 16);
        let mut found = Level::Data;
        let (mut visited, mut waiting) =
            (std::mem::take(&mut self.visited), std::mem::take(&mut self.waiting));
        waiting.push(id);
        self.work = self.work.saturating_add(1);
        while let Some(next) = waiting.pop() {
            if self.work > limit {
                found = Level::Active;
                break;
            }
            let Some(slot) = self.known.get_mut(next.index()) else { continue };
            if let Some(level) = *slot {
                found = found.max(level);
                continue;
            }
            // An object that contains itself has the level of its other contents.
            *slot = Some(Level::Data);
            visited.push(next);
            match heap.get(next) {
                Object::Global(_) | Object::Instance(_) | Object::Persistent(_) => match reading(next) {
                    Reading::Opaque => {}
                    Reading::Named => found = found.max(Level::Named),
                    Reading::Active => found = Level::Active,
                    Reading::Content(parts) => {
                        self.work = self.work.saturating_add(parts.len());
                        waiting.extend(parts);
                    }
                },
                _ => {
                    let items = heap.items(next).unwrap_or_default();
                    let entries = heap.entries(next).unwrap_or_default();
                    let count = items.len().saturating_add(entries.len().saturating_mul(2));
                    self.work = self.work.saturating_add(count);
                    let entries = entries.iter().flat_map(|(key, value)| [key, value]);
                    // Most of what a pickle has are numbers and texts.
                    waiting.extend(items.iter().chain(entries).filter(|part| !is_plain(heap, **part)));
                }
            }
        }
        if found != Level::Data {
            for next in &visited {
                if let Some(slot) = self.known.get_mut(next.index()) {
                    *slot = None;
                }
            }
            if let Some(slot) = self.known.get_mut(id.index()) {
                *slot = Some(found);
            }
        }
        visited.clear();
        waiting.clear();
        (self.visited, self.waiting) = (visited, waiting);
        found
    }
}
