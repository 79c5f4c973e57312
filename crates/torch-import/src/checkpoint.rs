//! Walks the root object once and names the tensors.
//!
//! A name is the path to a tensor, its parts joined by dots: dict keys, and indices of lists and tuples.
//! A tensor that is the root itself has the empty name.

use std::collections::{HashMap, HashSet};

use pickle_vm::{Heap, Object, ObjectId};
use tensor::Tensor;

use crate::key::{self, Key};
use crate::rebuild::{Function, Rebuilder};
use crate::{Container, Error, Format, Global, Result};

/// Python's own pickler gives up at this depth.
const MAX_DEPTH: usize = 1000;
/// A dict that is shared appears under each of its names. A file may share dicts of shared dicts, so
/// that a few bytes have a billion names: so many visits for each object are read.
const VISITS_PER_OBJECT: usize = 16;
const VISITS: usize = 1 << 16;

/// The named tensors of a checkpoint, in the file's order.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    /// Names and tensors.
    pub tensors: Vec<(String, Tensor<'a>)>,
    /// How many values beside the tensors the containers hold: numbers, texts, configurations.
    pub values: usize,
    /// The classes and functions that the pickle names.
    pub globals: Vec<Global>,
}

impl<'a> Checkpoint<'a> {
    /// Reads the pickle of `container` and gives its objects their meaning, over the storages.
    ///
    /// # Errors
    /// When the pickle is damaged, a tensor cannot be rebuilt or does not fit its storage, two tensors come out under one name,
    /// or tensors lie where they are not read.
    pub fn read(container: &'a Container) -> Result<Self> {
        if container.format() == Format::TorchScript {
            return Err(Error::Format {
                what: "a TorchScript archive",
                hint: "TorchScript archives are not read yet",
            });
        }
        let pickle = container.load()?;
        let heap = &pickle.heap;
        let mut walk = Walk {
            heap,
            rebuilder: Rebuilder::new(container, heap),
            path: Vec::new(),
            open: HashSet::new(),
            tensors: Vec::new(),
            values: 0,
            visits: heap.len().saturating_mul(VISITS_PER_OBJECT).saturating_add(VISITS),
        };
        walk.run(pickle.root)?;
        walk.refuse_hidden()?;
        let Walk { tensors, values, .. } = walk;
        refuse_duplicates(heap, &tensors)?;
        let tensors = tensors.into_iter().map(|found| (found.name, found.tensor)).collect();
        Ok(Self { tensors, values, globals: Global::all(heap) })
    }
}

struct Found<'a> {
    name: String,
    path: Vec<Step>,
    tensor: Tensor<'a>,
}

/// One container on the way from the root, and what is left of it.
struct Level {
    id: ObjectId,
    children: std::vec::IntoIter<(Step, ObjectId)>,
}

/// One step of a path.
#[derive(Clone, Copy)]
enum Step {
    Key(ObjectId),
    Index(usize),
}

struct Walk<'a, 'h> {
    heap: &'h Heap<'a>,
    rebuilder: Rebuilder<'a, 'h>,
    path: Vec<Step>,
    /// The containers on the path: one of them inside itself is a cycle.
    open: HashSet<ObjectId>,
    tensors: Vec<Found<'a>>,
    values: usize,
    visits: usize,
}

impl Walk<'_, '_> {
    /// Depth first, in the file's order, with a stack of its own.
    fn run(&mut self, root: ObjectId) -> Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        levels.extend(self.visit(root)?);
        while let Some(level) = levels.last_mut() {
            let Some((step, child)) = level.children.next() else {
                self.open.remove(&level.id);
                levels.pop();
                self.path.pop();
                continue;
            };
            if levels.len() >= MAX_DEPTH {
                let offset = self.heap.offset(child);
                return Err(Error::Limit { what: "levels of containers", offset, limit: MAX_DEPTH });
            }
            self.path.push(step);
            match self.visit(child)? {
                Some(level) => levels.push(level),
                None => {
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    /// Records a tensor or a value; a container is returned to be entered.
    fn visit(&mut self, id: ObjectId) -> Result<Option<Level>> {
        let Some(visits) = self.visits.checked_sub(1) else {
            let limit = self.heap.len().saturating_mul(VISITS_PER_OBJECT).saturating_add(VISITS);
            return Err(Error::Limit {
                what: "paths through shared containers",
                offset: self.heap.offset(id),
                limit,
            });
        };
        self.visits = visits;
        let tensor = self.rebuilder.tensor(id).map_err(|error| self.named(error))?;
        if let Some(tensor) = tensor {
            self.tensors.push(Found { name: self.name(), path: self.path.clone(), tensor });
            return Ok(None);
        }
        let Some(children) = children(self.heap, id) else {
            self.values = self.values.saturating_add(1);
            return Ok(None);
        };
        if !self.open.insert(id) {
            return Ok(None);
        }
        Ok(Some(Level { id, children: children.into_iter() }))
    }

    fn name(&self) -> String {
        let mut name = String::new();
        for (depth, step) in self.path.iter().enumerate() {
            if depth > 0 {
                name.push('.');
            }
            match step {
                Step::Key(id) => name.push_str(&key::part(self.heap, *id)),
                Step::Index(index) => name.push_str(&index.to_string()),
            }
        }
        name
    }

    fn named(&self, error: Error) -> Error {
        Error::Tensor { name: self.name(), reason: Box::new(error) }
    }

    /// Tensors that the walk did not reach lie in objects that it does not enter.
    fn refuse_hidden(&self) -> Result<()> {
        let hidden = |id: &ObjectId| {
            let function = self.heap.instance(*id).and_then(|instance| Function::of(self.heap, instance));
            function.is_some() && !self.rebuilder.rebuilt(*id)
        };
        let mut all = self.heap.ids().filter(hidden);
        let Some(first) = all.next() else { return Ok(()) };
        let holder = self.heap.ids().find_map(|id| {
            let instance = self.heap.instance(id)?;
            let (module, name) = self.heap.global(instance.callable)?;
            let plain = is_dict(module, name) || Function::of(self.heap, instance).is_some();
            (!plain).then(|| format!("{}.{}", module.escape_debug(), name.escape_debug()))
        });
        Err(Error::Hidden {
            count: all.count().saturating_add(1),
            class: holder.unwrap_or_else(|| "an object without a name".to_owned()),
            offset: self.heap.offset(first),
            what: "a pickled object",
        })
    }
}

fn is_dict(module: &str, name: &str) -> bool {
    module == "collections" && matches!(name, "OrderedDict" | "defaultdict")
}

/// What a container holds; `None` for what is no container.
fn children(heap: &Heap<'_>, id: ObjectId) -> Option<Vec<(Step, ObjectId)>> {
    match heap.get(id) {
        Object::Dict(_) => Some(last_of_each_key(heap, heap.entries(id)?.iter().copied())),
        Object::List(_) | Object::Tuple(_) => {
            let items = heap.items(id)?.iter().enumerate();
            Some(items.map(|(index, item)| (Step::Index(index), *item)).collect())
        }
        Object::Instance(instance) => {
            let (module, name) = heap.global(instance.callable)?;
            if !is_dict(module, name) {
                return None;
            }
            // Old protocols hand an OrderedDict its pairs as an argument.
            let pairs = heap.items(instance.args)?.iter().filter_map(|arg| heap.items(*arg)).flatten();
            let pairs = pairs.filter_map(|pair| match heap.items(*pair)? {
                &[key, value] => Some((key, value)),
                _ => None,
            });
            Some(last_of_each_key(heap, pairs.chain(instance.items().iter().copied())))
        }
        _ => None,
    }
}

/// A dict keeps a key's first place and its last value.
fn last_of_each_key(
    heap: &Heap<'_>,
    entries: impl Iterator<Item = (ObjectId, ObjectId)>,
) -> Vec<(Step, ObjectId)> {
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    let mut children: Vec<(Step, ObjectId)> = Vec::new();
    for (key, value) in entries {
        let place = *places.entry(Key::of(heap, key)).or_insert(children.len());
        match children.get_mut(place) {
            Some(child) => child.1 = value,
            None => children.push((Step::Key(key), value)),
        }
    }
    children
}

/// A path as Python writes it, such as `['model'][0]`.
fn subscripts(heap: &Heap<'_>, path: &[Step]) -> String {
    let parts = path.iter().map(|step| match step {
        Step::Key(id) => format!("[{}]", key::repr(heap, *id)),
        Step::Index(index) => format!("[{index}]"),
    });
    parts.collect()
}

fn refuse_duplicates(heap: &Heap<'_>, tensors: &[Found<'_>]) -> Result<()> {
    let mut names: HashMap<&str, &Found<'_>> = HashMap::with_capacity(tensors.len());
    for found in tensors {
        if let Some(first) = names.insert(&found.name, found) {
            return Err(Error::Duplicate {
                name: found.name.clone(),
                first: subscripts(heap, &first.path),
                second: subscripts(heap, &found.path),
            });
        }
    }
    Ok(())
}
