//! Storage records of an archive: one record per storage, shared by all tensors that view it.
//!
//! Facts: `readInstruction` and `rebuildTensor` in `torch/csrc/jit/serialization/unpickler.cpp`. A storage has the dtype of
//! its storage class, and all tensors over it have the same dtype. Measured in 2.0.1 and 2.15: a second persistent id with
//! the same key, of whatever class, makes a second copy of the bytes.

use byte_source::{Blob, Sink};
use tensor::{Dtype, Storage, StorageSet, Tensors, WholeElements};

use crate::{Problem, Result};

/// Bytes of one storage in an [`Archive`](crate::ScriptArchive). As a [`Blob`], it writes whole elements only.
#[derive(Clone, Debug)]
pub struct DataRecord {
    /// Index among the storage records, which is also the record's file name.
    number: u32,
    pub(crate) dtype: Dtype,
    pub(crate) offset: u64,
    storage: Storage,
}

impl DataRecord {
    /// Returns the path in the archive, such as `model/data/0`.
    pub fn name(&self) -> String {
        format!("model/data/{}", self.number)
    }

    /// Returns the offset of the record's data, in bytes from the start of the archive.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the dtype of the elements, which all tensors over the storage have.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the storage whose bytes the record holds.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    fn elements(&self) -> WholeElements<'_> {
        WholeElements::new(&self.storage, self.dtype.size())
    }

    pub(crate) fn numel(&self) -> u64 {
        self.elements().count()
    }

    /// Returns the number of bytes after the last whole element, which are not written.
    pub(crate) fn incomplete_bytes(&self) -> u64 {
        self.elements().trailing_bytes()
    }
}

impl Blob for DataRecord {
    fn len(&self) -> u64 {
        self.elements().len()
    }

    fn write_to(&self, sink: &mut dyn Sink) -> byte_source::Result<()> {
        self.elements().write_to(sink)
    }
}

#[derive(Debug, Default)]
pub(crate) struct DataRecords {
    pub(crate) records: Vec<DataRecord>,
    /// Record number by tensor: the key of its storage.
    pub(crate) by_tensor: Vec<u32>,
}

impl DataRecords {
    /// Makes one record per storage, in the order of `tensors`.
    pub(crate) fn new(tensors: &Tensors) -> Result<Self> {
        let shared = StorageSet::new(tensors.iter().map(|(_, tensor)| tensor));
        let StorageSet { first, by_tensor } = shared.ok_or(Problem::TooMany { tensors: tensors.len() })?;
        let mut all = Self { records: Vec::with_capacity(first.len()), by_tensor };
        for ((name, tensor), number) in tensors.iter().zip(&all.by_tensor) {
            let dtype = tensor.dtype();
            // The first tensor that views a storage adds the record.
            if *number as usize == all.records.len() {
                storage_class_name(name, dtype)?;
                all.records.push(DataRecord {
                    number: *number,
                    dtype,
                    offset: 0,
                    storage: tensor.storage().clone(),
                });
            }
            let Some(record) = all.get(*number) else { continue };
            if record.dtype != dtype {
                let first = first.get(*number as usize).and_then(|first| tensors.get_index(*first as usize));
                return Err(Problem::MixedDtypes {
                    first: first.map_or("", |(name, _)| name).to_owned(),
                    first_dtype: record.dtype,
                    second: name.clone(),
                    second_dtype: dtype,
                }
                .into());
            }
            let (offset, numel) = (tensor.storage_offset(), record.numel());
            if offset > numel {
                return Err(Problem::OffsetOutsideStorage { tensor: name.clone(), offset, numel }.into());
            }
        }
        Ok(all)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&DataRecord> {
        self.records.get(number as usize)
    }
}

/// Checks that every tensor has a dtype that PyTorch 2.0.1, the version inside Carton's runner, loads. All other dtypes that
/// this crate writes load in 2.15.
///
/// # Errors
/// Returns [`Problem::NewerDtype`] with the first tensor whose dtype PyTorch 2.0.1 does not load.
pub fn check_loads_in_2_0(tensors: &Tensors) -> Result<()> {
    match tensors.iter().find(|(_, tensor)| newer_storage_class(tensor.dtype()).is_some()) {
        Some((tensor, newer)) => {
            Err(Problem::NewerDtype { tensor: tensor.clone(), dtype: newer.dtype() }.into())
        }
        None => Ok(()),
    }
}

/// Returns the storage class of a dtype that PyTorch 2.15 loads and 2.0.1 does not.
fn newer_storage_class(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::UInt16 => "UInt16Storage",
        Dtype::UInt32 => "UInt32Storage",
        Dtype::UInt64 => "UInt64Storage",
        Dtype::Float8E4M3Fn => "Float8_e4m3fnStorage",
        Dtype::Float8E4M3FnUz => "Float8_e4m3fnuzStorage",
        Dtype::Float8E5M2 => "Float8_e5m2Storage",
        Dtype::Float8E5M2FnUz => "Float8_e5m2fnuzStorage",
        Dtype::Float8E8M0FnU => "Float8_e8m0fnuStorage",
        Dtype::Float4E2M1FnX2 => "Float4_e2m1fn_x2Storage",
        _ => return None,
    })
}

/// Returns the storage class, in the module `torch`, that TorchScript loads for `dtype`.
pub(crate) fn storage_class_name(tensor: &str, dtype: Dtype) -> std::result::Result<&'static str, Problem> {
    match dtype {
        // This class exists in C++ only, not in Python.
        Dtype::Complex32 => Some("ComplexHalfStorage"),
        // Quantized tensors need a quantizer as well as a storage.
        _ if dtype.is_quantized() => None,
        _ => newer_storage_class(dtype).or_else(|| dtype.storage_class()),
    }
    .ok_or_else(|| Problem::Dtype { tensor: tensor.to_owned(), dtype })
}
