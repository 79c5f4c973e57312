//! Types of blocks of GGUF files: codes with their scales, side by side.
//!
//! Facts: `quants.py` of the Python package `gguf` 0.19.0, whose numbers these are, bit for bit: each product and sum is rounded to
//! float32, in its order.

mod bits;
mod grid_blocks;
mod grids;
mod k_blocks;
mod small_blocks;

use std::io;
use std::sync::Arc;

use gguf_format::GgmlType;
use tensor::{CompoundKind, CompoundTensor, Dtype, Inputs, Tensors};

use crate::dequantized::{Area, Kernel, Loaded, Matrices};
use crate::gptq::check;
use crate::operand::{ByteRows, Operand};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Computes the numbers of one block, all of them.
type Decode = fn(&[u8], &mut [f32]);

/// Names of the types whose numbers are known.
static DECODERS: &[(&str, Decode)] = &[
    ("Q4_0", small_blocks::q4_0),
    ("Q4_1", small_blocks::q4_1),
    ("Q5_0", small_blocks::q5_0),
    ("Q5_1", small_blocks::q5_1),
    ("Q8_0", small_blocks::q8_0),
    ("Q2_K", k_blocks::q2_k),
    ("Q3_K", k_blocks::q3_k),
    ("Q4_K", k_blocks::q4_k),
    ("Q5_K", k_blocks::q5_k),
    ("Q6_K", k_blocks::q6_k),
    ("TQ1_0", small_blocks::tq1_0),
    ("TQ2_0", small_blocks::tq2_0),
    ("MXFP4", small_blocks::mxfp4),
    ("NVFP4", small_blocks::nvfp4),
    ("IQ2_XXS", grid_blocks::iq2_xxs),
    ("IQ2_XS", grid_blocks::iq2_xs),
    ("IQ2_S", grid_blocks::iq2_s),
    ("IQ3_XXS", grid_blocks::iq3_xxs),
    ("IQ3_S", grid_blocks::iq3_s),
    ("IQ1_S", grid_blocks::iq1_s),
    ("IQ1_M", grid_blocks::iq1_m),
    ("IQ4_NL", small_blocks::iq4_nl),
    ("IQ4_XS", k_blocks::iq4_xs),
];

/// Adds all tensors of blocks.
///
/// # Errors
/// When the numbers of a type are not known, or a tensor has another shape than its type.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let tensors = survey.tensors;
    tensors.compounds().iter().try_for_each(|compound| add(survey, compound))
}

pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.compounds().iter().any(|compound| matches!(compound.kind, CompoundKind::Blocks { .. }))
}

fn add(survey: &mut Survey<'_>, compound: &CompoundTensor) -> Result<()> {
    let CompoundKind::Blocks { scheme } = &compound.kind else { return Ok(()) };
    let decoder = DECODERS.iter().find(|(name, _)| name == scheme);
    let Some(((_, decode), kind)) = decoder.zip(GgmlType::from_name(scheme)) else {
        let known: Vec<&str> = DECODERS.iter().map(|(name, _)| *name).collect();
        return Err(Problem::Unsupported {
            method: "GGUF".to_owned(),
            key: compound.name.clone(),
            found: scheme.clone(),
            expected: format!("one of {}", known.join(", ")),
        }
        .into());
    };
    let wrong = || Problem::Shape {
        tensor: compound.name.clone(),
        found: compound.shape.clone(),
        expected: format!("rows of whole blocks of {}", kind.block_len),
    };
    let matrices = Matrices::from_shape(&compound.shape).filter(|it| it.elements > 0).ok_or_else(wrong)?;
    let row_bytes = kind.nbytes(&[matrices.cols]).ok_or_else(wrong)?;
    let name = format!("{}.blocks", compound.name);
    let mut shape = compound.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = row_bytes;
    }
    check(survey.companion(&compound.name, &name)?, &name, Dtype::UInt8, &shape)?;
    let mut draft = Draft::new(&compound.name);
    let blocks = survey.operand(&mut draft, &name)?;
    let kernel = BlockRows { blocks, kind, decode: *decode, rows: matrices.rows, row_bytes };
    let recognised = Recognised {
        scheme: scheme.clone(),
        shape: compound.shape.clone(),
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::Float32,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Kernel of rows that consist of whole blocks.
#[derive(Debug)]
struct BlockRows {
    blocks: Operand,
    kind: &'static GgmlType,
    decode: Decode,
    /// Rows of a matrix.
    rows: u64,
    row_bytes: u64,
}

impl BlockRows {
    fn bytes_of(&self, elements: u64) -> u64 {
        elements.checked_div(self.kind.block_len).unwrap_or(0).saturating_mul(self.kind.block_bytes)
    }
}

impl Kernel for BlockRows {
    fn q8_0_blocks(&self) -> Option<&Operand> {
        (self.kind.name == "Q8_0").then_some(&self.blocks)
    }

    fn col_granule(&self) -> u64 {
        self.kind.block_len
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let row = area.matrix.saturating_mul(self.rows).saturating_add(area.rows.start);
        let start = row.checked_mul(self.row_bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let part = ByteRows {
            start: start.saturating_add(self.bytes_of(area.cols.start)),
            rows: area.rows.end.saturating_sub(area.rows.start),
            pitch: self.row_bytes,
            len: self.bytes_of(area.cols.end.saturating_sub(area.cols.start)),
        };
        Ok(Loaded { codes: self.blocks.read_rows(inputs, &part)?, ..Loaded::default() })
    }

    fn decode(&self, loaded: &Loaded, _area: &Area, row: usize, out: &mut [f32]) {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (len, size) = (within(self.kind.block_len).max(1), within(self.kind.block_bytes).max(1));
        let start = row.saturating_mul(within(self.bytes_of(out.len() as u64)));
        let blocks = loaded.codes.get(start..).unwrap_or_default().chunks_exact(size);
        out.chunks_exact_mut(len).zip(blocks).for_each(|(out, block)| (self.decode)(block, out));
    }
}
