//! The records of an archive that hold storages: one a storage, however many tensors view it.
//!
//! Facts: `readInstruction` and `rebuildTensor` in `torch/csrc/jit/serialization/unpickler.cpp`. A storage
//! has the dtype of its storage class, and the tensors over it have no other. Measured in 2.0.1 and 2.15:
//! a second persistent id with the same key, of whatever class, makes a second copy of the bytes.

use byte_source::{Blob, ReadError, Sink};
use tensor::{Dtype, Elements, Shared, Storage, Tensors};

use crate::{Error, Result};

/// The bytes of one storage in an [`Archive`](crate::Archive). As a [`Blob`] it sends whole elements.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place among the records, which is its name.
    number: u32,
    pub(crate) dtype: Dtype,
    pub(crate) offset: u64,
    storage: Storage,
}

impl Record {
    /// Its path in the archive, such as `model/data/0`.
    pub fn name(&self) -> String {
        format!("model/data/{}", self.number)
    }

    /// Where its bytes start, in bytes from the start of the archive.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its elements' dtype, that of all tensors which view it.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The storage that it holds.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    fn elements(&self) -> Elements<'_> {
        Elements::new(&self.storage, self.dtype.size())
    }

    /// Its whole elements.
    pub(crate) fn numel(&self) -> u64 {
        self.elements().count()
    }

    /// Bytes after the last whole element, which are not written.
    pub(crate) fn cut(&self) -> u64 {
        self.elements().cut()
    }
}

impl Blob for Record {
    fn len(&self) -> u64 {
        self.elements().len()
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), ReadError> {
        self.elements().write_to(sink)
    }
}

/// The records of a checkpoint, and which of them each tensor views.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) records: Vec<Record>,
    /// By tensor, the number of its record: the key of its storage.
    pub(crate) by_tensor: Vec<u32>,
}

impl Records {
    /// One record a storage, in the order of `tensors`.
    pub(crate) fn new(tensors: &Tensors) -> Result<Self> {
        let shared = Shared::new(tensors.iter().map(|(_, tensor)| tensor));
        let Shared { first, by_tensor } = shared.ok_or(Error::TooMany { tensors: tensors.len() })?;
        let mut all = Self { records: Vec::with_capacity(first.len()), by_tensor };
        for ((name, tensor), number) in tensors.iter().zip(&all.by_tensor) {
            let dtype = tensor.dtype();
            // The first tensor over its storage.
            if *number as usize == all.records.len() {
                class(name, dtype)?;
                all.records.push(Record {
                    number: *number,
                    dtype,
                    offset: 0,
                    storage: tensor.storage().clone(),
                });
            }
            let Some(record) = all.get(*number) else { continue };
            if record.dtype != dtype {
                let first = first.get(*number as usize).and_then(|first| tensors.at(*first as usize));
                return Err(Error::MixedDtypes {
                    first: first.map_or("", |(name, _)| name).to_owned(),
                    first_dtype: record.dtype,
                    second: name.clone(),
                    second_dtype: dtype,
                });
            }
            let (offset, numel) = (tensor.storage_offset(), record.numel());
            if offset > numel {
                return Err(Error::Outside { tensor: name.clone(), offset, numel });
            }
        }
        Ok(all)
    }

    /// A record by its number.
    pub(crate) fn get(&self, number: u32) -> Option<&Record> {
        self.records.get(number as usize)
    }
}

/// Whether every tensor is of a dtype that PyTorch 2.0.1 loads, the version inside of Carton's runner. Others load
/// in 2.15.
///
/// # Errors
/// Names the first tensor that is not, and its dtype.
pub fn loads_in_2_0(tensors: &Tensors) -> Result<()> {
    match tensors.iter().find(|(_, tensor)| newer_class(tensor.dtype()).is_some()) {
        Some((tensor, newer)) => Err(Error::Newer { tensor: tensor.clone(), dtype: newer.dtype() }),
        None => Ok(()),
    }
}

/// The storage classes that 2.15 loads and 2.0.1 does not.
fn newer_class(dtype: Dtype) -> Option<&'static str> {
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

/// The storage class of the module `torch` that TorchScript loads for `dtype`.
pub(crate) fn class(tensor: &str, dtype: Dtype) -> Result<&'static str> {
    match dtype {
        // C++ knows this class, Python has none.
        Dtype::Complex32 => Some("ComplexHalfStorage"),
        // Their tensors need a quantizer as well as a storage.
        _ if dtype.is_quantized() => None,
        _ => newer_class(dtype).or_else(|| dtype.storage_class()),
    }
    .ok_or_else(|| Error::Dtype { tensor: tensor.to_owned(), dtype })
}
