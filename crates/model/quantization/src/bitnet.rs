//! `BitNet`: weights of −1, 0 and 1 in two bits, with one scale for each weight.
//!
//! Facts: `unpack_weights`, `BitLinear` and `AutoBitLinear` in `integrations/bitnet.py` of `transformers` 5.23. A stored byte has the codes
//! of four rows that are a quarter of the rows apart, the lowest bits first; a code is the number plus one. The scale divides the products
//! of `bitlinear`, which is the default, and multiplies those of `autobitlinear`, with their bias.

use std::sync::Arc;

use tensor::{Dtype, Inputs, Tensor};

use crate::dequantized::{Area, Kernel, Loaded, Matrices};
use crate::operand::{ByteRows, Operand};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffix of the scale of a weight.
const SCALE: &str = ".weight_scale";
/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[SCALE];
/// Rows in a stored row.
const ROWS_PER_BYTE: u64 = 4;

/// Adds all layers whose weight is packed.
///
/// # Errors
/// When the weights are rounded whenever the model runs, or a companion is missing or has another shape or dtype.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let is_auto = match survey.config.members.get("linear_class").map_or(Some("bitlinear"), |it| it.as_str())
    {
        Some("bitlinear") => false,
        Some("autobitlinear") => true,
        _ => return Err(survey.config.unsupported("linear_class", "bitlinear or autobitlinear")),
    };
    let mode = survey.config.members.get("quantization_mode").map_or(Some("offline"), |it| it.as_str());
    if is_auto && mode != Some("offline") {
        let expected = "offline: other weights are not quantized before the model runs";
        return Err(survey.config.unsupported("quantization_mode", expected));
    }
    for module in survey.stems(".weight") {
        let weight = survey.get(&format!("{module}.weight"));
        let is_packed = weight.is_some_and(|it| it.dtype() == Dtype::UInt8);
        if is_packed || survey.get(&format!("{module}{SCALE}")).is_some() {
            add(survey, &module, is_auto)?;
        }
    }
    Ok(())
}

fn add(survey: &mut Survey<'_>, module: &str, is_auto: bool) -> Result<()> {
    let [weight, scale, bias] = [".weight", SCALE, ".bias"].map(|suffix| format!("{module}{suffix}"));
    let (packed, factor) = (survey.companion(&weight, &weight)?, survey.companion(&weight, &scale)?);
    let wrong = |name: &str, tensor: &Tensor, expected: String| Problem::Shape {
        tensor: name.to_owned(),
        found: tensor.shape().to_vec(),
        expected,
    };
    if packed.dtype() != Dtype::UInt8 {
        let (found, expected) = (packed.dtype(), "uint8, because it has a scale".to_owned());
        return Err(Problem::Dtype { tensor: weight, found, expected }.into());
    }
    if !factor.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Problem::Dtype { tensor: scale, found: factor.dtype(), expected }.into());
    }
    if factor.numel() != 1 {
        return Err(wrong(&scale, factor, "one number".to_owned()).into());
    }
    let shape = match packed.shape() {
        [rows, cols] => rows.checked_mul(ROWS_PER_BYTE).map(|rows| vec![rows, *cols]),
        _ => return Err(wrong(&weight, packed, "two dimensions".to_owned()).into()),
    };
    let matrices = shape.as_deref().and_then(Matrices::from_shape).filter(|it| it.elements > 0);
    let Some((shape, matrices)) = shape.zip(matrices) else {
        return Err(wrong(&weight, packed, "a size that is not 0 and fits 63 bits".to_owned()).into());
    };
    if let Some(added) = survey.get(&bias) {
        if added.shape() != [matrices.rows] {
            return Err(wrong(&bias, added, format!("[{}], as `{weight}` has rows", matrices.rows)).into());
        }
        if is_auto {
            let problem =
                format!("`{scale}` multiplies the bias of autobitlinear, too, which is not computed");
            return Err(Problem::Content { tensor: bias, problem }.into());
        }
    }
    let mut draft = Draft::new(&weight);
    let codes = survey.operand(&mut draft, &weight)?;
    let scale = survey.operand(&mut draft, &scale)?;
    let recognised = Recognised {
        scheme: "BitNet, 2 bits, a scale for each tensor".to_owned(),
        shape,
        library_dtype: factor.dtype(),
        default_dtype: factor.dtype(),
        kernel: Arc::new(TernaryRows { codes, scale, matrices, divides: !is_auto }),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Kernel that computes `(code − 1)`, multiplied or divided by the scale.
#[derive(Debug)]
struct TernaryRows {
    codes: Operand,
    scale: Operand,
    matrices: Matrices,
    divides: bool,
}

impl TernaryRows {
    /// Returns the stored row of a row of the result, and the place of its codes in each byte.
    fn place(&self, row: u64) -> (u64, u64) {
        let stored = self.matrices.rows.checked_div(ROWS_PER_BYTE).unwrap_or(0).max(1);
        (row.checked_rem(stored).unwrap_or(0), row.checked_div(stored).unwrap_or(0))
    }
}

impl Kernel for TernaryRows {
    fn col_granule(&self) -> u64 {
        1
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let Area { rows, cols, .. } = area;
        let stored = self.matrices.rows.checked_div(ROWS_PER_BYTE).unwrap_or(0);
        let mut codes = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let (first, _) = self.place(row);
            // Rows of the same place in their bytes follow each other.
            let count = stored.saturating_sub(first).clamp(1, rows.end.saturating_sub(row).max(1));
            let part = ByteRows {
                start: first.saturating_mul(self.matrices.cols).saturating_add(cols.start),
                rows: count,
                pitch: self.matrices.cols,
                len: cols.end.saturating_sub(cols.start),
            };
            codes.extend(self.codes.read_rows(inputs, &part)?);
            row = row.saturating_add(count);
        }
        Ok(Loaded { codes, scales: self.scale.read_floats(inputs, 0..1)?, ..Loaded::default() })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let (_, place) = self.place(area.rows.start.saturating_add(row as u64));
        let scale = loaded.scales.first().copied().unwrap_or(f32::NAN);
        let number = |value: f32| if self.divides { value / scale } else { value * scale };
        let numbers = [-1.0, 0.0, 1.0, 2.0].map(number);
        let codes = loaded.codes.chunks(out.len().max(1)).nth(row).unwrap_or_default();
        let shift = u32::try_from(place.saturating_mul(2)).unwrap_or(0) & 7;
        kernels::vectorize(|| {
            for (out, byte) in out.iter_mut().zip(codes) {
                let [low, high] = [byte >> shift & 1 != 0, byte >> shift & 2 != 0];
                let [zero, one, two, three] = numbers;
                *out = match (high, low) {
                    (false, false) => zero,
                    (false, true) => one,
                    (true, false) => two,
                    (true, true) => three,
                };
            }
        });
    }
}
