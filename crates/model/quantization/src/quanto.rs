//! quanto: integers of eight bits and FP8 with a scale for each channel, and integers of two and four bits with a scale and a
//! shift for each group, packed along the first dimension.
//!
//! Facts: `QBytesTensor`, `QBitsTensor`, `PackedTensor` and `QModuleMixin` of optimum-quanto 0.2.7. `weight._data` has eight bits;
//! `weight._data._data` has the grouped matrix, cut into as many parts as a byte has codes, the first one in the lowest bits.
//! The product with the scale is rounded to its dtype, and so is the difference from a shift of floats; a shift of integers is
//! subtracted first, as int8. A file has no shapes of grouped weights, so that they follow from the bias or the configuration.

use std::sync::Arc;

use tensor::{Dtype, Tensors};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::dtype_values;
use crate::codes::is_float8;
use crate::dequantized::Matrices;
use crate::packed::CodeOrder;
use crate::scales::ScaleGrid;
use crate::stacked::{Arithmetic, StackedRows};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &["._data", "._scale", "._shift"];
/// Suffixes of the scales of activations, which layers without quantized weights have too.
const ACTIVATIONS: &[&str] = &[".input_scale", ".output_scale"];
/// Sizes of groups that quanto chooses.
const GROUPS: &[u64] = &[32, 64, 96, 128];
/// Last names of layers whose input has the hidden size.
const INPUTS: &[&str] = &[
    "q_proj",
    "k_proj",
    "v_proj",
    "qkv_proj",
    "gate_proj",
    "up_proj",
    "gate_up_proj",
    "lm_head",
    "fc1",
    "w1",
    "w3",
    "query_key_value",
    "dense_h_to_4h",
    "gate",
];
/// Last names of layers whose output has the hidden size.
const OUTPUTS: &[&str] = &["o_proj", "out_proj", "down_proj", "fc2", "w2", "dense_4h_to_h"];

/// Adds all weights with a `_data` and a `_scale`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    for name in survey.stems("._data._data") {
        add_bits(survey, &name)?;
    }
    for name in survey.stems("._data") {
        if !survey.is_used(&format!("{name}._data")) {
            add_bytes(survey, &name)?;
        }
    }
    for suffix in ACTIVATIONS {
        for module in survey.stems(suffix) {
            if survey.get(&format!("{module}.weight")).is_some() {
                survey.mark(&format!("{module}{suffix}"));
            }
        }
    }
    Ok(())
}

pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.names().any(|name| {
        let name = name.strip_suffix("._data").map(|name| name.strip_suffix("._data").unwrap_or(name));
        name.is_some_and(|name| tensors.contains(&format!("{name}._scale")))
    })
}

fn add_bytes(survey: &mut Survey<'_>, name: &str) -> Result<()> {
    let mut draft = Draft::new(name);
    let (data, scale) = (format!("{name}._data"), format!("{name}._scale"));
    let codes = survey.companion(name, &data)?;
    let numbers = survey.companion(name, &scale)?;
    if codes.dtype() != Dtype::Int8 && !is_float8(codes.dtype()) {
        let expected = "int8 or float8".to_owned();
        return Err(Problem::Dtype { tensor: data, found: codes.dtype(), expected }.into());
    }
    check_floats(numbers.dtype(), &scale)?;
    let shape = codes.shape().to_vec();
    let elements = codes.numel();
    let rows = shape.first().copied().unwrap_or(1);
    let cols = elements.checked_div(rows).filter(|cols| *cols > 0).ok_or_else(|| Problem::Shape {
        tensor: data.clone(),
        found: shape.clone(),
        expected: "at least one element".to_owned(),
    })?;
    let channels = numbers.numel();
    if channels != 1 && channels != rows {
        let expected = format!("one number, or one for each of {rows} channels");
        return Err(Problem::Shape { tensor: scale, found: numbers.shape().to_vec(), expected }.into());
    }
    let operand = survey.operand(&mut draft, &data)?;
    let scales = survey.operand(&mut draft, &scale)?;
    let (library, matrices) = (numbers.dtype(), Matrices { rows, cols, elements });
    let kernel = BlockScaled {
        codes: CodeRows {
            operand,
            bits: 8,
            order: CodeOrder::LowFirst,
            pitch: cols,
            values: dtype_values(codes.dtype()),
        },
        scales: ScaleGrid::plain(scales, (channels, 1)),
        zeros: None,
        block: BlockShape { rows: if channels == 1 { rows } else { 1 }, cols },
        matrices,
        groups: None,
        factor: 1.0,
    };
    let format = if codes.dtype() == Dtype::Int8 { "INT8" } else { "FP8" };
    let each = if channels == 1 { "tensor" } else { "channel" };
    let recognised = Recognised {
        scheme: format!("quanto, {format}, a scale for each {each}"),
        shape,
        library_dtype: library,
        default_dtype: library,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

fn add_bits(survey: &mut Survey<'_>, name: &str) -> Result<()> {
    let mut draft = Draft::new(name);
    let part = |suffix: &str| format!("{name}{suffix}");
    let (data, scale) = (part("._data._data"), part("._scale"));
    let packed = survey.companion(name, &data)?;
    if packed.dtype() != Dtype::UInt8 {
        let expected = "uint8".to_owned();
        return Err(Problem::Dtype { tensor: data, found: packed.dtype(), expected }.into());
    }
    let numbers = survey.companion(name, &scale)?;
    check_floats(numbers.dtype(), &scale)?;
    let rows = numbers.numel();
    let stored_rows = packed.shape().first().copied().unwrap_or(0);
    let cols = packed.numel().checked_div(stored_rows).unwrap_or(0);
    let bits = [4_u32, 2]
        .into_iter()
        .find(|bits| rows.div_ceil(u64::from(8_u32.checked_div(*bits).unwrap_or(1))) == stored_rows);
    let (Some(bits), Some(elements), true) = (bits, rows.checked_mul(cols), cols > 0 && rows > 0) else {
        let expected = format!("a row for each two (qint4) or four (qint2) of {rows} scales");
        return Err(Problem::Shape { tensor: data, found: packed.shape().to_vec(), expected }.into());
    };
    let shift = survey.companion(name, &part("._shift"))?;
    let is_float = shift.dtype().is_floating_point();
    if shift.numel() != rows {
        let (found, expected) = (shift.shape().to_vec(), format!("that of the scales, {rows} numbers"));
        return Err(Problem::Shape { tensor: part("._shift"), found, expected }.into());
    }
    let shape = original_shape(survey, name, packed.shape(), rows, elements)?;
    let dtype = numbers.dtype();
    let codes_per_byte = 8_u32.checked_div(bits).unwrap_or(1);
    let operand = survey.operand(&mut draft, &data)?;
    let mut factors = |part: &str, tensor| {
        draft.stored.extend(survey.tensors.position(part));
        draft.factors((part, tensor), (rows, cols))
    };
    let kernel = StackedRows {
        operand,
        word: 1,
        shifts: (0..codes_per_byte).map(|place| place.saturating_mul(bits)).collect(),
        mask: u8::MAX.checked_shr(8_u32.saturating_sub(bits)).unwrap_or(0),
        stored_rows,
        cols,
        scales: factors(&scale, numbers)?,
        zeros: factors(&part("._shift"), shift)?,
        arithmetic: if is_float { Arithmetic::MultiplyFirst } else { Arithmetic::Wrapping },
        dtype,
    };
    let groups = if shape.first() == Some(&rows) {
        "a scale for each channel".to_owned()
    } else {
        format!("groups of {cols}")
    };
    let recognised = Recognised {
        scheme: format!("quanto, INT{bits}, {groups}"),
        shape,
        library_dtype: dtype,
        default_dtype: dtype,
        kernel: Arc::new(kernel),
        matrices: Matrices { rows, cols, elements },
    };
    survey.add(draft, recognised);
    Ok(())
}

fn check_floats(dtype: Dtype, name: &str) -> Result<()> {
    if dtype.is_floating_point() {
        return Ok(());
    }
    let expected = "a floating-point dtype".to_owned();
    Err(Problem::Dtype { tensor: name.to_owned(), found: dtype, expected }.into())
}

fn original_shape(
    survey: &Survey<'_>,
    name: &str,
    packed: &[u64],
    rows: u64,
    elements: u64,
) -> Result<Vec<u64>> {
    let own = || {
        packed.iter().skip(1).fold(vec![rows], |mut shape, size| {
            shape.push(*size);
            shape
        })
    };
    // Only a matrix whose rows have the size of a group can be grouped.
    let [_, cols] = packed else { return Ok(own()) };
    if !GROUPS.contains(cols) {
        return Ok(own());
    }
    let module = name.rsplit_once('.').map_or(name, |(module, _)| module);
    let last = module.rsplit('.').next().unwrap_or(module);
    let hidden = survey.config.hidden_size;
    let bias = survey.get(&format!("{module}.bias")).map(tensor::Tensor::numel);
    let outputs = bias.or_else(|| hidden.filter(|_| OUTPUTS.contains(&last)));
    let inputs = hidden.filter(|_| INPUTS.contains(&last));
    let shape = match (outputs, inputs) {
        (Some(outputs), _) => elements.checked_div(outputs).map(|inputs| [outputs, inputs]),
        (None, Some(inputs)) => elements.checked_div(inputs).map(|outputs| [outputs, inputs]),
        (None, None) => None,
    };
    let fits = |[outputs, inputs]: &[u64; 2]| {
        outputs.checked_mul(*inputs) == Some(elements) && inputs.checked_rem(*cols) == Some(0)
    };
    Ok(shape.filter(fits).map(Vec::from).ok_or_else(|| Problem::Content {
        tensor: format!("{name}._data._data"),
        problem: format!(
            "quanto does not store the shape of a weight in groups of {cols}, and neither a bias nor `hidden_size` of \
             config.json gives that of {elements} elements"
        ),
    })?)
}
