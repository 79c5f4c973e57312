//! Dtypes, tensors and storages, the types that readers and writers share.
//!
//! A [`Tensor`] is a strided view of a [`Storage`], as in PyTorch: several tensors may share one storage, overlap in
//! it, or repeat its elements. Its bounds are proven when it is built, so all of its elements can be read. Shapes,
//! strides and storage offsets count elements; lengths say when they are bytes.

mod blocks;
mod budget;
mod cast;
mod compound;
mod compute;
mod conversion;
mod dtype;
mod dtype_text;
mod element_reader;
mod equal;
mod gather;
mod hash;
mod neg_conj;
mod pairwise_sum;
mod q8_0;
mod reads;
mod records;
mod reshape;
mod small_float;
mod statistics;
mod storage;
mod storage_set;
mod tensor;
mod tensors;
mod tiles;
mod view_id;

pub use budget::Budget;
pub use cast::{CastNumbers, OutOfRange, ViewedRanges};
pub use compound::CompoundKind;
pub use compute::{Compute, Inputs};
pub use conversion::DtypeConversion;
pub use dtype::Dtype;
pub use dtype_text::UnknownDtype;
pub use element_reader::{ElementReader, RecordChecks};
pub use gather::Gathered;
pub use hash::{UnreadTensor, hash_elements};
pub use neg_conj::NegConj;
pub use q8_0::BlockStorages;
pub use reads::announce_reads;
pub use records::{StorageRecord, StorageRecords};
pub use statistics::{ElementValue, Histogram, TensorStatistics};
pub use storage::{ByteOrder, Checksum, Storage, StorageId};
pub use storage_set::{StorageSet, WholeElements};
pub use tensor::{DimsInterner, Error, Tensor, contiguous_strides};
pub use tensors::{CompoundTensor, TensorEntry, Tensors};
pub use tiles::Tile;
pub use view_id::ViewId;
