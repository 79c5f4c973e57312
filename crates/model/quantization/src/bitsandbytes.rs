//! bitsandbytes: NF4 and FP4 in blocks of a flat list, whose maxima may be quantized too, and INT8 with a maximum for each row.
//!
//! Facts: `QuantState` and `dequantize_4bit` in `functional.py`, and `int8_vectorwise_dequant` in `_ops.py`, of bitsandbytes
//! 0.50.2 on a CPU. `weight` has two codes in a byte, the high one first; `weight.quant_state.bitsandbytes__nf4` is a JSON
//! text in bytes with the shape, the dtype, the blocks and `nested_offset`, which is added to the maxima of blocks. Products
//! are float32, and are rounded to the dtype of the quantized tensor.

use std::sync::Arc;

use byte_source::Blob;
use serde_json::{Map, Value};
use tensor::{Dtype, Tensor, Tensors};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::{dtype_values, nibble_values};
use crate::dequantized::Matrices;
use crate::operand::Operand;
use crate::packed::CodeOrder;
use crate::scales::{NestedScales, ScaleEncoding, ScaleGrid};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[
    ".absmax",
    ".quant_map",
    ".nested_absmax",
    ".nested_quant_map",
    "bitsandbytes__nf4",
    "bitsandbytes__fp4",
    MAXIMA,
    ORDER,
];
/// Suffix of the maxima of the rows of codes of eight bits.
pub(crate) const MAXIMA: &str = ".SCB";
/// Suffix of the order of these codes: a number, or a text in older files.
pub(crate) const ORDER: &str = ".weight_format";
/// Suffix and name of the two kinds of codes of four bits.
const STATES: &[(&str, &str)] =
    &[(".quant_state.bitsandbytes__nf4", "NF4"), (".quant_state.bitsandbytes__fp4", "FP4")];
/// Blocks that are computed as one row.
const BLOCKS_PER_ROW: u64 = 256;
/// Longest text of an order.
const ORDER_MAX: u64 = 64;
/// `1 / 127` as bitsandbytes writes it.
const RECIPROCAL_127: f32 = 7.874_016e-3;

/// Adds all tensors with a quantization state, and all with row maxima.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    for (suffix, format) in STATES {
        for name in survey.stems(suffix) {
            add_4bit(survey, &name, (suffix, format))?;
        }
    }
    for name in survey.stems(".absmax") {
        if !survey.is_used(&format!("{name}.absmax")) {
            survey.companion(&name, &format!("{name}.quant_state.bitsandbytes__nf4"))?;
        }
    }
    survey.stems(MAXIMA).iter().try_for_each(|module| add_8bit(survey, module))
}

pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors
        .names()
        .any(|name| STATES.iter().any(|(suffix, _)| name.ends_with(suffix)) || name.ends_with(MAXIMA))
}

struct State {
    shape: Vec<u64>,
    dtype: Dtype,
    block: u64,
    /// Block and offset of maxima that are quantized too.
    nested: Option<(u64, f32)>,
}

impl State {
    fn read(tensor: &Tensor, name: &str) -> Result<Self> {
        let content =
            |problem: &str| Problem::Content { tensor: name.to_owned(), problem: problem.to_owned() };
        if tensor.dtype() != Dtype::UInt8 || tensor.numel() > 1 << 16 {
            return Err(content("it is not a short text in bytes").into());
        }
        let mut bytes: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut bytes)?;
        let state: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|_| content("it is not a JSON object"))?;
        let missing = |key: &str| content(&format!("`{key}` is missing or has another type"));
        let number = |key: &str| state.get(key).and_then(Value::as_u64).filter(|number| *number > 0);
        let shape = state.get("shape").and_then(Value::as_array).ok_or_else(|| missing("shape"))?;
        let shape: Option<Vec<u64>> = shape.iter().map(Value::as_u64).collect();
        let dtype = state.get("dtype").and_then(Value::as_str).and_then(Dtype::from_name);
        let block = number("blocksize").filter(|block| block.is_power_of_two() && *block <= 1 << 12);
        let nested = match state.get("nested_offset").and_then(Value::as_f64) {
            #[expect(clippy::cast_possible_truncation, reason = "it is a float32 in JSON")]
            Some(offset) => {
                Some((number("nested_blocksize").ok_or_else(|| missing("nested_blocksize"))?, offset as f32))
            }
            None => None,
        };
        Ok(Self {
            shape: shape.ok_or_else(|| missing("shape"))?,
            dtype: dtype.filter(|dtype| dtype.is_floating_point()).ok_or_else(|| missing("dtype"))?,
            block: block.ok_or_else(|| missing("blocksize"))?,
            nested,
        })
    }
}

fn add_4bit(survey: &mut Survey<'_>, name: &str, (suffix, format): (&str, &str)) -> Result<()> {
    let mut draft = Draft::new(name);
    let part = |suffix: &str| format!("{name}{suffix}");
    let state = State::read(survey.companion(name, &part(suffix))?, &part(suffix))?;
    let flat = FlatBlocks::new(survey, name, name, &state.shape, state.block)?;
    check_len(survey, name, &part(".absmax"), flat.blocks())?;
    check_len(survey, name, &part(".quant_map"), 16)?;
    let codes = survey.operand(&mut draft, name)?;
    let absmax = survey.operand(&mut draft, &part(".absmax"))?;
    let table = read_table(survey.companion(name, &part(".quant_map"))?, &part(".quant_map"))?;
    survey.operand(&mut draft, &part(".quant_map"))?;
    survey.operand(&mut draft, &part(suffix))?;
    let mut encoding = ScaleEncoding::Numbers;
    if let Some((block, offset)) = state.nested {
        check_len(survey, name, &part(".nested_absmax"), flat.blocks().div_ceil(block))?;
        check_len(survey, name, &part(".nested_quant_map"), 256)?;
        let scales = survey.operand(&mut draft, &part(".nested_absmax"))?;
        let table = survey.operand(&mut draft, &part(".nested_quant_map"))?;
        encoding = ScaleEncoding::Nested(Box::new(NestedScales { table, scales, block, offset }));
    }
    let doubly = if state.nested.is_some() { ", double quantization" } else { "" };
    let scheme = format!("{format}, blocks of {}{doubly}", state.block);
    survey.add(draft, flat.recognised(scheme, codes, &table, absmax, encoding, state.dtype));
    Ok(())
}

/// Checks that a companion has `len` elements.
pub(crate) fn check_len(survey: &Survey<'_>, name: &str, companion: &str, len: u64) -> Result<()> {
    let tensor = survey.companion(name, companion)?;
    if tensor.numel() == len {
        return Ok(());
    }
    let (found, expected) = (tensor.shape().to_vec(), format!("[{len}]"));
    Err(Problem::Shape { tensor: companion.to_owned(), found, expected }.into())
}

/// Flat list of codes of four bits, the high one of a byte first, in blocks with a scale.
///
/// It is computed in rows of many blocks, of which the last one may be incomplete.
pub(crate) struct FlatBlocks {
    shape: Vec<u64>,
    block: u64,
    matrices: Matrices,
}

impl FlatBlocks {
    /// Creates the list of a tensor, whose codes are `codes`.
    ///
    /// # Errors
    /// When it has no elements, or another number of codes.
    pub(crate) fn new(
        survey: &Survey<'_>,
        name: &str,
        codes: &str,
        shape: &[u64],
        block: u64,
    ) -> Result<Self> {
        let stored = survey.companion(name, codes)?;
        let elements = Matrices::from_shape(shape).map_or(0, |it| it.elements);
        if elements == 0 || block == 0 || stored.nbytes() != elements.div_ceil(2) {
            let expected = format!("{} bytes for the shape {shape:?}", elements.div_ceil(2));
            return Err(Problem::Shape {
                tensor: codes.to_owned(),
                found: stored.shape().to_vec(),
                expected,
            }
            .into());
        }
        let cols = block.saturating_mul(BLOCKS_PER_ROW);
        let matrices = Matrices { rows: elements.div_ceil(cols), cols, elements };
        Ok(Self { shape: shape.to_vec(), block, matrices })
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.matrices.elements.div_ceil(self.block)
    }

    /// Returns the tensor of these codes and scales, in the dtype that the library rounds to.
    pub(crate) fn recognised(
        self,
        scheme: String,
        codes: Operand,
        table: &[f32; 16],
        scales: Operand,
        encoding: ScaleEncoding,
        dtype: Dtype,
    ) -> Recognised {
        let blocks = self.blocks();
        let scales = ScaleGrid::plain(scales, (blocks.div_ceil(BLOCKS_PER_ROW), BLOCKS_PER_ROW));
        let kernel = BlockScaled {
            codes: CodeRows {
                operand: codes,
                bits: 4,
                order: CodeOrder::HighFirst,
                pitch: self.matrices.cols / 2,
                values: nibble_values(table),
            },
            scales: ScaleGrid { elements: Some(blocks), encoding, ..scales },
            zeros: None,
            block: BlockShape { rows: 1, cols: self.block },
            matrices: self.matrices,
            groups: None,
            factor: 1.0,
        };
        Recognised {
            scheme,
            shape: self.shape,
            library_dtype: dtype,
            default_dtype: dtype,
            kernel: Arc::new(kernel),
            matrices: self.matrices,
        }
    }
}

pub(crate) fn read_table(tensor: &Tensor, name: &str) -> Result<[f32; 16]> {
    let mut bytes: Vec<u8> = Vec::new();
    tensor.gathered().write_to(&mut bytes)?;
    let numbers = tensor.dtype().decode_f32(&bytes).and_then(|numbers| numbers.try_into().ok());
    let (found, expected) = (tensor.dtype(), "float32".to_owned());
    Ok(numbers.ok_or_else(|| Problem::Dtype { tensor: name.to_owned(), found, expected })?)
}

/// Checks that the codes of a weight are in rows: its `weight_format` is 0, or the text `row` in bytes.
fn check_order(tensor: &Tensor, name: &str) -> Result<()> {
    let mut bytes: Vec<u8> = Vec::new();
    if tensor.numel() <= ORDER_MAX {
        tensor.gathered().write_to(&mut bytes)?;
    }
    if bytes == b"row" || (tensor.numel() == 1 && bytes.iter().all(|byte| *byte == 0)) {
        return Ok(());
    }
    let found = match bytes.as_slice() {
        [byte] => byte.to_string(),
        text => format!("`{}`", String::from_utf8_lossy(text).escape_debug()),
    };
    let problem = format!("the weights are in the order {found} of a GPU, expected 0 or `row`");
    Err(Problem::Content { tensor: name.to_owned(), problem }.into())
}

fn add_8bit(survey: &mut Survey<'_>, module: &str) -> Result<()> {
    let (weight, maxima) = (format!("{module}.weight"), format!("{module}{MAXIMA}"));
    let mut draft = Draft::new(&weight);
    let codes = survey.companion(&weight, &weight)?;
    let [rows, cols] = *codes.shape() else {
        let (found, expected) = (codes.shape().to_vec(), "two dimensions".to_owned());
        return Err(Problem::Shape { tensor: weight, found, expected }.into());
    };
    crate::gptq::check(codes, &weight, Dtype::Int8, &[rows, cols])?;
    crate::gptq::check(survey.companion(&weight, &maxima)?, &maxima, Dtype::Float32, &[rows])?;
    let format = format!("{module}{ORDER}");
    if let Some(tensor) = survey.get(&format) {
        check_order(tensor, &format)?;
    }
    let operand = survey.operand(&mut draft, &weight)?;
    let scales = survey.operand(&mut draft, &maxima)?;
    survey.mark(&format);
    let matrices = Matrices { rows, cols, elements: codes.numel() };
    let kernel = BlockScaled {
        codes: CodeRows {
            operand,
            bits: 8,
            order: CodeOrder::LowFirst,
            pitch: cols,
            values: dtype_values(Dtype::Int8),
        },
        scales: ScaleGrid::plain(scales, (rows, 1)),
        zeros: None,
        block: BlockShape { rows: 1, cols: cols.max(1) },
        matrices,
        groups: None,
        factor: RECIPROCAL_127,
    };
    let recognised = Recognised {
        scheme: "LLM.int8, a scale for each channel".to_owned(),
        shape: vec![rows, cols],
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::Float16,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}
