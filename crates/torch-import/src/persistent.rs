//! Persistent ids: `('storage', class, key, location, numel)`, before PyTorch 1.6 with a sixth field for a view of the
//! storage, and `('module', class, path, source)`.
//!
//! Facts: the three functions `persistent_load` in `torch/serialization.py`. `numel` counts elements, and bytes for an
//! `UntypedStorage`. In files written by Python 2, the strings may be byte strings.

use std::borrow::Cow;
use std::ops::Range;

use pickle_vm::{Heap, Object, ObjectId};
use tensor::Dtype;

use crate::{Problem, Result};

/// The storage that a persistent id describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageRef<'h> {
    /// `None` for an `UntypedStorage`, whose tensors name their dtypes themselves.
    pub(crate) dtype: Option<Dtype>,
    pub(crate) key: Cow<'h, str>,
    pub(crate) numel: u64,
    /// Part that the id refers to; `None` for the whole storage.
    pub(crate) view: Option<Box<StorageView<'h>>>,
}

/// A part of a storage. PyTorch loads it as a storage of its own over the same bytes, so the storage offset of a tensor
/// counts from the start of the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageView<'h> {
    pub(crate) key: Cow<'h, str>,
    /// Elements of the storage before the part.
    pub(crate) offset: u64,
    pub(crate) numel: u64,
}

impl<'h> StorageRef<'h> {
    /// Reads the persistent id of the object `id`.
    pub(crate) fn read(heap: &'h Heap<'_>, id: ObjectId) -> Result<Self> {
        let offset = heap.offset(id);
        let fail = |reason: String| Problem::PersistentId { offset, reason };
        let pid = heap.persistent(id);
        if pid.and_then(|pid| heap.text(pid)).is_some_and(|text| text.starts_with("('")) {
            let why =
                "protocol 0 writes it as text, which PyTorch cannot load either; save it with protocol 2";
            return Err(fail(why.to_owned()).into());
        }
        if let Some(changed) = heap.last_change(id) {
            return Err(fail(format!("the pickle changes the storage at offset 0x{changed:x}")).into());
        }
        // PyTorch accepts only a tuple, which cannot change after the machine took it.
        let tuple = pid.filter(|pid| matches!(heap.get(*pid), Object::Tuple(_)));
        let Some(fields) = tuple.and_then(|pid| heap.items(pid)) else {
            let found = heap.get(pid.unwrap_or(id)).type_name();
            return Err(fail(format!("expected a storage, found {found}")).into());
        };
        let (fields_of_root, view) = match fields {
            [first @ .., view] if fields.len() == 6 => (first, Some(*view)),
            all => (all, None),
        };
        let &[tag, class, key, _location, numel] = fields_of_root else {
            return Err(fail(format!("expected 5 or 6 fields, found {}", fields.len())).into());
        };
        let tag = heap.text(tag).unwrap_or_default();
        if tag != "storage" {
            return Err(fail(format!("expected 'storage', found {tag:?}")).into());
        }
        let dtype = storage_dtype(heap, class).map_err(fail)?;
        let number = |id: ObjectId, what: &str| {
            let number = heap.int(id).and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| fail(format!("{what} is not a natural number")))
        };
        let text = |id: ObjectId| key_text(heap, id).ok_or_else(|| fail("the key is not text".to_owned()));
        let (key, whole) = (text(key)?, number(numel, "the number of elements")?);
        let view = match view.filter(|view| !heap.is_none(*view)) {
            None => None,
            Some(view) => {
                if let Some(changed) = heap.last_change(view).filter(|changed| *changed > offset) {
                    return Err(fail(format!("its view changes afterwards, at offset 0x{changed:x}")).into());
                }
                let Some(&[key, offset, numel]) = heap.items(view) else {
                    return Err(
                        fail("the view is not a tuple of a key, an offset and a size".to_owned()).into()
                    );
                };
                let (offset, size) =
                    (number(offset, "the view's offset")?, number(numel, "the view's size")?);
                if offset.checked_add(size).is_none_or(|end| end > whole) {
                    return Err(fail(format!(
                        "a view of {size} elements at {offset} of a storage that has {whole}"
                    ))
                    .into());
                }
                Some(Box::new(StorageView { key: text(key)?, offset, numel: size }))
            }
        };
        Ok(Self { dtype, key, numel: whole, view })
    }

    /// Returns the length of the whole storage in bytes; `None` on overflow of 64 bits.
    pub(crate) fn nbytes(&self) -> Option<u64> {
        self.numel.checked_mul(self.dtype.map_or(1, Dtype::size))
    }
    /// Returns the referenced bytes, counted from the start of the storage; `None` on overflow of 64 bits.
    pub(crate) fn byte_range(&self) -> Option<Range<u64>> {
        let size = self.dtype.map_or(1, Dtype::size);
        let (offset, numel) = self.view.as_ref().map_or((0, self.numel), |view| (view.offset, view.numel));
        let start = offset.checked_mul(size)?;
        Some(start..start.checked_add(numel.checked_mul(size)?)?)
    }

    /// Returns true if PyTorch loads the same bytes for two references to one key, in either order. The dtypes may
    /// differ if the storage has no elements. An untyped storage counts as uint8, because `torch.save` writes both
    /// forms for a dtype without a storage class.
    pub(crate) fn is_same_storage(&self, other: &Self) -> bool {
        let is_bytes = |one: &Self| one.dtype.unwrap_or(Dtype::UInt8) == Dtype::UInt8;
        self.key == other.key
            && self.numel == other.numel
            && self.view == other.view
            && (self.dtype == other.dtype || self.numel == 0 || is_bytes(self) && is_bytes(other))
    }

    /// Returns the number of referenced elements.
    pub(crate) fn len(&self) -> u64 {
        self.view.as_ref().map_or(self.numel, |view| view.numel)
    }

    /// Returns the key by which PyTorch identifies the storage: references with equal keys share one storage.
    pub(crate) fn identity(&self) -> &Cow<'h, str> {
        self.view.as_ref().map_or(&self.key, |view| &view.key)
    }
}

/// Returns the class that a persistent id stands for, if no call computes its fields: `('module', class, path, source)`, and
/// `(class, path, source)` in PyTorch 0.1.
pub(crate) fn class_of_persistent_id(heap: &Heap<'_>, pid: ObjectId) -> Option<ObjectId> {
    let Object::Tuple(_) = heap.get(pid) else { return None };
    let &[kind, ref rest @ ..] = heap.items(pid)? else { return None };
    let class = if heap.text(kind).is_some_and(|kind| kind == "module") { *rest.first()? } else { kind };
    heap.global(class).is_some().then_some(class)
}

/// Returns the dtype of a storage class; `None` for an `UntypedStorage`.
pub(crate) fn storage_dtype(heap: &Heap<'_>, class: ObjectId) -> Result<Option<Dtype>, String> {
    let Some((module, class)) = heap.global(class) else {
        return Err(format!("expected a storage class, found {}", heap.get(class).type_name()));
    };
    match (module, Dtype::from_storage_class(class)) {
        ("torch" | "torch.storage", None) if class == "UntypedStorage" => Ok(None),
        ("torch" | "torch.cuda", Some(dtype)) => Ok(Some(dtype)),
        _ => Err(format!(
            "storage class `{}.{}` is not supported",
            module.escape_debug(),
            class.escape_debug()
        )),
    }
}

/// A tensor that a 0.1 checkpoint describes outside of its pickle. Shape, stride and offset count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PersistentTensor {
    pub(crate) storage: StorageRef<'static>,
    pub(crate) shape: Vec<u64>,
    pub(crate) stride: Vec<u64>,
    pub(crate) offset: u64,
}

/// Returns the class that the persistent object `id` represents. Files before PyTorch 1.6 keep a module's class with
/// its source, as `('module', class, path, source)` or, in 0.1, `(class, path, source)`.
pub(crate) fn module_class(heap: &Heap<'_>, id: ObjectId) -> Option<ObjectId> {
    match *heap.items(heap.persistent(id)?)? {
        [tag, class, _path, _source] if heap.text(tag)? == "module" => Some(class),
        [class, _path, _source] if heap.global(class).is_some() => Some(class),
        _ => None,
    }
}

/// Returns a storage key as text. Files hold keys as text, as byte strings and, in 0.1, as addresses.
pub(crate) fn key_text<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<Cow<'h, str>> {
    heap.text(id).or_else(|| heap.int(id).map(|number| Cow::Owned(number.to_string())))
}
