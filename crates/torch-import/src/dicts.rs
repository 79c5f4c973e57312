//! Finds the children of dicts, of calls that create dicts, and of the states that BUILD sets.
//!
//! Facts: `collections.OrderedDict.__reduce__`; `load_build` in `Lib/pickle.py`.

use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use pickle_vm::{Heap, Instance, Object, ObjectId};

use crate::Result;
use crate::key::{self, ComparisonKey};
use crate::limits::LimitBudget;

/// A step of a path from a container to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChildStep {
    /// Key of a dict, or name of an attribute.
    Key(ObjectId),
    /// NaN key that is not the first NaN of its dict, and its number, from 2.
    Nan(ObjectId, usize),
    Index(usize),
    /// Name that PyTorch assigns to a child without a name in the file.
    Name(&'static str),
    /// Step to the only child of an object, which takes the object's name.
    OnlyChild,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) step: ChildStep,
    pub(crate) id: ObjectId,
    /// True if `state_dict()` converts the number to a tensor.
    pub(crate) becomes_tensor: bool,
}

impl Child {
    pub(crate) fn new(step: ChildStep, id: ObjectId) -> Self {
        Self { step, id, becomes_tensor: false }
    }
}

/// The children of a container, in order. Those of lists and most dicts are read in place.
#[derive(Clone, Debug)]
pub(crate) enum Children<'h> {
    Items(&'h [ObjectId]),
    /// Entries of a dict without duplicate keys.
    Entries(&'h [(ObjectId, ObjectId)]),
    Collected(Rc<[Child]>),
}

impl Children<'_> {
    pub(crate) fn get(&self, index: usize) -> Option<Child> {
        match self {
            Self::Items(items) => items.get(index).map(|id| Child::new(ChildStep::Index(index), *id)),
            Self::Entries(entries) => {
                entries.get(index).map(|(key, id)| Child::new(ChildStep::Key(*key), *id))
            }
            Self::Collected(children) => children.get(index).copied(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.get(0).is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Child> + '_ {
        (0..).map_while(|index| self.get(index))
    }
}

pub(crate) struct Dicts<'h> {
    heap: &'h Heap<'h>,
    keys: KeyComparer<'h>,
    /// Budget for visits and for the entries that are read.
    pub(crate) steps: LimitBudget,
}

impl<'h> Dicts<'h> {
    pub(crate) fn new(heap: &'h Heap<'h>, steps: usize) -> Self {
        Self {
            heap,
            keys: KeyComparer::new(heap),
            steps: LimitBudget::new("paths through shared containers", steps),
        }
    }

    /// Returns the children of a dict, or of a call that creates a dict.
    ///
    /// # Errors
    /// When reading the entries exceeds the budget.
    pub(crate) fn children(&mut self, id: ObjectId) -> Result<Option<Children<'h>>> {
        match self.heap.get(id) {
            Object::Dict(_) => self.dict(id).map(Some),
            Object::Instance(instance) => self.dict_instance(id, instance).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the last value of each key of a dict.
    pub(crate) fn dict(&mut self, id: ObjectId) -> Result<Children<'h>> {
        let entries = self.heap.entries(id).unwrap_or_default();
        self.steps.spend(entries.len(), self.heap.offset(id))?;
        Ok(self.last_values(entries))
    }

    /// Returns the last value of each key, reading the entries in place if all keys differ.
    fn last_values(&mut self, entries: &'h [(ObjectId, ObjectId)]) -> Children<'h> {
        if self.keys.keys_differ(entries) {
            Children::Entries(entries)
        } else {
            Children::Collected(self.keys.collect_last_values(entries.iter().copied()).into())
        }
    }

    /// Returns the children of an `OrderedDict`, a `defaultdict` or a `Counter`. Early protocols pass the pairs as an
    /// argument.
    pub(crate) fn dict_instance(&mut self, id: ObjectId, instance: &'h Instance) -> Result<Children<'h>> {
        let heap = self.heap;
        let args = heap.items(instance.args).unwrap_or_default();
        let in_args = args.iter().map(|arg| heap.items(*arg).map_or(0, <[_]>::len));
        let in_dicts = args.iter().map(|arg| heap.entries(*arg).map_or(0, <[_]>::len));
        let len = in_args.chain(in_dicts).fold(instance.items().len(), usize::saturating_add);
        self.steps.spend(len, heap.offset(id))?;
        if len == instance.items().len() {
            return Ok(self.last_values(instance.items()));
        }
        let pairs = args.iter().filter_map(|arg| heap.items(*arg)).flatten();
        let pairs = pairs.filter_map(|pair| match heap.items(*pair)? {
            &[key, value] => Some((key, value)),
            _ => None,
        });
        let entries = args.iter().filter_map(|arg| heap.entries(*arg)).flatten().copied();
        let all = pairs.chain(entries).chain(instance.items().iter().copied());
        Ok(Children::Collected(self.keys.collect_last_values(all).into()))
    }

    /// Lists each key at its first position with its last value, as a Python dict does.
    pub(crate) fn last_value_children(
        &mut self,
        entries: impl Iterator<Item = (ObjectId, ObjectId)>,
    ) -> Vec<Child> {
        self.keys.collect_last_values(entries)
    }

    pub(crate) fn heap(&self) -> &'h Heap<'h> {
        self.heap
    }

    /// Counts the long keys that were looked up, and the different keys among them.
    #[cfg(test)]
    pub(crate) fn long_keys(&self) -> (usize, usize) {
        (self.keys.long.len(), self.keys.numbers.len())
    }
}

/// Returns true if an object is a dict, or an instance of a dict class of `collections`.
pub(crate) fn is_dict(heap: &Heap<'_>, id: ObjectId) -> bool {
    let class = heap.instance(id).and_then(|instance| heap.global(instance.callable));
    heap.entries(id).is_some()
        || matches!(class, Some(("collections", "OrderedDict" | "defaultdict" | "Counter")))
}

pub(crate) enum BuildState<'h> {
    /// Dict of attributes, or tuple of a dict and a dict of slots, each of which may be `None`.
    Attributes([&'h [(ObjectId, ObjectId)]; 2]),
    /// Argument of a `__setstate__` method.
    Other,
}

impl<'h> BuildState<'h> {
    pub(crate) fn read(heap: &'h Heap<'_>, state: ObjectId) -> Self {
        let dict = |id: &ObjectId| heap.entries(*id).or_else(|| heap.is_none(*id).then_some([].as_slice()));
        if let Some(entries) = heap.entries(state) {
            return Self::Attributes([entries, &[]]);
        }
        match heap.items(state) {
            Some([first]) if heap.entries(*first).is_some() => {
                Self::Attributes([dict(first).unwrap_or_default(), &[]])
            }
            Some([first, slots]) if dict(first).is_some() && dict(slots).is_some() => {
                Self::Attributes([dict(first).unwrap_or_default(), dict(slots).unwrap_or_default()])
            }
            _ => Self::Other,
        }
    }
}

/// Length in bytes above which keys are compared by an assigned number, since many dicts may share a long key.
const LONG_KEY_LEN: usize = 64;

/// Compares keys of dicts as Python does.
struct KeyComparer<'h> {
    heap: &'h Heap<'h>,
    long: HashMap<ObjectId, usize>,
    numbers: HashMap<ComparisonKey<'h>, usize>,
}

#[derive(PartialEq, Eq, Hash)]
enum ShortOrNumberedKey<'h> {
    Short(ComparisonKey<'h>),
    Long(usize),
}

impl<'h> KeyComparer<'h> {
    fn new(heap: &'h Heap<'h>) -> Self {
        Self { heap, long: HashMap::new(), numbers: HashMap::new() }
    }

    /// Returns true if the hashes of all keys differ and at most one key is a NaN. Most dicts then need no table of
    /// their keys, which takes ten times the memory of the hashes.
    fn keys_differ(&mut self, entries: &[(ObjectId, ObjectId)]) -> bool {
        if entries.iter().filter(|(key, _)| key::is_nan(self.heap, *key)).nth(1).is_some() {
            return false;
        }
        let state = RandomState::default();
        let mut hashes: Vec<u64> = entries.iter().map(|(key, _)| state.hash_one(self.key(*key))).collect();
        hashes.sort_unstable();
        !hashes.windows(2).any(|pair| pair.first() == pair.last())
    }

    /// Lists each key at its first position with its last value, as a Python dict does.
    fn collect_last_values(&mut self, entries: impl Iterator<Item = (ObjectId, ObjectId)>) -> Vec<Child> {
        let room = entries.size_hint().0;
        let mut places: HashMap<ShortOrNumberedKey<'h>, usize> = HashMap::with_capacity(room);
        let mut children: Vec<Child> = Vec::with_capacity(room);
        let mut nans = 0_usize;
        for (key, value) in entries {
            let place = *places.entry(self.key(key)).or_insert(children.len());
            if let Some(child) = children.get_mut(place) {
                child.id = value;
                continue;
            }
            nans = nans.saturating_add(usize::from(key::is_nan(self.heap, key)));
            let is_another = nans > 1 && key::is_nan(self.heap, key);
            let step = if is_another { ChildStep::Nan(key, nans) } else { ChildStep::Key(key) };
            children.push(Child::new(step, value));
        }
        children
    }

    fn key(&mut self, id: ObjectId) -> ShortOrNumberedKey<'h> {
        let is_short = match self.heap.get(id) {
            Object::Text(text) => text.bytes().len() <= LONG_KEY_LEN,
            // Tuples may hold long texts, and instances may be calls that create long bytes.
            Object::Tuple(_) | Object::Instance(_) | Object::Long(_) => false,
            _ => self.heap.bytes(id).is_none_or(|bytes| bytes.len() <= LONG_KEY_LEN),
        };
        if is_short {
            return ShortOrNumberedKey::Short(ComparisonKey::new(self.heap, id));
        }
        if let Some(number) = self.long.get(&id) {
            return ShortOrNumberedKey::Long(*number);
        }
        let next = self.numbers.len();
        let number = *self.numbers.entry(ComparisonKey::new(self.heap, id)).or_insert(next);
        self.long.insert(id, number);
        ShortOrNumberedKey::Long(number)
    }
}
