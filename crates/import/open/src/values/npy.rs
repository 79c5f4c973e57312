//! Tensors as `.npy` files.
//!
//! Facts: `numpy/lib/_format_impl.py`, and files that `numpy.save` of NumPy 2.4 wrote.

use std::io::{self, Write};

use byte_source::{Blob, ProgressReporter, Sink, Window};
use tensor::{Dtype, Tensor};

use super::array_text::numpy_tensor;
use crate::{Error, Problem, Result};

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// `.npy` file of a tensor, with its elements in C order. Floats that NumPy lacks are widened, which keeps their values;
/// packed and quantized numbers are the integers that store them.
#[derive(Debug)]
pub struct NpyFile {
    header: Vec<u8>,
    elements: Tensor,
}

impl NpyFile {
    /// Creates the file of a tensor, and reads no element.
    ///
    /// # Errors
    /// Returns an error if NumPy has no such dtype, or if the tensor has more dimensions than an array can have.
    pub fn new(tensor: &Tensor) -> Result<Self, Problem> {
        let (descr, _, elements) = numpy_tensor(tensor)?;
        let sizes: Vec<String> = elements.shape().iter().map(u64::to_string).collect();
        // A tuple of one item ends with a comma.
        let comma = if sizes.len() == 1 { "," } else { "" };
        let shape = format!("({}{comma})", sizes.join(", "));
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        // The elements start at a multiple of 64, and a line feed ends the header.
        while header.len().saturating_add(MAGIC.len()).saturating_add(3) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        // 64 dimensions of 20 digits take less.
        let len = u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes();
        Ok(Self { header: [MAGIC, &len, header.as_bytes()].concat(), elements })
    }

    /// Returns the dtype of the elements in the file.
    pub fn dtype(&self) -> Dtype {
        self.elements.dtype()
    }

    /// Returns the size of the file in bytes.
    pub fn nbytes(&self) -> u64 {
        (self.header.len() as u64).saturating_add(self.elements.nbytes())
    }

    /// Writes the file to `out`, and reports to `progress` how many bytes of elements are written. `failed` converts the error of
    /// `out`.
    ///
    /// # Errors
    /// Returns an error if the tensor cannot be read, `out` cannot be written, or the observer stops the work.
    pub fn write(
        &self,
        out: &mut dyn Write,
        failed: &dyn Fn(io::Error) -> Error,
        progress: &ProgressReporter<'_>,
    ) -> Result<()> {
        out.write_all(&self.header).map_err(failed)?;
        self.elements.gathered().write_to(&mut WriteSink { out, failed, progress, done: 0 })
    }
}

/// Sink that writes to a file.
struct WriteSink<'w, 'o> {
    out: &'w mut dyn Write,
    failed: &'w dyn Fn(io::Error) -> Error,
    progress: &'w ProgressReporter<'o>,
    done: u64,
}

impl Sink for WriteSink<'_, '_> {
    fn write(&mut self, window: Window) -> Result<()> {
        self.out.write_all(&window).map_err(self.failed)?;
        self.done = self.done.saturating_add(window.len() as u64);
        Ok(self.progress.advance(self.done)?)
    }
}
