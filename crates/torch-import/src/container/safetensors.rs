//! safetensors: the length of a JSON header in eight bytes, the header, the tensors' bytes.
//!
//! Facts: those of the crate `safetensors-format`, which reads the header.

use std::sync::Arc;

use mapped::MappedFile;
use safetensors_format::{Header, METADATA, View};
use tensor::{Storage, Tensor, contiguous_strides};

use super::contents::{Bytes, Contents, Format};
use super::inflate::Inflated;
use crate::{Error, Result};

pub(super) fn open(file: MappedFile) -> Result<Contents> {
    let Header { metadata, tensors } = Header::read(file.bytes())?;
    let pickle = pickled(&metadata)
        .map_err(|error| Error::Layout { record: "the header".to_owned(), reason: error.to_string() })?;
    let pickle = Bytes::Inflated(Inflated::Memory(pickle));
    Ok(Contents { direct: tensors, ..Contents::new(file, Format::Safetensors, pickle) })
}

/// The tensor at `view` of the file.
pub(super) fn tensor(file: &Arc<MappedFile>, view: &View) -> Result<Tensor> {
    // The header's reader compared the range with the file.
    let storage =
        Storage::mapped(file, view.range.clone(), None).unwrap_or_else(|| Storage::owned(Vec::new()));
    Ok(Tensor::new(view.dtype, view.shape.clone(), contiguous_strides(&view.shape), 0, storage)?)
}

/// The metadata as a pickle, so that they become values as those of other files do.
fn pickled(metadata: &[(String, String)]) -> pickle_vm::Result<Vec<u8>> {
    let mut out = pickle_vm::Writer::new();
    out.empty_dict();
    if !metadata.is_empty() {
        out.text(METADATA)?;
        out.empty_dict();
        for (name, value) in metadata {
            out.text(name)?;
            out.text(value)?;
            out.setitem();
        }
        out.setitem();
    }
    Ok(out.finish())
}
