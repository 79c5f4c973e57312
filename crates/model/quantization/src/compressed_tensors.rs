//! compressed-tensors: integers packed into words, integers and floats of eight bits, NVFP4, MXFP4 and MXFP8, with a scale for
//! each group, block, channel or tensor; each module has the scheme of the group of the configuration that matches it.
//!
//! Facts: `compressors/` and `quantization/lifecycle/forward_helpers.py` of compressed-tensors 0.20.0. The difference of code
//! and zero point is multiplied in the dtype of the scales. A global scale divides the scales. `weight_g_idx`, the group of
//! each column, is that of versions up to 0.10.

use std::sync::Arc;

use byte_source::Blob;
use regex::Regex;
use serde_json::{Map, Value};
use tensor::{Dtype, Tensor};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::{E2M1, dtype_values, nibble_values, offset_values};
use crate::codes::is_float8;
use crate::dequantized::Matrices;
use crate::float8::Grid;
use crate::gptq::check;
use crate::packed::CodeOrder;
use crate::scales::{GlobalScale, ScaleEncoding, ScaleGrid};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[
    ".weight_packed",
    ".weight_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".weight_global_scale",
];

/// Adds all modules with scales.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme of its module.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let groups = Groups::from_config(survey)?;
    for module in survey.stems(".weight_packed") {
        add(survey, &module, &groups, true)?;
    }
    for module in survey.stems(".weight") {
        let Some(weight) = survey.get(&format!("{module}.weight")) else { continue };
        let is_code = is_float8(weight.dtype()) || weight.dtype() == Dtype::Int8;
        if is_code || survey.get(&format!("{module}.weight_scale")).is_some() {
            add(survey, &module, &groups, false)?;
        }
    }
    Ok(())
}

struct Groups(Vec<Group>);

struct Group {
    targets: Vec<Target>,
    weights: Weights,
}

/// Modules that a group is for.
enum Target {
    Name(String),
    Pattern(Regex),
    /// Class of modules, whose names are not in a checkpoint.
    Class,
}

#[derive(Clone, Copy)]
struct Weights {
    bits: u32,
    is_float: bool,
    is_symmetric: bool,
    group: Option<u64>,
    block: Option<BlockShape>,
}

impl Groups {
    fn from_config(survey: &Survey<'_>) -> Result<Self> {
        let config = &survey.config;
        let is_empty = |key: &str| match config.members.get(key) {
            None | Some(Value::Null) => true,
            Some(Value::Object(map)) => {
                map.values().all(|value| value.as_object().is_some_and(Map::is_empty))
            }
            Some(_) => false,
        };
        if !is_empty("transform_config") {
            return Err(config.unsupported("transform_config", "no transforms of weights"));
        }
        let sparsity = config.members.get("sparsity_config").and_then(|it| it.get("format")?.as_str());
        if sparsity.is_some_and(|format| format != "dense") {
            return Err(config.unsupported("sparsity_config", "the format `dense`"));
        }
        if let Some("marlin-24" | "sparse-24-bitmask" | "sparse-bitmask" | "mxfp6-pack-quantized") =
            config.text("format")
        {
            return Err(
                config.unsupported("format", "a format of dense weights other than `mxfp6-pack-quantized`")
            );
        }
        let groups = config.members.get("config_groups").and_then(Value::as_object);
        let groups = groups.ok_or_else(|| config.unsupported("config_groups", "an object"))?;
        let groups = groups.values().filter_map(|group| group.as_object());
        let groups = groups.filter_map(|group| Group::from_json(group).transpose());
        groups.collect::<Result<_, _>>().map(Self).map_err(|target| {
            // A group without this target would leave its modules to another group.
            let expected =
                format!("a regular expression without lookaround instead of `{}`", target.escape_debug());
            config.unsupported("config_groups", &expected)
        })
    }

    /// Returns the weights of the group of a module: one that names it, else one whose pattern matches it, else one for a
    /// class of modules.
    fn weights(&self, survey: &Survey<'_>, module: &str) -> Result<Weights> {
        let by_name = |target: &Target| matches!(target, Target::Name(name) if name == module);
        let by_pattern = |target: &Target| match target {
            Target::Pattern(pattern) => pattern.find(module).is_some_and(|found| found.start() == 0),
            _ => false,
        };
        let by_class = |target: &Target| matches!(target, Target::Class);
        let find =
            |matches: &dyn Fn(&Target) -> bool| self.0.iter().find(|group| group.targets.iter().any(matches));
        let group = find(&by_name).or_else(|| find(&by_pattern)).or_else(|| find(&by_class));
        let group = group.ok_or_else(|| {
            survey
                .config
                .unsupported("config_groups", &format!("a group for the module `{}`", module.escape_debug()))
        });
        group.map(|group| group.weights)
    }
}

impl Group {
    /// Returns the group; `None` if it describes no weights.
    ///
    /// # Errors
    /// The target whose regular expression cannot be compiled.
    fn from_json(group: &Map<String, Value>) -> Result<Option<Self>, &str> {
        let Some(weights) = group.get("weights").and_then(Value::as_object) else { return Ok(None) };
        let text = |key: &str| weights.get(key).and_then(Value::as_str);
        let block = weights.get("block_structure").and_then(Value::as_array).and_then(|block| {
            let [rows, cols] = block.as_slice() else { return None };
            let block = BlockShape { rows: rows.as_u64()?, cols: cols.as_u64()? };
            (block.rows > 0 && block.cols > 0).then_some(block)
        });
        let targets = group.get("targets").and_then(Value::as_array).into_iter().flatten();
        let targets = targets.filter_map(Value::as_str).map(|target| {
            if let Some(pattern) = target.strip_prefix("re:") {
                return Regex::new(pattern).map(Target::Pattern).map_err(|_| target);
            }
            let is_class = target.starts_with(char::is_uppercase) && !target.contains('.');
            Ok(if is_class { Target::Class } else { Target::Name(target.to_owned()) })
        });
        Ok(Some(Self {
            targets: targets.collect::<Result<_, _>>()?,
            weights: Weights {
                bits: weights
                    .get("num_bits")
                    .and_then(Value::as_u64)
                    .and_then(|bits| u32::try_from(bits).ok())
                    .unwrap_or(8),
                is_float: text("type") == Some("float"),
                is_symmetric: weights.get("symmetric").and_then(Value::as_bool).unwrap_or(true),
                group: weights.get("group_size").and_then(Value::as_u64).filter(|size| *size > 0),
                block: block.filter(|_| text("strategy") == Some("block")),
            },
        }))
    }
}

struct Codes {
    rows: CodeRows,
    shape: Vec<u64>,
    format: &'static str,
    /// True if scales of bytes are exponents.
    has_exponents: bool,
}

fn add(survey: &mut Survey<'_>, module: &str, groups: &Groups, is_packed: bool) -> Result<()> {
    let weight = format!("{module}.weight");
    let part = |suffix: &str| format!("{module}{suffix}");
    let codes_name = part(if is_packed { ".weight_packed" } else { ".weight" });
    let weights = groups.weights(survey, module)?;
    let mut draft = Draft::new(&weight);
    let codes = if is_packed {
        packed_codes(survey, &mut draft, module, weights)?
    } else {
        byte_codes(survey, &mut draft, &weight)?
    };
    let wrong = |expected: String| Problem::Shape {
        tensor: codes_name.clone(),
        found: survey.get(&codes_name).map(|it| it.shape().to_vec()).unwrap_or_default(),
        expected,
    };
    let matrices = Matrices::from_shape(&codes.shape).filter(|it| it.elements > 0);
    let matrices = matrices.ok_or_else(|| wrong("at least one element".to_owned()))?;
    let scale_name = part(".weight_scale");
    let scale = survey.companion(&weight, &scale_name)?;
    let grid = grid(weights, &codes.shape, matrices, scale).ok_or_else(|| Problem::Shape {
        tensor: scale_name.clone(),
        found: scale.shape().to_vec(),
        expected: match (weights.block, weights.group) {
            (Some(block), _) => {
                format!("one scale for each block of {} × {} of {:?}", block.rows, block.cols, codes.shape)
            }
            (_, Some(group)) => format!("one scale for each {group} columns of {:?}", codes.shape),
            _ => format!("one scale, or one for each row of {:?}", codes.shape),
        },
    })?;
    let scales = survey.operand(&mut draft, &scale_name)?;
    let mut scales =
        ScaleGrid { is_shared: grid.is_shared, ..ScaleGrid::plain(scales, (grid.rows, grid.cols)) };
    let mut library = scale.dtype();
    if scale.dtype() == Dtype::UInt8 && codes.has_exponents {
        scales.encoding = ScaleEncoding::Exponents;
        library = Dtype::BFloat16;
    } else if codes.format == "FP4" {
        library = Dtype::BFloat16;
    } else if !scale.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Problem::Dtype { tensor: scale_name, found: scale.dtype(), expected }.into());
    }
    let global_name = part(".weight_global_scale");
    if let Some(global) = survey.get(&global_name) {
        if global.numel() != 1 || !global.dtype().is_floating_point() {
            let (found, expected) = (global.shape().to_vec(), "one number".to_owned());
            return Err(Problem::Shape { tensor: global_name, found, expected }.into());
        }
        // Of a tensor without dimensions, the dtype does not count.
        let is_wider = !global.shape().is_empty() && global.dtype() == Dtype::Float32;
        let rounding = if is_wider { Dtype::Float32 } else { Dtype::BFloat16 };
        let operand = survey.operand(&mut draft, &global_name)?;
        scales.global = Some(GlobalScale { operand, per_matrix: false, divides: true, unit: 1.0, rounding });
    } else if codes.format == "FP4" && scale.dtype() != Dtype::UInt8 {
        survey.companion(&weight, &global_name)?;
    }
    let zeros = zero_points(survey, &mut draft, module, weights, &grid, matrices, is_packed)?;
    let groups = column_groups(survey, &mut draft, module, matrices.cols, grid.cols)?;
    let is_ordered = if groups.is_some() { ", activation order" } else { "" };
    let scheme = format!("{}, {}{is_ordered}", codes.format, grid.describe(matrices));
    let kernel =
        BlockScaled { codes: codes.rows, scales, zeros, block: grid.block, matrices, groups, factor: 1.0 };
    let recognised = Recognised {
        scheme,
        shape: codes.shape,
        library_dtype: library,
        default_dtype: library,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Returns the codes of `weight_packed`: words of integers, or bytes with two FP4 each.
fn packed_codes(survey: &Survey<'_>, draft: &mut Draft, module: &str, weights: Weights) -> Result<Codes> {
    let name = format!("{module}.weight_packed");
    let packed = survey.companion(&draft.name, &name)?;
    let shape_error =
        |expected: String| Problem::Shape { tensor: name.clone(), found: packed.shape().to_vec(), expected };
    if packed.shape().len() < 2 {
        return Err(shape_error("two dimensions or more".to_owned()).into());
    }
    let last = packed.shape().last().copied().unwrap_or(0);
    if weights.is_float {
        if weights.bits != 4 {
            return Err(survey.config.unsupported("config_groups", "floats of 4 bits in packed weights"));
        }
        let mut shape = packed.shape().to_vec();
        if let Some(cols) = shape.last_mut() {
            *cols = cols.checked_mul(2).ok_or_else(|| shape_error("a size that fits 63 bits".to_owned()))?;
        }
        if !matches!(packed.dtype(), Dtype::UInt8 | Dtype::Int8 | Dtype::Float4E2M1FnX2) {
            let expected = "uint8".to_owned();
            return Err(Problem::Dtype { tensor: name, found: packed.dtype(), expected }.into());
        }
        let operand = survey.operand(draft, &name)?;
        let values = nibble_values(&E2M1);
        let rows = CodeRows { operand, bits: 4, order: CodeOrder::LowFirst, pitch: last, values };
        return Ok(Codes { rows, shape, format: "FP4", has_exponents: true });
    }
    if !(1..=8).contains(&weights.bits) {
        return Err(survey.config.unsupported("config_groups", "integers of 1 to 8 bits in packed weights"));
    }
    let shape_name = format!("{module}.weight_shape");
    let shape = read_integers(survey.companion(&draft.name, &shape_name)?, &shape_name)?;
    let cols = shape.last().copied().unwrap_or(0);
    let words = cols.checked_mul(u64::from(weights.bits)).map(|bits| bits.div_ceil(32));
    let expected: Vec<u64> = shape.iter().rev().skip(1).rev().copied().chain(words).collect();
    check(packed, &name, Dtype::Int32, &expected)?;
    survey.operand(draft, &shape_name)?;
    let operand = survey.operand(draft, &name)?;
    // The codes are the first part.
    draft.stored.rotate_right(1);
    let rows = CodeRows {
        operand,
        bits: weights.bits,
        order: CodeOrder::LowFirst,
        pitch: last.saturating_mul(4),
        values: offset_values(f32::from(1_u8.checked_shl(weights.bits.saturating_sub(1)).unwrap_or(0))),
    };
    Ok(Codes {
        rows,
        shape,
        format: INTEGERS.get(weights.bits as usize).copied().unwrap_or(""),
        has_exponents: false,
    })
}

/// Names of packed integers by their bits.
const INTEGERS: [&str; 9] = ["", "INT1", "INT2", "INT3", "INT4", "INT5", "INT6", "INT7", "INT8"];

fn byte_codes(survey: &Survey<'_>, draft: &mut Draft, name: &str) -> Result<Codes> {
    let tensor = survey.companion(name, name)?;
    let is_float = is_float8(tensor.dtype());
    if !is_float && tensor.dtype() != Dtype::Int8 {
        let expected = "int8 or float8, because it has a scale".to_owned();
        return Err(Problem::Dtype { tensor: name.to_owned(), found: tensor.dtype(), expected }.into());
    }
    let operand = survey.operand(draft, name)?;
    let pitch = tensor.shape().last().copied().unwrap_or(1);
    let rows = CodeRows {
        operand,
        bits: 8,
        order: CodeOrder::LowFirst,
        pitch,
        values: dtype_values(tensor.dtype()),
    };
    let format = if is_float { "FP8" } else { "INT8" };
    Ok(Codes { rows, shape: tensor.shape().to_vec(), format, has_exponents: is_float })
}

/// Returns the grid of scales; `None` if it does not fit the configuration.
fn grid(weights: Weights, shape: &[u64], matrices: Matrices, scale: &Tensor) -> Option<Grid> {
    let count: u64 = shape.iter().rev().skip(2).product();
    let one = BlockShape { rows: 1, cols: matrices.cols };
    let (rows, cols, grids) = match scale.shape() {
        _ if scale.numel() == 1 => (1, 1, 1),
        [rows] => (*rows, 1, 1),
        [before @ .., rows, cols] => (*rows, *cols, before.iter().product()),
        [] => return None,
    };
    let block = match (weights.block, weights.group) {
        (Some(block), _) => block,
        (None, Some(group)) => BlockShape { rows: 1, cols: group },
        (None, None) if rows == 1 => BlockShape { rows: matrices.rows, cols: matrices.cols },
        (None, None) => one,
    };
    let is_whole = weights.block.is_some() || matrices.cols.is_multiple_of(block.cols);
    let fits = matrices.rows.div_ceil(block.rows) == rows && matrices.cols.div_ceil(block.cols) == cols;
    let grid = Grid { rows, cols, block, is_shared: grids == 1 };
    (fits && is_whole && (grids == 1 || grids == count)).then_some(grid)
}

fn zero_points(
    survey: &Survey<'_>,
    draft: &mut Draft,
    module: &str,
    weights: Weights,
    grid: &Grid,
    matrices: Matrices,
    is_packed: bool,
) -> Result<Option<ScaleGrid>> {
    let name = format!("{module}.weight_zero_point");
    let Some(tensor) = survey.get(&name) else {
        if weights.is_symmetric || weights.is_float {
            return Ok(None);
        }
        return survey.companion(&draft.name, &name).map(|_| None);
    };
    let size = (grid.rows, grid.cols);
    if is_packed && !weights.is_symmetric && !weights.is_float {
        let words = matrices.rows.checked_mul(u64::from(weights.bits)).map_or(0, |bits| bits.div_ceil(32));
        check(tensor, &name, Dtype::Int32, &[words, grid.cols])?;
        let offset = -f32::from(1_u8.checked_shl(weights.bits.saturating_sub(1)).unwrap_or(0));
        let encoding = ScaleEncoding::PackedRows { bits: weights.bits, offset };
        let operand = survey.operand(draft, &name)?;
        return Ok(Some(ScaleGrid {
            encoding,
            is_shared: grid.is_shared,
            ..ScaleGrid::plain(operand, size)
        }));
    }
    if tensor.numel() != grid.rows.saturating_mul(grid.cols) {
        let expected = format!("that of the scales, {:?}", [grid.rows, grid.cols]);
        return Err(Problem::Shape { tensor: name, found: tensor.shape().to_vec(), expected }.into());
    }
    let operand = survey.operand(draft, &name)?;
    Ok(Some(ScaleGrid { is_shared: grid.is_shared, ..ScaleGrid::plain(operand, size) }))
}

fn column_groups(
    survey: &Survey<'_>,
    draft: &mut Draft,
    module: &str,
    cols: u64,
    groups: u64,
) -> Result<Option<crate::operand::Operand>> {
    let name = format!("{module}.weight_g_idx");
    let Some(tensor) = survey.get(&name) else { return Ok(None) };
    if tensor.shape() != [cols] {
        let expected = format!("[{cols}]");
        return Err(Problem::Shape { tensor: name, found: tensor.shape().to_vec(), expected }.into());
    }
    let operand = survey.operand(draft, &name)?;
    let indices = read_signed(tensor, &name)?;
    // A group of -1 stands for columns in order.
    if indices.iter().all(|index| *index == -1) {
        return Ok(None);
    }
    let is_group = |index: &i64| u64::try_from(*index).is_ok_and(|index| index < groups);
    match indices.iter().find(|index| !is_group(index)) {
        Some(wrong) => Err(Problem::Content {
            tensor: name,
            problem: format!("the group {wrong} is not one of {groups}"),
        }
        .into()),
        None => Ok(Some(operand)),
    }
}

fn read_integers(tensor: &Tensor, name: &str) -> Result<Vec<u64>> {
    let size = |size: i64| u64::try_from(size).ok().filter(|size| *size > 0);
    let sizes: Option<Vec<u64>> = read_signed(tensor, name)?.into_iter().map(size).collect();
    let is_shape = |sizes: &Vec<u64>| (2..=3).contains(&sizes.len());
    Ok(sizes.filter(is_shape).ok_or_else(|| Problem::Content {
        tensor: name.to_owned(),
        problem: "it is not a shape of two or three dimensions".to_owned(),
    })?)
}

fn read_signed(tensor: &Tensor, name: &str) -> Result<Vec<i64>> {
    let mut bytes: Vec<u8> = Vec::new();
    match tensor.dtype() {
        Dtype::Int64 | Dtype::Int32 if tensor.shape().len() == 1 => {
            tensor.gathered().write_to(&mut bytes)?;
        }
        found => {
            let expected = "a list of int64 or int32".to_owned();
            return Err(Problem::Dtype { tensor: name.to_owned(), found, expected }.into());
        }
    }
    Ok(if tensor.dtype() == Dtype::Int64 {
        bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number)).collect()
    } else {
        bytes.as_chunks().0.iter().map(|number| i32::from_le_bytes(*number).into()).collect()
    })
}
