//! Reads the tar archive that `torch.save` wrote in PyTorch 0.1, with members `sys_info`, `pickle`, `storages` and
//! `tensors`.
//!
//! Facts: `legacy_load` in `torch/serialization.py`. `storages` holds a count, then for each storage a
//! pickle `(key, location, class)`, a number of elements and their bytes, then a list of views
//! `(key, key of the storage, offset, size)`; `tensors` holds a count, then for each tensor a pickle
//! `(key, key of its storage, class)`, the number of dimensions in eight bytes (of which four count),
//! shape, stride and storage offset. The pickle's persistent ids are keys.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Checks, Observer, SeekableSource, Source, share_start};
use foldhash::{HashMap, HashMapExt};
use pickle_vm::Heap;

use tensor::{StorageRecord, StorageRecords};

use crate::container::contents::{ContainerContents, PickledTensors, RecordPickle, to_u64_range};
use crate::container::cursor::PickleCursor;
use crate::container::format::{ContainerFormat, TORCH_EXTENSIONS};
use crate::container::inflate::RecordBytes;
use crate::container::tar_members::TarMembers;
use crate::persistent::{PersistentTensor, StorageRef, StorageView, storage_dtype};
use crate::{Error, Problem, Result};

const PICKLE: &str = "pickle";
const STORAGES: &str = "storages";
const TENSORS: &str = "tensors";
const STORAGE_COUNT: &str = "the number of storages";
/// Bytes of a file that is not in memory that are read for the description of a storage.
const FIRST_PART: u64 = 4 << 10;
/// Largest length in bytes of a description that is read without the storages.
const PART_MAX: u64 = 256 << 20;
/// Largest accepted number of dimensions; PyTorch's own limit is 64.
const MAX_DIMS: i64 = 1 << 10;

/// Tar archive: `torch.save` in PyTorch 0.1.
#[derive(Debug)]
pub(super) struct TarFormat;

impl ContainerFormat for TarFormat {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn extensions(&self) -> &'static [&'static str] {
        TORCH_EXTENSIONS
    }

    fn recognises(&self, head: &[u8]) -> bool {
        recognises(head)
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, _: &dyn Observer) -> Result<ContainerContents> {
        open(file)
    }
}

/// Returns true if a file is a tar archive, by the magic in the first member's header.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar")
}

/// Opens an archive. Of its storages, only the descriptions are read.
fn open(file: Arc<dyn Source>) -> Result<ContainerContents> {
    let mut members = TarMembers::read(SeekableSource::new(&*file), file.len());
    if let Some(error) = members.error {
        return Err(error);
    }
    let Some(pickle) = members.find(PICKLE) else { return Err(not_a_checkpoint(&members)) };
    if !members.oddities.is_empty() {
        return Err(Problem::Tar(members.oddities.swap_remove(0)).into());
    }
    let member = |name: &str| {
        let found = members.find(name).ok_or_else(|| Problem::MissingRecord { record: name.to_owned() })?;
        Ok::<_, Error>(to_u64_range(&found))
    };
    let mut more_pickles = Vec::new();
    let (records, references) = read_storages(&*file, member(STORAGES)?, &mut more_pickles)?;
    let tensors = member(TENSORS)?;
    let tensor_bytes = RecordBytes::read(&file, tensors.clone())?;
    let mut chain = PickleCursor::in_part(&tensor_bytes, &tensors, file.len(), TENSORS);
    let described = read_tensors(&mut chain, &references)?;
    let tensor_pickles = chain.pickles().into_iter().map(|range| (TENSORS, range));
    more_pickles.extend(tensor_pickles);
    let pickled = PickledTensors {
        persistent_tensors: described,
        more_pickles,
        pickle_record: PICKLE.to_owned(),
        ..PickledTensors::new(RecordBytes::read(&file, to_u64_range(&pickle))?)
    };
    Ok(ContainerContents::pickled(file, records, pickled))
}

/// Builds the error for an archive that is not a checkpoint.
fn not_a_checkpoint(members: &TarMembers) -> Error {
    let has = |ends: &str| members.members.iter().any(|(name, _)| name.ends_with(ends));
    if has("model_config.yaml") {
        return Problem::Format {
            what: "a NeMo archive",
            hint: "unpack it with `tar xf`, then pass the .ckpt file in it",
            first_line: String::new(),
        }
        .into();
    }
    Problem::Format {
        what: "a tar archive without the members of a PyTorch 0.1 checkpoint",
        hint: "unpack it with `tar xf`, then pass the checkpoint in it",
        first_line: String::new(),
    }
    .into()
}

type TarStorages = (StorageRecords, HashMap<String, StorageRef<'static>>);

/// Reads the member with the storages, but not their bytes. Adds the range of each pickle to `pickles`.
fn read_storages(
    file: &dyn Source,
    member: Range<u64>,
    pickles: &mut Vec<RecordPickle>,
) -> Result<TarStorages> {
    let mut found = TarStorages::default();
    let (storages, mut at) = read_part(file, member.clone(), pickles, |chain| count(chain, STORAGE_COUNT))?;
    for _ in 0..storages {
        let ((key, storage), start) = read_part(file, at..member.end, pickles, read_storage)?;
        let what = format!("storage `{}`", key.escape_debug());
        let mut rest = PickleCursor::in_part(&[], &(start..member.end), file.len(), STORAGES);
        let range = to_u64_range(&rest.take_range(storage.nbytes().unwrap_or(u64::MAX), &what)?);
        at = range.end;
        add_storage(&mut found, key, storage, range)?;
    }
    read_part(file, at..member.end, pickles, |chain| read_views(chain, &mut found.1))?;
    Ok(found)
}

/// Reads a part at the start of a range of the storages with `read`, and returns its end in the file. `read` is called again with
/// more bytes if there were too few, before it changes something.
fn read_part<T>(
    file: &dyn Source,
    range: Range<u64>,
    pickles: &mut Vec<RecordPickle>,
    mut read: impl FnMut(&mut PickleCursor<'_>) -> Result<T>,
) -> Result<(T, u64)> {
    let mut len = FIRST_PART;
    loop {
        let bytes = share_start(file, range.clone(), len)?;
        let mut chain = PickleCursor::in_part(&bytes, &range, file.len(), STORAGES);
        let outcome = read(&mut chain);
        let end = chain.offset() as u64;
        let is_read = end <= range.start.saturating_add(bytes.len() as u64) && !chain.needs_more();
        if is_read || len >= PART_MAX {
            pickles.extend(chain.pickles().into_iter().map(|range| (STORAGES, range)));
            return Ok((outcome?, end));
        }
        len = len.saturating_mul(4);
    }
}

fn read_storage(chain: &mut PickleCursor<'_>) -> Result<(String, StorageRef<'static>)> {
    let pickle = chain.load_next_pickle("the description of a storage")?;
    let heap = &pickle.heap;
    let Some(&[key, location, class]) = heap.items(pickle.root) else {
        return Err(chain.layout_error("a storage's description is not a tuple of 3".to_owned()));
    };
    // PyTorch calls the location's methods.
    if heap.text(location).is_none() {
        return Err(chain.layout_error("a storage's location is not a text".to_owned()));
    }
    let key = chain.read_key(heap, key)?;
    let dtype = storage_dtype(heap, class).map_err(|reason| chain.layout_error(reason))?;
    let shown = key.escape_debug().to_string();
    let numel = chain.read_count(&format!("the number of elements of storage `{shown}`"))?;
    Ok((key.clone(), StorageRef { dtype, key: Cow::Owned(key), numel, view: None }))
}

fn add_storage(
    (records, references): &mut TarStorages,
    key: String,
    storage: StorageRef<'static>,
    range: Range<u64>,
) -> Result<()> {
    let shown = key.escape_debug().to_string();
    if !records.insert(&key, StorageRecord::new(range, None)) || references.insert(key, storage).is_some() {
        return Err(Problem::Layout {
            record: STORAGES.to_owned(),
            reason: format!("storage `{shown}` appears twice"),
        }
        .into());
    }
    Ok(())
}

fn read_views(
    chain: &mut PickleCursor<'_>,
    references: &mut HashMap<String, StorageRef<'static>>,
) -> Result<()> {
    let views = chain.load_next_pickle("the list of storage views")?;
    let heap = &views.heap;
    let Some(items) = heap.items(views.root) else {
        return Err(chain.layout_error("the storage views are not a list".to_owned()));
    };
    for item in items {
        let Some(&[key, root, offset, numel]) = heap.items(*item) else {
            return Err(chain.layout_error("a storage view is not a tuple of 4".to_owned()));
        };
        let (key, root) = (chain.read_key(heap, key)?, chain.read_key(heap, root)?);
        let shown = key.escape_debug().to_string();
        let natural = |id| {
            unsigned_int(heap, id)
                .ok_or_else(|| chain.layout_error(format!("view `{shown}` has no offset or size")))
        };
        let (offset, numel) = (natural(offset)?, natural(numel)?);
        let Some(storage) = references.get(&root).filter(|storage| storage.view.is_none()) else {
            return Err(chain.layout_error(format!(
                "view `{shown}` refers to storage `{}`, which does not exist",
                root.escape_debug()
            )));
        };
        if offset.checked_add(numel).is_none_or(|end| end > storage.numel) {
            return Err(chain.layout_error(format!(
                "view `{shown}` has {numel} elements at {offset} of a storage that has {}",
                storage.numel
            )));
        }
        let view = Some(Box::new(StorageView { key: Cow::Owned(key.clone()), offset, numel }));
        let storage = StorageRef { view, ..storage.clone() };
        if references.insert(key, storage).is_some() {
            return Err(chain.layout_error(format!("storage `{shown}` appears twice")));
        }
    }
    Ok(())
}

fn read_tensors(
    chain: &mut PickleCursor<'_>,
    storages: &HashMap<String, StorageRef<'static>>,
) -> Result<HashMap<String, PersistentTensor>> {
    let mut tensors = HashMap::new();
    let count = count(chain, "the number of tensors")?;
    for _ in 0..count {
        let pickle = chain.load_next_pickle("the description of a tensor")?;
        let heap = &pickle.heap;
        let Some(&[key, storage, _class]) = heap.items(pickle.root) else {
            return Err(chain.layout_error("a tensor's description is not a tuple of 3".to_owned()));
        };
        let (key, storage) = (chain.read_key(heap, key)?, chain.read_key(heap, storage)?);
        let shown = key.escape_debug().to_string();
        let Some(storage) = storages.get(&storage) else {
            return Err(chain.layout_error(format!(
                "tensor `{shown}` refers to storage `{}`, which does not exist",
                storage.escape_debug()
            )));
        };
        // The count has four bytes, followed by four that PyTorch did not initialise.
        let dims = chain.read_signed_number("a number of dimensions")? & 0xffff_ffff;
        if dims > MAX_DIMS {
            return Err(
                chain.layout_error(format!("tensor `{shown}` has {dims} dimensions, more than {MAX_DIMS}"))
            );
        }
        let mut numbers = |what: &str| -> Result<Vec<u64>> {
            (0..dims).map(|_| chain.read_count(&format!("{what} of tensor `{shown}`"))).collect()
        };
        let shape = numbers("a size")?;
        let stride = numbers("a stride")?;
        let offset = chain.read_count(&format!("the storage offset of tensor `{shown}`"))?;
        let tensor = PersistentTensor { storage: storage.clone(), shape, stride, offset };
        if tensors.insert(key, tensor).is_some() {
            return Err(chain.layout_error(format!("tensor `{shown}` appears twice")));
        }
    }
    // A pickle may refer to a storage directly, as a one-dimensional tensor of all its elements.
    for (key, storage) in storages {
        let whole = PersistentTensor {
            shape: vec![storage.len()],
            stride: vec![1],
            offset: 0,
            storage: storage.clone(),
        };
        tensors.entry(key.clone()).or_insert(whole);
    }
    Ok(tensors)
}

/// Reads a count that is stored as a pickled integer.
fn count(chain: &mut PickleCursor<'_>, what: &str) -> Result<u64> {
    let pickle = chain.load_next_pickle(what)?;
    unsigned_int(&pickle.heap, pickle.root)
        .ok_or_else(|| chain.layout_error(format!("{what} is not a natural number")))
}

fn unsigned_int(heap: &Heap<'_>, id: pickle_vm::ObjectId) -> Option<u64> {
    heap.int(id).and_then(|number| u64::try_from(number).ok())
}
