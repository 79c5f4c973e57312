//! GPTQ: codes of two, three, four or eight bits with a scale and a zero point for each group of input channels.
//!
//! Facts: `PackableQuantLinear.dequantize_weight` and `convert_gptq_v1_to_v2_format_module` of gptqmodel 7.7.0. `qweight` is
//! `[in · bits / 32, out]`, `qzeros` `[groups, out · bits / 32]`, `scales` `[groups, out]`; `g_idx` has the group of each
//! input channel. Version 1, which `checkpoint_format` does not call `gptq_v2`, stores zero points minus one. The product is
//! rounded to the dtype of the scales.

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;
use tensor::{Dtype, Tensor};

use crate::code_values::offset_values;
use crate::columns::{ColumnCodes, ColumnScaled, Packing, StoredZeros, Zeros};
use crate::dequantized::Matrices;
use crate::scales::ScaleGrid;
use crate::survey::{Draft, Recognised, Survey};
use crate::{Error, Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[".qweight", ".qzeros", ".scales", ".g_idx"];

/// Adds all layers with a `qweight`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let bits = survey.config.members.get("bits").and_then(bits_from);
    let bits = bits.ok_or_else(|| survey.config.unsupported("bits", "2, 3, 4 or 8"))?;
    let group_size = survey.config.members.get("group_size").and_then(Value::as_i64);
    let format = survey.config.text("checkpoint_format").unwrap_or("gptq");
    let zeros = match format {
        "gptq" | "" => StoredZeros::LessInWords,
        "gptq_v2" => StoredZeros::Same,
        _ => return Err(survey.config.unsupported("checkpoint_format", "`gptq` or `gptq_v2`")),
    };
    let rules = ModuleRule::all(survey)?;
    for module in survey.stems(".qweight") {
        let rule = rules.iter().find(|rule| rule.pattern.is_match(&module));
        if rule.is_some_and(|rule| rule.is_excluded) {
            continue;
        }
        if survey.config.members.get("desc_act") == Some(&Value::Bool(true)) {
            survey.companion(&format!("{module}.weight"), &format!("{module}.g_idx"))?;
        }
        let layout = ModuleLayout {
            bits: rule.and_then(|rule| rule.bits).unwrap_or(bits),
            group_size: rule.and_then(|rule| rule.group_size).or(group_size),
            zeros,
        };
        add(survey, &module, layout)?;
    }
    Ok(())
}

/// How the codes of a layer are stored.
#[derive(Clone, Copy)]
pub(crate) struct ModuleLayout {
    pub(crate) bits: u32,
    /// Input channels in a group; not positive for one group of all.
    pub(crate) group_size: Option<i64>,
    pub(crate) zeros: StoredZeros,
}

/// Rule of `dynamic`, gptqmodel's settings for some of the modules. The first one that matches a name applies.
struct ModuleRule {
    pattern: Regex,
    is_excluded: bool,
    bits: Option<u32>,
    group_size: Option<i64>,
}

impl ModuleRule {
    /// Settings of a rule that change the format of the codes.
    const FORMAT_KEYS: &[&str] = &["checkpoint_format", "format", "method", "pack_dtype", "quant_method"];

    fn all(survey: &Survey<'_>) -> Result<Vec<Self>> {
        let rules = match survey.config.members.get("dynamic") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(rules)) => rules,
            Some(_) => return Err(survey.config.unsupported("dynamic", "an object of patterns")),
        };
        rules
            .iter()
            .map(|(name, settings)| {
                let unsupported = |expected: &str| {
                    let (method, key) = (survey.config.method.clone(), "dynamic".to_owned());
                    let (found, expected) = (format!("`{name}`"), expected.to_owned());
                    Error::from(Problem::Unsupported { method, key, found, expected })
                };
                let is_excluded = name.starts_with("-:");
                let pattern = name.strip_prefix("-:").or(name.strip_prefix("+:")).unwrap_or(name);
                let pattern = Regex::new(&format!("^(?:{pattern})"))
                    .map_err(|_| unsupported("patterns without look-around"))?;
                if Self::FORMAT_KEYS.iter().any(|key| settings.get(key).is_some_and(|it| !it.is_null())) {
                    return Err(unsupported("rules for bits and groups alone"));
                }
                let bits = match settings.get("bits") {
                    None | Some(Value::Null) => None,
                    Some(bits) => {
                        Some(bits_from(bits).ok_or_else(|| unsupported("rules with 2, 3, 4 or 8 bits"))?)
                    }
                };
                let group_size = settings.get("group_size").and_then(Value::as_i64);
                Ok(Self { pattern, is_excluded, bits, group_size })
            })
            .collect()
    }
}

/// Returns a number of bits that codes may have; `None` for any other value.
fn bits_from(value: &Value) -> Option<u32> {
    let bits = value.as_u64().and_then(|bits| u32::try_from(bits).ok())?;
    matches!(bits, 2 | 3 | 4 | 8).then_some(bits)
}

pub(crate) fn check(tensor: &Tensor, name: &str, dtype: Dtype, shape: &[u64]) -> Result<()> {
    if tensor.dtype() != dtype {
        let expected = dtype.name().to_owned();
        return Err(Problem::Dtype { tensor: name.to_owned(), found: tensor.dtype(), expected }.into());
    }
    if tensor.shape() != shape {
        let expected = format!("{shape:?}");
        return Err(
            Problem::Shape { tensor: name.to_owned(), found: tensor.shape().to_vec(), expected }.into()
        );
    }
    Ok(())
}

/// Adds a layer.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn add(survey: &mut Survey<'_>, module: &str, layout: ModuleLayout) -> Result<()> {
    let ModuleLayout { bits, group_size, zeros: stored } = layout;
    let weight = format!("{module}.weight");
    let [qweight, qzeros, scales, g_idx] = COMPANIONS else { return Ok(()) };
    let part = |suffix: &str| format!("{module}{suffix}");
    let mut draft = Draft::new(&weight);
    let words = survey.companion(&weight, &part(qweight))?;
    let wrong = |expected: &str| Problem::Shape {
        tensor: part(qweight),
        found: words.shape().to_vec(),
        expected: expected.to_owned(),
    };
    let [word_rows, rows] = words.shape() else { return Err(wrong("two dimensions").into()) };
    let (word_rows, rows) = (*word_rows, *rows);
    let wide = u64::from(bits);
    let cols = word_rows.saturating_mul(32).checked_div(wide).unwrap_or(0);
    if rows == 0 || cols == 0 || !word_rows.saturating_mul(32).is_multiple_of(wide) {
        return Err(wrong("a multiple of the bits of a code in the first dimension").into());
    }
    check(words, &part(qweight), Dtype::Int32, &[word_rows, rows])?;
    let scale = survey.companion(&weight, &part(scales))?;
    let groups = scale.shape().first().copied().unwrap_or(0);
    if !scale.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Problem::Dtype { tensor: part(scales), found: scale.dtype(), expected }.into());
    }
    check(scale, &part(scales), scale.dtype(), &[groups, rows])?;
    let zeros_width = rows.saturating_mul(wide).div_ceil(32);
    let zeros = survey.companion(&weight, &part(qzeros))?;
    check(zeros, &part(qzeros), Dtype::Int32, &[groups, zeros_width])?;
    let group = match group_size {
        Some(size) if size > 0 => u64::try_from(size).unwrap_or(cols),
        _ => cols.div_ceil(groups.max(1)),
    };
    let has_order = survey.get(&part(g_idx)).is_some();
    if groups == 0 || (!has_order && cols.div_ceil(group.max(1)) != groups) {
        return Err(Problem::Shape {
            tensor: part(scales),
            found: scale.shape().to_vec(),
            expected: format!("[{}, {rows}]", cols.div_ceil(group.max(1))),
        }
        .into());
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
        zeros: Zeros::Gptq { operand: zeros, bits, width: zeros_width, stored },
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

pub(crate) fn group_text(group: u64, cols: u64) -> String {
    if group >= cols { "a scale for each channel".to_owned() } else { format!("groups of {group}") }
}

enum Order {
    /// As the configuration says.
    InGroups,
    /// One after another, each with this many channels.
    InGroupsOf(u64),
    Any,
}

fn order_of(survey: &Survey<'_>, name: &str, cols: u64, groups: u64) -> Result<Order> {
    let tensor = survey.companion(name, name)?;
    check(tensor, name, Dtype::Int32, &[cols])?;
    let mut indices: Vec<u8> = Vec::new();
    byte_source::Blob::write_to(&tensor.gathered(), &mut indices)?;
    let indices: Vec<i32> = indices.as_chunks().0.iter().map(|index| i32::from_le_bytes(*index)).collect();
    if let Some(wrong) = indices.iter().find(|index| u64::try_from(**index).map_or(true, |it| it >= groups)) {
        let problem = format!("the group {wrong} is not one of {groups}");
        return Err(Problem::Content { tensor: name.to_owned(), problem }.into());
    }
    let size = cols.div_ceil(groups);
    let in_order = (0..)
        .zip(&indices)
        .all(|(col, index): (u64, &i32)| col.checked_div(size) == u64::try_from(*index).ok());
    Ok(if in_order { Order::InGroupsOf(size) } else { Order::Any })
}
