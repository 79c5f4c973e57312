//! Storages of a checkpoint, each with the dtype it is written with.
//!
//! Facts: `persistent_id` in `torch/serialization.py` writes the storage class of a dtype that had one in PyTorch 2.0, and
//! `torch.storage.UntypedStorage` for newer dtypes. `persistent_load` gives a storage the dtype of the first persistent id
//! that it reads, and `_rebuild_tensor_v2` gives that dtype to every tensor over the storage: so only tensors that are
//! rebuilt by `_rebuild_tensor_v3`, over an untyped storage, can have different dtypes. PyTorch 2.0 does not have
//! `_rebuild_tensor_v3`.

use tensor::{Dtype, StorageSet, Tensor, Tensors, WholeElements};

use crate::torch_save::Problem;
use crate::torch_save::Result;

/// Storages of a checkpoint, with the storage of each tensor.
pub(crate) struct SavedStorages {
    pub(crate) list: Vec<SavedStorage>,
    by_tensor: Vec<u32>,
}

/// A storage with the dtype it is written with.
pub(crate) struct SavedStorage {
    storage: tensor::Storage,
    /// Dtype of all tensors over the storage; `None` if it is written as bytes without a dtype.
    pub(crate) dtype: Option<Dtype>,
}

impl SavedStorages {
    pub(crate) fn new(tensors: &Tensors) -> Result<Self> {
        let shared = StorageSet::new(tensors.iter().map(|(_, tensor)| tensor));
        let StorageSet { first, by_tensor } =
            shared.ok_or(Problem::TooManyTensors { tensors: tensors.len() })?;
        let first = first.into_iter().filter_map(|first| tensors.get_index(first as usize));
        let storage = |(_, tensor): (&str, &Tensor)| SavedStorage {
            storage: tensor.storage().clone(),
            dtype: Some(tensor.dtype()).filter(|dtype| dtype.storage_class().is_some()),
        };
        let mut all = Self { list: first.map(storage).collect(), by_tensor };
        for ((name, tensor), number) in tensors.iter().zip(&all.by_tensor) {
            let dtype = tensor.dtype();
            if dtype.is_quantized() {
                return Err(Problem::Quantized { tensor: name.clone(), dtype }.into());
            }
            // The storage has tensors of two dtypes, or a dtype without a storage class.
            if let Some(storage) = all.list.get_mut(*number as usize).filter(|it| it.dtype != Some(dtype)) {
                storage.dtype = None;
            }
        }
        Ok(all)
    }

    /// Returns the storage of a tensor, and the storage's number, which is its key.
    pub(crate) fn storage_of_tensor(&self, position: usize) -> Option<(u32, &SavedStorage)> {
        let number = *self.by_tensor.get(position)?;
        Some((number, self.list.get(number as usize)?))
    }
}

impl SavedStorage {
    /// Returns the storage's elements, or its bytes if it is untyped.
    pub(crate) fn elements(&self) -> WholeElements<'_> {
        WholeElements::new(&self.storage, self.dtype.map_or(1, Dtype::size))
    }
}
