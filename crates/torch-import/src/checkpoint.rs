//! Walks the root object once and names the tensors.
//!
//! A name is the path to a tensor, its parts joined by dots: dict keys, attributes, and indices of lists
//! and tuples. A tensor that is the root itself has the empty name.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use pickle_vm::{Heap, ObjectId, Pickle};
use tensor::Tensor;

use crate::children::{self, Step};
use crate::compound::Compound;
use crate::key;
use crate::rebuild::{Function, Rebuilder, Rebuilt};
use crate::{Container, Error, Global, Result};

/// Python's own pickler gives up at this depth.
const MAX_DEPTH: usize = 1000;
/// A dict that is shared appears under each of its names. A file may share dicts of shared dicts, so
/// that a few bytes have a billion names: so many visits for each object are read.
const VISITS_PER_OBJECT: usize = 16;
const VISITS: usize = 1 << 16;
/// A long key over many values is part of many names: all names together have at most so many bytes for
/// each byte of the pickle.
const NAME_BYTES_PER_BYTE: usize = 16;
const NAME_BYTES: usize = 64 << 20;

/// The named tensors of a checkpoint, in the file's order.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    /// Names and strided tensors. Those that a quantized, sparse or nested tensor is made of stand here
    /// one by one, named `NAME.PART`.
    pub tensors: Vec<(String, Tensor<'a>)>,
    /// The tensors that are made of several, or have no data.
    pub compounds: Vec<NamedCompound<'a>>,
    /// What is no tensor: numbers, texts, configurations.
    pub values: Vec<Value>,
    /// The classes and functions that the pickle names.
    pub globals: Vec<Global>,
    /// How many tensors lie where `state_dict()` of a pickled module does not look.
    pub left_out: usize,
    /// Of each tensor the bytes of its name's first part, where that is a key of a dict at the root.
    tops: Vec<Option<usize>>,
    /// The objects that the values refer to.
    pickle: Pickle<'a>,
}

/// A compound tensor and its place.
#[derive(Clone, Debug)]
pub struct NamedCompound<'a> {
    /// Its name.
    pub name: String,
    /// What it is.
    pub compound: Compound<'a>,
    /// Where its parts start in [`Checkpoint::tensors`].
    pub at: usize,
}

/// A value that is no tensor.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its path, as a tensor's name.
    pub path: String,
    /// The object.
    pub object: ObjectId,
    /// Whether it is a container that lies inside itself.
    pub is_cycle: bool,
}

impl<'a> Checkpoint<'a> {
    /// Reads the pickle of `container` and gives its objects their meaning, over the storages.
    ///
    /// # Errors
    /// When the pickle is damaged, a tensor cannot be rebuilt or does not fit its storage, or two
    /// tensors come out under one name.
    pub fn read(container: &'a Container) -> Result<Self> {
        let pickle = container.load()?;
        let heap = &pickle.heap;
        let mut walk = Walk {
            heap,
            rebuilder: Rebuilder::new(container, heap),
            path: Vec::new(),
            open: HashSet::new(),
            tensors: Vec::new(),
            compounds: Vec::new(),
            values: Vec::new(),
            visits: visits(heap),
            name_bytes: name_bytes(&pickle),
            name_limit: name_bytes(&pickle),
        };
        walk.run(pickle.root)?;
        let left_out = walk.count_left_out();
        let Walk { tensors, compounds, mut values, .. } = walk;
        refuse_duplicates(heap, &tensors)?;
        let root_is_dict = children::is_dict(heap, pickle.root);
        let mut tops: Vec<Option<usize>> =
            tensors.iter().map(|found| found.name.top.filter(|_| root_is_dict)).collect();
        let mut tensors: Vec<_> = tensors.into_iter().map(|found| (found.name.text, found.tensor)).collect();
        let direct = container.tensors()?;
        if children::of(heap, pickle.root).is_some_and(|children| children.is_empty()) && !direct.is_empty() {
            // There is no pickle: the root is an empty dict that stands in.
            values.clear();
        }
        tensors.extend(direct);
        tops.resize(tensors.len(), None);
        let globals = Global::all(heap);
        Ok(Self { tensors, compounds, values, globals, left_out, tops, pickle })
    }

    /// The key of the root's dict under which the tensor number `index` lies; `None` where the root is
    /// no dict, or the tensor lies in it directly.
    pub fn top(&self, index: usize) -> Option<&str> {
        let (name, _) = self.tensors.get(index)?;
        let len = (*self.tops.get(index)?)?;
        (len < name.len()).then(|| name.get(..len)).flatten()
    }

    /// The objects that [`Value`]s refer to.
    pub fn heap(&self) -> &Heap<'a> {
        &self.pickle.heap
    }
}

fn visits(heap: &Heap<'_>) -> usize {
    heap.len().saturating_mul(VISITS_PER_OBJECT).saturating_add(VISITS)
}

fn name_bytes(pickle: &Pickle<'_>) -> usize {
    let len = usize::try_from(pickle.len).unwrap_or(usize::MAX);
    len.saturating_mul(NAME_BYTES_PER_BYTE).saturating_add(NAME_BYTES)
}

struct Found<'a> {
    name: Name,
    path: Vec<Step>,
    tensor: Tensor<'a>,
}

struct Name {
    text: String,
    /// Bytes of its first part, where that is a dict's key.
    top: Option<usize>,
}

/// One container on the way from the root, and what is left of it.
struct Level {
    id: ObjectId,
    children: std::vec::IntoIter<(Step, ObjectId)>,
}

struct Walk<'a, 'h> {
    heap: &'h Heap<'a>,
    rebuilder: Rebuilder<'a, 'h>,
    path: Vec<Step>,
    /// The containers on the path: one of them inside itself is a cycle.
    open: HashSet<ObjectId>,
    tensors: Vec<Found<'a>>,
    compounds: Vec<NamedCompound<'a>>,
    values: Vec<Value>,
    visits: usize,
    /// Bytes that the names to come may have.
    name_bytes: usize,
    name_limit: usize,
}

impl<'a> Walk<'a, '_> {
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
            Some(Rebuilt::Strided(tensor)) => {
                let name = self.name(id)?;
                self.found(name, tensor);
            }
            Some(Rebuilt::Compound(compound)) => self.found_compound(id, *compound)?,
            None => {
                let children = children::of(self.heap, id);
                // An empty dict or list is a value; a module without parameters is nothing.
                let is_empty = children.as_ref().is_some_and(Vec::is_empty);
                if is_empty && self.heap.instance(id).is_some() {
                    return Ok(None);
                }
                if let Some(children) = children.filter(|_| !is_empty) {
                    if self.open.insert(id) {
                        return Ok(Some(Level { id, children: children.into_iter() }));
                    }
                    self.value(id, true)?;
                } else {
                    self.value(id, false)?;
                }
            }
        }
        Ok(None)
    }

    fn value(&mut self, object: ObjectId, is_cycle: bool) -> Result<()> {
        let path = self.name(object)?.text;
        self.values.push(Value { path, object, is_cycle });
        Ok(())
    }

    fn found(&mut self, name: Name, tensor: Tensor<'a>) {
        self.tensors.push(Found { name, path: self.path.clone(), tensor });
    }

    /// A compound's parts stand among the tensors, named after it.
    fn found_compound(&mut self, id: ObjectId, compound: Compound<'a>) -> Result<()> {
        let (Name { text: name, top }, at) = (self.name(id)?, self.tensors.len());
        for (part, tensor) in &compound.parts {
            let text = if name.is_empty() { (*part).to_owned() } else { format!("{name}.{part}") };
            self.found(Name { text, top }, tensor.clone());
        }
        self.compounds.push(NamedCompound { name, compound, at });
        Ok(())
    }

    /// The name of the object `id`, at which the path has arrived.
    fn name(&mut self, id: ObjectId) -> Result<Name> {
        let (mut text, mut top) = (String::new(), None);
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
            if depth == 0 && matches!(step, Step::Key(_)) {
                top = Some(text.len());
            }
        }
        Ok(Name { text, top })
    }

    /// Tensors that the walk did not reach: a module's attributes that are none of its parameters and
    /// buffers, hooks, the insides of tensor subclasses.
    fn count_left_out(&self) -> usize {
        let missed = |id: &ObjectId| {
            let function = self.heap.instance(*id).and_then(|instance| Function::of(self.heap, instance));
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

fn refuse_duplicates(heap: &Heap<'_>, tensors: &[Found<'_>]) -> Result<()> {
    let mut names: HashMap<&str, &Found<'_>> = HashMap::with_capacity(tensors.len());
    for found in tensors {
        if let Some(first) = names.insert(&found.name.text, found) {
            return Err(Error::Duplicate {
                name: found.name.text.clone(),
                first: subscripts(heap, &first.path),
                second: subscripts(heap, &found.path),
            });
        }
    }
    Ok(())
}
