//! Reads the zip archive that `torch.save` writes since PyTorch 1.6.
//!
//! Facts: `caffe2/serialize/inline_container.cc`. The root folder is the file's stem, `archive`, `consolidated` or any
//! other name. Records not mentioned here are ignored.

use std::ops::Range;
use std::sync::Arc;

use byte_source::{Checks, Observer, Prefetched, Source};
use pickle_vm::PickleLimits;
use tensor::ByteOrder;
use zip_format::{Entry, ZipIndex};

use super::byte_order::parse_byte_order;
use super::exported::{self, ExportedLayout};
use super::zip_archive::{ZipArchive, member, read_whole};
use crate::container::contents::{ContainerContents, PickledTensors, index_error, pickle_error};
use crate::container::format::{ContainerFormat, TORCH_EXTENSIONS};
use crate::container::inflate;
use crate::omission::{Omission, OmissionKind, OmissionReason};
use crate::{CheckpointNote, Error, Problem, Result};

const PICKLE: &str = "data.pkl";

/// Zip archive with `data.pkl` and one record per storage: `torch.save` since PyTorch 1.6, and `torch.jit.save`.
#[derive(Debug)]
pub(super) struct ZipFormat;

impl ContainerFormat for ZipFormat {
    fn name(&self) -> &'static str {
        "zip"
    }

    fn extensions(&self) -> &'static [&'static str] {
        TORCH_EXTENSIONS
    }

    fn recognises(&self, head: &[u8]) -> bool {
        recognises(head)
    }

    fn open(
        &self,
        file: Arc<dyn Source>,
        checks: Checks,
        observer: &dyn Observer,
    ) -> Result<ContainerContents> {
        open(file, checks, observer)
    }
}

/// Returns true if a file is a zip archive; an archive without entries starts with its end record.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

fn open(file: Arc<dyn Source>, checks: Checks, observer: &dyn Observer) -> Result<ContainerContents> {
    let (index, file) = ZipIndex::open(file, checks, observer).map_err(index_error)?;
    match ExportedLayout::find(&index) {
        Some(layout) => exported::open(&ZipArchive::new(index, file, layout.root())?, &layout, observer),
        None => open_checkpoint(index, file, checks, observer),
    }
}

/// Opens an archive that `torch.save` wrote, such as one in an exported program, and no other archive.
///
/// # Errors
/// When the archive is another one, or is damaged.
pub(crate) fn open_saved(
    file: Arc<dyn Source>,
    checks: Checks,
    observer: &dyn Observer,
) -> Result<ContainerContents> {
    let (index, file) = ZipIndex::open(file, checks, observer).map_err(index_error)?;
    let contents = open_checkpoint(index, file, checks, observer)?;
    Ok(ContainerContents { format: ZipFormat.name(), ..contents })
}

fn open_checkpoint(
    index: ZipIndex,
    file: Arc<dyn Source>,
    checks: Checks,
    observer: &dyn Observer,
) -> Result<ContainerContents> {
    let root = checkpoint_root(&index)?.to_owned();
    let root = root.as_str();
    let archive = ZipArchive::new(index, file, root)?;
    let mut notes = archive.notes();
    let ZipArchive { index, file, checksums } = &archive;
    let checksums = *checksums;
    let pickle_record = format!("{root}{PICKLE}");
    let constants_record = format!("{root}constants.pkl");
    let byte_order_record = find_ignoring_case(index, format!("{root}byteorder"));
    let near = match checks {
        Checks::AtOnce => Arc::clone(file),
        Checks::WhenRead => {
            prefetch_small_records(file, index, &[&pickle_record, &constants_record, &byte_order_record])?
        }
    };
    let whole = |name: &str| index.find(name).map(|entry| read_whole(&near, entry, checksums)).transpose();
    let counted = |name: &str| index.find(name).map_or(0, |entry| inflate::counted_len(file.len(), entry));
    let counted_len = counted(&pickle_record);
    let pickle =
        whole(&pickle_record)?.ok_or_else(|| Problem::MissingRecord { record: pickle_record.clone() })?;
    let constants = whole(&constants_record)?;
    if let Some(constants) = &constants {
        notes.extend(constants_note(constants, counted(&constants_record), constants_record)?);
    }
    let byte_order = match whole(&byte_order_record)? {
        None => ByteOrder::Little,
        Some(bytes) => parse_byte_order(&bytes)?,
    };
    let prefix = format!("{root}data/");
    let is_storage = |entry: &Entry| entry.name.starts_with(&prefix);
    let has_constants = notes.iter().any(|note| matches!(note, CheckpointNote::Constants { .. }));
    let others = index.entries.iter().filter(|entry| !is_storage(entry) && entry.len > 0);
    let unread = others.filter_map(|entry| unread_omission(root, entry, has_constants)).collect();
    let (storages, inflated) = archive.storages(&prefix, |_| true, observer)?;
    let ZipArchive { index, file, .. } = archive;
    let index = (checks == Checks::WhenRead).then_some(index);
    let pickled = PickledTensors {
        is_torchscript: constants.is_some(),
        counted_len,
        inflated,
        index,
        pickle_record,
        prefix,
        byte_order,
        ..PickledTensors::new(pickle)
    };
    Ok(ContainerContents {
        unread_records: unread,
        notes,
        ..ContainerContents::pickled(file, storages, pickled)
    })
}

/// Records, relative to the root folder, that PyTorch writes next to the pickle and that hold no part of the model.
const BOOKKEEPING: &[&str] = &["data.pkl", "version", "byteorder", ".format_version", ".storage_alignment"];
/// Folders of the archive's identity and version, and of TorchScript code with its source maps.
const BOOKKEEPING_FOLDERS: &[&str] = &[".data/", "code/"];
/// Records of an archive that are not read: the prefix of the name after the root folder, and the reason of the
/// omission.
const UNREAD_RECORDS: &[(&str, OmissionReason)] = &[
    ("constants.pkl", OmissionReason::Constant),
    ("constants/", OmissionReason::Constant),
    ("bytecode.pkl", OmissionReason::MobileCode),
    ("bytecode/", OmissionReason::MobileCode),
    ("mobile_debug_handles.pkl", OmissionReason::MobileCode),
    ("callstack_debug_map.pkl", OmissionReason::MobileCode),
    ("delegated_backends.debug_pkl", OmissionReason::MobileCode),
    ("traced_inputs.pkl", OmissionReason::TracedInput),
    ("extra/", OmissionReason::ExtraFile),
];

/// Returns the omission for an entry that is neither read nor bookkeeping of the format.
fn unread_omission(root: &str, entry: &Entry, has_constants: bool) -> Option<Omission> {
    let name = entry.name.strip_prefix(root);
    let is_known = |name: &str| {
        BOOKKEEPING.contains(&name) || BOOKKEEPING_FOLDERS.iter().any(|folder| name.starts_with(folder))
    };
    if name.is_some_and(is_known) {
        return None;
    }
    let starts = |name: &str| UNREAD_RECORDS.iter().find(|(start, _)| name.starts_with(start));
    let reason = name.and_then(starts).map_or(OmissionReason::UnknownRecord, |(_, reason)| *reason);
    if name == Some("constants.pkl") && !has_constants {
        return None;
    }
    let (name, nbytes) = (entry.name.clone(), Some(entry.len));
    Some(Omission { file: None, kind: OmissionKind::Record, name, nbytes, reason, object: None })
}

/// Returns a note about the constants of a TorchScript archive, which belong to its code and are in no state dict.
fn constants_note(pickle: &[u8], counted: u64, record: String) -> Result<Option<CheckpointNote>> {
    let limits = PickleLimits::for_stored(counted);
    let constants = pickle_vm::load_with(pickle, &limits)
        .map_err(|reason| pickle_error(record, reason, counted, pickle.len() as u64))?;
    let count = constants.heap.items(constants.root).map_or(1, <[_]>::len);
    let tensors = crate::count_tensors(&constants.heap);
    Ok((count > 0).then_some(CheckpointNote::Constants { count, tensors }))
}

/// Returns the name of the record that PyTorch reads for `name`.
fn find_ignoring_case(index: &ZipIndex, name: String) -> String {
    if index.find(&name).is_some() {
        return name;
    }
    let found = index.entries.iter().find(|entry| entry.name.eq_ignore_ascii_case(&name));
    found.map_or(name, |entry| entry.name.clone())
}

/// Returns the folder of the only `data.pkl`, with its slash.
fn checkpoint_root(index: &ZipIndex) -> Result<&str> {
    let mut roots = index.entries.iter().filter_map(|entry| {
        let root = entry.name.strip_suffix(PICKLE)?;
        (root.is_empty() || root.ends_with('/')).then_some(root)
    });
    match (roots.next(), roots.next()) {
        (Some(root), None) => Ok(root),
        (None, _) => Err(missing_pickle_error(index)),
        (Some(first), Some(second)) => Err(Problem::PickleCount {
            found: format!("`{}{PICKLE}` and `{}{PICKLE}`", first.escape_debug(), second.escape_debug()),
        }
        .into()),
    }
}

/// Known archives without a `data.pkl`: the suffix of an entry's name, a description of the archive, and a hint.
const KNOWN_ARCHIVES: &[(&str, &str, &str)] = &[
    ("carton.toml", "a carton", "it is already converted; pass the checkpoint that it was made from"),
    (
        "MAR-INF/MANIFEST.json",
        "a TorchServe archive (.mar)",
        "unpack it with `unzip`, then pass the checkpoint in it",
    ),
    (
        "model.json",
        "a TorchScript archive of PyTorch 1.0 to 1.2",
        "load it in Python with `torch.jit.load` and save it with `torch.jit.save`",
    ),
    (
        ".data/extern_modules",
        "a package of Python modules, as `torch.package` writes it",
        "load it in Python with `torch.package.PackageImporter`, and save the state_dict of its model with `torch.save`",
    ),
    ("model.weights.h5", "a Keras model", "load it in Python and save its arrays with `torch.save`"),
    (
        ".npy",
        "a NumPy archive (.npz)",
        "save it with PyTorch: `torch.save({k: torch.from_numpy(v) for k, v in numpy.load(PATH).items()}, 'arrays.pt')`",
    ),
];
/// Endings of the names of checkpoints in an archive of several files.
const CHECKPOINT_ENDINGS: &[&str] = &[".pth", ".pt", ".bin", ".ckpt", ".safetensors"];

/// Length in bytes below which a file in an archive comes last: it has no tensors, as one of those that stable-baselines3 writes.
const MEMBER_MIN: u64 = 1024;

/// Returns a file in a zip archive, such as one of several checkpoints, as a source with the name `ARCHIVE::NAME`; `None` if there is no
/// such file. A name with `::` is that of a file in an archive in the archive.
///
/// # Errors
/// When the archive cannot be read or is damaged, or the file inflates to more than an honest one.
pub fn archive_member(archive: &Arc<dyn Source>, name: &str) -> Result<Option<Arc<dyn Source>>> {
    let mut found = Arc::clone(archive);
    for name in name.split("::") {
        let checks = Checks::for_source(&*found);
        let (index, file) = ZipIndex::open(Arc::clone(&found), checks, &()).map_err(index_error)?;
        let Some(entry) = index.find(name) else { return Ok(None) };
        found = member(&file, entry)?;
    }
    Ok(Some(found))
}

/// Builds the error for an archive without a `data.pkl`.
fn missing_pickle_error(index: &ZipIndex) -> Error {
    let has = |end: &str| index.entries.iter().any(|entry| entry.name.ends_with(end));
    if let Some((_, what, hint)) = KNOWN_ARCHIVES.iter().find(|(end, ..)| has(end)) {
        return Problem::Format { what, hint, first_line: String::new() }.into();
    }
    // A Mac adds files of its own beside each file.
    let is_checkpoint = |entry: &&Entry| {
        !entry.name.starts_with("__MACOSX/") && CHECKPOINT_ENDINGS.iter().any(|end| entry.name.ends_with(end))
    };
    let mut members: Vec<&Entry> = index.entries.iter().filter(is_checkpoint).collect();
    members.sort_by_key(|entry| entry.stored_len() < MEMBER_MIN);
    let members: Vec<String> = members.into_iter().map(|entry| entry.name.clone()).collect();
    if members.is_empty() {
        return Problem::PickleCount { found: "no `data.pkl`".to_owned() }.into();
    }
    Problem::Archive { members }.into()
}

/// Returns a source that has prefetched the small records, with their local headers, in one read.
fn prefetch_small_records(
    file: &Arc<dyn Source>,
    index: &ZipIndex,
    records: &[&str],
) -> Result<Arc<dyn Source>> {
    let found = records.iter().filter_map(|name| index.find(name));
    let small = found.filter(|entry| entry.stored_len() <= inflate::IN_MEMORY_MAX);
    let mut ranges: Vec<Range<u64>> = small.map(|entry| entry.data.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    Ok(Arc::new(Prefetched::new(Arc::clone(file), &ranges)?))
}
