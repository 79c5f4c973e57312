//! Rebuilds tensors: computes the results of recorded calls of `torch._utils._rebuild_*` and similar functions.
//!
//! Facts: `torch/_utils.py`, `torch/_tensor.py` of PyTorch 2.15; `TensorBase.__new__` and `tensor` in
//! `fastai/torch_core.py` of fastai 2.8.12. Offsets, sizes and strides count elements.

mod call;
mod changes;
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
use tensor::{DimsInterner, Dtype, Storage, Tensor};

use crate::compound::CompoundItem;
use crate::limits::CheckpointLimits;
use crate::persistent::{PersistentTensor, StorageRef, module_class};
use crate::{Container, Error, Problem, Result, lists};
use call::{CallArgs, CallSnapshot, RebuildCall};
pub use function::count_tensors;
pub(crate) use function::{CalledFunctions, RebuildFunction};
use storages::{ReferencedStorage, storage_contradiction};

/// Maximum nesting of rebuild calls, such as a parameter around a subclass around a tensor. PyTorch nests three.
const REBUILD_DEPTH_MAX: usize = 16;

/// Dtype that PyTorch assigns to the elements of an untyped storage.
const UNTYPED_DTYPE: Dtype = Dtype::UInt8;
/// Calls that may wrap a tuple or list of sizes.
const SIZE_WRAPPERS: &[(&str, &str)] = &[("torch", "Size")];

/// The result of a rebuild call.
#[derive(Clone, Debug)]
pub(crate) enum Rebuilt {
    Strided(Tensor),
    /// Shared, so that a compound tensor with several names is in memory once.
    Compound(Arc<CompoundItem>),
}

/// Rebuilds tensors, each once: tensors of one object share it, and tensors of one storage key share its storage.
pub(crate) struct Rebuilder<'h> {
    container: &'h Container,
    heap: &'h Heap<'h>,
    /// For each object, true if it was rebuilt.
    rebuilt_flags: Vec<bool>,
    /// Rebuilt tensors, except those over records: these may number a million, and rebuilding them again is cheap.
    rebuilt_tensors: HashMap<ObjectId, Rebuilt>,
    dims: DimsInterner,
    /// Shape and stride of the tensor that is being made.
    new_dims: Vec<u64>,
    functions: CalledFunctions<'h>,
    /// Bytes that may still be copied, out of `limit`.
    copy_budget: Cell<usize>,
    copy_limit: usize,
    /// For each record, the first persistent object that refers to all of it.
    records: Vec<Option<ObjectId>>,
    /// Storages without an entry in `records`, by the keys under which PyTorch identifies them.
    storages: HashMap<Cow<'h, str>, ReferencedStorage<'h>>,
    /// Number of references to storages read so far.
    references: usize,
    /// A bit for each object, set if it is the persistent id of a storage that was read.
    read_storage_bits: Vec<u64>,
    /// Objects other than tensors that did not change after they were copied.
    unchanged_objects: HashSet<ObjectId>,
    /// Storages loaded from byte strings, by the calls that load them.
    loaded_storages: HashMap<ObjectId, (Option<Dtype>, Storage)>,
}

impl<'h> Rebuilder<'h> {
    pub(crate) fn new(container: &'h Container, heap: &'h Heap<'h>) -> Self {
        let limit = CheckpointLimits::for_pickle(container.counted_pickle_len()).copied;
        Self {
            container,
            heap,
            rebuilt_flags: vec![false; heap.len()],
            rebuilt_tensors: HashMap::new(),
            dims: DimsInterner::default(),
            new_dims: Vec::new(),
            functions: CalledFunctions::new(heap),
            copy_budget: Cell::new(limit),
            copy_limit: limit,
            records: vec![None; container.storages_len()],
            storages: HashMap::new(),
            references: 0,
            read_storage_bits: vec![0; heap.len().div_ceil(64)],
            unchanged_objects: HashSet::new(),
            loaded_storages: HashMap::new(),
        }
    }

    /// Refuses a pickle that changes data which rebuilt tensors may share, or that describes one of their storages in
    /// two ways.
    ///
    /// # Errors
    /// When the pickle changes a storage, the elements of a tensor, a function or a class; when it calls a function
    /// that changes its argument; when two persistent ids of one storage contradict each other.
    pub(crate) fn refuse_shared_conflicts(&self) -> Result<()> {
        changes::refuse_shared_changes(self.heap)?;
        changes::refuse_calls_in_place(self.heap)?;
        let unread = |id: &&ObjectId| !self.is_storage_read(**id);
        for id in self.heap.persistent_objects().iter().filter(unread) {
            let Ok(reference) = StorageRef::read(self.heap, *id) else { continue };
            if let Some(first) = self.referenced_storage(&reference)?
                && !first.reference.is_same_storage(&reference)
            {
                return Err(self.rebuild_error_at(*id, &storage_contradiction(&first.reference, &reference)));
            }
        }
        Ok(())
    }

    /// Returns true if a rebuilt tensor uses the storage with the persistent id `id`.
    fn is_storage_read(&self, id: ObjectId) -> bool {
        self.read_storage_bits.get(id.index() / 64).is_some_and(|bits| bits >> (id.index() % 64) & 1 == 1)
    }

    /// Returns true if the instance `id` was rebuilt.
    pub(crate) fn is_rebuilt(&self, id: ObjectId) -> bool {
        self.rebuilt_flags.get(id.index()).copied().unwrap_or(false)
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
        self.rebuild_at_depth(id, 0)
    }

    fn rebuild_at_depth(&mut self, id: ObjectId, depth: usize) -> Result<Option<Rebuilt>> {
        let heap = self.heap;
        if self.is_rebuilt(id)
            && let Some(done) = self.rebuilt_tensors.get(&id)
        {
            return Ok(Some(done.clone()));
        }
        let Some(call) = RebuildCall::with_functions(heap, id, &mut self.functions) else {
            return Ok(match heap.get(id) {
                Object::Persistent(_) => self.persistent(id)?.map(Rebuilt::Strided),
                Object::Instance(instance) => {
                    // Each object is checked once, because the walk finds shared containers repeatedly.
                    if changes::needs_change_check(heap, instance) && self.unchanged_objects.insert(id) {
                        changes::refuse_later_changes(heap, id)?;
                    }
                    None
                }
                _ => None,
            });
        };
        if depth >= REBUILD_DEPTH_MAX {
            return Err(self.rebuild_error_at(id, "too many tensors wrap each other"));
        }
        let function = call.function;
        let (args, built) = call.args_and_state()?;
        let rebuilt = match (function, built) {
            (RebuildFunction::NumpyArray, Some(built)) => {
                numpy::rebuild_array(self, built)?.map(Rebuilt::Strided)
            }
            // A tensor without elements, to which BUILD assigns the data.
            (RebuildFunction::SetState, Some(built)) => {
                Some(state::apply_build(self, args, None, built, depth)?)
            }
            (RebuildFunction::Wrapper, Some(built)) if args.all().is_empty() => {
                Some(state::apply_build(self, args, None, built, depth)?)
            }
            (RebuildFunction::FromDevice, Some(_)) => {
                return Err(args
                    .call
                    .call_error("the pickle sets a state on its result (BUILD), which may be its argument"));
            }
            (function, Some(built)) => {
                let made = self.call(function, args, depth)?;
                Some(state::apply_build(self, args, made, built, depth)?)
            }
            (function, None) => self.call(function, args, depth)?,
        };
        if let Some(rebuilt) = &rebuilt {
            if let Some(is_done) = self.rebuilt_flags.get_mut(id.index()) {
                *is_done = true;
            }
            let of_record = |tensor: &Tensor| tensor.storage().record_number().is_some();
            if !matches!(rebuilt, Rebuilt::Strided(tensor) if of_record(tensor)) {
                self.rebuilt_tensors.insert(id, rebuilt.clone());
            }
        }
        Ok(rebuilt)
    }

    fn call(
        &mut self,
        function: RebuildFunction,
        args: CallArgs<'h>,
        depth: usize,
    ) -> Result<Option<Rebuilt>> {
        let inner = depth.saturating_add(1);
        let strided = |tensor| Some(Rebuilt::Strided(tensor));
        let made = |compound| Some(Rebuilt::Compound(Arc::new(compound)));
        let bad = |reason: &str| args.call.call_error(reason);
        Ok(match function {
            RebuildFunction::Tensor => strided(self.strided_view(args, None, None)?),
            RebuildFunction::TensorV2 => strided(self.strided_view(args, None, args.nth_argument(6))?),
            RebuildFunction::TensorV3 => {
                let dtype = dtype(args.call, args.nth_argument(6))?;
                strided(self.strided_view(args, Some(dtype), args.nth_argument(7))?)
            }
            RebuildFunction::Wrapper => Some(self.first_tensor_argument(args, inner)?),
            RebuildFunction::ParameterWithState => {
                let rebuilt = self.first_tensor_argument(args, inner)?;
                match args.nth_argument(3) {
                    Some(attributes) => {
                        Some(state::with_attributes(self, args.call, rebuilt, attributes, inner)?)
                    }
                    None => return Err(bad("expected a state")),
                }
            }
            RebuildFunction::FromDevice => {
                let rebuilt = self.first_tensor_argument(args, inner)?;
                // The dtype argument must be that of the data.
                if let (Some(wanted), Rebuilt::Strided(tensor)) = (args.nth_argument(1), &rebuilt)
                    && let Ok(wanted) = dtype(args.call, Some(wanted))
                    && wanted != tensor.dtype()
                {
                    return Err(bad(&format!("its dtype is {wanted}, but its data are {}", tensor.dtype())));
                }
                Some(rebuilt)
            }
            RebuildFunction::FromType | RebuildFunction::FromTypeV2 => {
                self.rebuild_from_type(function, args, inner)?
            }
            RebuildFunction::Sparse => made(compound::sparse(self, args)?),
            RebuildFunction::Quantized => made(compound::quantized(self, args)?),
            RebuildFunction::FastaiTensor => {
                let tensor = self.strided_view(without_fastai_class(args)?, None, args.nth_argument(7))?;
                if tensor.dtype() == Dtype::Float64 {
                    return Err(bad("fastai's classes round float64 to float32, which is not supported"));
                }
                strided(tensor)
            }
            RebuildFunction::FastaiQuantized => made(compound::quantized(self, without_fastai_class(args)?)?),
            RebuildFunction::Nested => made(compound::nested(self, args)?),
            RebuildFunction::Jagged => made(compound::jagged(self, args)?),
            RebuildFunction::Meta => made(compound::meta(self, args)?),
            RebuildFunction::Uninitialized => made(compound::uninitialized()),
            RebuildFunction::WrapperSubclass => made(subclass::without_attributes(self, args)?),
            // Arrays of objects and of text are values, not tensors.
            RebuildFunction::NumpyBuffer => {
                numpy::rebuild_array_from_buffer(self, args)?.map(Rebuilt::Strided)
            }
            RebuildFunction::LoadedStorage => {
                let (dtype, storage) = self.loaded_storage(args)?;
                let dtype = dtype.unwrap_or(Dtype::UInt8);
                let numel = storage.len().checked_div(dtype.size()).unwrap_or(0);
                strided(Tensor::new(dtype, vec![numel], vec![1], 0, storage)?)
            }
            // Both get their data from BUILD.
            RebuildFunction::SetState | RebuildFunction::NumpyArray => return Err(bad("it has no state")),
            RebuildFunction::UnsupportedRebuild => return Err(bad("this function is not supported")),
        })
    }

    /// Rebuilds a tensor subclass from `_rebuild_from_type(func, type, args, dict)` or its second version.
    fn rebuild_from_type(
        &mut self,
        version: RebuildFunction,
        args: CallArgs<'h>,
        depth: usize,
    ) -> Result<Option<Rebuilt>> {
        let call = args.call;
        let &[function, class, inner, ref state @ ..] = args.all() else {
            return Err(call.call_error("expected a function, a class and arguments"));
        };
        let names = call.global(function);
        let Some(function) = names.and_then(|(module, name)| RebuildFunction::from_names(module, name))
        else {
            return Err(call.call_error("its function is not supported"));
        };
        if depth >= REBUILD_DEPTH_MAX {
            return Err(call.call_error("too many tensors wrap each other"));
        }
        let inner = args.passed_on(inner)?;
        let state = state.first().copied();
        if function == RebuildFunction::WrapperSubclass {
            return subclass::with_attributes(self, inner, class, state, depth).map(Some);
        }
        let Some(rebuilt) = self.call(function, inner, depth)? else { return Ok(None) };
        match (version, state) {
            (RebuildFunction::FromTypeV2, Some(state)) if function == RebuildFunction::FromDevice => {
                state::refuse_data(call, state)?;
                Ok(Some(rebuilt))
            }
            (RebuildFunction::FromTypeV2, Some(state)) => {
                state::with_attributes(self, call, rebuilt, state, depth).map(Some)
            }
            // The first version replaces `__dict__`, where a name such as `data` is an ordinary attribute.
            _ => Ok(Some(rebuilt)),
        }
    }

    fn first_tensor_argument(&mut self, args: CallArgs<'h>, depth: usize) -> Result<Rebuilt> {
        match args.nth_argument(0) {
            Some(data) => self.tensor_argument(args.call, data, depth),
            None => Err(args.call.call_error("expected a tensor")),
        }
    }

    fn tensor_argument(&mut self, call: CallSnapshot<'h>, id: ObjectId, depth: usize) -> Result<Rebuilt> {
        call.refuse_changed(id)?;
        self.rebuild_at_depth(id, depth)?.ok_or_else(|| call.call_error("expected a tensor"))
    }

    /// Returns the strided tensor `id`, which is a part of a compound tensor.
    fn strided_part(&mut self, call: CallSnapshot<'h>, id: ObjectId) -> Result<Tensor> {
        call.refuse_changed(id)?;
        match self.rebuild_at_depth(id, 1)? {
            Some(Rebuilt::Strided(tensor)) => Ok(tensor),
            _ => Err(call.call_error("one of its parts is not a plain tensor")),
        }
    }

    /// Rebuilds a strided view from the arguments `(storage, offset, size, stride, …)`.
    fn strided_view(
        &mut self,
        args: CallArgs<'h>,
        dtype: Option<Dtype>,
        metadata: Option<ObjectId>,
    ) -> Result<Tensor> {
        let call = args.call;
        let &[storage, offset, size, stride, ..] = args.all() else {
            return Err(call.call_error("expected a storage, an offset, a size and a stride"));
        };
        let offset = call.number(offset, "the storage offset")?;
        let mut dims = std::mem::take(&mut self.new_dims);
        dims.clear();
        self.append_unsigned_ints(&mut dims, call, size, "the size")?;
        let rank = dims.len();
        self.append_unsigned_ints(&mut dims, call, stride, "the stride")?;
        let (stored, storage) = self.storage_argument(call, storage, dtype)?;
        let dtype = dtype.or(stored).unwrap_or(UNTYPED_DTYPE);
        let tensor = self.dims.view(dtype, (&dims, rank), offset, storage)?;
        self.new_dims = dims;
        match metadata {
            Some(metadata) => compound::apply_sign_bits(call, tensor, metadata),
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
            let dtype = storage.dtype.unwrap_or(UNTYPED_DTYPE);
            let storage = self.described_storage(id, storage)?;
            return Ok(Some(Tensor::new(dtype, shape.clone(), stride.clone(), *offset, storage)?));
        }
        let numel = StorageRef::read(self.heap, id)?.len();
        let (dtype, storage) = self.persistent_storage(id, id, None)?;
        Ok(Some(Tensor::new(dtype.unwrap_or(UNTYPED_DTYPE), vec![numel], vec![1], 0, storage)?))
    }

    /// Deducts the bytes copied for the call `id` from the budget.
    pub(crate) fn spend_copied(&self, id: ObjectId, bytes: usize) -> Result<()> {
        let left = self.copy_budget.get().checked_sub(bytes).ok_or_else(|| Problem::Limit {
            what: "bytes of sizes, strides and numbers that tensors share",
            offset: self.heap.offset(id),
            limit: self.copy_limit,
        })?;
        self.copy_budget.set(left);
        Ok(())
    }

    /// Returns the non-negative integers of a tuple, a list, or a `torch.Size` of either.
    fn unsigned_ints(&self, call: CallSnapshot<'h>, list: ObjectId, what: &str) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        self.append_unsigned_ints(&mut numbers, call, list, what)?;
        Ok(numbers)
    }

    /// Appends the integers of [`unsigned_ints`](Self::unsigned_ints) to `numbers`.
    fn append_unsigned_ints(
        &self,
        numbers: &mut Vec<u64>,
        call: CallSnapshot<'h>,
        list: ObjectId,
        what: &str,
    ) -> Result<()> {
        let list = call.only_argument(list, SIZE_WRAPPERS)?.unwrap_or(list);
        let items = call.items(list)?.ok_or_else(|| call.call_error(&format!("{what} is not a tuple")))?;
        self.spend_copied(call.id(), items.len().saturating_mul(size_of::<u64>()))?;
        // `extend` could reserve more than the deducted bytes.
        numbers.reserve_exact(items.len());
        for item in items {
            numbers.push(call.number(*item, what)?);
        }
        Ok(())
    }

    /// Builds an error about the call `id`.
    pub(crate) fn rebuild_error_at(&self, id: ObjectId, reason: &str) -> Error {
        rebuild_error(self.heap, id, reason)
    }
}

/// Returns the arguments of a fastai function without the first, a class. The effect of the constructor on the tensor
/// is known only for fastai's own classes and classes derived from them.
fn without_fastai_class(args: CallArgs<'_>) -> Result<CallArgs<'_>> {
    match args.nth_argument(0).and_then(|class| args.call.global(class)) {
        Some((module, _)) if !lists::is_core_module(module) => Ok(args.skip_to(1)),
        _ => Err(args.call.call_error("expected one of fastai's classes")),
    }
}

/// Returns the `torch.dtype` that the pickle names as a global.
fn dtype(call: CallSnapshot<'_>, name: Option<ObjectId>) -> Result<Dtype> {
    match name.and_then(|name| call.global(name)) {
        Some(("torch", name)) => Dtype::from_name(name).ok_or_else(|| {
            call.call_error(&format!("dtype `torch.{}` is not supported", name.escape_debug()))
        }),
        _ => Err(call.call_error("expected a dtype")),
    }
}

/// Builds an error about the call `id`.
pub(crate) fn rebuild_error(heap: &Heap<'_>, id: ObjectId, reason: &str) -> Error {
    let names = heap.instance(id).and_then(|instance| heap.global(instance.callable));
    let function = names.map_or_else(
        || heap.get(id).type_name().to_owned(),
        |(module, name)| format!("{}.{}", module.escape_debug(), name.escape_debug()),
    );
    Problem::Rebuild { function, offset: heap.offset(id), reason: reason.to_owned() }.into()
}
