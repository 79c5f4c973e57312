//! The metadata of `torch.distributed.checkpoint`: the tensors, the boxes of their parts, and the place of each part.
//!
//! Facts: the classes `Metadata`, `TensorStorageMetadata`, `ChunkStorageMetadata`, `MetadataIndex` in `metadata.py`,
//! `_StorageInfo` in `filesystem.py`, and `flatten_state_dict` in `_nested_dict.py` of PyTorch 2.15. If each rank saves on
//! its own, a rank's metadata list only its own parts, and every replicated tensor.

use std::borrow::Cow;

use foldhash::{HashMap, HashSet, HashSetExt};
use pickle_vm::ObjectId;
use tensor::Dtype;
use torch_import::ItemPath;

use super::rank_of;
use crate::trainers::attributes::Objects;
use crate::trainers::{Error, Problem, Result};

/// Bytes of names, sizes and parts that may be read for each byte of the file, and in any case. A real file refers to a
/// long name a few times, at most once for each part.
const WORK_PER_BYTE: u64 = 64;
const WORK_BASE: u64 = 64 << 20;

/// Metadata of a checkpoint, merged from those of all ranks.
#[derive(Debug, Default)]
pub(super) struct DcpMetadata<'h> {
    /// Tensors and values in the order of the files, by name.
    pub(super) entries: Vec<(Cow<'h, str>, DcpEntry)>,
    positions: HashMap<Cow<'h, str>, usize>,
    /// Places of the parts by name and start; a value has no start.
    places: HashMap<Cow<'h, str>, HashMap<Option<Vec<u64>>, PartPlace<'h>>>,
    /// Keys of nested dicts and lists of which a name was joined, if the trainer recorded them.
    paths: HashMap<Cow<'h, str>, Vec<Cow<'h, str>>>,
    /// Name of the metadata file, for messages.
    file: String,
}

/// Tensor or value of a checkpoint.
#[derive(Debug)]
pub(super) enum DcpEntry {
    Tensor(TensorEntry),
    Bytes,
}

/// Description of a tensor. All numbers count elements.
#[derive(Debug)]
pub(super) struct TensorEntry {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Start and sizes of each part, without repetitions.
    pub(super) boxes: Vec<(Vec<u64>, Vec<u64>)>,
    /// Metadata file that has the first description.
    file: String,
}

/// Place of a part in a file.
#[derive(Debug)]
pub(super) struct PartPlace<'h> {
    pub(super) file: Cow<'h, str>,
    /// Offset and length in bytes.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Transformations of the bytes, in the order in which a reader undoes them.
    pub(super) transforms: Vec<Cow<'h, str>>,
    /// Metadata file that names the place.
    pub(super) metadata: String,
}

impl PartPlace<'_> {
    /// Returns the error of a part of the tensor `name` that cannot be used.
    pub(super) fn error(&self, name: &str, problem: String) -> Error {
        let (tensor, file) = (name.to_owned(), self.file.to_string());
        Problem::BadPart { tensor, file, offset: self.offset, problem }.into()
    }
}

/// Name of a tensor or value, and the start of a tensor's part.
type PartKey<'h> = (Cow<'h, str>, Option<Vec<u64>>);

/// Work that a metadata file may still cause.
struct WorkLimit<'f> {
    left: u64,
    file: &'f str,
    len: u64,
}

impl WorkLimit<'_> {
    fn spend(&mut self, bytes: usize, what: &'static str) -> Result<()> {
        let error = || Error::from(Problem::MetadataSize { what, len: self.len }).in_file(self.file.as_ref());
        self.left = self.left.checked_sub(bytes as u64).ok_or_else(error)?;
        Ok(())
    }
}

impl<'h> DcpMetadata<'h> {
    /// Adds the metadata in the object `root` of a file of `len` bytes.
    pub(super) fn add(&mut self, objects: Objects<'h>, root: ObjectId, len: u64) -> Result<()> {
        if objects.class(root).map(|(_, class)| class) != Some("Metadata") {
            return Err(
                objects.malformed(root, "its object is not the `Metadata` of a distributed checkpoint")
            );
        }
        let left = len.saturating_mul(WORK_PER_BYTE).saturating_add(WORK_BASE);
        let mut limit = WorkLimit { left, file: objects.file, len };
        objects.file.clone_into(&mut self.file);
        let tensors = objects.required(root, "state_dict_metadata")?;
        for (name, value) in objects.entries(tensors, "`state_dict_metadata`")? {
            let name = objects.text(*name, "a name")?;
            limit.spend(name.len().saturating_add(64), "names")?;
            let entry = read_entry(objects, *value, &mut limit)?;
            self.merge_entry(name, entry, objects.file)?;
        }
        let places = objects.required(root, "storage_data")?;
        for (index, value) in objects.entries(places, "`storage_data`")? {
            let ((name, start), place) = read_place(objects, *index, *value, &mut limit)?;
            // A replicated tensor is in the files of several ranks, and the first is read.
            self.places.entry(name).or_default().entry(start).or_insert(place);
        }
        if let Some(paths) = objects.attribute(root, "planner_data")?
            && let Some(entries) = objects.heap.entries(paths)
        {
            for (name, path) in entries {
                let (Some(name), Some(path)) = (objects.heap.text(*name), objects.heap.items(*path)) else {
                    continue;
                };
                let key = |id: &ObjectId| {
                    let number = || objects.heap.int(*id).map(|number| Cow::Owned(number.to_string()));
                    objects.heap.text(*id).or_else(number)
                };
                limit.spend(name.len().saturating_add(path.len().saturating_mul(64)), "paths")?;
                if let Some(path) = path.iter().map(key).collect() {
                    self.paths.insert(name, path);
                }
            }
        }
        Ok(())
    }

    /// Adds an entry, or its parts to those that another rank described.
    fn merge_entry(&mut self, name: Cow<'h, str>, entry: DcpEntry, file: &str) -> Result<()> {
        let Some(known) = self.positions.get(&name).and_then(|at| self.entries.get_mut(*at)) else {
            self.positions.insert(name.clone(), self.entries.len());
            self.entries.push((name, entry));
            return Ok(());
        };
        let disagree = |known: &DcpEntry, first: &str| Problem::RanksDisagree {
            tensor: name.to_string(),
            first: first.into(),
            first_found: known.describe().into(),
            second: file.into(),
            second_found: entry.describe().into(),
        };
        match (&mut known.1, &entry) {
            (DcpEntry::Bytes, DcpEntry::Bytes) => {}
            (DcpEntry::Tensor(known), DcpEntry::Tensor(other))
                if (known.dtype, &known.shape) == (other.dtype, &other.shape) =>
            {
                let seen: HashSet<_> = known.boxes.iter().cloned().collect();
                known.boxes.extend(other.boxes.iter().filter(|found| !seen.contains(*found)).cloned());
            }
            (known @ DcpEntry::Tensor(_), _) => {
                let DcpEntry::Tensor(TensorEntry { file, .. }) = &*known else { return Ok(()) };
                return Err(disagree(known, file).into());
            }
            (known, _) => return Err(disagree(known, METADATA_BEFORE).into()),
        }
        Ok(())
    }

    /// Returns the place of a value, or of the part of a tensor that starts at `start`.
    pub(super) fn place(&self, name: &str, start: Option<&[u64]>) -> Result<&PartPlace<'h>> {
        let start = start.map(<[u64]>::to_vec);
        let found = self.places.get(name).and_then(|places| places.get(&start));
        let missing = || Problem::NoPlace {
            tensor: name.to_owned(),
            metadata: self.file.clone(),
            start: start.clone().unwrap_or_default(),
        };
        Ok(found.ok_or_else(missing)?)
    }

    /// Returns all places with the names of their tensors or values.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, &PartPlace<'h>)> {
        self.places.iter().flat_map(|(name, places)| places.values().map(move |place| (name.as_ref(), place)))
    }

    /// Returns the description of a tensor.
    pub(super) fn entry(&self, name: &str) -> Option<&DcpEntry> {
        self.positions.get(name).and_then(|at| self.entries.get(*at)).map(|(_, entry)| entry)
    }

    /// Returns the number of ranks whose files have a part.
    pub(super) fn ranks(&self) -> usize {
        let ranks: HashSet<u64> = self.places().filter_map(|(_, place)| rank_of(&place.file)).collect();
        ranks.len()
    }

    /// Returns the keys of the nested dicts that a name was joined of.
    pub(super) fn path_of(&self, name: &str) -> ItemPath {
        match self.paths.get(name) {
            Some(keys) => Some(ItemPath::from_keys(keys)).filter(|path| path.name() == name),
            None => None,
        }
        .unwrap_or_else(|| ItemPath::new(name))
    }
}

/// Stands for an earlier metadata file in a message.
const METADATA_BEFORE: &str = "another rank";

impl DcpEntry {
    fn describe(&self) -> String {
        match self {
            Self::Tensor(TensorEntry { dtype, shape, .. }) => format!("{dtype} {shape:?}"),
            Self::Bytes => "a value".to_owned(),
        }
    }
}

/// Reads a `TensorStorageMetadata` or a `BytesStorageMetadata`.
fn read_entry(objects: Objects<'_>, id: ObjectId, limit: &mut WorkLimit<'_>) -> Result<DcpEntry> {
    match objects.class(id) {
        Some((_, "BytesStorageMetadata")) => return Ok(DcpEntry::Bytes),
        Some((_, "TensorStorageMetadata")) => {}
        _ => return Err(objects.malformed(id, "a description is neither of a tensor nor of a value")),
    }
    let properties = objects.required(id, "properties")?;
    let dtype = read_dtype(objects, properties)?;
    let shape = objects.sizes(objects.required(id, "size")?, "the size of a tensor")?;
    let list = objects.required(id, "chunks")?;
    let mut boxes = Vec::new();
    let mut seen = HashSet::new();
    for chunk in objects.items(list, "`chunks`")? {
        limit.spend(shape.len().saturating_mul(32).saturating_add(64), "parts")?;
        let start = objects.sizes(objects.required(*chunk, "offsets")?, "the start of a part")?;
        let sizes = objects.sizes(objects.required(*chunk, "sizes")?, "the size of a part")?;
        if start.len() != shape.len() || sizes.len() != shape.len() {
            return Err(objects.malformed(*chunk, "a part has another number of dimensions than its tensor"));
        }
        if seen.insert((start.clone(), sizes.clone())) {
            boxes.push((start, sizes));
        }
    }
    Ok(DcpEntry::Tensor(TensorEntry { dtype, shape, boxes, file: objects.file.to_owned() }))
}

/// Reads the dtype of `TensorProperties`, whose state is a tuple that begins with the dtype, or a dict.
fn read_dtype(objects: Objects<'_>, id: ObjectId) -> Result<Dtype> {
    let state = objects.heap.recorded_changes(id).and_then(|recorded| recorded.state().last().copied());
    let in_tuple = state.and_then(|state| objects.heap.items(state)).and_then(|items| items.first().copied());
    let dtype = match in_tuple.filter(|first| objects.heap.global(*first).is_some()) {
        Some(dtype) => dtype,
        None => objects.required(id, "dtype")?,
    };
    match objects.heap.global(dtype) {
        Some(("torch", name)) => Dtype::from_name(name).ok_or_else(|| {
            objects.malformed(dtype, format!("dtype `torch.{}` is not supported", name.escape_debug()))
        }),
        _ => Err(objects.malformed(dtype, "the dtype of a tensor is not one of PyTorch")),
    }
}

/// Reads the key and the value of an entry of `storage_data`.
fn read_place<'h>(
    objects: Objects<'h>,
    index: ObjectId,
    value: ObjectId,
    limit: &mut WorkLimit<'_>,
) -> Result<(PartKey<'h>, PartPlace<'h>)> {
    let name = objects.text(objects.required(index, "fqn")?, "the name of a part")?;
    let start = objects.attribute(index, "offset")?.filter(|start| !objects.heap.is_none(*start));
    let start = start.map(|start| objects.sizes(start, "the start of a part")).transpose()?;
    let file = objects.text(objects.required(value, "relative_path")?, "the file of a part")?;
    let offset = objects.number(objects.required(value, "offset")?, "the offset of a part")?;
    let len = objects.number(objects.required(value, "length")?, "the length of a part")?;
    let list = objects.attribute(value, "transform_descriptors")?.filter(|list| !objects.heap.is_none(*list));
    let list =
        list.map(|list| objects.items(list, "`transform_descriptors`")).transpose()?.unwrap_or_default();
    let spent = name.len().saturating_add(file.len()).saturating_add(list.len().saturating_mul(64));
    limit.spend(spent.saturating_add(128), "names")?;
    let transforms =
        list.iter().map(|item| objects.text(*item, "a transformation")).collect::<Result<_>>()?;
    let metadata = objects.file.to_owned();
    Ok(((name, start), PartPlace { file, offset, len, transforms, metadata }))
}
