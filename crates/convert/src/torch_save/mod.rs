//! The zip checkpoint that `torch.save` writes: an ordered dict of named tensors, laid out before it is written.
//!
//! Tensors keep their strides, and tensors that share a storage share it in the file. `torch.load` reads the file with
//! `weights_only=True` in PyTorch 2.0.1 and 2.15, except that 2.0.1 does not load the tensors that
//! [`TorchSaveArchive::needs_newer_torch`] names.
//!
//! ```
//! use byte_source::Blob;
//! use tensor::{Dtype, Storage, Tensor};
//! use convert::torch_save::TorchSaveArchive;
//!
//! let storage = Storage::owned(vec![0; 24]);
//! let weight = Tensor::new(Dtype::Float32, vec![2, 3], vec![3, 1], 0, storage.clone())?;
//! let transposed = Tensor::new(Dtype::Float32, vec![3, 2], vec![1, 3], 0, storage)?;
//! let archive = TorchSaveArchive::new(&[("weight".to_owned(), weight), ("transposed".to_owned(), transposed)].into())?;
//! assert_eq!(archive.needs_newer_torch().count(), 0);
//! assert!(archive.len() > 24);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Facts: `torch/serialization.py`, `torch/_utils.py` and `torch/_weights_only_unpickler.py` of PyTorch 2.0.1 and 2.15.

mod archive;
mod error;
mod pickle;
mod storages;

pub use archive::TorchSaveArchive;
pub use byte_source::{Error, Result};
pub use error::Problem;
