//! Walks the root object once and names the tensors.
//!
//! A name is the path to a tensor, its parts joined by dots: dict keys, attributes, and indices of lists
//! and tuples. A tensor that is the root itself has the empty name.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use pickle_vm::{Heap, Pickle};
use safetensors_format::METADATA;
use self_cell::self_cell;
use tensor::{Tensor, Tensors};

use crate::compound::Compound;
use crate::container::Contents;
use crate::item::{Content, Item, Value};
use crate::left_out;
use crate::limits::Limits;
use crate::omission::LeftOut;
use crate::rebuild::Rebuilder;
use crate::walk::Walk;
use crate::{Container, Error, Format, Global, Note, Result, wrapped};

/// What a checkpoint holds, in the file's order.
#[derive(Debug)]
pub struct Checkpoint {
    /// The tensors and values, each with its name.
    pub items: Vec<Item>,
    /// The classes and functions that the pickle names.
    pub globals: Vec<Global>,
    /// What the file holds and `items` does not list.
    pub left_out: LeftOut,
    /// What is unusual about the objects.
    pub notes: Vec<Note>,
    /// The objects that the values refer to, over the bytes of the file; `None` if it has no pickle.
    objects: Option<Objects>,
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

impl Checkpoint {
    /// Reads the pickle of `container` and gives its objects their meaning, over the storages.
    ///
    /// # Errors
    /// When the pickle is damaged, a tensor cannot be rebuilt or does not fit its storage, or two
    /// tensors have the same name.
    pub fn read(container: &Container) -> Result<Self> {
        match container.contents().as_named() {
            Some(named) => Self::named(container, &named.metadata),
            None => Self::pickled(container),
        }
    }

    /// The tensors that a header names, after its metadata.
    fn named(container: &Container, metadata: &[(String, String)]) -> Result<Self> {
        let text = |(key, text): &(String, String)| Item {
            name: format!("{METADATA}.{key}"),
            content: Content::Value(Value::Text(text.as_str().into())),
            root_key: u32::try_from(METADATA.len()).ok(),
        };
        let tensor = |(name, tensor)| Item { name, content: Content::Tensor(tensor), root_key: None };
        let items = metadata.iter().map(text).chain(container.tensors()?.into_iter().map(tensor)).collect();
        let (left_out, notes) = (LeftOut::default(), Vec::new());
        Ok(Self { items, globals: Vec::new(), left_out, notes, objects: None })
    }

    fn pickled(container: &Container) -> Result<Self> {
        let objects = Objects::try_new(Arc::clone(container.contents()), |contents| contents.load())?;
        let pickle = objects.borrow_dependent();
        let heap = &pickle.heap;
        let root = match container.format() {
            Format::TorchScript => wrapped::inner(heap, pickle.root).unwrap_or(pickle.root),
            _ => pickle.root,
        };
        let limits = Limits::for_pickle(usize::try_from(pickle.len).unwrap_or(usize::MAX));
        let walk = || Walk::new(heap, Rebuilder::new(container, heap), &limits, container.storages_len());
        let mut first = walk();
        first.run(root)?;
        let items = std::mem::take(&mut first.found);
        if let Some((name, duplicates)) = duplicates(&items) {
            // Only an error needs the paths.
            let mut paths = walk().paths(root, duplicates)?.into_iter();
            let (first, second) = (paths.next().unwrap_or_default(), paths.next().unwrap_or_default());
            return Err(Error::Duplicate { name, first, second });
        }
        first.rebuilder.finish()?;
        let left_out = left_out::find(&mut first, container, root)?;
        let notes = first.notes();
        let globals = Global::all(heap);
        Ok(Self { items, globals, left_out, notes, objects: Some(objects) })
    }

    /// The strided tensors of all items; see [`Item::tensors`].
    pub fn tensors(&self) -> impl Iterator<Item = (Cow<'_, str>, &Tensor)> {
        self.items.iter().flat_map(Item::tensors)
    }

    /// The tensors in one list. The parts of a compound tensor are named `NAME.PART`.
    pub fn to_tensors(&self) -> Tensors {
        let mut tensors = Tensors::with_capacity(self.items.len());
        for item in &self.items {
            let parts = item.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone()));
            match &item.content {
                Content::Compound(compound) => {
                    let Compound { kind, dtype, shape, .. } = compound.as_ref();
                    let whole = (kind.clone(), *dtype, shape.clone());
                    tensors.push_compound(item.name.clone(), whole, parts);
                }
                Content::Tensor(_) | Content::Value(_) => tensors.extend(parts),
            }
        }
        tensors
    }

    /// The compound tensors and their names.
    pub fn compounds(&self) -> impl Iterator<Item = (&str, &Compound)> {
        self.items.iter().filter_map(|item| match &item.content {
            Content::Compound(compound) => Some((item.name.as_str(), compound.as_ref())),
            _ => None,
        })
    }

    /// The values and their names.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.items.iter().filter_map(|item| match &item.content {
            Content::Value(value) => Some((item.name.as_str(), value)),
            _ => None,
        })
    }

    /// The values without safetensors' `format: pt`, which every file from PyTorch has and which says nothing.
    pub fn notable_values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values().filter(|(name, value)| {
            *name != "__metadata__.format" || !matches!(value, Value::Text(text) if **text == *"pt")
        })
    }

    /// How long the pickle is, in bytes; 0 if there is none.
    pub fn pickle_len(&self) -> u64 {
        self.objects.as_ref().map_or(0, |objects| objects.borrow_dependent().len)
    }

    /// The objects that [`Value`]s refer to; `None` if there is no pickle.
    pub fn heap(&self) -> Option<&Heap<'_>> {
        Some(&self.objects.as_ref()?.borrow_dependent().heap)
    }
}

/// The first name that two tensors have, and the numbers of their items.
fn duplicates(items: &[Item]) -> Option<(String, [usize; 2])> {
    // Names whose hashes differ are different. The hashes take an eighth of the memory of a map of the names.
    let state = RandomState::default();
    let names = items.iter().flat_map(|item| {
        let own = matches!(item.content, Content::Compound(_)).then_some(Cow::Borrowed(item.name.as_str()));
        own.into_iter().chain(item.tensors().map(|(name, _)| name))
    });
    let mut hashes: Vec<u64> = names.map(|name| state.hash_one(name)).collect();
    hashes.sort_unstable();
    if !hashes.windows(2).any(|pair| pair.first() == pair.last()) {
        return None;
    }
    let mut names: HashMap<Cow<'_, str>, usize> = HashMap::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        // A compound tensor without parts has a name all the same.
        let own = match &item.content {
            Content::Compound(compound) if compound.parts.is_empty() => {
                Some(Cow::Borrowed(item.name.as_str()))
            }
            _ => None,
        };
        for name in own.into_iter().chain(item.tensors().map(|(name, _)| name)) {
            if let Some(first) = names.insert(name.clone(), index) {
                return Some((name.into_owned(), [first, index]));
            }
        }
    }
    None
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    // A server keeps checkpoints and passes their tensors to its threads.
    is_shared::<Checkpoint>();
    is_shared::<Container>();
    is_shared::<Tensor>();
};
