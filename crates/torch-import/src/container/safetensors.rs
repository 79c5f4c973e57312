//! safetensors: the length of a JSON header in eight bytes, the header, the tensors' bytes.
//!
//! Facts: those of the crate `safetensors-format`, which reads the header, and `save_model` in the Python package
//! `safetensors` 0.8 for tensors that share memory.

use std::sync::Arc;

use byte_source::{Region, Source};
use foldhash::HashMap;
use safetensors_format::{Header, View};
use tensor::{Storage, Tensor, contiguous_strides};

use super::contents::{Contents, Format, Named, Names};
use crate::Result;

/// The texts of `__metadata__`: keys and values.
type Metadata = Vec<(String, String)>;

pub(super) fn open(file: Arc<dyn Source>) -> Result<Contents> {
    let read;
    let start = if let Some(bytes) = file.in_memory() {
        bytes
    } else {
        read = header(&*file)?;
        &read
    };
    let Header { metadata, tensors } = Header::parse(start, file.len())?;
    let (ties, metadata) = ties(metadata, &tensors);
    Ok(Contents {
        file,
        format: Format::Safetensors,
        storages: Arc::default(),
        unread: Vec::new(),
        notes: Vec::new(),
        names: Names::Named(Named { tensors, ties, metadata }),
    })
}

/// The bytes of the header and its length.
fn header(file: &dyn Source) -> Result<Vec<u8>> {
    let start = file.read_range(0..file.len().min(Header::LENGTH))?;
    let end = Header::end(&start)?;
    Ok(file.read_range(0..file.len().min(end))?.into())
}

/// The names that the metadata gives to tensors of the file, each with the position of its tensor, and the rest of the
/// metadata. Writers that keep one name of the same memory record the others as `dropped name: kept name`.
fn ties(metadata: Metadata, tensors: &[(String, View)]) -> (Vec<(String, usize)>, Metadata) {
    /// Says which framework the tensors are from, whatever tensors there are.
    const FORMAT: &str = "format";
    if metadata.iter().all(|(key, _)| key == FORMAT) {
        return (Vec::new(), metadata);
    }
    let positions = tensors.iter().enumerate().map(|(position, (name, _))| (name.as_str(), position));
    let positions: HashMap<&str, usize> = positions.collect();
    let (mut ties, mut rest) = (Vec::new(), Vec::new());
    for (key, text) in metadata {
        match positions.get(text.as_str()) {
            Some(kept) if key != FORMAT && !positions.contains_key(key.as_str()) => ties.push((key, *kept)),
            _ => rest.push((key, text)),
        }
    }
    (ties, rest)
}

/// The tensor at `view` of the file.
pub(super) fn tensor(file: &Arc<dyn Source>, view: &View) -> Result<Tensor> {
    // The header's reader compared the range with the file.
    let region = Region::new(file, view.range.clone());
    let storage = region.map_or_else(|| Storage::owned(Vec::new()), |region| Storage::stored(region, None));
    Ok(Tensor::new(view.dtype, view.shape.clone(), contiguous_strides(&view.shape), 0, storage)?)
}
