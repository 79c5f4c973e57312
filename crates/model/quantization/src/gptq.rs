//! GPTQ: codes of two, three, four or eight bits with a scale and a zero point for each group of input channels.
//!
//! Facts: `PackableQuantLinear.dequantize_weight` and `convert_gptq_v1_to_v2_format_module` of gptqmodel 7.7.0. `qweight` is
//! `[in · bits / 32, out]`, `qzeros` `[groups, out · bits / 32]`, `scales` `[groups, out]`; `g_idx` has the group of each
//! input channel. Version 1, which `checkpoint_format` does not call `gptq_v2`, stores zero points minus one. The product is
//! rounded to the dtype of the scales.

use std::sync::Arc;

use tensor::{Dtype, Tensor};

use crate::code_values::offset_values;
use crate::columns::{ColumnCodes, ColumnScaled, Packing, Zeros};
use crate::dequantized::Matrices;
use crate::scales::ScaleGrid;
use crate::survey::{Draft, Recognised, Survey};
use crate::{Error, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[".qweight", ".qzeros", ".scales", ".g_idx"];

/// Adds all layers with a `qweight`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let bits = survey.config.number("bits");
    let bits = bits.and_then(|bits| u32::try_from(bits).ok()).filter(|bits| matches!(bits, 2 | 3 | 4 | 8));
    let bits = bits.ok_or_else(|| survey.config.unsupported("bits", "2, 3, 4 or 8"))?;
    let format = survey.config.text("checkpoint_format").unwrap_or("gptq");
    let adds_one = match format {
        "gptq" | "" => true,
        "gptq_v2" => false,
        _ => return Err(survey.config.unsupported("checkpoint_format", "`gptq` or `gptq_v2`")),
    };
    if survey
        .config
        .members
        .get("dynamic")
        .is_some_and(|value| value.as_object().is_some_and(|it| !it.is_empty()))
    {
        return Err(survey.config.unsupported("dynamic", "the same number of bits for all layers"));
    }
    for module in survey.stems(".qweight") {
        add(survey, &module, bits, adds_one)?;
    }
    Ok(())
}

/// Returns an error that a tensor does not have the shape or dtype that it should.
pub(crate) fn check(tensor: &Tensor, name: &str, dtype: Dtype, shape: &[u64]) -> Result<()> {
    if tensor.dtype() != dtype {
        let expected = dtype.name().to_owned();
        return Err(Error::Dtype { tensor: name.to_owned(), found: tensor.dtype(), expected });
    }
    if tensor.shape() != shape {
        let expected = format!("{shape:?}");
        return Err(Error::Shape { tensor: name.to_owned(), found: tensor.shape().to_vec(), expected });
    }
    Ok(())
}

fn add(survey: &mut Survey<'_>, module: &str, bits: u32, adds_one: bool) -> Result<()> {
    let weight = format!("{module}.weight");
    let [qweight, qzeros, scales, g_idx] = COMPANIONS else { return Ok(()) };
    let part = |suffix: &str| format!("{module}{suffix}");
    let mut draft = Draft::new(&weight);
    let words = survey.companion(&weight, &part(qweight))?;
    let wrong = |expected: &str| Error::Shape {
        tensor: part(qweight),
        found: words.shape().to_vec(),
        expected: expected.to_owned(),
    };
    let [word_rows, rows] = words.shape() else { return Err(wrong("two dimensions")) };
    let (word_rows, rows) = (*word_rows, *rows);
    let wide = u64::from(bits);
    let cols = word_rows.saturating_mul(32).checked_div(wide).unwrap_or(0);
    if rows == 0 || cols == 0 || !word_rows.saturating_mul(32).is_multiple_of(wide) {
        return Err(wrong("a multiple of the bits of a code in the first dimension"));
    }
    check(words, &part(qweight), Dtype::Int32, &[word_rows, rows])?;
    let scale = survey.companion(&weight, &part(scales))?;
    let groups = scale.shape().first().copied().unwrap_or(0);
    if !scale.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Error::Dtype { tensor: part(scales), found: scale.dtype(), expected });
    }
    check(scale, &part(scales), scale.dtype(), &[groups, rows])?;
    let zeros_width = rows.saturating_mul(wide).div_ceil(32);
    let zeros = survey.companion(&weight, &part(qzeros))?;
    check(zeros, &part(qzeros), Dtype::Int32, &[groups, zeros_width])?;
    let group = match survey.config.members.get("group_size").and_then(serde_json::Value::as_i64) {
        Some(size) if size > 0 => u64::try_from(size).unwrap_or(cols),
        _ => cols.div_ceil(groups.max(1)),
    };
    let has_order = survey.get(&part(g_idx)).is_some();
    if groups == 0 || (!has_order && cols.div_ceil(group.max(1)) != groups) {
        return Err(Error::Shape {
            tensor: part(scales),
            found: scale.shape().to_vec(),
            expected: format!("[{}, {rows}]", cols.div_ceil(group.max(1))),
        });
    }
    let order = if has_order { order_of(survey, &part(g_idx), cols, groups)? } else { Order::InGroups };
    let operand = survey.operand(&mut draft, &part(qweight))?;
    let zeros = survey.operand(&mut draft, &part(qzeros))?;
    let scale_operand = survey.operand(&mut draft, &part(scales))?;
    let indices = if has_order { Some(survey.operand(&mut draft, &part(g_idx))?) } else { None };
    let is_ordered = matches!(order, Order::Any);
    let group = if let Order::InGroupsOf(size) = order { size } else { group };
    let matrices = Matrices::from_shape(&[rows, cols]).ok_or_else(|| wrong("a size that fits 63 bits"))?;
    let kernel = ColumnScaled {
        codes: ColumnCodes {
            operand,
            packing: Packing::AlongColumns { bits },
            word_rows,
            width: rows,
            values: offset_values(0.0),
        },
        scales: ScaleGrid::plain(scale_operand, (groups, rows)),
        zeros: Zeros::Gptq { operand: zeros, bits, width: zeros_width, adds_one },
        group,
        groups: indices.filter(|_| is_ordered),
    };
    let ordered = if is_ordered { ", activation order" } else { "" };
    let recognised = Recognised {
        scheme: format!("GPTQ, {bits} bits, {}{ordered}", group_text(group, cols)),
        shape: vec![rows, cols],
        library_dtype: scale.dtype(),
        default_dtype: scale.dtype(),
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Describes a group of input channels.
pub(crate) fn group_text(group: u64, cols: u64) -> String {
    if group >= cols { "a scale for each channel".to_owned() } else { format!("groups of {group}") }
}

/// Order of the groups of input channels.
enum Order {
    /// As the configuration says.
    InGroups,
    /// One after another, each with this many channels.
    InGroupsOf(u64),
    Any,
}

/// Reads the group of each input channel.
fn order_of(survey: &Survey<'_>, name: &str, cols: u64, groups: u64) -> Result<Order> {
    let tensor = survey.companion(name, name)?;
    check(tensor, name, Dtype::Int32, &[cols])?;
    let mut indices: Vec<u8> = Vec::new();
    byte_source::Blob::write_to(&tensor.gathered(), &mut indices)?;
    let indices: Vec<i32> = indices.as_chunks().0.iter().map(|index| i32::from_le_bytes(*index)).collect();
    if let Some(wrong) = indices.iter().find(|index| u64::try_from(**index).map_or(true, |it| it >= groups)) {
        let problem = format!("the group {wrong} is not one of {groups}");
        return Err(Error::Content { tensor: name.to_owned(), problem });
    }
    let size = cols.div_ceil(groups);
    let in_order = (0..)
        .zip(&indices)
        .all(|(col, index): (u64, &i32)| col.checked_div(size) == u64::try_from(*index).ok());
    Ok(if in_order { Order::InGroupsOf(size) } else { Order::Any })
}
