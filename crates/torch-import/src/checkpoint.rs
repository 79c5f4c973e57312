//! Walks the root object once and names the tensors.
//!
//! A name is the path to a tensor, its parts joined by dots: dict keys, attributes, and indices of lists
//! and tuples. A tensor that is the root itself has the empty name.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use pickle_vm::{Heap, ObjectId, Pickle};
use self_cell::self_cell;
use tensor::Tensor;

use crate::children::{self, Step};
use crate::compound::Compound;
use crate::container::Contents;
use crate::key;
use crate::rebuild::{Function, Rebuilder, Rebuilt};
use crate::{Container, Error, Global, Result};

/// Python's own pickler fails at this depth.
const MAX_DEPTH: usize = 1000;
/// A shared dict appears under each of its names. A file may share dicts of shared dicts, so that a few bytes have a
/// billion names. These limit the visits: for each object, and in any case.
const VISITS_PER_OBJECT: usize = 16;
const VISITS: usize = 1 << 16;
/// A long key over many values is part of many names. These limit the bytes of all names together: for each byte of the
/// pickle, and in any case.
const NAME_BYTES_PER_BYTE: usize = 16;
const NAME_BYTES: usize = 64 << 20;

/// What a checkpoint holds, in the file's order.
#[derive(Debug)]
pub struct Checkpoint {
    /// The tensors and values, each with its name.
    pub items: Vec<Item>,
    /// The classes and functions that the pickle names.
    pub globals: Vec<Global>,
    /// How many tensors are outside of what `state_dict()` of a pickled module returns.
    pub left_out: usize,
    /// The objects that the values refer to, over the bytes of the file.
    objects: Objects,
}

/// One thing that a checkpoint holds, and its name.
#[derive(Clone, Debug)]
pub struct Item {
    /// The path to it from the root, joined by dots.
    pub name: String,
    /// What it is.
    pub content: Content,
    /// Bytes of the name's first part, where that is a key of a dict at the root.
    pub(crate) root_key: Option<u32>,
}

/// What an [`Item`] is.
#[derive(Clone, Debug)]
pub enum Content {
    /// A strided view of a storage.
    Tensor(Tensor),
    /// A tensor that is made of several, or has no data.
    Compound(Arc<Compound>),
    /// Anything else: a number, a text, a configuration.
    Value(Value),
}

/// A value that is not a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The object, in [`Checkpoint::heap`].
    pub object: ObjectId,
    /// Whether it is a container that contains itself.
    pub is_cycle: bool,
}

self_cell!(
    /// A pickle's objects, and the contents whose bytes they borrow.
    struct Objects {
        owner: Arc<Contents>,
        #[covariant]
        dependent: Pickle,
    }

    impl { Debug }
);

impl Item {
    /// The key of the root's dict under which the item is; `None` where the root is not a dict, or the item is its
    /// direct value.
    pub fn root_key(&self) -> Option<&str> {
        let len = self.root_key? as usize;
        (len < self.name.len()).then(|| self.name.get(..len)).flatten()
    }

    /// The tensor, where it is one strided view.
    pub fn tensor(&self) -> Option<&Tensor> {
        match &self.content {
            Content::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The strided tensors: the tensor itself, or the parts of a compound one, named `NAME.PART`.
    pub fn tensors(&self) -> impl Iterator<Item = (Cow<'_, str>, &Tensor)> {
        let (one, parts) = match &self.content {
            Content::Tensor(tensor) => (Some((Cow::Borrowed(self.name.as_str()), tensor)), [].as_slice()),
            Content::Compound(compound) => (None, compound.parts.as_slice()),
            Content::Value(_) => (None, [].as_slice()),
        };
        let parts = parts.iter().map(|(part, tensor)| (Cow::Owned(part_name(&self.name, part)), tensor));
        one.into_iter().chain(parts)
    }
}

/// The name of a part of a compound tensor.
fn part_name(name: &str, part: &str) -> String {
    if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") }
}

impl Checkpoint {
    /// Reads the pickle of `container` and gives its objects their meaning, over the storages.
    ///
    /// # Errors
    /// When the pickle is damaged, a tensor cannot be rebuilt or does not fit its storage, or two
    /// tensors have the same name.
    pub fn read(container: &Container) -> Result<Self> {
        let objects = Objects::try_new(Arc::clone(container.contents()), |contents| contents.load())?;
        let pickle = objects.borrow_dependent();
        let heap = &pickle.heap;
        let mut walk = Walk {
            heap,
            rebuilder: Rebuilder::new(container, heap),
            path: Vec::new(),
            open: HashSet::new(),
            found: Vec::with_capacity(container.storages_len()),
            root_is_dict: children::is_dict(heap, pickle.root),
            visits: visits(heap),
            name_bytes: name_bytes(pickle),
            name_limit: name_bytes(pickle),
        };
        walk.run(pickle.root)?;
        walk.rebuilder.finish()?;
        let left_out = walk.count_left_out();
        let found = walk.found;
        check_duplicates(heap, &found)?;
        let mut items: Vec<Item> = found.into_iter().map(|found| found.item).collect();
        let direct = container.tensors()?;
        if children::children_of(heap, pickle.root).is_some_and(|children| children.is_empty())
            && !direct.is_empty()
        {
            // The file has no pickle; the empty dict is a placeholder.
            items.clear();
        }
        let direct = direct.into_iter();
        items.extend(direct.map(|(name, tensor)| Item {
            name,
            content: Content::Tensor(tensor),
            root_key: None,
        }));
        let globals = Global::all(heap);
        Ok(Self { items, globals, left_out, objects })
    }

    /// The strided tensors of all items; see [`Item::tensors`].
    pub fn tensors(&self) -> impl Iterator<Item = (Cow<'_, str>, &Tensor)> {
        self.items.iter().flat_map(Item::tensors)
    }

    /// The compound tensors and their names.
    pub fn compounds(&self) -> impl Iterator<Item = (&str, &Compound)> {
        self.items.iter().filter_map(|item| match &item.content {
            Content::Compound(compound) => Some((item.name.as_str(), compound.as_ref())),
            _ => None,
        })
    }

    /// The values and their names.
    pub fn values(&self) -> impl Iterator<Item = (&str, Value)> {
        self.items.iter().filter_map(|item| match item.content {
            Content::Value(value) => Some((item.name.as_str(), value)),
            _ => None,
        })
    }

    /// The values without safetensors' `format: pt`, which every file from PyTorch has and which says nothing.
    pub fn notable_values(&self) -> impl Iterator<Item = (&str, Value)> {
        self.values().filter(|(name, value)| {
            *name != "__metadata__.format" || self.heap().text(value.object).as_deref() != Some("pt")
        })
    }

    /// The objects that [`Value`]s refer to.
    pub fn heap(&self) -> &Heap<'_> {
        &self.objects.borrow_dependent().heap
    }
}

fn visits(heap: &Heap<'_>) -> usize {
    heap.len().saturating_mul(VISITS_PER_OBJECT).saturating_add(VISITS)
}

fn name_bytes(pickle: &Pickle<'_>) -> usize {
    let len = usize::try_from(pickle.len).unwrap_or(usize::MAX);
    len.saturating_mul(NAME_BYTES_PER_BYTE).saturating_add(NAME_BYTES)
}

/// An item, and the path to it.
struct Found {
    item: Item,
    /// Kept for tensors, whose names have to differ; empty for values.
    path: Vec<Step>,
}

struct Name {
    text: String,
    /// Bytes of its first part, where that is a dict's key.
    root_key: Option<u32>,
}

/// A container on the path, and the children that are still to be visited.
struct Level {
    id: ObjectId,
    children: std::vec::IntoIter<(Step, ObjectId)>,
}

struct Walk<'h> {
    heap: &'h Heap<'h>,
    rebuilder: Rebuilder<'h>,
    path: Vec<Step>,
    /// The containers on the path: one of them inside itself is a cycle.
    open: HashSet<ObjectId>,
    found: Vec<Found>,
    root_is_dict: bool,
    visits: usize,
    /// Bytes that the names to come may have.
    name_bytes: usize,
    name_limit: usize,
}

impl Walk<'_> {
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
            let (what, offset) = ("paths through shared containers", self.heap.offset(id));
            return Err(Error::Limit { what, offset, limit: visits(self.heap) });
        };
        self.visits = visits;
        let rebuilt = self.rebuilder.rebuild(id);
        let rebuilt = match rebuilt {
            Ok(rebuilt) => rebuilt,
            Err(error) => {
                return Err(Error::Tensor { name: self.name(id)?.text, reason: Box::new(error) });
            }
        };
        match rebuilt {
            Some(Rebuilt::Strided(tensor)) => self.keep(id, Content::Tensor(tensor))?,
            Some(Rebuilt::Compound(compound)) => self.keep(id, Content::Compound(compound))?,
            None => {
                let children = children::children_of(self.heap, id);
                // An empty dict or list is a value; a module without parameters is nothing.
                let is_empty = children.as_ref().is_some_and(Vec::is_empty);
                if is_empty && self.heap.instance(id).is_some() {
                    return Ok(None);
                }
                if let Some(children) = children.filter(|_| !is_empty) {
                    if self.open.insert(id) {
                        return Ok(Some(Level { id, children: children.into_iter() }));
                    }
                    self.keep(id, Content::Value(Value { object: id, is_cycle: true }))?;
                } else {
                    self.keep(id, Content::Value(Value { object: id, is_cycle: false }))?;
                }
            }
        }
        Ok(None)
    }

    /// Adds an item for the object `id` at the current path.
    fn keep(&mut self, id: ObjectId, content: Content) -> Result<()> {
        let Name { text: name, root_key } = self.name(id)?;
        let path = if matches!(content, Content::Value(_)) { Vec::new() } else { self.path.clone() };
        self.found.push(Found { item: Item { name, content, root_key }, path });
        Ok(())
    }

    /// The name of the object `id` at the current path.
    fn name(&mut self, id: ObjectId) -> Result<Name> {
        let (mut text, mut root_key) = (String::new(), None);
        for (depth, step) in self.path.iter().enumerate() {
            let part = match step {
                Step::Key(key) => key::part(self.heap, *key),
                Step::Index(index) => index.to_string().into(),
            };
            let len = part.len().saturating_add(1);
            self.name_bytes = self.name_bytes.checked_sub(len).ok_or_else(|| Error::Limit {
                what: "bytes in the names of tensors and values",
                offset: self.heap.offset(id),
                limit: self.name_limit,
            })?;
            if depth > 0 {
                text.push('.');
            }
            text.push_str(&part);
            if depth == 0 && self.root_is_dict && matches!(step, Step::Key(_)) {
                root_key = u32::try_from(text.len()).ok();
            }
        }
        Ok(Name { text, root_key })
    }

    /// The number of tensors that the walk did not reach: a module's attributes other than parameters and buffers, hooks,
    /// the attributes of tensor subclasses.
    fn count_left_out(&self) -> usize {
        let missed = |id: &ObjectId| {
            let function =
                self.heap.instance(*id).and_then(|instance| Function::called_by(self.heap, instance));
            function.is_some_and(Function::makes_one) && !self.rebuilder.is_done(*id)
        };
        self.heap.ids().filter(missed).count()
    }
}

/// A path as Python writes it, such as `['model'][0]`.
fn subscripts(heap: &Heap<'_>, path: &[Step]) -> String {
    let parts = path.iter().map(|step| match step {
        Step::Key(id) => format!("[{}]", key::repr(heap, *id)),
        Step::Index(index) => format!("[{index}]"),
    });
    parts.collect()
}

fn check_duplicates(heap: &Heap<'_>, found: &[Found]) -> Result<()> {
    let is_whole = |found: &&Found| match &found.item.content {
        Content::Tensor(_) => true,
        // A compound tensor without parts has a name all the same.
        Content::Compound(compound) => compound.parts.is_empty(),
        Content::Value(_) => false,
    };
    let compounds = found.iter().filter(|found| matches!(found.item.content, Content::Compound(_)));
    let parts: Vec<(Cow<'_, str>, &Found)> =
        compounds.flat_map(|found| found.item.tensors().map(move |(name, _)| (name, found))).collect();
    let whole = found.iter().filter(is_whole).map(|found| (found.item.name.as_str(), found));
    let parts = parts.iter().map(|(name, found)| (name.as_ref(), *found));
    let mut names: HashMap<&str, &Found> = HashMap::with_capacity(found.len());
    for (name, found) in whole.chain(parts) {
        if let Some(first) = names.insert(name, found) {
            return Err(Error::Duplicate {
                name: name.to_owned(),
                first: subscripts(heap, &first.path),
                second: subscripts(heap, &found.path),
            });
        }
    }
    Ok(())
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    // A server keeps checkpoints and passes their tensors to its threads.
    is_shared::<Checkpoint>();
    is_shared::<Container>();
    is_shared::<Tensor>();
};
