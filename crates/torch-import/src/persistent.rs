//! Persistent ids: `('storage', class, key, location, numel)`.
//!
//! Facts: `persistent_load` in `torch/serialization.py`. `numel` counts elements. The strings may be
//! bytes in files that Python 2 wrote.

use std::borrow::Cow;

use pickle_vm::{Heap, ObjectId};
use tensor::Dtype;

use crate::{Error, Result};

/// What a persistent id says of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageRef<'h> {
    pub(crate) dtype: Dtype,
    pub(crate) key: Cow<'h, str>,
    pub(crate) numel: u64,
}

impl<'h> StorageRef<'h> {
    /// Reads the persistent id that the object `id` stands for.
    pub(crate) fn read(heap: &'h Heap<'_>, id: ObjectId) -> Result<Self> {
        let offset = heap.offset(id);
        let fail = |reason: String| Error::PersistentId { offset, reason };
        let Some(fields) = heap.persistent(id).and_then(|pid| heap.items(pid)) else {
            return Err(fail(format!("expected a storage, found {}", heap.get(id).type_name())));
        };
        let &[tag, class, key, _location, numel] = fields else {
            return Err(fail(format!("expected 5 fields, found {}", fields.len())));
        };
        let tag = heap.text(tag).unwrap_or_default();
        if tag != "storage" {
            return Err(fail(format!("expected 'storage', found {tag:?}")));
        }
        let Some((module, class)) = heap.global(class) else {
            return Err(fail(format!("expected a storage class, found {}", heap.get(class).type_name())));
        };
        let dtype = match module {
            "torch" => Dtype::from_storage_class(class),
            _ => None,
        };
        let dtype = dtype.ok_or_else(|| {
            fail(format!("storage class `{}.{}` is not read", module.escape_debug(), class.escape_debug()))
        })?;
        let key = heap.text(key).ok_or_else(|| fail("the key is no text".to_owned()))?;
        let numel = heap
            .int(numel)
            .and_then(|numel| u64::try_from(numel).ok())
            .ok_or_else(|| fail("the number of elements is no natural number".to_owned()))?;
        Ok(Self { dtype, key, numel })
    }
}
