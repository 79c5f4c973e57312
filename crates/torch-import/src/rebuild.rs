//! What `torch._utils._rebuild_*` would have returned.
//!
//! Facts: `torch/_utils.py`. Offsets, sizes and strides count elements.

use std::borrow::Cow;
use std::collections::HashMap;

use pickle_vm::{Heap, Instance, ObjectId};
use tensor::{Storage, Tensor};

use crate::persistent::StorageRef;
use crate::{Container, Error, Result};

/// The functions whose calls make tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// `_rebuild_tensor(storage, offset, size, stride)`
    Tensor,
    /// `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata])`
    TensorV2,
    /// `_rebuild_parameter(data, requires_grad, hooks)`, and the same with a state behind
    Parameter,
    /// Any other of PyTorch's.
    Unread,
}

impl Function {
    /// The function that an instance calls, when it makes a tensor.
    pub(crate) fn of(heap: &Heap<'_>, instance: &Instance) -> Option<Self> {
        Some(match heap.global(instance.callable)? {
            ("torch._utils", "_rebuild_tensor") => Self::Tensor,
            ("torch._utils", "_rebuild_tensor_v2") => Self::TensorV2,
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => Self::Parameter,
            (module, name) if module.starts_with("torch") && name.starts_with("_rebuild") => Self::Unread,
            _ => return None,
        })
    }
}

/// Rebuilds tensors, each once: tensors of one object share it, tensors of one storage key share its
/// storage.
pub(crate) struct Rebuilder<'a, 'h> {
    container: &'a Container,
    heap: &'h Heap<'a>,
    tensors: HashMap<ObjectId, Tensor<'a>>,
    storages: HashMap<Cow<'h, str>, (StorageRef<'h>, Storage<'a>)>,
}

impl<'a, 'h> Rebuilder<'a, 'h> {
    pub(crate) fn new(container: &'a Container, heap: &'h Heap<'a>) -> Self {
        Self { container, heap, tensors: HashMap::new(), storages: HashMap::new() }
    }

    /// Whether the instance `id` was given its meaning.
    pub(crate) fn rebuilt(&self, id: ObjectId) -> bool {
        self.tensors.contains_key(&id)
    }

    /// The tensor that the instance `id` stands for; `None` when it stands for something else.
    pub(crate) fn tensor(&mut self, id: ObjectId) -> Result<Option<Tensor<'a>>> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(Some(tensor.clone()));
        }
        let heap = self.heap;
        // A parameter wraps a tensor; a parameter in a parameter would be a hostile file's, and so deep
        // a chain of them is followed here without recursion.
        let mut chain = vec![id];
        let tensor = loop {
            let Some(inner) = chain.last().copied() else { return Ok(None) };
            if let Some(tensor) = self.tensors.get(&inner) {
                break tensor.clone();
            }
            let Some(instance) = heap.instance(inner) else {
                return if inner == id { Ok(None) } else { Err(self.bad(id, "its data is no tensor")) };
            };
            let args = heap.items(instance.args).unwrap_or_default();
            match Function::of(heap, instance) {
                None if inner == id => return Ok(None),
                None => return Err(self.bad(id, "its data is no tensor")),
                Some(Function::Unread) => return Err(self.bad(inner, "it is not read yet")),
                Some(Function::Tensor | Function::TensorV2) => break self.view(inner, args)?,
                Some(Function::Parameter) => match args.first() {
                    Some(data) if !chain.contains(data) && chain.len() < 8 => chain.push(*data),
                    _ => return Err(self.bad(inner, "its data is no tensor")),
                },
            }
        };
        for id in chain {
            self.tensors.insert(id, tensor.clone());
        }
        Ok(Some(tensor))
    }

    /// `_rebuild_tensor` and `_rebuild_tensor_v2`.
    fn view(&mut self, id: ObjectId, args: &[ObjectId]) -> Result<Tensor<'a>> {
        let &[storage, offset, size, stride, ref rest @ ..] = args else {
            return Err(self.bad(id, "expected a storage, an offset, a size and a stride"));
        };
        if let Some(metadata) = rest.get(2)
            && !self.heap.is_none(*metadata)
            && self.heap.entries(*metadata).is_none_or(|entries| !entries.is_empty())
        {
            return Err(self.bad(id, "tensors with metadata (conj and neg bits) are not read yet"));
        }
        let offset = self.number(id, offset, "the storage offset")?;
        let size = self.numbers(id, size, "the size")?;
        let stride = self.numbers(id, stride, "the stride")?;
        let reference = StorageRef::read(self.heap, storage)?;
        let storage = match self.storages.get(&reference.key) {
            Some((first, storage)) if *first == reference => storage.clone(),
            // PyTorch refuses to save this; what it would load depends on which comes first.
            Some((first, _)) => {
                return Err(self.bad(
                    id,
                    &format!(
                        "storage `{}` is {} of {} here and was {} of {} before",
                        reference.key.escape_debug(),
                        reference.numel,
                        reference.dtype,
                        first.numel,
                        first.dtype
                    ),
                ));
            }
            None => self.container.storage(&reference.key, reference.dtype, reference.numel)?,
        };
        let tensor = Tensor::new(reference.dtype, size, stride, offset, storage.clone())?;
        self.storages.insert(reference.key.clone(), (reference, storage));
        Ok(tensor)
    }

    fn numbers(&self, id: ObjectId, list: ObjectId, what: &str) -> Result<Vec<u64>> {
        // torch.Size is a tuple that is built by a call.
        let list = match self.heap.instance(list) {
            Some(instance) => match self.heap.items(instance.args) {
                Some(&[inner]) => inner,
                _ => list,
            },
            None => list,
        };
        let items = self.heap.items(list).ok_or_else(|| self.bad(id, &format!("{what} is no tuple")))?;
        items.iter().map(|item| self.number(id, *item, what)).collect()
    }

    fn number(&self, id: ObjectId, item: ObjectId, what: &str) -> Result<u64> {
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

    fn bad(&self, id: ObjectId, reason: &str) -> Error {
        let names = self.heap.instance(id).and_then(|instance| self.heap.global(instance.callable));
        let function = names.map_or_else(
            || "a call".to_owned(),
            |(module, name)| format!("{}.{}", module.escape_debug(), name.escape_debug()),
        );
        Error::Rebuild { function, offset: self.heap.offset(id), reason: reason.to_owned() }
    }
}
