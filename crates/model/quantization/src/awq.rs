//! AWQ: codes of four bits, or of up to seven in auto-round, with a scale and a zero point for each group of input channels.
//!
//! Facts: `dequantize_gemm` in `awq/utils/packing_utils.py` of autoawq 0.2.9, and `unpack_awq_bitstream` of auto-round 0.16.1. `qweight` is
//! `[in, out · bits / 32]`, `qzeros` `[groups, out · bits / 32]`, `scales` `[groups, out]`. Words have output channels in the order 0, 2, 4,
//! 6, 1, 3, 5, 7 from the lowest bits on, in weights and in zero points. The product is rounded to the dtype of the scales.

use std::sync::Arc;

use tensor::Dtype;

use crate::code_values::offset_values;
use crate::columns::{ColumnCodes, ColumnScaled, Packing, Zeros};
use crate::dequantized::Matrices;
use crate::gptq::{check, group_text};
use crate::scales::ScaleGrid;
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[".qweight", ".qzeros", ".scales"];

/// Adds all layers with a `qweight`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let bits = survey.config.number("bits").or_else(|| survey.config.number("w_bit"));
    if bits.is_some_and(|bits| bits != 4) {
        return Err(survey.config.unsupported("bits", "4"));
    }
    let version = survey.config.text("version").or_else(|| survey.config.text("format")).unwrap_or("gemm");
    if !version.eq_ignore_ascii_case("gemm") {
        return Err(survey.config.unsupported("version", "`gemm`"));
    }
    let size = survey.config.members.get("group_size").or_else(|| survey.config.members.get("q_group_size"));
    let group_size = size.and_then(serde_json::Value::as_i64);
    for module in survey.stems(".qweight") {
        add(survey, &module, 4, group_size)?;
    }
    Ok(())
}

/// Adds a layer.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn add(survey: &mut Survey<'_>, module: &str, bits: u32, group_size: Option<i64>) -> Result<()> {
    let weight = format!("{module}.weight");
    let [qweight, qzeros, scales] = COMPANIONS else { return Ok(()) };
    let part = |suffix: &str| format!("{module}{suffix}");
    let mut draft = Draft::new(&weight);
    let words = survey.companion(&weight, &part(qweight))?;
    let wrong = |expected: &str| Problem::Shape {
        tensor: part(qweight),
        found: words.shape().to_vec(),
        expected: expected.to_owned(),
    };
    let [cols, width] = words.shape() else { return Err(wrong("two dimensions").into()) };
    let (cols, width) = (*cols, *width);
    let (stored_bits, wide) = (width.saturating_mul(32), u64::from(bits));
    let rows = stored_bits.checked_div(wide).filter(|rows| rows.is_multiple_of(8));
    let rows = rows.filter(|_| stored_bits.is_multiple_of(wide));
    let rows = rows.ok_or_else(|| wrong("a multiple of the bits of a code in the last dimension"))?;
    if rows == 0 || cols == 0 {
        return Err(wrong("at least one element").into());
    }
    check(words, &part(qweight), Dtype::Int32, &[cols, width])?;
    let scale = survey.companion(&weight, &part(scales))?;
    let groups = scale.shape().first().copied().unwrap_or(0);
    let group = match group_size {
        Some(size) if size > 0 => u64::try_from(size).unwrap_or(cols),
        Some(_) => cols,
        None => cols.checked_div(groups).unwrap_or(cols),
    };
    if !scale.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Problem::Dtype { tensor: part(scales), found: scale.dtype(), expected }.into());
    }
    let groups = cols.checked_div(group).unwrap_or(0);
    if groups.checked_mul(group) != Some(cols) {
        return Err(wrong(&format!("a multiple of the group of {group} in the first dimension")).into());
    }
    check(scale, &part(scales), scale.dtype(), &[groups, rows])?;
    check(survey.companion(&weight, &part(qzeros))?, &part(qzeros), Dtype::Int32, &[groups, width])?;
    let operand = survey.operand(&mut draft, &part(qweight))?;
    let zeros = survey.operand(&mut draft, &part(qzeros))?;
    let scale_operand = survey.operand(&mut draft, &part(scales))?;
    let matrices = Matrices::from_shape(&[rows, cols]).ok_or_else(|| wrong("a size that fits 63 bits"))?;
    let kernel = ColumnScaled {
        codes: ColumnCodes {
            operand,
            packing: Packing::AlongRows { bits },
            word_rows: cols,
            width,
            values: offset_values(0.0),
        },
        scales: ScaleGrid::plain(scale_operand, (groups, rows)),
        zeros: Zeros::Awq { operand: zeros, bits, width },
        group,
        groups: None,
    };
    let recognised = Recognised {
        scheme: format!("AWQ, {bits} bits, {}", group_text(group, cols)),
        shape: vec![rows, cols],
        library_dtype: scale.dtype(),
        default_dtype: scale.dtype(),
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}
