//! The records of an archive that hold storages: one a storage, however many tensors view it.
//!
//! Facts: `readInstruction` and `rebuildTensor` in `torch/csrc/jit/serialization/unpickler.cpp`. A storage
//! has the dtype of its storage class, and the tensors over it have no other. Measured in 2.0.1 and 2.15:
//! a second persistent id with the same key, of whatever class, makes a second copy of the bytes; a record
//! shorter than its id says is read past its end.

use std::collections::hash_map::Entry;
use std::io;

use foldhash::{HashMap, HashMapExt};
use mapped::{Blob, Sink, Window};
use tensor::{Dtype, Storage, StorageId, Tensor};

use crate::{Error, Result};

/// The bytes of one storage in an [`Archive`](crate::Archive).
///
/// As a [`Blob`] it sends whole elements: if a storage ends in the middle of an element, those last bytes are
/// left out. No tensor reaches them, and torch would read past a record of another length.
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

    /// Its whole elements.
    pub(crate) fn numel(&self) -> u64 {
        self.storage.len().checked_div(self.dtype.size()).unwrap_or(0)
    }

    /// Bytes after the last whole element, which are not written.
    pub(crate) fn cut(&self) -> u64 {
        self.storage.len().saturating_sub(Blob::len(self))
    }
}

impl Blob for Record {
    fn len(&self) -> u64 {
        self.numel().saturating_mul(self.dtype.size())
    }

    fn write_to(&self, sink: &mut dyn Sink) -> io::Result<()> {
        if self.cut() == 0 {
            self.storage.write_to(sink)
        } else {
            self.storage.write_to(&mut First { left: Blob::len(self), sink })
        }
    }
}

/// Passes the first bytes on and drops the others.
struct First<'s> {
    left: u64,
    sink: &'s mut dyn Sink,
}

impl Sink for First<'_> {
    fn write(&mut self, window: Window) -> io::Result<()> {
        let window = match usize::try_from(self.left).ok().and_then(|left| window.get(..left)) {
            Some(first) => Window::owned(first.to_vec()),
            None => window,
        };
        self.left = self.left.saturating_sub(window.len() as u64);
        if window.is_empty() { Ok(()) } else { self.sink.write(window) }
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
    /// One record a storage, in the order of `tensors`: it is the order in which the source has them, and
    /// a file is read fastest from its start to its end.
    pub(crate) fn new(tensors: &[(String, Tensor)]) -> Result<Self> {
        let mut all =
            Self { records: Vec::with_capacity(tensors.len()), by_tensor: Vec::with_capacity(tensors.len()) };
        let mut known: HashMap<StorageId, u32> = HashMap::with_capacity(tensors.len());
        for (name, tensor) in tensors {
            let storage = tensor.storage();
            let number = match known.entry(storage.id()) {
                Entry::Occupied(entry) => {
                    let number = *entry.get();
                    if let Some(record) = all.get(number)
                        && record.dtype != tensor.dtype()
                    {
                        let shares = |(_, other): &&(String, Tensor)| other.storage().id() == storage.id();
                        let first = tensors.iter().find(shares);
                        return Err(Error::MixedDtypes {
                            first: first.map(|(name, _)| name.clone()).unwrap_or_default(),
                            first_dtype: record.dtype,
                            second: name.clone(),
                            second_dtype: tensor.dtype(),
                        });
                    }
                    number
                }
                Entry::Vacant(entry) => {
                    let too_large =
                        |_| Error::TooLarge { tensor: name.clone(), number: all.records.len() as u64 };
                    let number = u32::try_from(all.records.len()).map_err(too_large)?;
                    class(name, tensor.dtype())?;
                    let (dtype, storage) = (tensor.dtype(), storage.clone());
                    all.records.push(Record { number, dtype, offset: 0, storage });
                    *entry.insert(number)
                }
            };
            let numel = all.get(number).map_or(0, Record::numel);
            if tensor.storage_offset() > numel {
                let offset = tensor.storage_offset();
                return Err(Error::Outside { tensor: name.clone(), offset, numel });
            }
            all.by_tensor.push(number);
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
pub fn loads_in_2_0(tensors: &[(String, Tensor)]) -> Result<()> {
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
        Dtype::QInt8 | Dtype::QUInt8 | Dtype::QInt32 | Dtype::QUInt4X2 | Dtype::QUInt2X4 => None,
        _ => newer_class(dtype).or_else(|| dtype.storage_class()),
    }
    .ok_or_else(|| Error::Dtype { tensor: tensor.to_owned(), dtype })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mapped::MappedFile;
    use tensor::{Checksum, Damaged};

    use super::*;

    struct Ignore;

    impl Sink for Ignore {
        fn write(&mut self, _: Window) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn damage_names_the_storage() {
        let path = std::env::temp_dir().join(format!("torchscript-damaged-{}", std::process::id()));
        std::fs::write(&path, [7; 9]).expect("the temporary folder is writable");
        let file = Arc::new(MappedFile::open(&path).expect("the file was just written"));
        std::fs::remove_file(&path).expect("the file was just written");
        // Whole elements, and a storage that ends in the middle of one.
        for len in [8, 9] {
            let checksum = Checksum { crc: 1, record: "archive/data/0".into() };
            let storage = Storage::mapped(&file, 0..len, Some(checksum)).expect("inside the file");
            let tensor = |name: &str| {
                let tensor = Tensor::new(Dtype::Int16, vec![4], vec![1], 0, storage.clone());
                (name.to_owned(), tensor.expect("inside the storage"))
            };
            let records = Records::new(&[tensor("first"), tensor("second")]).expect("one dtype");
            let [record] = records.records.as_slice() else { panic!("the tensors share a storage") };
            let error = record.write_to(&mut Ignore).expect_err("its checksum is not 1");
            let damaged = Damaged::cause_of(&error).expect("the cause is kept");
            assert_eq!((damaged.storage, damaged.expected), (storage.id(), 1), "{len}");
            assert!(error.to_string().starts_with("record `archive/data/0` is damaged: "), "{error}");
        }
    }
}
