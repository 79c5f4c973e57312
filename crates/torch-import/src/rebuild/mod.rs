//! What `torch._utils._rebuild_*` and similar functions would have returned.
//!
//! Facts: `torch/_utils.py`, `torch/_tensor.py` of PyTorch 2.15. Offsets, sizes and strides count
//! elements.

mod compound;
mod numpy;
mod sharded;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use pickle_vm::{Heap, Instance, Object, ObjectId};
use tensor::{Dtype, Storage, Tensor};

use crate::compound::Compound;
use crate::container::legacy;
use crate::persistent::{PersistentTensor, StorageRef, module_class};
use crate::{Container, Error, Result, encoded};
use sharded::Sharded;

/// Rebuilds wrap each other: a parameter wraps a tensor that a subclass wraps. PyTorch nests three.
const MAX_DEPTH: usize = 16;
/// Tensors may share the objects that their sizes, strides, scales and bytes are copied from, so that a few bytes of a
/// pickle could fill memory. These are the bytes that may be copied for each byte of the pickle, and in any case.
const COPIED_PER_BYTE: usize = 16;
const COPIED: usize = 64 << 20;

/// The calls that make tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// `_rebuild_tensor(storage, offset, size, stride)`
    Tensor,
    /// `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata])`
    TensorV2,
    /// `_rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])`
    TensorV3,
    /// `_rebuild_parameter(data, requires_grad, hooks[, state])` and others whose first argument is the
    /// tensor
    Wrapper,
    /// `_rebuild_from_type(func, type, args, dict)` and its second version
    FromType,
    /// `_rebuild_sparse_tensor(layout, data)`
    Sparse,
    /// `_rebuild_qtensor(storage, offset, size, stride, quantizer, requires_grad, hooks)`
    Quantized,
    /// `_rebuild_nested_tensor(values, sizes, strides, offsets)`
    Nested,
    /// `_rebuild_njt({'values': …, 'offsets': …, 'lengths': …, …})`
    Jagged,
    /// `_rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)`
    Meta,
    /// `_rebuild_wrapper_subclass(class, dtype, size, stride, offset, layout, device, requires_grad)`
    WrapperSubclass,
    /// A tensor class whose state is `(storage, offset, size, stride)`, before PyTorch 0.2
    SetState,
    /// `torch.storage._load_from_bytes(bytes)`: a storage in a pickle that is not a checkpoint
    LoadedStorage,
    /// `numpy…_reconstruct(ndarray, (0,), b'b')`, its state the array
    NumpyArray,
    /// `numpy…_frombuffer(buffer, dtype, shape, order)`
    NumpyBuffer,
    /// Any other rebuild function of PyTorch, which is not supported.
    Unread,
}

impl Function {
    /// The function `module.name`, if its call makes a tensor.
    pub(crate) fn from_names(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("torch._utils", "_rebuild_tensor") => Self::Tensor,
            ("torch._utils", "_rebuild_tensor_v2") => Self::TensorV2,
            ("torch._utils", "_rebuild_tensor_v3") => Self::TensorV3,
            (
                "torch._utils",
                "_rebuild_parameter"
                | "_rebuild_parameter_with_state"
                | "_rebuild_device_tensor_from_numpy"
                | "_rebuild_device_tensor_from_cpu_tensor"
                | "_rebuild_xla_tensor",
            )
            | ("torch.nn.parameter", "Parameter" | "Buffer")
            | ("torch.autograd.variable", "Variable") => Self::Wrapper,
            ("torch._tensor" | "torch.tensor", "_rebuild_from_type" | "_rebuild_from_type_v2") => {
                Self::FromType
            }
            ("torch.storage", "_load_from_bytes") => Self::LoadedStorage,
            ("torch._utils", "_rebuild_sparse_tensor") => Self::Sparse,
            ("torch._utils", "_rebuild_qtensor") => Self::Quantized,
            ("torch._utils", "_rebuild_nested_tensor") => Self::Nested,
            ("torch.nested._internal.nested_tensor", "_rebuild_njt") => Self::Jagged,
            ("torch._utils", "_rebuild_meta_tensor_no_storage") => Self::Meta,
            ("torch._utils", "_rebuild_wrapper_subclass") => Self::WrapperSubclass,
            ("torch" | "torch.cuda" | "torch.tensor", class) if is_tensor_class(class) => Self::SetState,
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Self::NumpyArray,
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => Self::NumpyBuffer,
            (module, name) if module.starts_with("torch") && name.starts_with("_rebuild") => Self::Unread,
            _ => return None,
        })
    }

    /// The function that an instance calls, if it makes a tensor.
    pub(crate) fn called_by(heap: &Heap<'_>, instance: &Instance) -> Option<Self> {
        let (module, name) = heap.global(instance.callable)?;
        Self::from_names(module, name)
    }

    /// Whether the call makes a tensor rather than wrapping one.
    pub(crate) fn makes_one(self) -> bool {
        !matches!(self, Self::Wrapper | Self::FromType | Self::LoadedStorage | Self::Unread)
    }
}

/// Whether `name` is a tensor class such as `FloatTensor`.
fn is_tensor_class(name: &str) -> bool {
    name.strip_suffix("Tensor")
        .is_some_and(|dtype| Dtype::from_storage_class(&format!("{dtype}Storage")).is_some())
}

/// The result of a rebuild.
#[derive(Clone, Debug)]
pub(crate) enum Rebuilt {
    Strided(Tensor),
    /// Shared, so that its shape is in memory once however often it is found.
    Compound(Arc<Compound>),
}

/// Rebuilds tensors, each once: tensors of one object share it, tensors of one storage key share its
/// storage.
pub(crate) struct Rebuilder<'h> {
    container: &'h Container,
    heap: &'h Heap<'h>,
    done: HashMap<ObjectId, Rebuilt>,
    /// Bytes that may still be copied, and how many could be at first.
    left: Cell<usize>,
    limit: usize,
    storages: HashMap<Cow<'h, str>, (StorageRef<'h>, Storage)>,
    /// By the calls that load them from bytes.
    loaded: HashMap<ObjectId, (Option<Dtype>, Storage)>,
}

impl<'h> Rebuilder<'h> {
    pub(crate) fn new(container: &'h Container, heap: &'h Heap<'h>) -> Self {
        // Most storages are used, most of them by one tensor.
        let room = container.storages_len();
        let (done, storages) = (HashMap::with_capacity(room), HashMap::with_capacity(room));
        let limit = container.pickle().len().saturating_mul(COPIED_PER_BYTE).saturating_add(COPIED);
        Self { container, heap, done, left: Cell::new(limit), limit, storages, loaded: HashMap::new() }
    }

    /// Whether the instance `id` was rebuilt.
    pub(crate) fn is_done(&self, id: ObjectId) -> bool {
        self.done.contains_key(&id)
    }

    /// The tensor that the object `id` represents; `None` if it is not a tensor.
    pub(crate) fn rebuild(&mut self, id: ObjectId) -> Result<Option<Rebuilt>> {
        self.at_depth(id, 0)
    }

    fn at_depth(&mut self, id: ObjectId, depth: usize) -> Result<Option<Rebuilt>> {
        let heap = self.heap;
        if let Some(instance) = heap.instance(id) {
            if let Some(done) = self.done.get(&id) {
                return Ok(Some(done.clone()));
            }
            let Some(function) = Function::called_by(heap, instance) else { return Ok(None) };
            if depth >= MAX_DEPTH {
                return Err(self.bad(id, "too many tensors wrap each other"));
            }
            let args = heap.items(instance.args).unwrap_or_default();
            let rebuilt = self.call(function, id, args, depth)?;
            if let Some(rebuilt) = &rebuilt {
                self.done.insert(id, rebuilt.clone());
            }
            return Ok(rebuilt);
        }
        Ok(match heap.get(id) {
            Object::Persistent(_) => self.persistent(id)?.map(Rebuilt::Strided),
            _ => None,
        })
    }

    /// What `function(*args)` would have returned. `id` is the call.
    fn call(
        &mut self,
        function: Function,
        id: ObjectId,
        args: &[ObjectId],
        depth: usize,
    ) -> Result<Option<Rebuilt>> {
        let inner = depth.saturating_add(1);
        let strided = |tensor| Some(Rebuilt::Strided(tensor));
        let made = |compound| Some(Rebuilt::Compound(Arc::new(compound)));
        Ok(match function {
            Function::Tensor => strided(self.view(id, args, None, None)?),
            Function::TensorV2 => strided(self.view(id, args, None, args.get(6))?),
            Function::TensorV3 => {
                let dtype = self.dtype(id, args.get(6))?;
                strided(self.view(id, args, Some(dtype), args.get(7))?)
            }
            Function::SetState => strided(self.set_state(id)?),
            Function::Wrapper => {
                let state = self.heap.instance(id).and_then(|instance| instance.state().first());
                let in_state = || self.heap.items(*state?)?.first();
                let Some(data) = args.first().or_else(in_state) else {
                    return Err(self.bad(id, "expected a tensor"));
                };
                let Some(rebuilt) = self.at_depth(*data, inner)? else {
                    return Err(self.bad(id, "expected a tensor"));
                };
                // A tensor from another device has its dtype as an argument, which has to be that of the data.
                if let (Some(dtype), Rebuilt::Strided(tensor)) = (args.get(1), &rebuilt)
                    && let Ok(dtype) = self.dtype(id, Some(dtype))
                    && dtype != tensor.dtype()
                {
                    return Err(
                        self.bad(id, &format!("its dtype is {dtype}, but its data are {}", tensor.dtype()))
                    );
                }
                Some(rebuilt)
            }
            Function::FromType => {
                let &[function, class, args, ref state @ ..] = args else {
                    return Err(self.bad(id, "expected a function, a class and arguments"));
                };
                let names = self.heap.global(function);
                let Some(function) = names.and_then(|(module, name)| Function::from_names(module, name))
                else {
                    return Err(self.bad(id, "its function is not supported"));
                };
                if inner >= MAX_DEPTH {
                    return Err(self.bad(id, "too many tensors wrap each other"));
                }
                let args = self.heap.items(args).unwrap_or_default();
                if function == Function::WrapperSubclass {
                    let shard = state.first().and_then(|state| Sharded::from_state(self.heap, class, *state));
                    if let Some(Sharded::Copy(local)) = shard {
                        return self.at_depth(local, inner);
                    }
                    return compound::subclass(self, id, Some(class), args, shard.as_ref()).map(made);
                }
                self.call(function, id, args, inner)?
            }
            Function::Sparse => made(compound::sparse(self, id, args)?),
            Function::Quantized => made(compound::quantized(self, id, args)?),
            Function::Nested => made(compound::nested(self, id, args)?),
            Function::Jagged => Some(Rebuilt::Compound(Arc::new(compound::jagged(self, id, args)?))),
            Function::Meta => made(compound::meta(self, id, args)?),
            Function::WrapperSubclass => {
                made(compound::subclass(self, id, args.first().copied(), args, None)?)
            }
            // Arrays of objects and of text are values, not tensors.
            Function::NumpyArray => numpy::array(self, id)?.map(Rebuilt::Strided),
            Function::NumpyBuffer => numpy::buffer(self, id, args)?.map(Rebuilt::Strided),
            Function::LoadedStorage => {
                let (dtype, storage) = self.loaded(id)?;
                let dtype = dtype.unwrap_or(Dtype::UInt8);
                let numel = storage.len().checked_div(dtype.size()).unwrap_or(0);
                strided(Tensor::new(dtype, vec![numel], vec![1], 0, storage)?)
            }
            Function::Unread => return Err(self.bad(id, "this function is not supported")),
        })
    }

    /// The strided tensor `id`, which is a part of the tensor `whose`.
    pub(crate) fn part(&mut self, id: ObjectId, whose: ObjectId) -> Result<Tensor> {
        match self.at_depth(id, 1)? {
            Some(Rebuilt::Strided(tensor)) => Ok(tensor),
            _ => Err(self.bad(whose, "one of its parts is not a plain tensor")),
        }
    }

    /// A strided view: `(storage, offset, size, stride, …)`.
    pub(crate) fn view(
        &mut self,
        id: ObjectId,
        args: &[ObjectId],
        dtype: Option<Dtype>,
        metadata: Option<&ObjectId>,
    ) -> Result<Tensor> {
        let &[storage, offset, size, stride, ..] = args else {
            return Err(self.bad(id, "expected a storage, an offset, a size and a stride"));
        };
        let offset = self.number(id, offset, "the storage offset")?;
        let size = self.numbers(id, size, "the size")?;
        let stride = self.numbers(id, stride, "the stride")?;
        let (reference, storage) = self.storage(id, storage, dtype)?;
        let Some(dtype) = dtype.or(reference) else {
            return Err(self.bad(id, "an untyped storage without a dtype"));
        };
        let tensor = Tensor::new(dtype, size, stride, offset, storage)?;
        match metadata {
            Some(metadata) => self.resolved(id, tensor, *metadata),
            None => Ok(tensor),
        }
    }

    /// `set_(storage, offset, size, stride)`, or the state of a variable, whose first item is its data.
    fn set_state(&mut self, id: ObjectId) -> Result<Tensor> {
        let state = self.heap.instance(id).and_then(|instance| instance.state().last().copied());
        let Some(state) = state.and_then(|state| self.heap.items(state)) else {
            return Err(self.bad(id, "it has no state"));
        };
        self.view(id, state, None, None)
    }

    /// The storage of a persistent id, and its dtype if it has one.
    fn storage(
        &mut self,
        id: ObjectId,
        storage: ObjectId,
        dtype: Option<Dtype>,
    ) -> Result<(Option<Dtype>, Storage)> {
        let called =
            self.heap.instance(storage).and_then(|instance| Function::called_by(self.heap, instance));
        if called == Some(Function::LoadedStorage) {
            return self.loaded(storage);
        }
        let reference = StorageRef::read(self.heap, storage)?;
        Ok((reference.dtype, self.stored(id, reference, dtype)?))
    }

    /// The storage that the call `id` loads from a byte string, each once.
    fn loaded(&mut self, id: ObjectId) -> Result<(Option<Dtype>, Storage)> {
        if let Some(known) = self.loaded.get(&id) {
            return Ok(known.clone());
        }
        let arg = self.heap.instance(id).and_then(|instance| self.heap.items(instance.args)?.first());
        let Some(bytes) = arg.and_then(|arg| encoded::bytes(self.heap, *arg)) else {
            return Err(self.bad(id, "expected bytes"));
        };
        let found = legacy::storage(&bytes).map_err(|error| self.bad(id, &error.to_string()));
        let (dtype, range) = found?;
        let storage = self.storage_from_bytes(id, bytes.get(range).unwrap_or_default())?;
        self.loaded.insert(id, (dtype, storage.clone()));
        Ok((dtype, storage))
    }

    /// A storage over bytes of the pickle. They are copied only if they are not in the mapped file.
    pub(crate) fn storage_from_bytes(&self, id: ObjectId, bytes: &[u8]) -> Result<Storage> {
        if let Some(storage) = self.container.mapped_storage(bytes) {
            return Ok(storage);
        }
        self.copies(id, bytes.len())?;
        Ok(Storage::owned(bytes.to_vec()))
    }

    /// The storage of a reference, each once.
    fn stored(&mut self, id: ObjectId, reference: StorageRef<'h>, dtype: Option<Dtype>) -> Result<Storage> {
        let seen_as = dtype.or(reference.dtype).unwrap_or(Dtype::UInt8);
        let known = self.storages.get(reference.identity());
        let storage = match known {
            Some((first, storage)) if *first == reference => storage.clone(),
            // PyTorch refuses to save this, and what it would load depends on the order.
            Some((first, _)) => {
                let name = |dtype: Option<Dtype>| dtype.map_or("bytes", Dtype::name);
                return Err(self.bad(
                    id,
                    &format!(
                        "storage `{}` is {} of {} here but was {} of {} before",
                        reference.identity().escape_debug(),
                        reference.len(),
                        name(reference.dtype),
                        first.len(),
                        name(first.dtype)
                    ),
                ));
            }
            None => {
                let storage = self.container.storage(&reference, seen_as)?;
                self.storages.insert(reference.identity().clone(), (reference, storage.clone()));
                storage
            }
        };
        // Only the tensor knows what an untyped storage's bytes are.
        Ok(storage.with_byte_order(self.container.byte_order(), seen_as.component_size()))
    }

    /// The tensor that a persistent id represents: a tensor of a 0.1 checkpoint, or all elements (or bytes) of a
    /// storage; `None` for a class.
    fn persistent(&mut self, id: ObjectId) -> Result<Option<Tensor>> {
        if module_class(self.heap, id).is_some() {
            return Ok(None);
        }
        if let Some(PersistentTensor { storage, shape, stride, offset }) =
            self.container.persistent_tensor(self.heap, id)
        {
            let dtype = storage.dtype.unwrap_or(Dtype::UInt8);
            let storage = self.stored(id, storage.clone(), Some(dtype))?;
            return Ok(Some(Tensor::new(dtype, shape.clone(), stride.clone(), *offset, storage)?));
        }
        let reference = StorageRef::read(self.heap, id)?;
        let (dtype, numel) = (reference.dtype.unwrap_or(Dtype::UInt8), reference.len());
        let storage = self.stored(id, reference, Some(dtype))?;
        Ok(Some(Tensor::new(dtype, vec![numel], vec![1], 0, storage)?))
    }

    /// The tensor with the conj and neg bits of its metadata applied to its values.
    fn resolved(&self, id: ObjectId, tensor: Tensor, metadata: ObjectId) -> Result<Tensor> {
        // TorchScript wraps the dict in a call that names its type: `torch.jit._pickle.restore_type_tag(dict, type)`.
        let tagged = self.heap.instance(metadata).filter(|instance| {
            self.heap.global(instance.callable) == Some(("torch.jit._pickle", "restore_type_tag"))
        });
        let dict = tagged.and_then(|instance| self.heap.items(instance.args)?.first().copied());
        let Some(entries) = self.heap.entries(dict.unwrap_or(metadata)) else {
            return if self.heap.is_none(metadata) {
                Ok(tensor)
            } else {
                Err(self.bad(id, "its metadata is not a dict"))
            };
        };
        let (mut conj, mut neg) = (false, false);
        for (key, value) in entries {
            match (self.heap.text(*key).as_deref(), self.heap.bool(*value)) {
                (Some("conj"), Some(set)) => conj = set,
                (Some("neg"), Some(set)) => neg = set,
                _ => return Err(self.bad(id, "its metadata has keys other than conj and neg")),
            }
        }
        if conj || neg {
            compound::with_signs(&tensor, conj, neg).map_err(|reason| self.bad(id, &reason))
        } else {
            Ok(tensor)
        }
    }

    /// The `torch.dtype` that the pickle names as a global.
    pub(crate) fn dtype(&self, id: ObjectId, name: Option<&ObjectId>) -> Result<Dtype> {
        let names = name.and_then(|name| self.heap.global(*name));
        match names {
            Some(("torch", name)) => Dtype::from_name(name).ok_or_else(|| {
                self.bad(id, &format!("dtype `torch.{}` is not supported", name.escape_debug()))
            }),
            _ => Err(self.bad(id, "expected a dtype")),
        }
    }

    /// Counts bytes that are copied for the call `id`.
    pub(crate) fn copies(&self, id: ObjectId, bytes: usize) -> Result<()> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| Error::Limit {
            what: "bytes of sizes, strides and numbers that tensors share",
            offset: self.heap.offset(id),
            limit: self.limit,
        })?;
        self.left.set(left);
        Ok(())
    }

    /// A tuple or list of natural numbers; `torch.Size` is a call around one.
    pub(crate) fn numbers(&self, id: ObjectId, list: ObjectId, what: &str) -> Result<Vec<u64>> {
        let list = match self.heap.instance(list).and_then(|instance| self.heap.items(instance.args)) {
            Some(&[inner]) => inner,
            _ => list,
        };
        let items = self.heap.items(list).ok_or_else(|| self.bad(id, &format!("{what} is not a tuple")))?;
        self.copies(id, items.len().saturating_mul(size_of::<u64>()))?;
        // `collect` would reserve more than is copied.
        let mut numbers = Vec::with_capacity(items.len());
        for item in items {
            numbers.push(self.number(id, *item, what)?);
        }
        Ok(numbers)
    }

    pub(crate) fn number(&self, id: ObjectId, item: ObjectId, what: &str) -> Result<u64> {
        match self.heap.int(item) {
            Some(number) => {
                u64::try_from(number).map_err(|_| self.bad(id, &format!("{what} holds {number}, below 0")))
            }
            None if self.heap.long(item).is_some() => {
                Err(self.bad(id, &format!("{what} holds a number of more than 64 bits")))
            }
            None => Err(self.bad(id, &format!("{what} holds a {}", self.heap.get(item).type_name()))),
        }
    }

    /// An error about the call `id`.
    pub(crate) fn bad(&self, id: ObjectId, reason: &str) -> Error {
        bad(self.heap, id, reason)
    }
}

/// An error about the call `id`.
pub(crate) fn bad(heap: &Heap<'_>, id: ObjectId, reason: &str) -> Error {
    let names = heap.instance(id).and_then(|instance| heap.global(instance.callable));
    let function = names.map_or_else(
        || heap.get(id).type_name().to_owned(),
        |(module, name)| format!("{}.{}", module.escape_debug(), name.escape_debug()),
    );
    Error::Rebuild { function, offset: heap.offset(id), reason: reason.to_owned() }
}
