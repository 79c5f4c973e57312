//! Reads the format that `torch.save` wrote before PyTorch 1.6, a sequence of pickles: magic number, protocol version,
//! system information, root object, list of storage keys. The storages follow in the order of that list, each as an
//! element count and the elements' bytes.
//!
//! Facts: `_legacy_save` and `_legacy_load` in `torch/serialization.py`. All numbers are little-endian, even if
//! `sys_info` says otherwise: PyTorch ignores it. The element size comes from the persistent ids.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Checks, Observer, Source, share_start};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use pickle_vm::{Arg, Heap, Opcode, Reader};
use tensor::{Dtype, StorageRecord, StorageRecords};

use crate::container::contents::{ContainerContents, PickledTensors, RECORDS_PER_CHECK, to_u64_range};
use crate::container::cursor::PickleCursor;
use crate::container::format::{ContainerFormat, TORCH_EXTENSIONS};
use crate::container::inflate::{self, RecordBytes};
use crate::persistent::{StorageRef, module_class};
use crate::{CheckpointNote, Problem, Result};

pub(crate) const LEGACY_MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;
const LEGACY_VERSION: i64 = 1001;
/// Index of the root object's pickle, after the magic number, the protocol version and the system information.
pub(crate) const ROOT_INDEX: usize = 3;
/// Bytes of a file that is not in memory that are read first.
const FIRST_PART: u64 = 64 << 10;
/// Largest length in bytes of pickles that are read without the storages.
const PICKLES_MAX: u64 = 256 << 20;
/// Number of pickles in the file; the list of storage keys is the last.
pub(crate) const LEGACY_PICKLES: usize = 5;

/// Number of bytes at the start of a file in which the magic number is searched for. The first byte of another format may be that of
/// an opcode whose argument would extend to the end of the file.
const RECOGNISED_LEN: usize = 64 << 10;

/// Sequence of pickles followed by the storages: `torch.save` before PyTorch 1.6.
#[derive(Debug)]
pub(super) struct LegacyFormat;

impl ContainerFormat for LegacyFormat {
    fn name(&self) -> &'static str {
        "legacy"
    }

    fn extensions(&self) -> &'static [&'static str] {
        TORCH_EXTENSIONS
    }

    fn recognises(&self, head: &[u8]) -> bool {
        recognises(head)
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, observer: &dyn Observer) -> Result<ContainerContents> {
        open(file, observer)
    }
}

/// Returns true if a file starts with a pickle of the magic number, in any protocol.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    let start = bytes.get(..RECOGNISED_LEN).unwrap_or(bytes);
    // The longest first pickle is PROTO, FRAME, LONG1 and STOP.
    for instruction in Reader::new(start).take(4) {
        match instruction.map(|instruction| (instruction.opcode, instruction.arg)) {
            Ok((Opcode::Proto | Opcode::Frame, _)) => {}
            Ok((_, Arg::Long(number))) => return number.to_i128() == Some(LEGACY_MAGIC),
            _ => return false,
        }
    }
    false
}

/// Opens a file. Of one that is not in memory, only the pickles are read, or all if they are very long. The numbers of elements
/// in front of storages that are not read are not compared.
///
/// # Errors
/// When the file cannot be read, or is damaged.
fn open(file: Arc<dyn Source>, observer: &dyn Observer) -> Result<ContainerContents> {
    let mut len = FIRST_PART;
    while len <= PICKLES_MAX {
        let bytes = share_start(&*file, 0..file.len(), len)?;
        let chain = PickleCursor::in_part(&bytes, &(0..file.len()), file.len(), "the file");
        let mut chain = chain.observed(observer);
        let parts = read_legacy_parts(&mut chain);
        if chain.needs_more() {
            len = len.saturating_mul(4);
            continue;
        }
        let (parts, left) = (parts?, chain.bytes_left());
        let pickle = if file.is_mappable() {
            RecordBytes::read(&file, to_u64_range(&parts.pickle))?
        } else {
            bytes.get(parts.pickle.clone()).unwrap_or_default().to_vec().into()
        };
        return Ok(contents(file, parts, pickle, left));
    }
    open(inflate::mappable(file)?, observer)
}

/// Returns the pickles of a file: all bytes before the storages; `None` if they are damaged or too long.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read_pickles(file: &dyn Source) -> Result<Option<Bytes>> {
    let mut len = FIRST_PART;
    while len <= PICKLES_MAX {
        let bytes = share_start(file, 0..file.len(), len)?;
        let mut chain = PickleCursor::in_part(&bytes, &(0..file.len()), file.len(), "the file");
        let is_read = (0..LEGACY_PICKLES).all(|_| chain.load_next_pickle("a pickle").is_ok());
        if is_read {
            return Ok((chain.offset() <= bytes.len()).then(|| bytes.slice(..chain.offset())));
        }
        if !chain.needs_more() {
            return Ok(None);
        }
        len = len.saturating_mul(4);
    }
    Ok(None)
}

fn contents(
    file: Arc<dyn Source>,
    LegacyParts { pickle, storages }: LegacyParts,
    bytes: RecordBytes,
    left: u64,
) -> ContainerContents {
    let mut notes = Vec::new();
    if left > 0 {
        notes.push(CheckpointNote::TrailingAfterStorages { bytes: left });
    }
    let pickle_record = format!("root object at byte {}", pickle.start);
    let pickled = PickledTensors { pickle_record, ..PickledTensors::new(bytes) };
    ContainerContents { notes, ..ContainerContents::pickled(file, storages, pickled) }
}

/// Returns the dtype of the only storage in `bytes` and the range of its elements. A tensor pickled without
/// `torch.save` has each of its storages in a checkpoint of this format.
pub(crate) fn only_storage(bytes: &[u8]) -> Result<(Option<Dtype>, Range<usize>)> {
    let mut chain = PickleCursor::new(bytes, 0..bytes.len(), "a storage in a byte string");
    if !recognises(bytes) {
        return Err(chain.layout_error("it is not a checkpoint in the format before PyTorch 1.6".to_owned()));
    }
    let LegacyParts { pickle, storages } = read_legacy_parts(&mut chain)?;
    let root =
        PickleCursor::new(bytes, pickle, "a storage in a byte string").load_next_pickle("the root object")?;
    let reference = StorageRef::read(&root.heap, root.root)?;
    let record = storages.find(&reference.key).and_then(|number| storages.get(number));
    let key = || reference.key.clone().into_owned();
    let Some(record) = record else { return Err(Problem::MissingStorage { key: key() }.into()) };
    let (needed, available) = (reference.nbytes().unwrap_or(u64::MAX), record.nbytes());
    let too_short = || Problem::ShortRecord { key: key(), needed, available };
    let within = reference.byte_range().filter(|within| within.end <= available).ok_or_else(too_short)?;
    // At most the end of the storage's range, which is inside `bytes`.
    let at = |n: u64| usize::try_from(record.range.start.saturating_add(n)).unwrap_or(usize::MAX);
    Ok((reference.dtype, at(within.start)..at(within.end)))
}

struct LegacyParts {
    /// Range of the root object's pickle.
    pickle: Range<usize>,
    storages: StorageRecords,
}

fn read_legacy_parts(chain: &mut PickleCursor<'_>) -> Result<LegacyParts> {
    chain.load_next_pickle("the magic number")?;
    let version = chain.load_next_pickle("the protocol version")?;
    match version.heap.int(version.root) {
        Some(LEGACY_VERSION) => {}
        found => {
            let found = found.map_or_else(|| "not a number".to_owned(), |found| found.to_string());
            return Err(
                chain.layout_error(format!("the protocol version is {found}, expected {LEGACY_VERSION}"))
            );
        }
    }
    chain.load_next_pickle("the system information")?;
    let start = chain.offset();
    // This first of two reads of the root object only collects persistent ids. The objects borrow the file, which the
    // container owns, and so cannot be kept.
    let root = chain.load_next_pickle("the root object")?;
    let pickle = start..chain.offset();
    let refs = storage_refs(&root.heap)?;
    let keys = chain.load_next_pickle("the list of storage keys")?;
    let keys = match keys.heap.items(keys.root) {
        Some(items) => items.iter().map(|id| chain.read_key(&keys.heap, *id)).collect::<Result<Vec<_>>>()?,
        None => return Err(chain.layout_error("the storage keys are not a list".to_owned())),
    };
    let references = keys.iter().map(|key| {
        refs.get(key.as_str()).ok_or_else(|| {
            chain.layout_error(format!(
                "no persistent id names its storage `{}`, so the size of its elements is unknown",
                key.escape_debug()
            ))
        })
    });
    let references = references.collect::<Result<Vec<_>>>()?;
    let storages = read_legacy_storages(chain, &references)?;
    Ok(LegacyParts { pickle, storages })
}

/// Collects the storages that the persistent ids describe, by key.
fn storage_refs<'h>(heap: &'h Heap<'_>) -> Result<HashMap<Cow<'h, str>, StorageRef<'h>>> {
    let mut refs: HashMap<Cow<'h, str>, StorageRef<'h>> = HashMap::new();
    for &id in heap.persistent_objects() {
        if module_class(heap, id).is_some() {
            continue;
        }
        let reference = StorageRef::read(heap, id)?;
        match refs.get(&reference.key) {
            Some(first) if first.nbytes() != reference.nbytes() => {
                let reason = format!(
                    "storage `{}` has {} elements here but had {} before",
                    reference.key.escape_debug(),
                    reference.numel,
                    first.numel
                );
                return Err(Problem::PersistentId { offset: heap.offset(id), reason }.into());
            }
            Some(_) => {}
            None => {
                refs.insert(reference.key.clone(), reference);
            }
        }
    }
    Ok(refs)
}

fn read_legacy_storages(
    chain: &mut PickleCursor<'_>,
    references: &[&StorageRef<'_>],
) -> Result<StorageRecords> {
    let mut storages = StorageRecords::with_capacity("", references.len());
    // The required file size is known at this point.
    let needed = references
        .iter()
        .try_fold(0_u64, |sum, reference| sum.checked_add(reference.nbytes()?.checked_add(8)?));
    if needed.is_none_or(|needed| needed > chain.bytes_left()) {
        let missing = needed.map(|needed| needed.saturating_sub(chain.bytes_left()));
        return Err(chain.truncation_error("the storages", missing));
    }
    for (number, reference) in references.iter().enumerate() {
        if number.is_multiple_of(RECORDS_PER_CHECK) {
            chain.check_observer()?;
        }
        let key = reference.key.as_ref();
        let what = format!("the number of elements of storage `{}`", key.escape_debug());
        if let Some(numel) = chain.read_known_count(&what)?
            && numel != reference.numel
        {
            let expected = reference.numel;
            return Err(
                chain.layout_error(format!("{what} is {numel}, but its persistent id has {expected}"))
            );
        }
        let len = reference.nbytes().unwrap_or(u64::MAX);
        let range = chain.take_range(len, &format!("storage `{}`", key.escape_debug()))?;
        if !storages.insert(key, StorageRecord::new(to_u64_range(&range), None)) {
            return Err(
                chain.layout_error(format!("the storage key `{}` is listed twice", key.escape_debug()))
            );
        }
    }
    Ok(storages)
}
