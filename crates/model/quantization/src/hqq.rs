//! HQQ: codes of eight bits or fewer, packed along the first dimension of the grouped matrix, with a scale and a zero point for
//! each group.
//!
//! Facts: `HQQLinear.state_dict`, `Quantizer.dequantize` and `bitpack.py` of hqq 0.2.8. The numbers are reshaped to groups, as rows
//! (`axis` 1) or columns (`axis` 0), and the grouped matrix is cut into as many parts as a word has codes: the first part is
//! in the highest bits. Three bits are packed by ten in an int32, whose last rows may be padding. Each of the two operations
//! of `(code − zero) · scale` is rounded to `compute_dtype`.

use std::sync::Arc;

use tensor::{Dtype, Storage, Tensor, Tensors, contiguous_strides};

use crate::dequantized::{Dequantized, Matrices};
use crate::hqq_description::{DESCRIPTIONS, Description};
use crate::stacked::{Arithmetic, StackedRows};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[
    ".W_q",
    ".scale",
    ".zero",
    ".scale_q",
    ".zero_q",
    ".zero_scale",
    ".unpack_view_dtype",
    ".encoded_state_dict",
    ".stores_quant_config",
];
/// Ways to pack: name, bytes of a word, bits of a code, codes in a word.
const PACKINGS: &[(&str, u64, u32, u32)] = &[
    ("8bit_u8", 1, 8, 1),
    ("4bit_u8", 1, 4, 2),
    ("3bit_32", 4, 3, 10),
    ("2bit_u8", 1, 2, 4),
    ("1bit_u8", 1, 1, 8),
];

/// Adds all layers with a `W_q`.
///
/// # Errors
/// When a companion is missing, or has another shape or value than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    survey.stems(".W_q").iter().try_for_each(|module| add(survey, module))
}

pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.names().any(|name| {
        let scales =
            [".scale", ".scale_q", ".zero_scale", ".meta.scale", ".meta.scale_q", ".meta.zero_scale"];
        let has_scale = |module| scales.iter().any(|suffix| tensors.contains(&format!("{module}{suffix}")));
        name.strip_suffix(".W_q").is_some_and(has_scale)
    })
}

fn add(survey: &mut Survey<'_>, module: &str) -> Result<()> {
    let weight = format!("{module}.weight");
    let mut draft = Draft::new(&weight);
    // Older files keep the description in a dict of its own.
    let inner = format!("{module}.meta");
    let prefix = if survey.get(&format!("{inner}.shape")).is_some() { inner.as_str() } else { module };
    let codes = format!("{module}.W_q");
    draft.stored.extend(survey.tensors.position(&codes));
    let codes = (codes.as_str(), survey.companion(&weight, &codes)?);
    let grouped = Grouped::read(survey, &mut draft, prefix, codes, stored_factor)?;
    for suffix in DESCRIPTIONS {
        draft.stored.extend(survey.tensors.position(&format!("{module}{suffix}")));
    }
    let Grouped { shape, matrices, bits, group, dtype, kernel } = grouped;
    let groups = group.map_or_else(|| "without groups".to_owned(), |group| format!("groups of {group}"));
    let recognised = Recognised {
        scheme: format!("HQQ, {bits} bits, {groups}"),
        shape,
        library_dtype: dtype,
        default_dtype: dtype,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

struct Grouped {
    shape: Vec<u64>,
    matrices: Matrices,
    bits: u32,
    /// Numbers with one scale; `None` if there are no groups.
    group: Option<u64>,
    dtype: Dtype,
    kernel: StackedRows,
}

impl Grouped {
    /// Adds codes with their companions, whose names begin with `prefix`, to the draft. `factor` finds the scales and the zero
    /// points.
    ///
    /// # Errors
    /// When a companion is missing, or has another shape or value than the scheme.
    fn read(
        survey: &Survey<'_>,
        draft: &mut Draft,
        prefix: &str,
        (codes_name, codes): (&str, &Tensor),
        factor: FindFactor,
    ) -> Result<Self> {
        survey.companion(&draft.name, &format!("{prefix}.shape"))?;
        let about = Description { survey, module: prefix };
        let shape = about.numbers("shape")?.unwrap_or_default();
        let elements = Matrices::from_shape(&shape).map_or(0, |it| it.elements);
        if shape.len() > 4 || elements == 0 {
            return Err(about.content("shape", format!("it is {shape:?}, expected a shape of numbers")));
        }
        let (packing, word, bits, codes_per_word) = packing(&about)?;
        let dtype = match about.text("compute_dtype")? {
            None => Dtype::Float16,
            Some(name) => Dtype::from_name(name.strip_prefix("torch.").unwrap_or(&name))
                .filter(|dtype| dtype.is_floating_point())
                .ok_or_else(|| {
                    let problem = format!("it is `{}`, expected a floating-point dtype", name.escape_debug());
                    about.content("compute_dtype", problem)
                })?,
        };
        // Without groups, the matrix is that of the numbers.
        let is_grouped = about.number("channel_wise")? != Some(0);
        let group = about.number("group_size")?.filter(|size| is_grouped && *size > 0);
        let axis = about.number("axis")?.unwrap_or(0);
        let last = shape.last().copied().unwrap_or(1);
        let other = group.and_then(|group| elements.checked_div(group)).unwrap_or(0);
        let (rows, cols) = match (group, axis) {
            (None, _) => (elements.checked_div(last).unwrap_or(0), last),
            (Some(group), 0) => (group, other),
            (Some(group), 1) => (other, group),
            _ => return Err(about.content("axis", format!("it is {axis}, expected 0 or 1"))),
        };
        if rows.checked_mul(cols) != Some(elements) {
            let problem = format!("it is {}, which does not divide {elements} elements", group.unwrap_or(0));
            return Err(about.content("group_size", problem));
        }
        let stored_rows = rows.div_ceil(codes_per_word.into());
        // Codes that are viewed as floats have the same bytes.
        if stored_rows.checked_mul(cols).and_then(|words| words.checked_mul(word)) != Some(codes.nbytes()) {
            let expected = format!("{stored_rows} × {cols} words of `{packing}` for the shape {shape:?}");
            return Err(Problem::Shape {
                tensor: codes_name.to_owned(),
                found: codes.shape().to_vec(),
                expected,
            }
            .into());
        }
        let operand = draft.operand(codes_name, codes)?;
        let mut factors = |which| {
            let (name, tensor) = factor(survey, draft, prefix, which)?;
            draft.factors((&name, &tensor), (rows, cols))
        };
        let (scales, zeros) = (factors(Factor::Scale)?, factors(Factor::Zero)?);
        let kernel = StackedRows {
            operand,
            word,
            shifts: (0..codes_per_word).rev().map(|place| place.saturating_mul(bits)).collect(),
            mask: u8::MAX.checked_shr(8_u32.saturating_sub(bits)).unwrap_or(0),
            stored_rows,
            cols,
            scales,
            zeros,
            arithmetic: Arithmetic::SubtractFirst,
            dtype,
        };
        for suffix in DESCRIPTIONS {
            draft.stored.extend(survey.tensors.position(&format!("{prefix}{suffix}")));
        }
        let matrices = Matrices { rows, cols, elements };
        Ok(Self { shape, matrices, bits, group, dtype, kernel })
    }

    /// Returns the numbers as a tensor, for scales and zero points that are quantized themselves.
    fn into_tensor(self, draft: Draft) -> Result<Tensor> {
        let overflow = || Problem::Shape {
            tensor: draft.name.clone(),
            found: self.shape.clone(),
            expected: "a size that fits 63 bits".to_owned(),
        };
        let inputs = draft.operands.into_storages();
        let dtypes = (self.dtype, self.dtype);
        let numbers =
            Dequantized::new(Arc::new(self.kernel), inputs, self.matrices, dtypes).ok_or_else(overflow)?;
        let (strides, storage) = (contiguous_strides(&self.shape), Storage::computed(Arc::new(numbers)));
        Ok(Tensor::new(self.dtype, self.shape.clone(), strides, 0, storage).map_err(|_| overflow())?)
    }
}

/// One of the two numbers of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factor {
    Scale,
    Zero,
}

impl Factor {
    fn name(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Zero => "zero",
        }
    }
}

/// Finds the scales or the zero points of codes whose description begins with a prefix, and adds their parts to the draft.
type FindFactor = fn(&Survey<'_>, &mut Draft, &str, Factor) -> Result<(String, Tensor)>;

fn stored_part(survey: &Survey<'_>, draft: &mut Draft, name: String) -> Result<(String, Tensor)> {
    let tensor = survey.companion(&draft.name, &name)?.clone();
    draft.stored.extend(survey.tensors.position(&name));
    Ok((name, tensor))
}

/// Returns factors that are stored as numbers, as those of quantized factors are.
fn plain_factor(
    survey: &Survey<'_>,
    draft: &mut Draft,
    prefix: &str,
    factor: Factor,
) -> Result<(String, Tensor)> {
    stored_part(survey, draft, format!("{prefix}.{}", factor.name()))
}

/// Returns factors that are stored as numbers or as codes, alone or together with the other ones.
fn stored_factor(
    survey: &Survey<'_>,
    draft: &mut Draft,
    prefix: &str,
    factor: Factor,
) -> Result<(String, Tensor)> {
    let key = factor.name();
    let about = Description { survey, module: prefix };
    let is_quantized = about.number(&format!("quant_{key}"))?.is_some_and(|it| it != 0);
    // A layer whose description stays in the memory of the CPU has both as the parts of one tensor.
    let both_name = format!("{prefix}.zero_scale");
    let (name, tensor) = if let Some(both) = survey.get(&both_name) {
        let half = select_first(both, u64::from(factor == Factor::Scale)).ok_or_else(|| Problem::Shape {
            tensor: both_name.clone(),
            found: both.shape().to_vec(),
            expected: "two parts along the first dimension".to_owned(),
        })?;
        if factor == Factor::Scale {
            draft.stored.extend(survey.tensors.position(&both_name));
        }
        (both_name, half)
    } else {
        let suffix = if is_quantized { "_q" } else { "" };
        stored_part(survey, draft, format!("{prefix}.{key}{suffix}"))?
    };
    if !is_quantized {
        return Ok((name, tensor));
    }
    let mut inner = Draft::new(&draft.name);
    let description = format!("{prefix}.meta_{key}");
    let grouped = Grouped::read(survey, &mut inner, &description, (&name, &tensor), plain_factor)?;
    draft.stored.append(&mut inner.stored);
    Ok((name, grouped.into_tensor(inner)?))
}

fn select_first(tensor: &Tensor, index: u64) -> Option<Tensor> {
    let (2, shape) = tensor.shape().split_first().map(|(count, rest)| (*count, rest))? else { return None };
    let (first, strides) = tensor.stride().split_first()?;
    let offset = first.checked_mul(index)?.checked_add(tensor.storage_offset())?;
    Tensor::new(tensor.dtype(), shape.to_vec(), strides.to_vec(), offset, tensor.storage().clone()).ok()
}

/// Returns the way to pack, which older versions only state by the number of bits.
fn packing(about: &Description<'_, '_>) -> Result<(&'static str, u64, u32, u32)> {
    let known = || PACKINGS.iter().map(|row| row.0).collect::<Vec<_>>().join(", ");
    if let Some(name) = about.text("packing")? {
        return PACKINGS.iter().find(|row| row.0 == name).copied().ok_or_else(|| {
            about.content(
                "packing",
                format!("HQQ: it is `{}`, expected one of {}", name.escape_debug(), known()),
            )
        });
    }
    let bits = about.number("nbits")?;
    let row = PACKINGS.iter().find(|row| Some(u64::from(row.2)) == bits);
    row.copied().ok_or_else(|| {
        let bits = bits.map_or_else(|| "missing".to_owned(), |bits| bits.to_string());
        about.content("nbits", format!("HQQ: it is {bits}, expected 8, 4, 3, 2 or 1"))
    })
}
