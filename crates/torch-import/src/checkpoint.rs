//! Reads a checkpoint: walks the pickle's root object once and names the tensors.
//!
//! A name is the path to a tensor, its parts joined by dots: dict keys, attributes, and indices of lists and tuples.
//! The name of a root object that is itself a tensor is empty.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::thread;

use byte_source::Observer;
use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt, HashSet};
use pickle_vm::{Heap, ObjectId, Pickle};
use safetensors_format::METADATA_KEY;
use self_cell::self_cell;
use tensor::{CompoundTensor, Tensor, TensorEntry, Tensors};

use crate::compound::CompoundItem;
use crate::container::{ContainerContents, HeaderTensors, PartContent, PickledPart, UnreadTensor, line_ends};
use crate::find_omissions;
use crate::item::{CheckpointItem, CheckpointValue, ItemContent, KeyEnds};
use crate::limits::CheckpointLimits;
use crate::omission::{OmissionReason, Omissions};
use crate::pickled_parts;
use crate::rebuild::Rebuilder;
use crate::walk::Walk;
use crate::{CheckpointNote, Container, Error, Global, Problem, Result, Risk, script_blocks, wrapper};

/// Maximum number of tensors that are listed with a number, because an earlier one has their name.
const TWINS_MAX: usize = 8;

/// Number of objects of a pickle from which a thread is worth its start.
const LARGE_HEAP: usize = 1 << 16;

/// The tensors and values of a checkpoint, in the file's order.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// Tensors and values, each with its name.
    pub items: Vec<CheckpointItem>,
    /// Classes and functions that the pickle names, judged when they are first asked for.
    globals: OnceLock<Vec<Global>>,
    /// Tensors, objects, storages and records of the file that `items` does not list.
    pub left_out: Omissions,
    /// Irregularities of the pickle's objects.
    pub notes: Vec<CheckpointNote>,
    /// Keys under which a trainer keeps the state of its optimizer; empty for files that do not say so.
    pub optimizer_keys: Vec<String>,
    /// Key under which a trainer keeps the weights once more, in another precision; they are taken on request only.
    pub copy_key: Option<String>,
    /// Tensors whose name an earlier one has.
    pub twins: Vec<TwinName>,
    /// Names of tensors that are in the files or in an index, and cannot be read, each with the reason.
    pub unreadable: Vec<(String, Error)>,
    /// Objects that the values refer to, over the bytes of the file; empty if the file has no pickle.
    pub(crate) pickles: Vec<LoadedPickle>,
}

/// Two tensors that have the same name, such as `a.b` for `['a']['b']` and for `['a.b']`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinName {
    pub name: String,
    /// Name under which the second tensor is listed.
    pub listed: String,
    /// Path of the first tensor, as Python subscripts.
    pub first: String,
    /// Path of the second tensor, as Python subscripts.
    pub second: String,
}

self_cell!(
    /// The objects of a pickle, and the container contents whose bytes they borrow.
    pub(crate) struct LoadedPickle {
        owner: Arc<ContainerContents>,
        #[covariant]
        dependent: Pickle,
    }

    impl { Debug }
);

impl LoadedPickle {
    fn globals(&self) -> Vec<Global> {
        let mut globals = Global::all(&self.borrow_dependent().heap);
        let modules = self.borrow_owner().script_modules();
        for global in &mut globals {
            global.recognise_script_class(&modules);
        }
        globals
    }
}

impl Checkpoint {
    /// Reads the pickle of `container` and rebuilds its tensors as views of the storages.
    ///
    /// # Errors
    /// When the pickle is damaged, a tensor cannot be rebuilt or does not fit its storage, or many
    /// tensors have the same name.
    pub fn read(container: &Container) -> Result<Self> {
        Self::read_with_observer(container, &())
    }

    /// Reads the pickle like [`read`](Self::read), with an observer that can stop it.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`Cancelled`](byte_source::Cancelled).
    pub fn read_with_observer(container: &Container, observer: &dyn Observer) -> Result<Self> {
        let mut checkpoint = Self::read_readable(container, observer)?;
        checkpoint.refuse_unreadable()?;
        Ok(checkpoint)
    }

    /// Reads the pickle like [`read_with_observer`](Self::read_with_observer), and lists the tensors that cannot be read.
    ///
    /// # Errors
    /// Those of [`read_with_observer`](Self::read_with_observer), for all else.
    pub fn read_readable(container: &Container, observer: &dyn Observer) -> Result<Self> {
        match container.contents().as_named() {
            Some(named) => Self::read_named(container, named, observer),
            None => Self::read_pickled(container, observer)
                .map_err(|error| line_ends::explain(error, &**container.source())),
        }
    }

    /// Refuses a checkpoint with a tensor that cannot be read.
    ///
    /// # Errors
    /// The reason for the first of them.
    pub fn refuse_unreadable(&mut self) -> Result<()> {
        if self.unreadable.is_empty() { Ok(()) } else { Err(self.unreadable.swap_remove(0).1) }
    }

    /// Lists the metadata and then the tensors of a container whose header names its tensors.
    fn read_named(
        container: &Container,
        HeaderTensors { tensors, metadata, unread, parts, .. }: &HeaderTensors,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let mut metadata_key = KeyEnds::NONE;
        metadata_key.set(0, Some(METADATA_KEY.len()));
        let value = |(key, value): &(String, CheckpointValue)| CheckpointItem {
            name: format!("{METADATA_KEY}.{key}"),
            content: ItemContent::Value(value.clone()),
            keys: metadata_key,
        };
        let located = container.located_tensors()?.into_iter();
        let located = located.map(|(name, tensor)| CheckpointItem::from_tensor(name, tensor));
        let mut items: Vec<CheckpointItem> = metadata.iter().map(value).chain(located).collect();
        items.extend(tensors.entries().filter_map(item_of));
        let reason = |(name, reason): &(String, UnreadTensor)| (name.clone(), reason.problem(name).into());
        let mut checkpoint =
            Self { items, unreadable: unread.iter().map(reason).collect(), ..Self::default() };
        for omission in container.unread_omissions() {
            checkpoint.left_out.add(omission.clone());
            if omission.reason == OmissionReason::Pickled {
                checkpoint
                    .notes
                    .push(pickled_parts::left_out_note(&omission.name, "it is an object, not a tensor"));
            }
        }
        for part in parts {
            checkpoint.add_part(part, observer)?;
        }
        if !parts.is_empty()
            && let Some((name, _)) = find_duplicate_name(&checkpoint.items)
        {
            return Err(Problem::DuplicateInParts { name }.into());
        }
        Ok(checkpoint)
    }

    /// Adds the tensors of an archive in an exported program. What is not the dict of the weights cannot keep them from being read.
    fn add_part(&mut self, part: &PickledPart, observer: &dyn Observer) -> Result<()> {
        let is_state = part.content == PartContent::StateDict;
        let container = match Container::from_part(part, observer) {
            Ok(container) => container,
            Err(error) if is_state => return Err(error),
            Err(error) => {
                observer.check()?;
                let reason =
                    UnreadTensor::Damaged(format!("record `{}`: {error}", part.record.escape_debug()));
                let unread = part.names().map(|name| (name.to_owned(), reason.problem(name).into()));
                self.unreadable.extend(unread);
                return Ok(());
            }
        };
        match Self::read_pickled(&container, observer) {
            Ok(inner) if is_state => {
                self.add_globals(inner.globals().iter().cloned());
                self.add_items(part, inner);
            }
            Ok(inner) => match inner.globals().iter().find(|global| global.risk() == Risk::Dangerous) {
                Some(global) => self.leave_out(part, &format!("its pickle names `{global}`")),
                None => self.add_items(part, inner),
            },
            Err(error) if is_state => return Err(error),
            Err(error) => {
                observer.check()?;
                self.leave_out(part, &format!("its pickle makes none: {error}"));
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, part: &PickledPart, why: &str) {
        for name in part.names() {
            self.notes.push(pickled_parts::left_out_note(name, why));
            self.left_out.add(pickled_parts::omission(name));
        }
    }

    fn add_items(&mut self, part: &PickledPart, inner: Self) {
        self.notes.extend(inner.notes);
        let added = pickled_parts::named_items(part, inner.items);
        for name in added.objects {
            self.notes.push(pickled_parts::left_out_note(&name, "it is an object, not a tensor"));
            self.left_out.add(pickled_parts::omission(&name));
        }
        self.items.extend(added.items);
        self.unreadable.extend(added.unread.into_iter().map(|(name, problem)| (name, problem.into())));
    }

    fn read_pickled(container: &Container, observer: &dyn Observer) -> Result<Self> {
        let contents = Arc::clone(container.contents());
        let objects = LoadedPickle::try_new(contents, |contents| contents.load(observer))?;
        let pickle = objects.borrow_dependent();
        let heap = &pickle.heap;
        let module = container.is_torchscript().then(|| wrapper::unwrap_module(heap, pickle.root)).flatten();
        let root = module.unwrap_or(pickle.root);
        let (walked, globals) = thread::scope(|scope| {
            let is_large = heap.len() >= LARGE_HEAP && byte_source::core_share() > 1;
            // The globals of a large pickle are judged meanwhile, on another core; if there is no thread, when they are asked for.
            let judge = || thread::Builder::new().spawn_scoped(scope, || objects.globals()).ok();
            let judged = if is_large { judge() } else { None };
            let walked = Self::walk_pickle(container, pickle, root, observer);
            (walked, judged.and_then(|judged| judged.join().ok()))
        });
        let globals = globals.map_or_else(OnceLock::new, OnceLock::from);
        let mut walked = walked?;
        if container.is_torchscript() {
            script_blocks::replace_blocks(heap, root, &mut walked.items);
        }
        Ok(Self { globals, pickles: vec![objects], ..walked })
    }

    /// Walks over the objects of a pickle from `root`, and rebuilds the tensors.
    fn walk_pickle(
        container: &Container,
        pickle: &Pickle<'_>,
        root: ObjectId,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let heap = &pickle.heap;
        let len = usize::try_from(pickle.len).unwrap_or(usize::MAX);
        let limits = CheckpointLimits::for_pickle(len.min(container.counted_pickle_len()));
        let rebuilder = || Rebuilder::new(container, heap);
        let walk = || Walk::new(heap, rebuilder(), observer, &limits, container.storages_len());
        let mut first = walk();
        first.run(root)?;
        let mut items = std::mem::take(&mut first.found_items);
        let mut twins: Vec<TwinName> = Vec::new();
        while let Some((name, duplicates)) = find_duplicate_name(&items) {
            // The second walk for the paths is needed only here.
            let mut paths = walk().item_paths(root, duplicates)?.into_iter();
            let (first, second) = (paths.next().unwrap_or_default(), paths.next().unwrap_or_default());
            let number = twins.iter().filter(|twin| twin.name == name).count().saturating_add(2);
            let item = items.get_mut(duplicates[1]).filter(|item| item.name == name);
            let Some(item) = item.filter(|_| twins.len() < TWINS_MAX) else {
                return Err(Problem::Duplicate { name, first, second }.into());
            };
            item.set_number(number);
            twins.push(TwinName { name, listed: item.name.clone(), first, second });
        }
        first.rebuilder.refuse_shared_conflicts()?;
        let left_out = find_omissions::find_omissions(&mut first, container, root)?;
        let mut notes = first.notes();
        notes.extend(twins.iter().cloned().map(CheckpointNote::SameName));
        Ok(Self { items, left_out, notes, twins, ..Self::default() })
    }

    /// Returns the classes and functions that the pickle names.
    pub fn globals(&self) -> &[Global] {
        self.globals.get_or_init(|| self.pickles.first().map(LoadedPickle::globals).unwrap_or_default())
    }

    /// Adds the globals of another pickle, each unless there is one of its name.
    pub(crate) fn add_globals(&mut self, more: impl IntoIterator<Item = Global>) {
        self.globals();
        let Some(globals) = self.globals.get_mut() else { return };
        let name = |global: &Global| (global.module.clone(), global.name.clone());
        let known: HashSet<_> = globals.iter().map(name).collect();
        globals.extend(more.into_iter().filter(|global| !known.contains(&name(global))));
    }

    /// Returns the strided tensors of all items; see [`CheckpointItem::tensors`].
    pub fn tensors(&self) -> impl Iterator<Item = (Cow<'_, str>, &Tensor)> {
        self.items.iter().flat_map(CheckpointItem::tensors)
    }

    /// Collects the tensors in one list. The parts of a compound tensor are named `NAME.PART`.
    pub fn to_tensors(&self) -> Tensors {
        let is_value = |item: &CheckpointItem| matches!(item.content, ItemContent::Value(_));
        collect_tensors(self.items.iter().filter(|item| !is_value(item)).cloned(), self.items.len())
    }

    /// As [`to_tensors`](Self::to_tensors), without copies of the names and shapes.
    pub fn into_tensors(self) -> Tensors {
        let room = self.items.len();
        collect_tensors(self.items.into_iter(), room)
    }

    /// Returns the names and the compound tensors.
    pub fn compounds(&self) -> impl Iterator<Item = (&str, &CompoundItem)> {
        self.items.iter().filter_map(|item| match &item.content {
            ItemContent::Compound(compound) => Some((item.name.as_str(), compound.as_ref())),
            _ => None,
        })
    }

    /// Returns the names and the values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &CheckpointValue)> {
        self.items.iter().filter_map(|item| match &item.content {
            ItemContent::Value(value) => Some((item.name.as_str(), value)),
            _ => None,
        })
    }

    /// Returns the values without the metadata entry `format: pt`, which every safetensors file from PyTorch has.
    pub fn notable_values(&self) -> impl Iterator<Item = (&str, &CheckpointValue)> {
        self.values().filter(|(name, value)| {
            *name != "__metadata__.format" || !matches!(value, CheckpointValue::Text(text) if **text == *"pt")
        })
    }

    /// Returns the length of all pickles in bytes; 0 if there is none.
    pub fn pickle_len(&self) -> u64 {
        let lengths = self.pickles.iter().map(|objects| objects.borrow_dependent().len);
        lengths.fold(0, u64::saturating_add)
    }

    /// Returns the heap of the first pickle, to which the [`CheckpointValue`]s of a single file refer; `None` if there is no
    /// pickle.
    pub fn heap(&self) -> Option<&Heap<'_>> {
        self.heap_of(0)
    }

    /// Returns the object that the first pickle returns; `None` if there is no pickle.
    pub fn root(&self) -> Option<ObjectId> {
        Some(self.pickles.first()?.borrow_dependent().root)
    }

    /// Returns the heap of pickle number `pickle`, to which [`CheckpointValue`]s refer. A checkpoint that was joined from parts has
    /// one for each part with values.
    pub fn heap_of(&self, pickle: u32) -> Option<&Heap<'_>> {
        Some(&self.pickles.get(pickle as usize)?.borrow_dependent().heap)
    }
}

/// Creates the item of a tensor in a list.
fn item_of(entry: TensorEntry<'_>) -> Option<CheckpointItem> {
    let (compound, parts) = match entry {
        TensorEntry::Tensor(name, tensor) => {
            return Some(CheckpointItem::from_tensor(name.to_owned(), tensor.clone()));
        }
        TensorEntry::Quantized(compound, parts) | TensorEntry::Compound(compound, parts) => (compound, parts),
        _ => return None,
    };
    let CompoundTensor { name, kind, dtype, shape, .. } = compound.clone();
    let part_name = |full: &str| full.strip_prefix(&name)?.strip_prefix('.').map(str::to_owned);
    let part = |(full, tensor): &(String, Tensor)| {
        (part_name(full).unwrap_or_else(|| full.clone()).into(), tensor.clone())
    };
    let parts = parts.iter().map(part).collect();
    let content = ItemContent::Compound(Arc::new(CompoundItem { kind, dtype, shape, parts, shard: None }));
    Some(CheckpointItem { name, content, keys: KeyEnds::NONE })
}

fn collect_tensors(items: impl Iterator<Item = CheckpointItem>, room: usize) -> Tensors {
    let mut tensors = Tensors::with_capacity(room);
    for item in items {
        if let ItemContent::Compound(compound) = &item.content {
            let CompoundItem { kind, dtype, shape, .. } = compound.as_ref();
            let parts = item.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone()));
            tensors.push_compound(item.name.clone(), (kind.clone(), *dtype, shape.clone()), parts);
        } else if let ItemContent::Tensor(tensor) = item.content {
            tensors.push(item.name, tensor);
        }
    }
    tensors
}

/// Finds the first name that two tensors share, and the indices of their items.
pub(crate) fn find_duplicate_name(items: &[CheckpointItem]) -> Option<(String, [usize; 2])> {
    // Different hashes prove that names differ, and take an eighth of the memory of a map of the names.
    let state = RandomState::default();
    let names = items.iter().flat_map(|item| {
        let own =
            matches!(item.content, ItemContent::Compound(_)).then_some(Cow::Borrowed(item.name.as_str()));
        own.into_iter().chain(item.tensors().map(|(name, _)| name))
    });
    let mut hashes = Vec::with_capacity(items.len());
    hashes.extend(names.map(|name| state.hash_one(name)));
    hashes.sort_unstable();
    if !hashes.windows(2).any(|pair| pair.first() == pair.last()) {
        return None;
    }
    let mut names: HashMap<Cow<'_, str>, usize> = HashMap::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        // The name of a compound tensor without parts must be unique as well.
        let own = match &item.content {
            ItemContent::Compound(compound) if compound.parts.is_empty() => {
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
