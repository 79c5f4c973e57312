//! Rebuilds tensors: computes the results of recorded calls of `torch._utils._rebuild_*` and similar functions.
//!
//! Facts: `torch/_utils.py`, `torch/_tensor.py` of PyTorch 2.15; `TensorBase.__new__` and `tensor` in
//! `fastai/torch_core.py` of fastai 2.8.12. Offsets, sizes and strides count elements.

mod call;
mod compound;
mod function;
mod numpy;
mod sharded;
mod state;
mod storages;
mod subclass;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use pickle_vm::{Heap, Object, ObjectId};
use tensor::{Dims, Dtype, Storage, Tensor};

use crate::compound::Compound;
use crate::limits::Limits;
use crate::persistent::{PersistentTensor, StorageRef, module_class};
use crate::{Container, Error, Result, lists};
use call::{Args, Call, Then};
pub(crate) use function::Function;
pub use function::count_tensors;
use storages::{Stored, differs};

/// Maximum nesting of rebuild calls, such as a parameter around a subclass around a tensor. PyTorch nests three.
const MAX_DEPTH: usize = 16;

/// Dtype that PyTorch assigns to the elements of an untyped storage.
const UNTYPED: Dtype = Dtype::UInt8;
/// Calls that may wrap a tuple or list of sizes.
const SIZES: &[(&str, &str)] = &[("torch", "Size")];

/// The result of a rebuild call.
#[derive(Clone, Debug)]
pub(crate) enum Rebuilt {
    Strided(Tensor),
    /// Shared, so that a compound tensor with several names is in memory once.
    Compound(Arc<Compound>),
}

/// Rebuilds tensors, each once: tensors of one object share it, and tensors of one storage key share its storage.
pub(crate) struct Rebuilder<'h> {
    container: &'h Container,
    heap: &'h Heap<'h>,
    /// For each object, true if it was rebuilt.
    is_done: Vec<bool>,
    /// Rebuilt tensors, except those over records: these may number a million, and rebuilding them again is cheap.
    done: HashMap<ObjectId, Rebuilt>,
    dims: Dims,
    /// Bytes that may still be copied, out of `limit`.
    left: Cell<usize>,
    limit: usize,
    /// For each record, the first persistent object that refers to all of it.
    records: Vec<Option<ObjectId>>,
    /// Storages without an entry in `records`, by the keys under which PyTorch identifies them.
    storages: HashMap<Cow<'h, str>, Stored<'h>>,
    /// Number of references to storages read so far.
    references: usize,
    /// A bit for each object, set if it is the persistent id of a storage that was read.
    read: Vec<u64>,
    /// Objects other than tensors that did not change after they were copied.
    checked: HashSet<ObjectId>,
    /// Storages loaded from byte strings, by the calls that load them.
    loaded: HashMap<ObjectId, (Option<Dtype>, Storage)>,
}

impl<'h> Rebuilder<'h> {
    pub(crate) fn new(container: &'h Container, heap: &'h Heap<'h>) -> Self {
        let limit = Limits::for_pickle(container.pickle().len()).copied;
        Self {
            container,
            heap,
            is_done: vec![false; heap.len()],
            done: HashMap::new(),
            dims: Dims::default(),
            left: Cell::new(limit),
            limit,
            records: vec![None; container.storages_len()],
            storages: HashMap::new(),
            references: 0,
            read: vec![0; heap.len().div_ceil(64)],
            checked: HashSet::new(),
            loaded: HashMap::new(),
        }
    }

    /// Refuses a pickle that changes data which rebuilt tensors may share, or that describes one of their storages in
    /// two ways.
    ///
    /// # Errors
    /// When the pickle changes a storage, the elements of a tensor, a function or a class; when it calls a function
    /// that changes its argument; when two persistent ids of one storage contradict each other.
    pub(crate) fn finish(&self) -> Result<()> {
        call::refuse_shared_changes(self.heap)?;
        call::refuse_calls_in_place(self.heap)?;
        let unread = |id: &&ObjectId| !self.is_read(**id);
        for id in self.heap.persistent_objects().iter().filter(unread) {
            let Ok(reference) = StorageRef::read(self.heap, *id) else { continue };
            if let Some(first) = self.known(&reference)?
                && !first.reference.is_loaded_like(&reference)
            {
                return Err(self.bad(*id, &differs(&first.reference, &reference)));
            }
        }
        Ok(())
    }

    /// Returns true if a rebuilt tensor uses the storage with the persistent id `id`.
    fn is_read(&self, id: ObjectId) -> bool {
        self.read.get(id.index() / 64).is_some_and(|bits| bits >> (id.index() % 64) & 1 == 1)
    }

    /// Returns true if the instance `id` was rebuilt.
    pub(crate) fn is_done(&self, id: ObjectId) -> bool {
        self.is_done.get(id.index()).copied().unwrap_or(false)
    }

    /// Returns for each record of the file whether a rebuilt tensor uses it.
    pub(crate) fn used_records(&self) -> Vec<bool> {
        let mut used: Vec<bool> = self.records.iter().map(Option::is_some).collect();
        let parts =
            self.storages.values().filter_map(|stored| self.container.record_number(&stored.reference.key));
        for number in parts {
            if let Some(used) = used.get_mut(number as usize) {
                *used = true;
            }
        }
        used
    }

    /// Returns the tensor that the object `id` represents; `None` if it is not a tensor.
    pub(crate) fn rebuild(&mut self, id: ObjectId) -> Result<Option<Rebuilt>> {
        self.at_depth(id, 0)
    }

    fn at_depth(&mut self, id: ObjectId, depth: usize) -> Result<Option<Rebuilt>> {
        let heap = self.heap;
        if self.is_done(id)
            && let Some(done) = self.done.get(&id)
        {
            return Ok(Some(done.clone()));
        }
        let Some(call) = Call::new(heap, id) else {
            return Ok(match heap.get(id) {
                Object::Persistent(_) => self.persistent(id)?.map(Rebuilt::Strided),
                Object::Instance(instance) => {
                    // Each object is checked once, because the walk finds shared containers repeatedly.
                    if call::may_have_changed(heap, instance) && self.checked.insert(id) {
                        call::refuse_later_changes(heap, id)?;
                    }
                    None
                }
                _ => None,
            });
        };
        if depth >= MAX_DEPTH {
            return Err(self.bad(id, "too many tensors wrap each other"));
        }
        let function = call.function;
        let (args, built) = call.args_and_state()?;
        let rebuilt = match (function, built) {
            (Function::NumpyArray, Some(built)) => numpy::array(self, built)?.map(Rebuilt::Strided),
            // A tensor without elements, to which BUILD assigns the data.
            (Function::SetState, Some(built)) => Some(state::built(self, args, None, built, depth)?),
            (Function::Wrapper, Some(built)) if args.all().is_empty() => {
                Some(state::built(self, args, None, built, depth)?)
            }
            (Function::FromDevice, Some(_)) => {
                return Err(args
                    .then
                    .bad("the pickle sets a state on its result (BUILD), which may be its argument"));
            }
            (function, Some(built)) => {
                let made = self.call(function, args, depth)?;
                Some(state::built(self, args, made, built, depth)?)
            }
            (function, None) => self.call(function, args, depth)?,
        };
        if let Some(rebuilt) = &rebuilt {
            if let Some(is_done) = self.is_done.get_mut(id.index()) {
                *is_done = true;
            }
            let of_record = |tensor: &Tensor| tensor.storage().record_number().is_some();
            if !matches!(rebuilt, Rebuilt::Strided(tensor) if of_record(tensor)) {
                self.done.insert(id, rebuilt.clone());
            }
        }
        Ok(rebuilt)
    }

    /// Computes the result of `function(*args)`.
    fn call(&mut self, function: Function, args: Args<'h>, depth: usize) -> Result<Option<Rebuilt>> {
        let inner = depth.saturating_add(1);
        let strided = |tensor| Some(Rebuilt::Strided(tensor));
        let made = |compound| Some(Rebuilt::Compound(Arc::new(compound)));
        let bad = |reason: &str| args.then.bad(reason);
        Ok(match function {
            Function::Tensor => strided(self.view(args, None, None)?),
            Function::TensorV2 => strided(self.view(args, None, args.nth(6))?),
            Function::TensorV3 => {
                let dtype = dtype(args.then, args.nth(6))?;
                strided(self.view(args, Some(dtype), args.nth(7))?)
            }
            Function::Wrapper => Some(self.first(args, inner)?),
            Function::ParameterWithState => {
                let rebuilt = self.first(args, inner)?;
                match args.nth(3) {
                    Some(attributes) => {
                        Some(state::with_attributes(self, args.then, rebuilt, attributes, inner)?)
                    }
                    None => return Err(bad("expected a state")),
                }
            }
            Function::FromDevice => {
                let rebuilt = self.first(args, inner)?;
                // The dtype argument must be that of the data.
                if let (Some(wanted), Rebuilt::Strided(tensor)) = (args.nth(1), &rebuilt)
                    && let Ok(wanted) = dtype(args.then, Some(wanted))
                    && wanted != tensor.dtype()
                {
                    return Err(bad(&format!("its dtype is {wanted}, but its data are {}", tensor.dtype())));
                }
                Some(rebuilt)
            }
            Function::FromType | Function::FromTypeV2 => self.of_type(function, args, inner)?,
            Function::Sparse => made(compound::sparse(self, args)?),
            Function::Quantized => made(compound::quantized(self, args)?),
            Function::FastaiTensor => {
                let tensor = self.view(of_fastai_class(args)?, None, args.nth(7))?;
                if tensor.dtype() == Dtype::Float64 {
                    return Err(bad("fastai's classes round float64 to float32, which is not supported"));
                }
                strided(tensor)
            }
            Function::FastaiQuantized => made(compound::quantized(self, of_fastai_class(args)?)?),
            Function::Nested => made(compound::nested(self, args)?),
            Function::Jagged => made(compound::jagged(self, args)?),
            Function::Meta => made(compound::meta(self, args)?),
            Function::WrapperSubclass => made(subclass::without_attributes(self, args)?),
            // Arrays of objects and of text are values, not tensors.
            Function::NumpyBuffer => numpy::buffer(self, args)?.map(Rebuilt::Strided),
            Function::LoadedStorage => {
                let (dtype, storage) = self.loaded(args)?;
                let dtype = dtype.unwrap_or(Dtype::UInt8);
                let numel = storage.len().checked_div(dtype.size()).unwrap_or(0);
                strided(Tensor::new(dtype, vec![numel], vec![1], 0, storage)?)
            }
            // Both get their data from BUILD.
            Function::SetState | Function::NumpyArray => return Err(bad("it has no state")),
            Function::Unread => return Err(bad("this function is not supported")),
        })
    }

    /// Rebuilds a tensor subclass from `_rebuild_from_type(func, type, args, dict)` or its second version.
    fn of_type(&mut self, version: Function, args: Args<'h>, depth: usize) -> Result<Option<Rebuilt>> {
        let then = args.then;
        let &[function, class, inner, ref state @ ..] = args.all() else {
            return Err(then.bad("expected a function, a class and arguments"));
        };
        let names = then.global(function);
        let Some(function) = names.and_then(|(module, name)| Function::from_names(module, name)) else {
            return Err(then.bad("its function is not supported"));
        };
        if depth >= MAX_DEPTH {
            return Err(then.bad("too many tensors wrap each other"));
        }
        let inner = args.inner(inner)?;
        let state = state.first().copied();
        if function == Function::WrapperSubclass {
            return subclass::with_attributes(self, inner, class, state, depth).map(Some);
        }
        let Some(rebuilt) = self.call(function, inner, depth)? else { return Ok(None) };
        match (version, state) {
            (Function::FromTypeV2, Some(state)) if function == Function::FromDevice => {
                state::refuse_data(then, state)?;
                Ok(Some(rebuilt))
            }
            (Function::FromTypeV2, Some(state)) => {
                state::with_attributes(self, then, rebuilt, state, depth).map(Some)
            }
            // The first version replaces `__dict__`, where a name such as `data` is an ordinary attribute.
            _ => Ok(Some(rebuilt)),
        }
    }

    /// Returns the tensor that is the first argument of a call.
    fn first(&mut self, args: Args<'h>, depth: usize) -> Result<Rebuilt> {
        match args.nth(0) {
            Some(data) => self.argument(args.then, data, depth),
            None => Err(args.then.bad("expected a tensor")),
        }
    }

    /// Returns the tensor `id`, which is an argument of a call.
    fn argument(&mut self, then: Then<'h>, id: ObjectId, depth: usize) -> Result<Rebuilt> {
        then.unchanged(id)?;
        self.at_depth(id, depth)?.ok_or_else(|| then.bad("expected a tensor"))
    }

    /// Returns the strided tensor `id`, which is a part of a compound tensor.
    fn part(&mut self, then: Then<'h>, id: ObjectId) -> Result<Tensor> {
        then.unchanged(id)?;
        match self.at_depth(id, 1)? {
            Some(Rebuilt::Strided(tensor)) => Ok(tensor),
            _ => Err(then.bad("one of its parts is not a plain tensor")),
        }
    }

    /// Rebuilds a strided view from the arguments `(storage, offset, size, stride, …)`.
    fn view(&mut self, args: Args<'h>, dtype: Option<Dtype>, metadata: Option<ObjectId>) -> Result<Tensor> {
        let then = args.then;
        let &[storage, offset, size, stride, ..] = args.all() else {
            return Err(then.bad("expected a storage, an offset, a size and a stride"));
        };
        let offset = then.number(offset, "the storage offset")?;
        let size = self.numbers(then, size, "the size")?;
        let stride = self.numbers(then, stride, "the stride")?;
        let (stored, storage) = self.storage(then, storage, dtype)?;
        let dtype = dtype.or(stored).unwrap_or(UNTYPED);
        let tensor = self.dims.shared(Tensor::new(dtype, size, stride, offset, storage)?);
        match metadata {
            Some(metadata) => compound::resolved(then, tensor, metadata),
            None => Ok(tensor),
        }
    }

    /// Returns the tensor that a persistent id represents: a tensor of a 0.1 checkpoint, or all elements (or bytes) of
    /// a storage; `None` for a class.
    fn persistent(&mut self, id: ObjectId) -> Result<Option<Tensor>> {
        if module_class(self.heap, id).is_some() {
            return Ok(None);
        }
        if let Some(PersistentTensor { storage, shape, stride, offset }) =
            self.container.persistent_tensor(self.heap, id)
        {
            let dtype = storage.dtype.unwrap_or(UNTYPED);
            let storage = self.described(id, storage)?;
            return Ok(Some(Tensor::new(dtype, shape.clone(), stride.clone(), *offset, storage)?));
        }
        let numel = StorageRef::read(self.heap, id)?.len();
        let (dtype, storage) = self.stored(id, id, None)?;
        Ok(Some(Tensor::new(dtype.unwrap_or(UNTYPED), vec![numel], vec![1], 0, storage)?))
    }

    /// Deducts the bytes copied for the call `id` from the budget.
    pub(crate) fn copies(&self, id: ObjectId, bytes: usize) -> Result<()> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| Error::Limit {
            what: "bytes of sizes, strides and numbers that tensors share",
            offset: self.heap.offset(id),
            limit: self.limit,
        })?;
        self.left.set(left);
        Ok(())
    }

    /// Returns the non-negative integers of a tuple, a list, or a `torch.Size` of either.
    fn numbers(&self, then: Then<'h>, list: ObjectId, what: &str) -> Result<Vec<u64>> {
        let list = then.only_argument(list, SIZES)?.unwrap_or(list);
        let items = then.items(list)?.ok_or_else(|| then.bad(&format!("{what} is not a tuple")))?;
        self.copies(then.id(), items.len().saturating_mul(size_of::<u64>()))?;
        // `collect` could reserve more than the deducted bytes.
        let mut numbers = Vec::with_capacity(items.len());
        for item in items {
            numbers.push(then.number(*item, what)?);
        }
        Ok(numbers)
    }

    /// Builds an error about the call `id`.
    pub(crate) fn bad(&self, id: ObjectId, reason: &str) -> Error {
        bad(self.heap, id, reason)
    }
}

/// Returns the arguments of a fastai function without the first, a class. The effect of the constructor on the tensor
/// is known only for fastai's own classes and classes derived from them.
fn of_fastai_class(args: Args<'_>) -> Result<Args<'_>> {
    match args.nth(0).and_then(|class| args.then.global(class)) {
        Some((module, _)) if !lists::is_inside(module) => Ok(args.from(1)),
        _ => Err(args.then.bad("expected one of fastai's classes")),
    }
}

/// Returns the `torch.dtype` that the pickle names as a global.
fn dtype(then: Then<'_>, name: Option<ObjectId>) -> Result<Dtype> {
    match name.and_then(|name| then.global(name)) {
        Some(("torch", name)) => Dtype::from_name(name)
            .ok_or_else(|| then.bad(&format!("dtype `torch.{}` is not supported", name.escape_debug()))),
        _ => Err(then.bad("expected a dtype")),
    }
}

/// Builds an error about the call `id`.
pub(crate) fn bad(heap: &Heap<'_>, id: ObjectId, reason: &str) -> Error {
    let names = heap.instance(id).and_then(|instance| heap.global(instance.callable));
    let function = names.map_or_else(
        || heap.get(id).type_name().to_owned(),
        |(module, name)| format!("{}.{}", module.escape_debug(), name.escape_debug()),
    );
    Error::Rebuild { function, offset: heap.offset(id), reason: reason.to_owned() }
}
