//! Writes the tensors of a checkpoint as a safetensors file, as a program would with candle or with the official crate.
//! Both are synced at the end, like the files of torch2carton.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;

use safetensors::tensor::View;
use safetensors::{Dtype, serialize_to_file};
use torch_import::{Checkpoint, Container};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// `peers write PEER IN OUT`
pub(crate) fn write(peer: &str, from: &Path, to: &Path) -> Result<()> {
    match peer {
        "candle" => candle(from, to)?,
        "safetensors" => official(from, to)?,
        other => return Err(format!("no peer is called {other}").into()),
    }
    Ok(File::open(to)?.sync_all()?)
}

fn candle(from: &Path, to: &Path) -> Result<()> {
    let tensors: HashMap<String, candle_core::Tensor> =
        candle_core::pickle::read_all(from)?.into_iter().collect();
    Ok(candle_core::safetensors::save(&tensors, to)?)
}

/// The official crate with slices of the mapped checkpoint, which it writes without a copy of its own. Our crates say
/// where the tensors are; checksums are not compared.
fn official(from: &Path, to: &Path) -> Result<()> {
    let container = Container::open(from)?;
    let checkpoint = Checkpoint::read(&container)?;
    let slices = checkpoint.tensors().map(|(name, tensor)| {
        let refuse = |why| format!("`{name}` {why}");
        let bytes = tensor.mapped_bytes().ok_or_else(|| refuse("is not contiguous in the file"))?;
        let dtype = dtype(tensor.dtype()).ok_or_else(|| refuse("has a dtype that is not in the table"))?;
        let shape = tensor
            .shape()
            .iter()
            .map(|size| usize::try_from(*size))
            .collect::<std::result::Result<_, _>>()?;
        Ok((name.to_string(), Slice { dtype, shape, bytes }))
    });
    let slices = slices.collect::<Result<Vec<_>>>()?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    Ok(serialize_to_file(slices, Some(metadata), to)?)
}

fn dtype(dtype: tensor::Dtype) -> Option<Dtype> {
    let rows = [
        (tensor::Dtype::Float64, Dtype::F64),
        (tensor::Dtype::Float32, Dtype::F32),
        (tensor::Dtype::Float16, Dtype::F16),
        (tensor::Dtype::BFloat16, Dtype::BF16),
        (tensor::Dtype::Int64, Dtype::I64),
    ];
    rows.iter().find(|(ours, _)| *ours == dtype).map(|(_, theirs)| *theirs)
}

/// A tensor in a mapped file.
struct Slice<'f> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: &'f [u8],
}

impl View for Slice<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
