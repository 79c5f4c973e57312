//! Opens a safetensors file: the length of a JSON header in eight bytes, the header, the tensors' bytes.
//!
//! Facts: see the crate `safetensors-format`, which parses the header, and for tensors that share memory `save_model`
//! in the Python package `safetensors` 0.8.

use std::sync::Arc;

use byte_source::{Checks, Observer, Region, Source};
use foldhash::HashMap;
use safetensors_format::{FORMAT_KEY, Header, METADATA_KEY, TensorLocation, is_safetensors, last_part};
use tensor::{Storage, Tensor, contiguous_strides};

use crate::Result;
use crate::container::contents::{ContainerContents, HeaderTensors, UnreadTensor, text_values};
use crate::container::format::ContainerFormat;
use crate::error::safetensors_error;

/// Keys and texts of `__metadata__`.
type Metadata = Vec<(String, String)>;

/// Length of a JSON header, the header, and the tensors' bytes.
#[derive(Debug)]
pub(super) struct SafetensorsFormat;

impl ContainerFormat for SafetensorsFormat {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["safetensors"]
    }

    fn recognises(&self, head: &[u8]) -> bool {
        is_safetensors(head)
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, _: &dyn Observer) -> Result<ContainerContents> {
        let start = file.share(0..file.len().min(Header::LENGTH_FIELD_LEN))?;
        let header = file.share(0..file.len().min(Header::end(&start).map_err(safetensors_error)?))?;
        let header = Header::parse_leniently(&header, file.len()).map_err(safetensors_error)?;
        let Header { metadata, tensors, not_texts, unread } = header;
        let (ties, metadata) = split_ties(metadata, &tensors);
        let metadata = text_values(metadata);
        let unread = unread.into_iter().map(|(name, reason)| (name, UnreadTensor::Entry(reason))).collect();
        let named = HeaderTensors { located: tensors, ties, metadata, unread, ..HeaderTensors::default() };
        let contents = ContainerContents::named(file, named);
        Ok(match not_texts_note(&not_texts) {
            Some(note) => contents.with_note(note),
            None => contents,
        })
    }
}

/// Maximum number of keys that a note names.
const SHOWN: usize = 4;

/// Returns a note on the metadata that are not texts; `None` if all are.
fn not_texts_note(not_texts: &[(String, &'static str)]) -> Option<String> {
    let shown =
        not_texts.iter().take(SHOWN).map(|(key, found)| format!("`{}` is {found}", key.escape_debug()));
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    if let more @ 1.. = not_texts.len().saturating_sub(SHOWN) {
        shown = format!("{shown}, and {more} more are no texts");
    }
    (!not_texts.is_empty()).then(|| {
        format!("in `{METADATA_KEY}`, {shown}; the library safetensors refuses such a file, and a conversion writes texts")
    })
}

/// Splits the metadata into further names of tensors, each with the index of its tensor, and the rest. Writers that
/// keep one of several tensors with the same memory record the dropped ones as `dropped name: kept name`, where both names have the
/// same last part. Otherwise, a title may happen to be the name of a tensor.
fn split_ties(metadata: Metadata, tensors: &[(String, TensorLocation)]) -> (Vec<(String, usize)>, Metadata) {
    if metadata.iter().all(|(key, _)| key == FORMAT_KEY) {
        return (Vec::new(), metadata);
    }
    let positions = tensors.iter().enumerate().map(|(position, (name, _))| (name.as_str(), position));
    let positions: HashMap<&str, usize> = positions.collect();
    let (mut ties, mut rest) = (Vec::new(), Vec::new());
    for (key, text) in metadata {
        match positions.get(text.as_str()) {
            Some(kept)
                if key != FORMAT_KEY
                    && last_part(&key) == last_part(&text)
                    && !positions.contains_key(key.as_str()) =>
            {
                ties.push((key, *kept));
            }
            _ => rest.push((key, text)),
        }
    }
    (ties, rest)
}

pub(in crate::container) fn tensor(file: &Arc<dyn Source>, view: &TensorLocation) -> Result<Tensor> {
    // The header's parser checked that the range is inside the file.
    let region = Region::new(file, view.range.clone());
    let storage = region.map_or_else(|| Storage::owned(Vec::new()), |region| Storage::stored(region, None));
    Ok(Tensor::new(view.dtype, view.shape.to_vec(), contiguous_strides(&view.shape), 0, storage)?)
}
