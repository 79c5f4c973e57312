//! An output format of another crate: NumPy's `.npz`, a zip archive with an array for each tensor.
//! `cargo run --example npz_output -- model.pth model.npz`; then `numpy.load("model.npz")`.

#![expect(clippy::print_stdout, reason = "an example shows what it writes")]
#![expect(clippy::arithmetic_side_effects, reason = "the library has checked the lengths")]

use torch2carton::crates::convert::{NonTensorParts, NoteCollector, Result};
use torch2carton::{
    Blob, Dtype, Gathered, Output, OutputJob, OutputPlan, Sink, Target, Tensor, Window, convert,
};
use zip_format::{EntryContent, NewZipEntry, ZipWriter};

/// The format. Its options would be fields.
#[derive(Debug)]
struct Npz;

impl Output for Npz {
    fn name(&self) -> &'static str {
        "npz"
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        _: NonTensorParts,
        _: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        job.reject_unsupported("a .npz file", |dtype| numpy_dtype(dtype).is_some())?;
        let arrays: Vec<Array> =
            job.tensors().iter().map(|(name, tensor)| Array::new(name, tensor)).collect();
        let layout = zip_format::layout(arrays.iter().map(Array::entry));
        let len = layout.expect("names are shorter than 64 KiB").len;
        Ok(OutputPlan::file(job, Archive { arrays, len }))
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(input), Some(output)) = (args.next(), args.next()) else {
        return Err("usage: npz_output CHECKPOINT OUTPUT.npz".into());
    };
    let report = convert(input).to(Target::other(Npz)).output(output).run(&())?;
    println!("{}: {} tensors, {} bytes", report.output, report.tensors, report.nbytes);
    Ok(())
}
