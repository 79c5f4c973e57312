//! An output format of another crate: NumPy's `.npz`, a zip archive with an array for each tensor. This program is torch2carton with
//! this format: `cargo run --example npz_output -- model.pth -o model.npz`, then `numpy.load("model.npz")` in Python.

#![expect(clippy::arithmetic_side_effects, reason = "the library has checked the lengths")]

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use torch2carton::crates::convert::{NoFields, NonTensorParts, NoteCollector, Result};
use torch2carton::{
    Blob, Dtype, Gathered, Output, OutputFormat, OutputJob, OutputPlan, Sink, Tensor, Window,
};
use zip_format::{EntryContent, NewZipEntry, ZipWriter};

pub(crate) static NPZ: OutputFormat =
    OutputFormat::new::<NpzOptions>("npz", &["npz"], "Arrays of NumPy").with_arguments::<NpzOptions>();

/// The options of the format, which are flags of the command line, too.
#[derive(Debug, Default, Serialize, Deserialize, clap::Args)]
#[serde(default)]
struct NpzOptions {
    /// Prefix of the arrays' names in an .npz file
    #[arg(long, value_name = "TEXT")]
    array_prefix: Option<String>,
}

impl Output for NpzOptions {
    fn format(&self) -> &'static OutputFormat {
        &NPZ
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        _: NonTensorParts,
        _: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        job.reject_unsupported("a .npz file", |dtype| numpy_dtype(dtype).is_some())?;
        let prefix = self.array_prefix.as_deref().unwrap_or_default();
        let arrays: Vec<Array> = job
            .tensors()
            .iter()
            .map(|(name, tensor)| Array::new(&format!("{prefix}{name}"), tensor))
            .collect();
        let layout = zip_format::layout(arrays.iter().map(Array::entry));
        let len = layout.expect("names are shorter than 64 KiB").len;
        Ok(OutputPlan::file(job, Archive { arrays, len }, NoFields::default()))
    }
}

fn numpy_dtype(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Float64 => "<f8",
        Dtype::Float32 => "<f4",
        Dtype::Float16 => "<f2",
        Dtype::Int64 => "<i8",
        Dtype::Int32 => "<i4",
        Dtype::Int16 => "<i2",
        Dtype::Int8 => "|i1",
        Dtype::UInt8 => "|u1",
        Dtype::Bool => "|b1",
        _ => return None,
    })
}

/// A `.npy` file: a header, and the elements in C order, which are read when they are written.
struct Array {
    name: String,
    header: Vec<u8>,
    elements: Gathered,
}

impl Array {
    fn new(name: &str, tensor: &Tensor) -> Self {
        let dtype = numpy_dtype(tensor.dtype()).unwrap_or_default();
        let sizes: Vec<String> = tensor.shape().iter().map(u64::to_string).collect();
        let shape = if sizes.is_empty() { String::new() } else { sizes.join(",") + "," };
        let text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}");
        // The header ends at a multiple of 64 bytes.
        let text = format!("{text:width$}\n", width = (text.len() + 11).next_multiple_of(64) - 11);
        let len = u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes();
        let header = [b"\x93NUMPY\x01\x00", &len[..], text.as_bytes()].concat();
        Self { name: format!("{name}.npy"), header, elements: tensor.gathered() }
    }

    fn entry(&self) -> NewZipEntry<'_> {
        NewZipEntry { name: &self.name, alignment: 1, content: EntryContent::Blob(self) }
    }
}

impl Blob for Array {
    fn len(&self) -> u64 {
        self.header.len() as u64 + self.elements.len()
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        sink.write(Window::owned(self.header.clone()))?;
        self.elements.write_to(sink)
    }
}

struct Archive {
    arrays: Vec<Array>,
    len: u64,
}

impl Blob for Archive {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        let mut zip = ZipWriter::new(sink);
        self.arrays.iter().try_for_each(|array| zip.add(&array.entry()))?;
        zip.finish()
    }
}

fn main() -> ExitCode {
    torch2carton::register_output(&NPZ);
    torch2carton::cli::run(std::env::args_os())
}
