//! A container format of another crate: `TOY1`, a line with the name and the sizes of each tensor, an empty line, and the elements
//! as float32. `cargo run --example toy_container -- model.toy` converts such a file, which it writes first if it is not there.

#![expect(clippy::print_stdout, reason = "an example shows what it reads")]

use std::path::Path;
use std::sync::Arc;

use torch2carton::crates::tensor::contiguous_strides;
use torch2carton::crates::torch_import::{Problem, Result};
use torch2carton::{
    Checks, ContainerContents, ContainerFormat, Dtype, Observer, Region, SafetensorsOptions, Source, Storage,
    Tensor, Tensors, convert, inspect, register_container,
};

#[derive(Debug)]
pub(crate) struct Toy;

/// Largest header in bytes.
const HEADER_MAX: u64 = 1 << 20;
const MAGIC: &str = "TOY1\n";

impl ContainerFormat for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["toy"]
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(MAGIC.as_bytes())
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, _: &dyn Observer) -> Result<ContainerContents> {
        let start = file.read_range(0..file.len().min(HEADER_MAX))?;
        let len = start.windows(2).position(|two| two == b"\n\n").ok_or_else(|| damaged("it has no end"))?;
        let text = std::str::from_utf8(start.get(MAGIC.len()..len).unwrap_or_default());
        let text = text.map_err(|_| damaged("it is not a text"))?;
        let mut at = (len as u64).saturating_add(2);
        let mut tensors = Tensors::default();
        for line in text.lines() {
            let (name, sizes) = line.split_once(' ').unwrap_or((line, ""));
            let shape: Result<Vec<u64>, _> = sizes.split_whitespace().map(str::parse).collect();
            let shape = shape.map_err(|_| damaged("a size is not a number"))?;
            let nbytes =
                shape.iter().try_fold(Dtype::Float32.size(), |nbytes, size| nbytes.checked_mul(*size));
            let end = nbytes.and_then(|nbytes| at.checked_add(nbytes));
            // A region is inside of its file.
            let region = end.and_then(|end| Region::new(&file, at..end));
            let storage =
                Storage::stored(region.ok_or_else(|| damaged("a tensor is not in the file"))?, None);
            at = at.saturating_add(storage.len());
            let stride = contiguous_strides(&shape);
            tensors.push(name.to_owned(), Tensor::new(Dtype::Float32, shape, stride, 0, storage)?);
        }
        let metadata = vec![("version".to_owned(), "1".to_owned())];
        Ok(ContainerContents::new(file, tensors)?.with_metadata(metadata))
    }
}

fn damaged(reason: &str) -> Problem {
    Problem::Layout { record: "the header".to_owned(), reason: reason.to_owned() }
}

/// A file of two tensors.
pub(crate) const FILE: &[u8] = b"TOY1\nbias 2\nscale\n\n\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let input = std::env::args().nth(1).ok_or("usage: toy_container FILE.toy")?;
    if !Path::new(&input).exists() {
        std::fs::write(&input, FILE)?;
    }
    register_container(&Toy);
    for tensor in inspect(&input).run(&())?.tensors {
        println!("{} {} {:?}", tensor.name, tensor.dtype, tensor.shape());
    }
    let report = convert(&input).to(SafetensorsOptions::default()).run(&())?;
    println!("{}: {} tensors, {} bytes", report.output, report.tensors, report.nbytes);
    Ok(())
}
