//! HQQ: codes of eight bits or fewer, packed along the first dimension of the grouped matrix, with a scale and a zero point for
//! each group.
//!
//! Facts: `HQQLinear.state_dict`, `Quantizer.dequantize` and `bitpack.py` of hqq 0.2.8. The numbers are reshaped to groups, as rows
//! (`axis` 1) or columns (`axis` 0), and the grouped matrix is cut into as many parts as a word has codes: the first part is
//! in the highest bits. Three bits are packed by ten in an int32, whose last rows may be padding. Each of the two operations
//! of `(code − zero) · scale` is rounded to `compute_dtype`.

use std::sync::Arc;

use byte_source::Blob;
use tensor::{Dtype, Tensors};

use crate::dequantized::Matrices;
use crate::scales::ScaleGrid;
use crate::stacked::{Arithmetic, StackedRows};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Error, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] =
    &[".W_q", ".scale", ".zero", ".unpack_view_dtype", ".encoded_state_dict", ".stores_quant_config"];
/// Suffixes of the tensors that describe a layer, besides those whose values count.
const DESCRIPTIONS: &[&str] = &[
    ".nbits",
    ".group_size",
    ".shape",
    ".axis",
    ".packing",
    ".compute_dtype",
    ".unpack_view_dtype",
    ".view_as_float",
    ".quant_scale",
    ".quant_zero",
    ".offload_meta",
    ".encoded_state_dict",
    ".stores_quant_config",
    ".channel_wise",
    ".optimize",
    ".round_zero",
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

/// Returns true if a list of tensors has layers of HQQ.
pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.names().any(|name| {
        name.strip_suffix(".W_q").is_some_and(|module| tensors.contains(&format!("{module}.scale")))
    })
}

/// Small tensors that describe a layer, read as values.
struct Description<'s, 't> {
    survey: &'s Survey<'t>,
    module: &'s str,
}

impl Description<'_, '_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.module)
    }

    /// Returns the bytes and the dtype of a description; `None` if there is none.
    fn read(&self, key: &str) -> Result<Option<(Vec<u8>, Dtype)>> {
        let Some(tensor) = self.survey.get(&self.name(key)) else { return Ok(None) };
        if tensor.nbytes() > 1 << 10 {
            return Err(self.content(key, "it has more than 1 KiB".to_owned()));
        }
        let mut bytes: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut bytes)?;
        Ok(Some((bytes, tensor.dtype())))
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        let bytes = self.read(key)?;
        Ok(bytes.map(|(bytes, _)| bytes.iter().map(|byte| char::from(*byte)).collect()))
    }

    /// Returns the numbers of a description of integers.
    fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some((bytes, dtype)) = self.read(key)? else { return Ok(None) };
        let numbers: Option<Vec<i64>> = match dtype {
            Dtype::Int64 => Some(bytes.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it)).collect()),
            Dtype::Int32 => {
                Some(bytes.as_chunks().0.iter().map(|it| i32::from_le_bytes(*it).into()).collect())
            }
            Dtype::UInt8 | Dtype::Bool => Some(bytes.iter().map(|it| i64::from(*it)).collect()),
            _ => None,
        };
        let numbers = numbers.and_then(|it| it.into_iter().map(|it| u64::try_from(it).ok()).collect());
        let wrong = || self.content(key, "it is not a list of integers that are not negative".to_owned());
        numbers.map(Some).ok_or_else(wrong)
    }

    fn number(&self, key: &str) -> Result<Option<u64>> {
        Ok(self.numbers(key)?.and_then(|numbers| numbers.first().copied()))
    }

    fn content(&self, key: &str, problem: String) -> Error {
        Error::Content { tensor: self.name(key), problem }
    }
}

fn add(survey: &mut Survey<'_>, module: &str) -> Result<()> {
    let weight = format!("{module}.weight");
    let part = |suffix: &str| format!("{module}{suffix}");
    let mut draft = Draft::new(&weight);
    survey.companion(&weight, &part(".shape"))?;
    let about = Description { survey, module };
    for key in ["quant_scale", "quant_zero"] {
        if about.number(key)?.is_some_and(|it| it != 0) {
            return Err(
                about.content(key, "HQQ: scales or zero points are quantized too, expected 0".to_owned())
            );
        }
    }
    let shape = about.numbers("shape")?.unwrap_or_default();
    let elements = Matrices::from_shape(&shape).map_or(0, |it| it.elements);
    if !(1..=4).contains(&shape.len()) || elements == 0 {
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
    let codes = survey.companion(&weight, &part(".W_q"))?;
    let stored_rows = rows.div_ceil(codes_per_word.into());
    // A `W_q` that is viewed as floats has the same bytes.
    if stored_rows.checked_mul(cols).and_then(|words| words.checked_mul(word)) != Some(codes.nbytes()) {
        let expected = format!("{stored_rows} × {cols} words of `{packing}` for the shape {shape:?}");
        return Err(Error::Shape { tensor: part(".W_q"), found: codes.shape().to_vec(), expected });
    }
    let operand = survey.operand(&mut draft, &part(".W_q"))?;
    let scales = grid(survey, &mut draft, &part(".scale"), (rows, cols))?;
    let zeros = grid(survey, &mut draft, &part(".zero"), (rows, cols))?;
    for suffix in DESCRIPTIONS {
        draft.stored.extend(survey.tensors.position(&part(suffix)));
    }
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
    let groups = group.map_or_else(|| "without groups".to_owned(), |group| format!("groups of {group}"));
    let recognised = Recognised {
        scheme: format!("HQQ, {bits} bits, {groups}"),
        shape,
        library_dtype: dtype,
        default_dtype: dtype,
        kernel: Arc::new(kernel),
        matrices: Matrices { rows, cols, elements },
    };
    survey.add(draft, recognised);
    Ok(())
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

/// Returns scales or zero points: one for each row, each column, or the matrix.
pub(crate) fn grid(
    survey: &Survey<'_>,
    draft: &mut Draft,
    name: &str,
    (rows, cols): (u64, u64),
) -> Result<ScaleGrid> {
    let tensor = survey.companion(&draft.name, name)?;
    let size = match tensor.shape() {
        _ if tensor.numel() == 1 => (1, 1),
        [count] | [count, 1] if *count == rows => (rows, 1),
        [1, count] if *count == cols => (1, cols),
        found => {
            let expected = format!("[{rows}, 1] or [1, {cols}]");
            return Err(Error::Shape { tensor: name.to_owned(), found: found.to_vec(), expected });
        }
    };
    Ok(ScaleGrid::plain(survey.operand(draft, name)?, size))
}
