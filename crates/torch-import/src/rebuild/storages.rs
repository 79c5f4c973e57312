//! Finds the storages of rebuild calls, each once, however many references it has.
//!
//! Facts: `persistent_load` and `_load_from_bytes` in `torch/serialization.py` and `torch/storage.py` of PyTorch 2.15.

use std::ops::Range;

use pickle_vm::ObjectId;
use tensor::{Dtype, Storage};

use super::call::{CallArgs, CallSnapshot, RebuildCall};
use super::{RebuildFunction, Rebuilder, UNTYPED_DTYPE};
use crate::Result;
use crate::container::formats::legacy;
use crate::encoded;
use crate::persistent::StorageRef;

/// Number of references to storages, about 6 MB of the pickle, after which the pickle's pages are released.
const REFERENCES_PER_RELEASE: usize = 1 << 16;

/// A storage and the first reference to it.
#[derive(Clone)]
pub(super) struct ReferencedStorage<'h> {
    pub(super) reference: StorageRef<'h>,
    pub(super) storage: Storage,
}

impl<'h> Rebuilder<'h> {
    /// Returns the storage that a call takes, with its dtype if it has one.
    pub(super) fn storage_argument(
        &mut self,
        call: CallSnapshot<'h>,
        storage: ObjectId,
        dtype: Option<Dtype>,
    ) -> Result<(Option<Dtype>, Storage)> {
        call.refuse_changed(storage)?;
        match RebuildCall::new(self.heap, storage) {
            Some(call) if call.function == RebuildFunction::LoadedStorage => {
                self.loaded_storage(call.args()?)
            }
            _ => self.persistent_storage(call.id(), storage, dtype),
        }
    }

    /// Returns the storage that a call loads from a byte string, each once.
    pub(super) fn loaded_storage(&mut self, args: CallArgs<'h>) -> Result<(Option<Dtype>, Storage)> {
        let call = args.call;
        if let Some(known) = self.loaded_storages.get(&call.id()) {
            return Ok(known.clone());
        }
        let bytes = args.nth_argument(0).map(|bytes| call.bytes(bytes)).transpose()?.flatten();
        let Some(bytes) = bytes else { return Err(call.call_error("expected bytes")) };
        let found = legacy::only_storage(&bytes).map_err(|error| call.call_error(&error.to_string()));
        let (dtype, range) = found?;
        let storage = self.storage_from_bytes(call.id(), args.nth_argument(0), &bytes, range)?;
        self.loaded_storages.insert(call.id(), (dtype, storage.clone()));
        Ok((dtype, storage))
    }

    /// Returns a storage over a range of the byte string `text`, whose bytes are `bytes`. The bytes are copied only if
    /// they are not in the mapped file.
    pub(super) fn storage_from_bytes(
        &self,
        id: ObjectId,
        text: Option<ObjectId>,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Result<Storage> {
        let container = self.container;
        let start = text.and_then(|text| encoded::verbatim_offset(self.heap, container.pickle(), text));
        let mapped = start.and_then(|start| {
            let range = start.checked_add(range.start)?..start.checked_add(range.end)?;
            container.contents().pickle_storage(&range)
        });
        if let Some(storage) = mapped {
            return Ok(storage);
        }
        let bytes = bytes.get(range).unwrap_or_default();
        self.spend_copied(id, bytes.len())?;
        Ok(Storage::owned(bytes.to_vec()))
    }

    /// Returns the storage of the persistent object `id`, each once, with its dtype. `whose` is the call that takes the
    /// storage.
    pub(super) fn persistent_storage(
        &mut self,
        whose: ObjectId,
        id: ObjectId,
        dtype: Option<Dtype>,
    ) -> Result<(Option<Dtype>, Storage)> {
        let reference = StorageRef::read(self.heap, id)?;
        // A walk reads the pickle from start to end, and needs no page twice.
        self.references = self.references.saturating_add(1);
        if self.references.is_multiple_of(REFERENCES_PER_RELEASE) {
            self.container.contents().release_pickle();
        }
        let own = reference.dtype;
        if let Some(bits) = self.read_storage_bits.get_mut(id.index() / 64) {
            *bits |= 1 << (id.index() % 64);
        }
        let number = self.container.record_number(reference.identity());
        let storage = match self.first_reference(number, &reference)? {
            Some(first) if first.reference.is_same_storage(&reference) => first.storage,
            Some(first) => {
                return Err(
                    self.rebuild_error_at(whose, &storage_contradiction(&first.reference, &reference))
                );
            }
            None => {
                // The identity of a view is a key of its own.
                let number = match reference.view {
                    None => number,
                    Some(_) => self.container.record_number(&reference.key),
                };
                let seen_as = dtype.or(own).unwrap_or(UNTYPED_DTYPE);
                let storage = self.container.storage_in_record(number, &reference, seen_as)?;
                let number = storage.record_number().and_then(|number| usize::try_from(number).ok());
                if let Some(first) = number.and_then(|number| self.records.get_mut(number)) {
                    *first = Some(id);
                } else {
                    let first = ReferencedStorage { reference, storage: storage.clone() };
                    self.storages.insert(first.reference.identity().clone(), first);
                }
                storage
            }
        };
        // Only the tensor defines the type of an untyped storage's bytes.
        let seen_as = dtype.or(own).unwrap_or(UNTYPED_DTYPE);
        Ok((own, storage.with_byte_order(self.container.byte_order(), seen_as.component_size())))
    }

    /// Returns the storage that a reference names, if an earlier reference named it.
    pub(super) fn referenced_storage(
        &self,
        reference: &StorageRef<'h>,
    ) -> Result<Option<ReferencedStorage<'h>>> {
        self.first_reference(self.container.record_number(reference.identity()), reference)
    }

    /// Returns the storage that an earlier reference named; `number` is the record of the reference's identity.
    fn first_reference(
        &self,
        number: Option<u32>,
        reference: &StorageRef<'h>,
    ) -> Result<Option<ReferencedStorage<'h>>> {
        if let Some(stored) = self.storages.get(reference.identity()) {
            return Ok(Some(stored.clone()));
        }
        let first =
            number.and_then(|number| self.records.get(usize::try_from(number).ok()?).copied().flatten());
        let Some(id) = first else { return Ok(None) };
        let reference = StorageRef::read(self.heap, id)?;
        let storage = self.container.storage(&reference, reference.dtype.unwrap_or(UNTYPED_DTYPE))?;
        Ok(Some(ReferencedStorage { reference, storage }))
    }

    /// Returns the storage of a tensor of a 0.1 checkpoint, each once.
    pub(super) fn described_storage(
        &mut self,
        id: ObjectId,
        reference: &StorageRef<'static>,
    ) -> Result<Storage> {
        let dtype = reference.dtype.unwrap_or(UNTYPED_DTYPE);
        let storage = match self.storages.get(reference.identity()) {
            Some(stored) if stored.reference == *reference => stored.storage.clone(),
            Some(stored) => {
                return Err(self.rebuild_error_at(id, &storage_contradiction(&stored.reference, reference)));
            }
            None => {
                let storage = self.container.storage(reference, dtype)?;
                let stored = ReferencedStorage { reference: reference.clone(), storage: storage.clone() };
                self.storages.insert(reference.identity().clone(), stored);
                storage
            }
        };
        Ok(storage.with_byte_order(self.container.byte_order(), dtype.component_size()))
    }
}

/// Formats the error for two contradictory references to one key.
pub(super) fn storage_contradiction(first: &StorageRef<'_>, other: &StorageRef<'_>) -> String {
    let name = |dtype: Option<Dtype>| dtype.map_or("bytes", Dtype::name);
    format!(
        "storage `{}` is {} of {} here but was {} of {} before",
        other.identity().escape_debug(),
        other.len(),
        name(other.dtype),
        first.len(),
        name(first.dtype)
    )
}
