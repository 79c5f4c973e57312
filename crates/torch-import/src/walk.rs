//! Walks from the root object to the tensors and values, and names them by their paths.

use byte_source::Observer;
use foldhash::{HashSet, HashSetExt};
use pickle_vm::{Heap, Object, ObjectId};
use tensor::{Dtype, Storage, Tensor};

use crate::children::Containers;
use crate::dicts::{self, Child, ChildStep, Children};
use crate::item::{CheckpointItem, CheckpointValue, ItemContent, KEY_LEVELS, KeyEnds, ValueExtent};
use crate::limits::{CheckpointLimits, LimitBudget, ObjectSet};
use crate::rebuild::{Rebuilder, Rebuilt};
use crate::{CheckpointNote, Error, Problem, Result, key, modules};

/// Number of visits between two looks at the observer.
const VISITS_PER_CHECK: u32 = 1 << 14;

/// A depth-first walk over the objects of a pickle, with its results.
pub(crate) struct Walk<'h> {
    heap: &'h Heap<'h>,
    pub(crate) rebuilder: Rebuilder<'h>,
    observer: &'h dyn Observer,
    pub(crate) containers: Containers<'h>,
    levels: Vec<PathLevel<'h>>,
    /// Path to the current object, its parts joined by dots.
    name: String,
    /// Number of parts in `name`.
    parts: usize,
    /// Parts of `name` that are keys of dicts.
    keys: KeyEnds,
    root: Root,
    /// Containers on the current path; a container inside itself is a cycle.
    on_path: ObjectSet,
    /// Completed containers without tensors.
    without_tensors: ObjectSet,
    /// Containers below the deepest level.
    below_max_depth: ObjectSet,
    /// Keys that have lone surrogates, and the first surrogate.
    surrogates: HashSet<ObjectId>,
    first_surrogate: Option<u16>,
    /// Number of values listed without their contents, and of values beyond the limit.
    truncated_values: usize,
    unlisted_values: usize,
    pub(crate) found_items: Vec<CheckpointItem>,
    /// Number of tensors found so far.
    tensors: usize,
    named_tensors: ObjectSet,
    depth: usize,
    tensor_names: LimitBudget,
    value_names: LimitBudget,
    values: LimitBudget,
    repeats: LimitBudget,
    /// Indices of the items whose paths are wanted, and the paths.
    wanted_items: [usize; 2],
    paths: Vec<String>,
}

/// The root object, whose keys or indices lead to the parts of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Dict,
    List,
    Other,
}

/// A container on the current path.
struct PathLevel<'h> {
    id: ObjectId,
    children: Children<'h>,
    next: usize,
    /// Step to the child that is being visited.
    step: ChildStep,
    /// Length of the path without the container, in bytes and in parts.
    parent_path_len: (usize, usize),
    /// Number of tensors found before the container.
    tensors: usize,
    /// True for a module near the root.
    is_module: bool,
}

impl<'h> Walk<'h> {
    pub(crate) fn new(
        heap: &'h Heap<'h>,
        rebuilder: Rebuilder<'h>,
        observer: &'h dyn Observer,
        limits: &CheckpointLimits,
        room: usize,
    ) -> Self {
        let marks = || ObjectSet::new(heap.len());
        Self {
            heap,
            rebuilder,
            observer,
            containers: Containers::new(heap, limits.steps),
            levels: Vec::new(),
            name: String::new(),
            parts: 0,
            keys: KeyEnds::NONE,
            root: Root::Other,
            on_path: marks(),
            without_tensors: marks(),
            below_max_depth: marks(),
            surrogates: HashSet::new(),
            first_surrogate: None,
            truncated_values: 0,
            unlisted_values: 0,
            found_items: Vec::with_capacity(room),
            tensors: 0,
            named_tensors: marks(),
            depth: limits.depth,
            tensor_names: LimitBudget::new("bytes in the names of tensors", limits.tensor_names),
            value_names: LimitBudget::new("bytes in the names of values", limits.value_names),
            values: LimitBudget::new("values", limits.values),
            repeats: LimitBudget::new("repeated names of tensors", limits.repeats),
            wanted_items: [usize::MAX; 2],
            paths: Vec::new(),
        }
    }

    /// Runs the walk depth first, in the file's order, with an explicit stack.
    ///
    /// # Errors
    /// When a tensor cannot be rebuilt, a limit is exceeded, or the observer stops the walk.
    pub(crate) fn run(&mut self, root: ObjectId) -> Result<()> {
        self.root = match self.heap.get(root) {
            Object::List(_) | Object::Tuple(_) => Root::List,
            _ if dicts::is_dict(self.heap, root) => Root::Dict,
            _ => Root::Other,
        };
        self.visit(Child::new(ChildStep::OnlyChild, root))?;
        let mut visits = 0_u32;
        while let Some(level) = self.levels.last_mut() {
            visits = visits.wrapping_add(1);
            if visits.is_multiple_of(VISITS_PER_CHECK) {
                self.observer.check()?;
            }
            let Some(child) = level.children.get(level.next) else {
                self.leave();
                continue;
            };
            level.next = level.next.saturating_add(1);
            level.step = child.step;
            self.visit(child)?;
        }
        Ok(())
    }

    /// Runs a new walk and returns the paths of two items, as Python subscripts.
    pub(crate) fn item_paths(mut self, root: ObjectId, items: [usize; 2]) -> Result<Vec<String>> {
        self.wanted_items = items;
        self.run(root)?;
        Ok(self.paths)
    }

    /// Returns notes about irregular names and values.
    pub(crate) fn notes(&self) -> Vec<CheckpointNote> {
        let (keys, cut, unlisted) = (self.surrogates.len(), self.truncated_values, self.unlisted_values);
        let surrogates = self.first_surrogate.map(|first| CheckpointNote::Surrogates { keys, first });
        let values = (cut > 0 || unlisted > 0).then_some(CheckpointNote::ValuesTruncated { cut, unlisted });
        surrogates.into_iter().chain(values).collect()
    }

    /// Returns the error for a tensor inside a container that was not entered, because it is nested too deeply.
    pub(crate) fn too_deep_error(&self, id: ObjectId) -> Option<Error> {
        let offset = self.heap.offset(id);
        let error =
            || Problem::Limit { what: "levels of containers around a tensor", offset, limit: self.depth };
        self.below_max_depth.contains(id).then(|| error().into())
    }

    /// Records a tensor or a value, or enters a container.
    fn visit(&mut self, child: Child) -> Result<()> {
        let id = child.id;
        self.containers.dicts.steps.spend(1, self.heap.offset(id))?;
        if child.becomes_tensor
            && let Some(tensor) = number_tensor(self.heap, id)?
        {
            return self.add_tensor(child, ItemContent::Tensor(tensor));
        }
        let rebuilt = match self.rebuilder.rebuild(id) {
            Ok(rebuilt) => rebuilt,
            Err(error) => {
                self.push_step(child.step);
                return Err(error.in_tensor(&self.name));
            }
        };
        let content = match rebuilt {
            Some(Rebuilt::Strided(tensor)) => ItemContent::Tensor(tensor),
            Some(Rebuilt::Compound(compound)) => ItemContent::Compound(compound),
            None => return self.visit_non_tensor(child),
        };
        if !self.named_tensors.insert(id) {
            self.repeats.spend(1, self.heap.offset(id))?;
        }
        self.add_tensor(child, content)
    }

    /// Enters a container, or records a value.
    fn visit_non_tensor(&mut self, child: Child) -> Result<()> {
        let id = child.id;
        let Some(children) = self.containers.children(id)? else {
            self.add_value(child, ValueExtent::Whole);
            return Ok(());
        };
        let is_shared_too_often =
            || self.without_tensors.contains(id) && self.containers.dicts.steps.is_scarce();
        if children.is_empty() {
            // An empty dict or list is a value; a module without parameters is not listed.
            if self.heap.instance(id).is_none() {
                self.add_value(child, ValueExtent::Whole);
            }
        } else if self.on_path.contains(id) {
            self.add_value(child, ValueExtent::Cycle);
        } else if self.levels.len() >= self.depth {
            self.below_max_depth.insert(id);
            self.add_value(child, ValueExtent::Cut);
        } else if is_shared_too_often() {
            self.add_value(child, ValueExtent::Cut);
        } else {
            self.enter(child, children)?;
        }
        Ok(())
    }

    fn enter(&mut self, child: Child, children: Children<'h>) -> Result<()> {
        let id = child.id;
        let before = self.push_step(child.step);
        self.tensor_names.spend(self.name.len().saturating_sub(before.0), self.heap.offset(id))?;
        self.on_path.insert(id);
        let tensors = self.tensors;
        let is_module = self.parts < KEY_LEVELS
            && self.heap.instance(id).is_some_and(|instance| modules::is_module(self.heap, instance));
        self.levels.push(PathLevel {
            id,
            children,
            next: 0,
            step: ChildStep::OnlyChild,
            parent_path_len: before,
            tensors,
            is_module,
        });
        Ok(())
    }

    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else { return };
        self.on_path.remove(level.id);
        if level.tensors == self.tensors {
            self.without_tensors.insert(level.id);
        }
        self.truncate_path(level.parent_path_len);
    }

    /// Adds an item for a tensor at the current path.
    fn add_tensor(&mut self, child: Child, content: ItemContent) -> Result<()> {
        let before = self.push_step(child.step);
        self.tensor_names.spend(self.name.len().saturating_add(1), self.heap.offset(child.id))?;
        self.tensors = self.tensors.saturating_add(1);
        self.push_item(content);
        self.truncate_path(before);
        Ok(())
    }

    /// Adds an item for a value. After the first value that exceeds a budget, values are only counted.
    fn add_value(&mut self, child: Child, extent: ValueExtent) {
        self.truncated_values = self.truncated_values.saturating_add(usize::from(extent == ValueExtent::Cut));
        if self.unlisted_values == 0 {
            let before = self.push_step(child.step);
            if self.value_names.try_spend(self.name.len().saturating_add(1)) && self.values.try_spend(1) {
                self.push_item(ItemContent::Value(CheckpointValue::Object {
                    object: child.id,
                    pickle: 0,
                    extent,
                }));
                self.truncate_path(before);
                return;
            }
            self.truncate_path(before);
        }
        self.unlisted_values = self.unlisted_values.saturating_add(1);
    }

    fn push_item(&mut self, content: ItemContent) {
        if self.wanted_items.contains(&self.found_items.len()) {
            self.paths.push(self.subscripts());
        }
        self.found_items.push(CheckpointItem { name: self.name.clone(), content, keys: self.keys });
    }

    /// Appends a step to the path; returns the previous length, for [`truncate_path`](Self::truncate_path).
    fn push_step(&mut self, step: ChildStep) -> (usize, usize) {
        let before = (self.name.len(), self.parts);
        let part = match step {
            ChildStep::Key(key) => {
                self.record_surrogate(key);
                key::name_part(self.heap, key)
            }
            ChildStep::Nan(key, number) => key::nan_name_part(self.heap, key, number).into(),
            ChildStep::Index(index) => index.to_string().into(),
            ChildStep::Name(name) => name.into(),
            ChildStep::OnlyChild => return before,
        };
        if self.parts > 0 {
            self.name.push('.');
        }
        self.name.push_str(&part);
        if self.parts < KEY_LEVELS {
            let is_in_module = self.levels.last().is_some_and(|level| level.is_module);
            let is_key = match step {
                ChildStep::Key(_) | ChildStep::Nan(..) if is_in_module => false,
                ChildStep::Key(_) | ChildStep::Nan(..) => {
                    self.root == Root::Dict || self.root == Root::List && self.parts > 0
                }
                ChildStep::Index(_) => self.root == Root::List && self.parts == 0,
                _ => false,
            };
            if self.parts == 1 {
                self.keys.in_module_of_root = is_in_module;
            }
            self.keys.set(self.parts, is_key.then_some(self.name.len()));
        }
        self.parts = self.parts.saturating_add(1);
        before
    }

    fn record_surrogate(&mut self, key: ObjectId) {
        let Object::Text(text) = self.heap.get(key) else { return };
        if text.as_str().is_none() && self.surrogates.insert(key) && self.first_surrogate.is_none() {
            let is_surrogate = |point: &u16| (0xd800..0xe000).contains(point);
            self.first_surrogate =
                text.code_points().filter_map(|point| u16::try_from(point).ok()).find(is_surrogate);
        }
    }

    fn truncate_path(&mut self, (len, parts): (usize, usize)) {
        self.name.truncate(len);
        self.parts = parts;
    }

    /// Formats the path as Python subscripts, such as `['model'][0]`.
    fn subscripts(&self) -> String {
        let parts = self.levels.iter().map(|level| match level.step {
            ChildStep::Key(id) | ChildStep::Nan(id, _) => format!("[{}]", key::repr(self.heap, id)),
            ChildStep::Index(index) => format!("[{index}]"),
            ChildStep::Name(name) => format!(".{name}"),
            ChildStep::OnlyChild => String::new(),
        });
        parts.collect()
    }
}

/// Returns the tensor that `torch.tensor(number)` creates; `None` if the object is not a number.
fn number_tensor(heap: &Heap<'_>, id: ObjectId) -> Result<Option<Tensor>> {
    let (dtype, bytes) = match heap.get(id) {
        #[expect(clippy::cast_possible_truncation, reason = "PyTorch rounds it to the default dtype")]
        Object::Float(number) => (Dtype::Float32, (*number as f32).to_le_bytes().to_vec()),
        Object::Int(number) => (Dtype::Int64, number.to_le_bytes().to_vec()),
        _ => return Ok(None),
    };
    Ok(Some(Tensor::new(dtype, Vec::new(), Vec::new(), 0, Storage::owned(bytes))?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Container;

    /// Runs a walk over a pickle, and returns the numbers of its steps and items.
    fn work(pickle: &[u8]) -> (usize, usize) {
        let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
        file.write_all(pickle).expect("the temporary folder is writable");
        let container = Container::open(file.path()).expect("it is a pickle");
        let pickle = pickle_vm::load(container.pickle()).expect("it is a pickle");
        let limits = CheckpointLimits::for_pickle(container.pickle().len());
        let mut walk = Walk::new(&pickle.heap, Rebuilder::new(&container, &pickle.heap), &(), &limits, 0);
        walk.run(pickle.root).expect("there are only values");
        (walk.containers.dicts.steps.spent(), walk.found_items.len())
    }

    /// Writes a list of `times` references to a dict of `len` numbers.
    fn shared(len: u32, times: usize) -> Vec<u8> {
        let mut pickle = b"\x80\x03}(".to_vec();
        for key in 0..len {
            pickle.push(b'J');
            pickle.extend(key.to_le_bytes());
            pickle.extend(b"K\x01");
        }
        pickle.extend(b"uq\x000](");
        pickle.extend(b"h\x00".repeat(times));
        pickle.extend(b"e.");
        pickle
    }

    #[test]
    fn contents_are_looked_at_twice_and_visited_under_each_name() {
        // The list, its 50 items, 1000 numbers in each; and 1000 entries, read twice.
        assert_eq!(work(&shared(1000, 50)), (1 + 50 + 50 * 1000 + 2 * 1000, 50 * 1000));
    }

    #[test]
    fn steps_are_proportional_to_the_pickle() {
        for (len, times) in [(1000, 10_000), (10_000, 10_000), (10, 100_000)] {
            let pickle = shared(len, times);
            let (steps, items) = work(&pickle);
            let limits = CheckpointLimits::for_pickle(pickle.len());
            assert!(steps <= limits.steps && items <= limits.values, "{steps} steps, {items} items");
        }
    }

    #[test]
    fn a_key_with_a_lone_surrogate_is_noted_once() {
        // `d = {'a\udfff\ud800': 1, 'b': 2}; [d, d, {'\ud800': 3}]`, protocol 2.
        let pickle = b"\x80\x02](}q\x00(X\x07\0\0\0a\xed\xbf\xbf\xed\xa0\x80K\x01X\x01\0\0\0bK\x02uh\x00}X\x03\0\0\0\xed\xa0\
            \x80K\x03se.";
        let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
        file.write_all(pickle).expect("the temporary folder is writable");
        let container = Container::open(file.path()).expect("it is a pickle");
        let checkpoint = crate::Checkpoint::read(&container).expect("there are only values");
        let names: Vec<&str> = checkpoint.items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, [r"0.a\udfff\ud800", "0.b", r"1.a\udfff\ud800", "1.b", r"2.\ud800"]);
        assert_eq!(checkpoint.notes, [CheckpointNote::Surrogates { keys: 2, first: 0xdfff }]);
    }

    /// Observer that stops the work after a number of looks.
    struct StopAt(AtomicUsize);

    impl Observer for StopAt {
        fn is_cancelled(&self) -> bool {
            let looks = |left: usize| Some(left.saturating_sub(1));
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, looks) == Ok(0)
        }
    }

    #[test]
    fn an_observer_stops_the_machine_and_the_walk() {
        let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
        file.write_all(&shared(1, 600_000)).expect("the temporary folder is writable");
        let container = Container::open(file.path()).expect("it is a pickle");
        let read = |looks| {
            let observer = StopAt(AtomicUsize::new(looks));
            (crate::Checkpoint::read_with_observer(&container, &observer), observer.0.into_inner())
        };
        // The machine looks after the first mebibyte of the pickle, and the walk after that.
        let stopped =
            |(read, left): (Result<_>, _)| read.is_err_and(|error: Error| error.is_cancelled()) && left == 0;
        assert!(stopped(read(0)));
        assert!(stopped(read(1)));
        let (checkpoint, left) = read(1000);
        assert!(checkpoint.is_ok() && left < 999 - 600_000 / 16_384, "{left} looks are left");
    }

    #[test]
    fn equal_values_are_not_shared_containers() {
        let mut pickle = b"\x80\x03](".to_vec();
        pickle.extend(b"K\x01)".repeat(70_000));
        pickle.extend(b"e.");
        assert_eq!(work(&pickle), (140_001, 140_000));
    }
}
