//! Finds the children of the objects of a checkpoint: items, entries and attributes.
//!
//! Facts: `reduce_varbase` in `framework/io.py` of Paddle, `copyreg._reconstructor`, `restore_type_tag` and `build_*list` in `torch/jit/_pickle.py`.

use foldhash::{HashMap, HashMapExt};
use pickle_vm::{Construction, Heap, Instance, Object, ObjectId};

use crate::Result;
use crate::dicts::{self, BuildState, Child, ChildStep, Children, Dicts};
use crate::encoded::EncodedBytes;
use crate::limits::{LimitBudget, ObjectSet};
use crate::modules;

/// Largest number of children cached for later visits, about 32 bytes each.
const CACHED_CHILDREN_MAX: usize = 1 << 19;

/// Finds the children of containers, and caches the children of containers that are visited more than once.
pub(crate) struct Containers<'h> {
    heap: &'h Heap<'h>,
    /// Containers visited so far. Most are visited once, so children are cached from the second visit on.
    visited: ObjectSet,
    cached_children: HashMap<ObjectId, Option<Children<'h>>>,
    /// Containers with contents besides their children: modules, dicts with attributes, dicts with duplicate keys.
    pub(crate) with_extra_contents: Vec<ObjectId>,
    /// Children that may still be cached. The cache is bounded because objects may share the attributes from which
    /// their children are built.
    cache_budget: LimitBudget,
    pub(crate) dicts: Dicts<'h>,
}

impl<'h> Containers<'h> {
    pub(crate) fn new(heap: &'h Heap<'h>, steps: usize) -> Self {
        let (visited, room) = (ObjectSet::new(heap.len()), LimitBudget::new("children", CACHED_CHILDREN_MAX));
        Self {
            heap,
            visited,
            cached_children: HashMap::new(),
            with_extra_contents: Vec::new(),
            cache_budget: room,
            dicts: Dicts::new(heap, steps),
        }
    }

    /// Returns the children of a container; `None` for objects that are not containers.
    ///
    /// # Errors
    /// When reading the entries exceeds the budget.
    pub(crate) fn children(&mut self, id: ObjectId) -> Result<Option<Children<'h>>> {
        match self.heap.get(id) {
            Object::List(_) | Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) => {
                Ok(self.heap.items(id).map(Children::Items))
            }
            Object::Dict(_) | Object::Instance(_) => {
                if let Some(known) = self.cached_children.get(&id) {
                    return Ok(known.clone());
                }
                let children = match self.heap.get(id) {
                    Object::Instance(instance) => self.instance_children(id, instance)?,
                    _ => Some(self.dicts.dict(id)?),
                };
                let len = match &children {
                    Some(Children::Collected(children)) => children.len(),
                    _ => 0,
                };
                let is_first = self.visited.insert(id);
                if is_first && self.may_have_extra_contents(id, children.as_ref()) {
                    self.with_extra_contents.push(id);
                } else if !is_first && self.cache_budget.try_spend(len) {
                    self.cached_children.insert(id, children.clone());
                }
                Ok(children)
            }
            _ => Ok(None),
        }
    }

    /// Returns true if a container may have contents besides its children.
    fn may_have_extra_contents(&self, id: ObjectId, children: Option<&Children<'h>>) -> bool {
        let is_built = matches!(children, Some(Children::Collected(_)));
        match self.heap.instance(id) {
            None => is_built,
            Some(instance) if dicts::is_dict(self.heap, id) => is_built || !instance.state().is_empty(),
            Some(instance) => is_built && modules::own_attributes(self.heap, instance).is_some(),
        }
    }

    /// Returns true if the children of a dict or an instance were requested before.
    pub(crate) fn is_visited(&self, id: ObjectId) -> bool {
        self.visited.contains(id)
    }

    /// Returns the children of a dict, or of a call that creates a dict.
    pub(crate) fn dict_children(&mut self, id: ObjectId) -> Result<Option<Children<'h>>> {
        match self.heap.get(id) {
            Object::Dict(_) => self.children(id),
            Object::Instance(instance) => self.dicts.dict_instance(id, instance).map(Some),
            _ => Ok(None),
        }
    }

    fn instance_children(&mut self, id: ObjectId, instance: &'h Instance) -> Result<Option<Children<'h>>> {
        let heap = self.heap;
        let args = heap.items(instance.args).unwrap_or_default();
        let built = |children: Vec<Child>| Some(Children::Collected(children.into()));
        match heap.global(instance.callable) {
            Some(("collections", "OrderedDict" | "defaultdict" | "Counter")) => {
                self.dicts.dict_instance(id, instance).map(Some)
            }
            // A TorchScript list or dict, wrapped in a call that names its type.
            Some(("torch.jit._pickle", _)) => match self.unwrap_type_tag(id)? {
                Some(inner) if heap.instance(inner).is_none() => self.children(inner),
                Some(inner) => Ok(built(vec![Child::new(ChildStep::OnlyChild, inner)])),
                None => Ok(None),
            },
            // An object of a C++ class, recorded as its state and the name of the class.
            Some(("torch" | "torch._C", "ScriptObject")) => {
                let state = instance.state().last().and_then(|state| heap.items(*state)?.first());
                Ok(state.and_then(|state| built(vec![Child::new(ChildStep::OnlyChild, *state)])))
            }
            // Protocols before 4 write a set as a call.
            Some(("builtins" | "__builtin__", "set" | "frozenset")) => {
                let items = args.first().and_then(|items| heap.items(*items));
                Ok(items.filter(|items| !items.is_empty()).map(Children::Items))
            }
            // A tensor of Paddle: its name and its elements.
            Some(("builtins" | "__builtin__", "tuple")) => {
                Ok(match args.first().and_then(|items| heap.items(*items)).unwrap_or_default() {
                    [] => None,
                    &[name, array] if heap.text(name).is_some() => {
                        built(vec![Child::new(ChildStep::OnlyChild, array)])
                    }
                    items => Some(Children::Items(items)),
                })
            }
            // Text, bytes, dates and similar values: the arguments of the call describe them completely.
            Some((
                "_codecs" | "torch" | "pathlib" | "pathlib._local" | "numpy" | "builtins" | "__builtin__"
                | "datetime",
                _,
            )) => Ok(None),
            Some(("numpy.core.multiarray" | "numpy._core.multiarray", "scalar"))
                if args.get(1).is_some_and(|data| is_scalar(heap, *data)) =>
            {
                Ok(None)
            }
            Some(_) if is_plain_call(heap, instance) => Ok(None),
            _ => {
                self.dicts.steps.spend(count_entries(heap, instance), heap.offset(id))?;
                if let Some(children) = modules::state_dict_children(&mut self.dicts, instance)? {
                    return Ok(built(children));
                }
                let children = self.object_children(instance);
                Ok(if children.is_empty() { None } else { built(children) })
            }
        }
    }

    /// Returns the children of an instance of any class: its arguments, appended items, attributes, and state.
    fn object_children(&mut self, instance: &'h Instance) -> Vec<Child> {
        let heap = self.heap;
        let args = heap.items(instance.args).unwrap_or_default();
        // Protocols 0 and 1 pass a class, the base class that holds the contents, and the contents.
        let (args, contents) = match (heap.global(instance.callable), args) {
            (Some(("copyreg" | "copy_reg", "_reconstructor")), &[_, _, contents]) => {
                (heap.items(contents).unwrap_or_default(), heap.entries(contents).unwrap_or_default())
            }
            _ => (args, [].as_slice()),
        };
        let mut children = index_children(args);
        children.extend(index_children(instance.appends()));
        let mut entries: Vec<(ObjectId, ObjectId)> = Vec::new();
        let mut others = Vec::new();
        for state in instance.state() {
            match BuildState::read(heap, *state) {
                BuildState::Attributes(dicts) => entries.extend(dicts.into_iter().flatten()),
                BuildState::Other => others.push(*state),
            }
        }
        let kwargs = instance.kwargs().and_then(|kwargs| heap.entries(kwargs)).unwrap_or_default();
        entries.extend(kwargs.iter().chain(instance.items()).chain(contents).copied());
        let entries = self.dicts.last_value_children(entries.into_iter());
        // The effect of the class's `__setstate__` is unknown, so the parts of its argument are named by their indices.
        for state in others {
            let is_alone = children.is_empty() && entries.is_empty();
            match heap.items(state) {
                Some(items) if is_alone => children.extend(index_children(items)),
                Some(_) => children.push(Child::new(ChildStep::Name("state"), state)),
                None if !is_alone => children.push(Child::new(ChildStep::Name("state"), state)),
                None if matches!(heap.get(state), Object::Instance(_) | Object::Persistent(_)) => {
                    children.push(Child::new(ChildStep::OnlyChild, state));
                }
                // A number or a text is shown as part of the call.
                None => {}
            }
        }
        children.extend(entries);
        children
    }

    /// Unwraps the list or dict inside calls of functions in `torch.jit._pickle`.
    fn unwrap_type_tag(&mut self, mut id: ObjectId) -> Result<Option<ObjectId>> {
        while let Some(instance) = self.heap.instance(id) {
            let Some(("torch.jit._pickle", _)) = self.heap.global(instance.callable) else { break };
            self.dicts.steps.spend(1, self.heap.offset(id))?;
            match self.heap.items(instance.args).and_then(|args| args.first()) {
                Some(inner) => id = *inner,
                None => return Ok(None),
            }
        }
        Ok(Some(id))
    }

    pub(crate) fn heap(&self) -> &'h Heap<'h> {
        self.heap
    }
}

const PLAIN_ARGUMENTS_MAX: usize = 4;

/// Returns true for a call of a class with numbers and texts, whose result does not change: an enumeration's member, or a
/// decimal number.
fn is_plain_call(heap: &Heap<'_>, instance: &Instance) -> bool {
    let args = heap.items(instance.args).unwrap_or_default();
    instance.construction == Construction::Reduce
        && (1..=PLAIN_ARGUMENTS_MAX).contains(&args.len())
        && instance.state().is_empty()
        && instance.items().is_empty()
        && instance.appends().is_empty()
        && args.iter().all(|arg| is_scalar(heap, *arg))
}

/// Returns true for a number, a text or a byte string.
fn is_scalar(heap: &Heap<'_>, id: ObjectId) -> bool {
    match heap.get(id) {
        Object::Bool(_)
        | Object::Int(_)
        | Object::Long(_)
        | Object::Float(_)
        | Object::Text(_)
        | Object::String(_)
        | Object::Bytes(_) => true,
        Object::Instance(_) => EncodedBytes::find(heap, id).is_some(),
        _ => false,
    }
}

/// Counts the entries that must be read to find an instance's children.
fn count_entries(heap: &Heap<'_>, instance: &Instance) -> usize {
    let mut len = instance.appends().len().saturating_add(instance.items().len());
    let parts = instance.state().iter().copied().chain([instance.args]).chain(instance.kwargs());
    for part in parts {
        let items = heap.items(part).unwrap_or_default();
        len = len.saturating_add(items.len()).saturating_add(heap.entries(part).map_or(0, <[_]>::len));
        let dicts = items.iter().take(3).filter_map(|item| heap.entries(*item));
        len = dicts.fold(len, |len, entries| len.saturating_add(entries.len()));
    }
    len
}

fn index_children(items: &[ObjectId]) -> Vec<Child> {
    items.iter().enumerate().map(|(index, item)| Child::new(ChildStep::Index(index), *item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;
    use crate::limits::CheckpointLimits;

    /// Returns the names of the root object's children.
    fn names(bytes: &[u8]) -> Vec<String> {
        let pickle = pickle_vm::load(bytes).expect("CPython wrote it");
        let mut containers = Containers::new(&pickle.heap, CheckpointLimits::for_pickle(bytes.len()).steps);
        let children = containers.children(pickle.root).expect("it is small").expect("it is a container");
        let name = |child: Child| match child.step {
            ChildStep::Key(key) => key::name_part(&pickle.heap, key).into_owned(),
            ChildStep::Nan(key, number) => key::nan_name_part(&pickle.heap, key, number),
            ChildStep::Index(index) => index.to_string(),
            ChildStep::Name(name) => name.to_owned(),
            ChildStep::OnlyChild => String::new(),
        };
        children.iter().map(name).collect()
    }

    #[test]
    fn keys_that_are_not_text_do_not_hide_each_other() {
        // `{b"a": 1, b"b": 2, 2**70: 3, 2**71: 4}`, protocol 2, which writes bytes as calls.
        let bytes = b"\x80\x02}(c_codecs\nencode\nq\x01X\x01\x00\x00\x00aX\x06\x00\x00\x00latin1q\x03\x86RK\x01h\x01\
            X\x01\x00\x00\x00bh\x03\x86RK\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@K\x03\x8a\n\x00\x00\x00\x00\x00\
            \x00\x00\x00\x80\x00K\x04u.";
        assert_eq!(names(bytes), ["b'a'", "b'b'", "1180591620717411303424", "2361183241434822606848"]);
    }

    #[test]
    fn every_nan_of_a_dict_has_a_name() {
        // Three NaN, the second of which is the key of two items, and other keys: Python's dict has five items.
        let nan = [b"G".as_slice(), &f64::NAN.to_be_bytes()].concat();
        let item = |key: &[u8], value: u8| [key, &[b'K', value]].concat();
        let second = [nan.as_slice(), b"q\x01"].concat();
        let items = [item(&nan, 1), item(b"K\x07", 2), item(&second, 3), item(&nan, 4), item(b"h\x01", 5)];
        let text = item(b"X\x03\0\0\0inf", 6);
        let bytes = [&b"\x80\x02}("[..], &items.concat(), &text, b"u."].concat();
        assert_eq!(names(&bytes), ["nan", "7", "nan#2", "nan#3", "inf"]);
        // A single NaN key gets no number.
        assert_eq!(names(&[&b"\x80\x02}"[..], &item(&nan, 1), b"s."].concat()), ["nan"]);
    }

    #[test]
    fn a_counter_is_a_dict() {
        // `Counter(a=1, b=2)`, protocol 2.
        let bytes = b"\x80\x02ccollections\nCounter\n}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00bK\x02u\x85R.";
        assert_eq!(names(bytes), ["a", "b"]);
    }

    #[test]
    fn old_protocols_pass_the_contents_of_a_subclass() {
        // `P(1, 2)` of a namedtuple, protocol 1.
        let bytes = b"ccopy_reg\n_reconstructor\n(c__main__\nP\nc__builtin__\ntuple\n(K\x01K\x02ttR.";
        assert_eq!(names(bytes), ["0", "1"]);
        // A subclass of dict with an item `a` and an attribute `e`, protocol 1.
        let bytes =
            b"ccopy_reg\n_reconstructor\n(c__main__\nD\nc__builtin__\ndict\n}X\x01\x00\x00\x00aK\x01stR}\
            X\x01\x00\x00\x00eK\x02sb.";
        assert_eq!(names(bytes), ["e", "a"]);
    }

    #[test]
    fn a_state_that_is_a_tuple_has_parts() {
        // An object whose `__getstate__` returns `(1, 2)`, protocol 2; and `(1, {'a': 2})`, which is not a pair of a
        // dict and slots.
        assert_eq!(names(b"\x80\x02c__main__\nD\n)\x81K\x01K\x02\x86b."), ["0", "1"]);
        assert_eq!(names(b"\x80\x02c__main__\nD\n)\x81K\x01}X\x01\x00\x00\x00aK\x02s\x86b."), ["0", "1"]);
        // `(None, {'a': 2})` is a pair of a dict and slots.
        assert_eq!(names(b"\x80\x02c__main__\nD\n)\x81N}X\x01\x00\x00\x00aK\x02s\x86b."), ["a"]);
    }

    #[test]
    fn long_keys_are_compared_once() {
        let key = "k".repeat(1 << 10);
        let mut bytes = b"\x80\x02](X\x00\x04\x00\x00".to_vec();
        bytes.extend(key.as_bytes());
        bytes.extend(b"q\x00");
        // 100 dicts, each with the key twice.
        bytes.extend(b"}(h\x00K\x01h\x00K\x02u".repeat(100));
        bytes.extend(b"e.");
        let pickle = pickle_vm::load(&bytes).expect("CPython reads it");
        let mut containers = Containers::new(&pickle.heap, 1 << 20);
        for id in pickle.heap.ids().filter(|id| pickle.heap.entries(*id).is_some()) {
            let children = containers.children(id).expect("it is small").expect("it is a dict");
            assert_eq!(children.iter().count(), 1);
        }
        assert_eq!(containers.dicts.long_keys(), (1, 1));
    }
}
