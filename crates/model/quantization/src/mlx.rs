//! Folders of MLX: integers with a scale and a bias for each group of input channels, MXFP4, NVFP4 and MXFP8; and integers of
//! `transformers` for Metal.
//!
//! Facts: `mx.dequantize` of mlx 0.32.4 on the CPU, `nn.quantize`, and `load_model` of mlx-lm 0.32.2. The words of a row are a stream of
//! codes, the lowest bits first. Integers are multiplied and then added in the dtype of the scales. Other codes are numbers, whose
//! product with the scale is exact in bfloat16; with a global scale, the scale is multiplied by a 2688th of it in float32 first.
//! `_affine_dequantize_tensor` of `transformers` 5.23 multiplies and adds in float32, and rounds to the dtype of the scales.

use std::sync::Arc;

use serde_json::{Map, Value};
use tensor::{Dtype, Tensor, Tensors};

use crate::affine_rows::AffineRows;
use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::{E2M1, dtype_values, nibble_values, offset_values};
use crate::config::QuantizationConfig;
use crate::dequantized::{Kernel, Matrices};
use crate::gptq::{check, group_text};
use crate::mlx_names::{MlxNames, expert};
use crate::packed::CodeOrder;
use crate::scales::{GlobalScale, ScaleEncoding, ScaleGrid};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[".scales", ".biases", ".global_scale"];
/// The same for `metal` of `transformers`.
pub(crate) const METAL_COMPANIONS: &[&str] = &[".scales", ".qbiases"];
/// Largest magnitude of a number of NVFP4 times that of its scale, by which a global scale is divided.
const NVFP4_UNIT: f32 = 448.0 * 6.0;

pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.iter().any(|(name, tensor)| {
        tensor.dtype() == Dtype::UInt32
            && name
                .strip_suffix(".weight")
                .is_some_and(|module| tensors.contains(&format!("{module}.scales")))
    })
}

/// Row of the table of modes.
#[derive(Clone, Copy, Debug)]
struct Mode {
    name: &'static str,
    shown: &'static str,
    /// Bits of a code, the usual ones first.
    bits: &'static [u64],
    /// Channels of a group, the usual ones first.
    groups: &'static [u64],
    affine: Option<Affine>,
}

/// How integers become numbers.
#[derive(Clone, Copy, Debug)]
struct Affine {
    /// Name of the biases in a module.
    biases: &'static str,
    /// True if the product is rounded to the dtype of the scales before the bias is added.
    rounds_product: bool,
    /// True if the sum is rounded to it.
    rounds_sum: bool,
}

const AFFINE: Mode = Mode {
    name: "affine",
    shown: "MLX, affine",
    bits: &[4, 2, 3, 5, 6, 8],
    groups: &[64, 32, 128, 16],
    affine: Some(Affine { biases: "biases", rounds_product: true, rounds_sum: true }),
};
const NVFP4: Mode = Mode { name: "nvfp4", shown: "MLX, NVFP4", bits: &[4], groups: &[16], affine: None };
const MODES: &[Mode] = &[
    AFFINE,
    NVFP4,
    Mode { name: "mxfp4", shown: "MLX, MXFP4", bits: &[4], groups: &[32], affine: None },
    Mode { name: "mxfp8", shown: "MLX, MXFP8", bits: &[8], groups: &[32], affine: None },
];
/// `metal` of `transformers`, whose groups may have any size.
const METAL: Mode = Mode {
    name: "metal",
    shown: "Metal",
    bits: &[4, 2, 8],
    groups: &[64],
    affine: Some(Affine { biases: "qbiases", rounds_product: false, rounds_sum: true }),
};

/// Packing of auto-round for MLX. Its classes multiply and add in float32.
const AUTO_ROUND: Mode = Mode {
    shown: "auto-round, MLX",
    affine: Some(Affine { biases: "biases", rounds_product: false, rounds_sum: false }),
    ..AFFINE
};

/// Layout of the codes of a layer.
#[derive(Clone, Copy, Debug)]
struct Format {
    mode: Mode,
    bits: u32,
    group: u64,
    /// True if stacked experts have a global scale.
    is_global: bool,
}

impl Format {
    /// Reads the settings of the model, or of a layer.
    ///
    /// # Errors
    /// When they are not those of a mode.
    fn read(config: &QuantizationConfig, settings: &Map<String, Value>) -> Result<Self> {
        let unsupported = |key: &str, expected: String| {
            let found = settings.get(key).map_or_else(|| "missing".to_owned(), ToString::to_string);
            Problem::Unsupported { method: config.method.clone(), key: key.to_owned(), found, expected }
        };
        let name = settings.get("mode").map_or(Some(AFFINE.name), Value::as_str);
        let mode = MODES.iter().find(|mode| Some(mode.name) == name);
        let names = || MODES.iter().map(|mode| mode.name).collect::<Vec<_>>().join(", ");
        let mode = *mode.ok_or_else(|| unsupported("mode", names()))?;
        let number = |key: &str, known: &[u64]| {
            number_of(settings, key, known).filter(|it| known.contains(it)).ok_or_else(|| {
                unsupported(key, known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            })
        };
        let bits = u32::try_from(number("bits", mode.bits)?).unwrap_or_default();
        let is_global = settings.get("global_scale") == Some(&Value::Bool(true));
        Ok(Self { mode, bits, group: number("group_size", mode.groups)?, is_global })
    }

    /// Reads the settings of `metal`.
    ///
    /// # Errors
    /// When they are not those of its kernels.
    fn of_metal(config: &QuantizationConfig) -> Result<Self> {
        let number = |key: &str, usual: &[u64]| number_of(&config.members, key, usual);
        let bits = number("bits", METAL.bits).filter(|it| METAL.bits.contains(it));
        let bits = bits.and_then(|it| u32::try_from(it).ok());
        let bits = bits.ok_or_else(|| config.unsupported("bits", "2, 4 or 8"))?;
        let group = number("group_size", METAL.groups).filter(|it| *it > 0);
        let group = group.ok_or_else(|| config.unsupported("group_size", "a positive number"))?;
        Ok(Self { mode: METAL, bits, group, is_global: false })
    }

    /// Returns the settings of a layer; `None` if the configuration says that it is not quantized.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    fn of_layer(self, config: &QuantizationConfig, module: &str) -> Result<Option<Self>> {
        match config.members.get(module) {
            None | Some(Value::Bool(true)) => Ok(Some(self)),
            Some(Value::Object(settings)) => Self::read(config, settings).map(Some),
            Some(Value::Bool(false)) => Ok(None),
            Some(_) => Err(config.unsupported(module, "an object or a truth value")),
        }
    }

    fn text(self, cols: u64) -> String {
        let Self { mode, bits, group, .. } = self;
        let bits = if mode.affine.is_some() { format!(", {bits} bits") } else { String::new() };
        format!("{}{bits}, {}", mode.shown, group_text(group, cols))
    }
}

/// Returns a setting, or the usual one if there is none; `None` if it is not a number.
fn number_of(settings: &Map<String, Value>, key: &str, usual: &[u64]) -> Option<u64> {
    settings.get(key).map_or_else(|| usual.first().copied(), Value::as_u64)
}

/// Adds all layers with scales.
///
/// # Errors
/// When the model has a type whose names are not known, a setting is not one of a mode, or a companion is missing or has another shape or
/// dtype than the mode.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    if !survey.config.members.contains_key("bits") {
        return Err(survey.config.unsupported("bits", "the settings of MLX in `config.json`"));
    }
    let names = MlxNames::of_model(&survey.config)?;
    add_layers(survey, names, |format| format)?;
    split_others(survey, names)
}

/// Adds all layers with scales that auto-round packed for MLX, under Hugging Face's names.
///
/// # Errors
/// When a setting is not one of MLX's integers, or a companion is missing or has another shape or dtype.
pub(crate) fn recognise_auto_round(survey: &mut Survey<'_>) -> Result<()> {
    if survey.config.members.contains_key("mode") {
        return Err(survey.config.unsupported("mode", "integers with biases"));
    }
    add_layers(survey, MlxNames::Unknown, |format| Format { mode: AUTO_ROUND, ..format })
}

/// Adds all layers with scales, with the settings of the model or of each.
fn add_layers(survey: &mut Survey<'_>, names: MlxNames, change: impl Fn(Format) -> Format) -> Result<()> {
    let format = Format::read(&survey.config, &survey.config.members)?;
    for module in quantized(survey)? {
        match format.of_layer(&survey.config, &module)? {
            Some(format) => add(survey, names, &module, change(format))?,
            None => return Err(survey.unused(&format!("{module}.scales"))),
        }
    }
    Ok(())
}

/// Returns the layers with scales.
///
/// # Errors
/// When a weight has the dtype of codes, and no scales.
fn quantized(survey: &Survey<'_>) -> Result<Vec<String>> {
    for module in survey.stems(".weight") {
        let (weight, scales) = (format!("{module}.weight"), format!("{module}.scales"));
        if survey.companion(&weight, &weight)?.dtype() == Dtype::UInt32 {
            survey.companion(&weight, &scales)?;
        }
    }
    Ok(survey.stems(".scales"))
}

/// Adds all layers with scales that `transformers` packed for Metal.
///
/// # Errors
/// When a setting is not one of its kernels, or a companion is missing or has another shape or dtype.
pub(crate) fn recognise_metal(survey: &mut Survey<'_>) -> Result<()> {
    let format = Format::of_metal(&survey.config)?;
    for module in quantized(survey)? {
        add(survey, MlxNames::Unknown, &module, format)?;
    }
    Ok(())
}

/// Gives the experts of layers that are not quantized, and the biases of all, their own tensors.
fn split_others(survey: &mut Survey<'_>, names: MlxNames) -> Result<()> {
    for (name, tensor) in survey.tensors {
        let Some((module, leaf)) = name.rsplit_once('.').filter(|_| !survey.is_used(name)) else { continue };
        let Some(experts) = names.experts(&survey.config, module, leaf, tensor.shape())? else { continue };
        let split = experts.into_iter().zip(0..).map(|(name, number)| Ok((name, expert(tensor, number)?)));
        let split = split.collect::<Result<Vec<_>>>()?;
        survey.replace(name, split);
    }
    Ok(())
}

fn add(survey: &mut Survey<'_>, names: MlxNames, module: &str, format: Format) -> Result<()> {
    let Format { mode, bits, group, .. } = format;
    let is_affine = mode.affine.is_some();
    let part = |suffix: &str| format!("{module}.{suffix}");
    let (weight, scales_name) = (part("weight"), part("scales"));
    let words = survey.companion(&scales_name, &weight)?;
    let wrong = |expected: &str| Problem::Shape {
        tensor: weight.clone(),
        found: words.shape().to_vec(),
        expected: expected.to_owned(),
    };
    let [before @ .., rows, row_words] = words.shape() else {
        return Err(wrong("two or three dimensions").into());
    };
    let wide = u64::from(bits);
    let cols = row_words.checked_mul(32).filter(|all| before.len() < 2 && all.is_multiple_of(wide));
    let cols = cols.and_then(|all| all.checked_div(wide)).filter(|cols| cols.is_multiple_of(group));
    let cols = cols.ok_or_else(|| wrong(&format!("rows of groups of {group} codes of {bits} bits")))?;
    check(words, &weight, Dtype::UInt32, words.shape())?;
    let shape = |last: u64| [before, &[*rows, last]].concat();
    let matrices = Matrices::from_shape(&shape(cols)).filter(|it| it.elements > 0);
    let matrices = matrices.ok_or_else(|| wrong("a size that is not 0 and fits 63 bits"))?;
    let grid = shape(cols.checked_div(group).unwrap_or(0));
    let scales = survey.companion(&weight, &scales_name)?;
    if is_affine && !scales.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Problem::Dtype { tensor: scales_name, found: scales.dtype(), expected }.into());
    }
    let dtype = if is_affine { scales.dtype() } else { Dtype::UInt8 };
    check(scales, &scales_name, dtype, &grid)?;
    let mut stored = vec![(weight.clone(), words), (scales_name, scales)];
    let mut optional = |suffix: &str, is_wanted: bool, dtype: Dtype, shape: &[u64]| {
        let name = part(suffix);
        if !is_wanted {
            return Ok(());
        }
        let tensor = survey.companion(&weight, &name)?;
        check(tensor, &name, dtype, shape)?;
        stored.push((name, tensor));
        Ok::<_, crate::Error>(())
    };
    optional(mode.affine.map_or("", |it| it.biases), is_affine, dtype, &grid)?;
    let is_global = mode.name == NVFP4.name
        && (survey.get(&part("global_scale")).is_some() || format.is_global && !before.is_empty());
    optional("global_scale", is_global, Dtype::Float32, before)?;
    let positions: Vec<usize> = stored.iter().filter_map(|(name, _)| survey.tensors.position(name)).collect();
    let library = match (is_affine, is_global) {
        (true, _) if mode.affine.is_some_and(|it| it.rounds_sum) => dtype,
        (true, _) | (_, true) => Dtype::Float32,
        _ => Dtype::BFloat16,
    };
    let experts = names.experts(&survey.config, module, "weight", words.shape())?;
    let count = experts.as_ref().map_or(1, |experts| experts.len() as u64);
    let (of_all, is_split) = (shape(cols), experts.is_some());
    let shape = if is_split { vec![*rows, cols] } else { of_all };
    let matrices = Matrices::from_shape(&shape).unwrap_or(matrices);
    for (name, number) in experts.unwrap_or_else(|| vec![weight]).into_iter().zip(0..) {
        let part = |tensor: &Tensor| if is_split { expert(tensor, number) } else { Ok(tensor.clone()) };
        let parts = stored.iter().map(|(name, tensor)| Ok((name.clone(), part(tensor)?)));
        let mut draft = Draft { stored: positions.clone(), share: count, ..Draft::new(name) };
        let kernel = kernel(&mut draft, format, &parts.collect::<Result<Vec<_>>>()?, matrices)?;
        let recognised = Recognised {
            scheme: format.text(cols),
            shape: shape.clone(),
            library_dtype: library,
            default_dtype: if is_affine { dtype } else { Dtype::BFloat16 },
            kernel,
            matrices,
        };
        survey.add(draft, recognised);
    }
    Ok(())
}

/// Returns the arithmetic over the stored tensors: codes, scales, and biases or a global scale.
fn kernel(
    draft: &mut Draft,
    format: Format,
    stored: &[(String, Tensor)],
    matrices: Matrices,
) -> Result<Arc<dyn Kernel>> {
    let Format { mode, bits, group, .. } = format;
    let is_nvfp4 = mode.name == NVFP4.name;
    let mut operands = Vec::with_capacity(stored.len());
    for (number, (name, tensor)) in stored.iter().enumerate() {
        // The scales of NVFP4 are FP8 in bytes.
        let view = (is_nvfp4 && number == 1).then(|| {
            tensor.with_storage(Dtype::Float8E4M3Fn, tensor.storage_offset(), tensor.storage().clone())
        });
        let view = view.transpose()?;
        operands.push(draft.operand(name, view.as_ref().unwrap_or(tensor))?);
    }
    let mut operands = operands.into_iter();
    let missing = || Problem::Content { tensor: draft_name(stored), problem: "it has no scales".to_owned() };
    let (codes, scales) = operands.next().zip(operands.next()).ok_or_else(missing)?;
    let values = match (mode.affine, bits) {
        (Some(_), _) => offset_values(0.0),
        (_, 4) => nibble_values(&E2M1),
        _ => dtype_values(Dtype::Float8E4M3Fn),
    };
    let pitch = matrices.cols.saturating_mul(bits.into()).checked_div(8).unwrap_or(0);
    let codes = CodeRows { operand: codes, bits, order: CodeOrder::LowFirst, pitch, values };
    let size = (matrices.rows, matrices.cols.checked_div(group).unwrap_or(0));
    if let Some(affine) = mode.affine {
        let biases = operands.next().ok_or_else(missing)?;
        let dtype = if affine.rounds_product { scales.dtype() } else { Dtype::Float32 };
        let (scales, biases) = (ScaleGrid::plain(scales, size), ScaleGrid::plain(biases, size));
        return Ok(Arc::new(AffineRows { codes, scales, biases, group, rows: matrices.rows, dtype }));
    }
    let encoding = if is_nvfp4 { ScaleEncoding::Numbers } else { ScaleEncoding::Exponents };
    let global = operands.next().map(|operand| GlobalScale {
        operand,
        per_matrix: matrices.elements > matrices.rows.saturating_mul(matrices.cols),
        divides: false,
        unit: NVFP4_UNIT,
        rounding: Dtype::Float32,
    });
    let scales = ScaleGrid { encoding, global, ..ScaleGrid::plain(scales, size) };
    let block = BlockShape { rows: 1, cols: group };
    Ok(Arc::new(BlockScaled { codes, scales, zeros: None, block, matrices, groups: None, factor: 1.0 }))
}

fn draft_name(stored: &[(String, Tensor)]) -> String {
    stored.first().map(|(name, _)| name.clone()).unwrap_or_default()
}
