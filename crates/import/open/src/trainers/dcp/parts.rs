//! The files of parts: each part is an archive of `torch.save`, or a tensor of a safetensors file that ends the file.
//!
//! Facts: `_write_item` and `_write_files_from_queue` in `torch/distributed/checkpoint/filesystem.py` of PyTorch 2.15. With
//! `SerializationFormat.SAFETENSORS`, the offset of each tensor is that of the one safetensors file, in which its name
//! finds it.

use std::ops::Range;
use std::path::{Component, Path};
use std::sync::Arc;

use byte_source::{Observer, Region, Source};
use foldhash::{HashMap, HashMapExt};
use tensor::{Tensor, Tensors};
use torch_import::{Checkpoint, Container};

use super::metadata::{DcpEntry, DcpMetadata, PartPlace};
use super::zstd::{DecompressedParts, ZSTD};
use crate::trainers::{Error, Problem, Result};

/// Start of a zip archive.
const ZIP: &[u8] = b"PK\x03\x04";

#[derive(Debug)]
pub(super) struct PartFiles<'c> {
    by_name: HashMap<String, &'c Container>,
    /// Tensors of the safetensors files that end a file of parts, by file and offset.
    safetensors: HashMap<(String, u64), Tensors>,
    decompressed: DecompressedParts,
}

impl<'c> PartFiles<'c> {
    pub(super) fn new(containers: Vec<&'c Container>) -> Self {
        let name = |container: &Container| {
            container.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        let by_name = containers.into_iter().map(|container| (name(container), container)).collect();
        Self { by_name, safetensors: HashMap::new(), decompressed: DecompressedParts::default() }
    }

    /// Decompresses all compressed parts into one temporary file.
    pub(super) fn decompress(&mut self, metadata: &DcpMetadata<'_>, observer: &dyn Observer) -> Result<()> {
        let mut compressed: Vec<_> =
            metadata.places().filter(|(_, place)| !place.transforms.is_empty()).collect();
        if compressed.is_empty() {
            return Ok(());
        }
        compressed.sort_by(|(_, a), (_, b)| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
        let mut parts = DecompressedParts::create()?;
        for (name, place) in compressed {
            observer.check()?;
            if !matches!(place.transforms.as_slice(), [one] if one == ZSTD) {
                let transform = place.transforms.join(", ");
                return Err(Problem::Transform {
                    tensor: name.to_owned(),
                    file: place.file.to_string(),
                    transform,
                }
                .into());
            }
            let (source, range) = self.range(name, place)?;
            let nbytes = match metadata.entry(name) {
                Some(DcpEntry::Tensor(entry)) => Some(
                    entry
                        .shape
                        .iter()
                        .fold(entry.dtype.size(), |product, size| product.saturating_mul(*size)),
                ),
                _ => None,
            };
            parts.add(name, place, &*source, range, nbytes)?;
        }
        parts.finish()?;
        self.decompressed = parts;
        Ok(())
    }

    pub(super) fn tensor(&mut self, name: &str, place: &PartPlace<'_>) -> Result<Tensor> {
        let (source, range) = self.range(name, place)?;
        if place.transforms.is_empty() && !starts_as_zip(&*source, &range)? {
            return self.safetensors_tensor(name, place, &source);
        }
        let checkpoint = self.checkpoint(name, place)?;
        let [item] = checkpoint.items.as_slice() else { return Err(not_a_tensor(name, place)) };
        let tensor = item.tensor().filter(|_| item.name.is_empty()).cloned();
        tensor.ok_or_else(|| not_a_tensor(name, place))
    }

    /// Reads the value of a part, which may contain tensors.
    pub(super) fn value(&self, name: &str, place: &PartPlace<'_>) -> Result<Checkpoint> {
        self.checkpoint(name, place)
    }

    fn checkpoint(&self, name: &str, place: &PartPlace<'_>) -> Result<Checkpoint> {
        let fail = |reason: Error| part_error(name, place, reason);
        let (source, range) = match self.decompressed.find(place) {
            Some(found) => found,
            None => self.range(name, place)?,
        };
        let outside = || outside_file(name, place, source.len());
        let region = Region::new(&source, range).ok_or_else(outside)?;
        let container = Container::from_source(Arc::new(region)).map_err(fail)?;
        Checkpoint::read(&container).map_err(fail)
    }

    /// Returns the file of a part, and the part's range in it.
    fn range(&self, name: &str, place: &PartPlace<'_>) -> Result<(Arc<dyn Source>, Range<u64>)> {
        let (tensor, metadata) = (name.to_owned(), place.metadata.clone());
        let file = place.file.to_string();
        let Some(container) = self.by_name.get(place.file.as_ref()) else {
            let mut components = Path::new(place.file.as_ref()).components();
            let is_inside =
                matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
            return Err(if is_inside && !file.contains(['\\', '\0']) {
                Problem::MissingFile { tensor, metadata, file }
            } else {
                Problem::OutsideFolder { tensor, metadata, file }
            }
            .into());
        };
        let end = place.offset.checked_add(place.len).filter(|end| *end <= container.len());
        let end = end.ok_or_else(|| outside_file(name, place, container.len()))?;
        Ok((Arc::clone(container.source()), place.offset..end))
    }

    /// Returns the tensor called `name` in the safetensors file that starts at the offset of `place`.
    fn safetensors_tensor(
        &mut self,
        name: &str,
        place: &PartPlace<'_>,
        source: &Arc<dyn Source>,
    ) -> Result<Tensor> {
        let key = (place.file.to_string(), place.offset);
        if !self.safetensors.contains_key(&key) {
            let end = source.len();
            let outside = || outside_file(name, place, end);
            let region = Region::new(source, place.offset..end).ok_or_else(outside)?;
            let fail = |reason| part_error(name, place, reason);
            let container = Container::from_source(Arc::new(region)).map_err(fail)?;
            if container.format() != "safetensors" {
                return Err(not_a_tensor(name, place));
            }
            let tensors = Checkpoint::read(&container).map_err(fail)?.to_tensors();
            self.safetensors.insert(key.clone(), tensors);
        }
        let found = self.safetensors.get(&key).and_then(|tensors| tensors.get(name));
        found.cloned().ok_or_else(|| not_a_tensor(name, place))
    }
}

/// Returns true if the bytes of a range start as those of a zip archive.
fn starts_as_zip(source: &dyn Source, range: &Range<u64>) -> Result<bool> {
    let end = range.end.min(range.start.saturating_add(ZIP.len() as u64));
    let start = source.read_range(range.start..end).map_err(|error| error.in_file(source.path()))?;
    Ok(start.as_ref() == ZIP)
}

fn outside_file(name: &str, place: &PartPlace<'_>, found: u64) -> Error {
    let PartPlace { offset, len, .. } = *place;
    Problem::OutsideFile { tensor: name.to_owned(), file: place.file.to_string(), offset, len, found }.into()
}

fn part_error(name: &str, place: &PartPlace<'_>, reason: Error) -> Error {
    let (tensor, file) = (name.to_owned(), place.file.to_string());
    Problem::Part { tensor, file, offset: place.offset, reason }.into()
}

fn not_a_tensor(name: &str, place: &PartPlace<'_>) -> Error {
    place.error(name, "is not a tensor".to_owned())
}
