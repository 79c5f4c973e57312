//! Tensors that are computed from each number of another.

use std::sync::Arc;

use byte_source::Result;
use tensor::{Compute, Dtype, Inputs, Storage, Tensor};

/// Returns a number of more than 16 bits as float32.
pub(crate) fn single(tensor: &Tensor) -> Option<Tensor> {
    let is_real = tensor.dtype().is_floating_point();
    let is_short = matches!(tensor.dtype(), Dtype::BFloat16 | Dtype::Float16);
    if is_short { Some(tensor.clone()) } else { tensor.cast(Dtype::Float32).filter(|_| is_real) }
}

/// Applies a function to each number in float32. What it returns for float16 is rounded to it.
pub(crate) fn mapped(tensor: &Tensor, map: fn(f32) -> f32) -> Option<Tensor> {
    let numbers = single(tensor)?.cast(Dtype::Float32)?;
    let mapped = Mapped { numbers: [numbers.storage().clone()], map };
    let storage = Storage::computed(Arc::new(mapped));
    let mapped = numbers.with_storage(Dtype::Float32, numbers.storage_offset(), storage).ok()?;
    if tensor.dtype() == Dtype::Float16 { mapped.cast(Dtype::Float16) } else { Some(mapped) }
}

#[derive(Debug)]
struct Mapped {
    /// Storage of float32.
    numbers: [Storage; 1],
    map: fn(f32) -> f32,
}

impl Compute for Mapped {
    fn len(&self) -> u64 {
        self.numbers.iter().map(Storage::len).sum()
    }

    fn inputs(&self) -> &[Storage] {
        &self.numbers
    }

    fn granule(&self) -> u64 {
        4
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> Result<()> {
        inputs.read(0, buffer, offset)?;
        for number in buffer.as_chunks_mut().0 {
            *number = (self.map)(f32::from_le_bytes(*number)).to_le_bytes();
        }
        Ok(())
    }
}
