//! Types of files: the type that most tensors of a file have.
//!
//! Facts: `LlamaFileType` of `gguf` 0.19.0, whose numbers are those of llama.cpp.

use gguf_format::{GgmlType, GgufOutput};
use tensor::{Dtype, Tensor};

/// Type of most tensors of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    /// Number in `general.file_type`.
    pub number: u32,
    /// Name of the tensors' type.
    pub kind: &'static str,
}

/// Ends of the names of weights that are float32 in each file.
const KEPT: [&str; 5] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "position_embd.weight",
    "ssm_conv1d.weight",
];

const fn row(number: u32, kind: &'static str) -> FileType {
    FileType { number, kind }
}

/// Names of the types that files are written in, as options have them.
pub static FILE_TYPES: &[(&str, FileType)] = &[
    ("float32", row(0, "F32")),
    ("float16", row(1, "F16")),
    ("bfloat16", row(32, "BF16")),
    ("q8_0", row(7, "Q8_0")),
    ("q4_0", row(2, "Q4_0")),
    ("q4_1", row(3, "Q4_1")),
    ("q5_0", row(8, "Q5_0")),
    ("q5_1", row(9, "Q5_1")),
];

impl FileType {
    /// Returns the type with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        FILE_TYPES.iter().find(|(known, _)| *known == name).map(|(_, file_type)| *file_type)
    }

    /// Returns `Q8_0` if a matrix is kept as its blocks, else the 16-bit type of the first matrix that has one, else float16.
    pub(crate) fn of<'t>(tensors: impl Iterator<Item = &'t Tensor> + Clone) -> Self {
        if tensors.clone().any(|tensor| tensor.kept_q8_0_blocks().is_some()) {
            return row(7, "Q8_0");
        }
        let dtypes = tensors.filter(|tensor| tensor.shape().len() > 1).map(Tensor::dtype);
        let mut dtypes = dtypes.filter(|dtype| matches!(dtype, Dtype::BFloat16 | Dtype::Float16));
        if dtypes.next() == Some(Dtype::BFloat16) { row(32, "BF16") } else { row(1, "F16") }
    }

    /// Returns the type of a file with these tensors: that of experts that are packed, unless others are blocks, too.
    pub(crate) fn of_file(self, tensors: &[GgufOutput]) -> Self {
        let is_packed = tensors.iter().any(|tensor| tensor.kind.name == "MXFP4");
        if is_packed && ["F32", "F16", "BF16"].contains(&self.kind) { row(38, "MXFP4") } else { self }
    }

    /// Returns the type of a tensor: float32 for vectors, norms, routers, positions, convolutions and tensors that are not weights, and float16 if a row is
    /// not a whole number of blocks.
    pub(crate) fn of_tensor(self, name: &str, shape: &[u64]) -> &'static str {
        let is_kept =
            shape.len() <= 1 || !name.ends_with(".weight") || KEPT.iter().any(|end| name.ends_with(end));
        if is_kept {
            return "F32";
        }
        let fits = GgmlType::from_name(self.kind).is_some_and(|kind| kind.nbytes(shape).is_some());
        if fits { self.kind } else { "F16" }
    }
}
