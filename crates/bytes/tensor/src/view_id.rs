//! Identity of the elements that a tensor views.

use std::sync::Arc;

use crate::{Dtype, StorageId, Tensor};

/// Identity of the elements that a tensor views. Equal for tensors that view the same elements of the same storage in
/// the same order and dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewId {
    storage: StorageId,
    dtype: Dtype,
    offset: u64,
    /// Shape followed by stride, which is 0 along dimensions of size 1.
    dims: Arc<[u64]>,
}

impl ViewId {
    /// Returns the identity of the viewed storage.
    pub fn storage(&self) -> StorageId {
        self.storage
    }
}

impl Tensor {
    /// Returns the identity of the viewed elements. Allocates only if a dimension of size 1 has a stride other than 0.
    pub fn view_id(&self) -> ViewId {
        let pairs = || self.shape().iter().zip(self.stride());
        let dims = if pairs().any(|(size, stride)| *size == 1 && *stride != 0) {
            let strides = pairs().map(|(size, stride)| if *size == 1 { 0 } else { *stride });
            self.shape().iter().copied().chain(strides).collect()
        } else {
            self.dims()
        };
        ViewId { storage: self.storage().id(), dtype: self.dtype(), offset: self.storage_offset(), dims }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Storage;

    #[test]
    fn views_are_equal_if_their_elements_are() {
        let storage = Storage::owned(vec![0; 64]);
        let view = |dtype, shape: &[u64], stride: &[u64], offset| {
            let view = Tensor::new(dtype, shape.to_vec(), stride.to_vec(), offset, storage.clone());
            view.expect("inside").view_id()
        };
        let first = view(Dtype::Int16, &[1, 3], &[3, 1], 2);
        assert_eq!(first, view(Dtype::Int16, &[1, 3], &[7, 1], 2));
        assert_eq!(view(Dtype::Int16, &[1], &[5], 2), view(Dtype::Int16, &[1], &[7], 2));
        assert_eq!(first.storage(), storage.id());
        for other in [
            view(Dtype::Float16, &[1, 3], &[3, 1], 2),
            view(Dtype::Int16, &[1, 3], &[3, 2], 2),
            view(Dtype::Int16, &[1, 3], &[3, 1], 1),
            view(Dtype::Int16, &[3], &[1], 2),
            view(Dtype::Int16, &[1, 2], &[3, 1], 2),
            Tensor::new(Dtype::Int16, vec![1, 3], vec![3, 1], 2, Storage::owned(vec![0; 64]))
                .expect("inside")
                .view_id(),
        ] {
            assert_ne!(first, other);
        }
    }
}
