//! Opens a GGUF file: keys with values, and tensors that consist of elements or of blocks.
//!
//! Facts: see the crate `gguf-format`, which parses the header. A tensor of blocks is a compound tensor whose part `blocks` has the bytes
//! of each row.

use std::sync::Arc;

use byte_source::{Checks, Observer, Region, Source};
use gguf_format::{GgmlType, GgufHeader, GgufTensor, GgufValue, is_gguf};
use tensor::{ByteOrder, CompoundKind, Compute, Dtype, Inputs, Storage, Tensor, Tensors, contiguous_strides};

use crate::container::contents::ContainerContents;
use crate::container::format::ContainerFormat;
use crate::{CheckpointValue, Error, Problem, Result};

/// Keys with values, tensors, and their bytes.
#[derive(Debug)]
pub(super) struct GgufFormat;

impl ContainerFormat for GgufFormat {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["gguf"]
    }

    fn recognises(&self, head: &[u8]) -> bool {
        is_gguf(head)
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, _: &dyn Observer) -> Result<ContainerContents> {
        let header = GgufHeader::read(&*file).map_err(gguf_error)?;
        let role = header.role();
        let mut tensors = Tensors::with_capacity(header.tensors.len());
        for tensor in header.tensors {
            push_tensor(&mut tensors, &file, header.byte_order, tensor)?;
        }
        let contents = ContainerContents::new(file, tensors)?;
        let values = header.entries.into_iter().map(|(key, value)| (key, checkpoint_value(value)));
        let contents = contents.with_values(values.collect());
        Ok(match role {
            Some(role) => contents.with_note(format!("it is {role}")),
            None => contents,
        })
    }
}

fn gguf_error(error: Error) -> Error {
    match error.downcast::<gguf_format::Error>() {
        Ok(error) if error.is_truncated() => Problem::TruncatedFile { reason: error.to_string() }.into(),
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

fn checkpoint_value(value: GgufValue) -> CheckpointValue {
    match value.text() {
        Some(text) => CheckpointValue::Text(text.into()),
        None => CheckpointValue::Gguf(value),
    }
}

fn push_tensor(
    tensors: &mut Tensors,
    file: &Arc<dyn Source>,
    order: ByteOrder,
    GgufTensor { name, kind, shape, range }: GgufTensor,
) -> Result<()> {
    // The header's parser checked that the range is inside the file.
    let region = Region::new(file, range);
    let storage = region.map_or_else(|| Storage::owned(Vec::new()), |region| Storage::stored(region, None));
    let new = |dtype, shape: Vec<u64>, storage| {
        let strides = contiguous_strides(&shape);
        Tensor::new(dtype, shape, strides, 0, storage)
    };
    if let Some(dtype) = kind.dtype {
        tensors.push(name, new(dtype, shape, storage.with_byte_order(order, dtype.size()))?);
        return Ok(());
    }
    let mut row_bytes = shape.clone();
    if let Some(last) = row_bytes.last_mut() {
        *last = last.checked_div(kind.block_len).unwrap_or(0).saturating_mul(kind.block_bytes);
    }
    let storage = match order {
        ByteOrder::Big => Storage::computed(Arc::new(SwappedBlocks { blocks: [storage], kind })),
        ByteOrder::Little => storage,
    };
    let part = (format!("{name}.blocks"), new(Dtype::UInt8, row_bytes, storage)?);
    let scheme = kind.name.to_owned();
    tensors.push_compound(name, (CompoundKind::Blocks { scheme }, Dtype::Float32, shape), [part]);
    Ok(())
}

/// Blocks of a big-endian file, with little-endian words.
#[derive(Debug)]
struct SwappedBlocks {
    blocks: [Storage; 1],
    kind: &'static GgmlType,
}

impl Compute for SwappedBlocks {
    fn len(&self) -> u64 {
        self.blocks.iter().map(Storage::len).sum()
    }

    fn inputs(&self) -> &[Storage] {
        &self.blocks
    }

    fn granule(&self) -> u64 {
        1
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> Result<()> {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let size = self.kind.block_bytes;
        let skipped = offset.checked_rem(size).unwrap_or(0);
        let len = skipped.saturating_add(buffer.len() as u64).next_multiple_of(size.max(1));
        let mut whole = vec![0; within(len)];
        inputs.read(0, &mut whole, offset.saturating_sub(skipped))?;
        for block in whole.chunks_exact_mut(within(size).max(1)) {
            for word in self.kind.words.unwrap_or_default() {
                let word = within(*word);
                block.get_mut(word..word.saturating_add(2)).unwrap_or_default().reverse();
            }
        }
        let read = whole.iter().skip(within(skipped));
        buffer.iter_mut().zip(read).for_each(|(out, byte)| *out = *byte);
        Ok(())
    }
}
