//! auto-round: the codes of GPTQ or AWQ, with bits and groups for each layer.
//!
//! Facts: auto-round 0.16.1. `auto_round` and `auto_round:gptqmodel` store zero points as they are, and `auto_round:auto_gptq` minus one
//! (`auto_round_extension/torch`); `auto_round:auto_awq` is AWQ's GEMM (`export_to_awq/utils.py`), and `mlx` is MLX's packing. A key of `extra_config` that is not the
//! name of a layer is a pattern, and the first one that is found in the name applies (`_expand_regex_config`).

use foldhash::HashSet;
use regex::Regex;
use serde_json::{Map, Value};

use crate::columns::StoredZeros;
use crate::config::PACKING_FORMAT;
use crate::gptq::{self, ModuleLayout};
use crate::survey::Survey;
use crate::{Problem, Result, awq, mlx};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[".qweight", ".qzeros", ".scales", ".g_idx", ".biases"];
/// Members that are only there if the weights are rotated.
const ROTATIONS: &[&str] = &["rotation_config", "spinquant_config"];

/// Adds all layers with a `qweight`, or with scales where the packing is that of MLX.
///
/// # Errors
/// When the packing is not known or the weights are rotated, a pattern cannot be compiled, or a companion is missing or has another shape
/// or dtype.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let packing = survey.config.members.get(PACKING_FORMAT).map_or(Some("auto"), Value::as_str);
    let zeros = match packing {
        Some("auto_round" | "auto_round:gptqmodel") => Some(StoredZeros::Same),
        Some("auto" | "auto_round:gptq" | "auto_round:auto_gptq") => Some(StoredZeros::Less),
        Some("auto_round:awq" | "auto_round:auto_awq") => None,
        Some("mlx" | "auto_round:mlx") => return mlx::recognise_auto_round(survey),
        _ => {
            let known = "auto_round, auto_round:gptqmodel, auto_round:auto_gptq, auto_round:auto_awq or mlx";
            return Err(survey.config.unsupported(PACKING_FORMAT, known));
        }
    };
    let is_given = |key: &&&str| survey.config.members.get(**key).is_some_and(|it| !it.is_null());
    if let Some(key) = ROTATIONS.iter().find(is_given) {
        return Err(survey.config.unsupported(key, "weights that are not rotated"));
    }
    for (module, bits, group_size) in layers(survey)? {
        match zeros {
            Some(zeros) => gptq::add(survey, &module, ModuleLayout { bits, group_size, zeros })?,
            None => awq::add(survey, &module, bits, group_size)?,
        }
    }
    Ok(())
}

/// Returns each layer with its bits and its group.
fn layers(survey: &Survey<'_>) -> Result<Vec<(String, u32, Option<i64>)>> {
    let config = &survey.config;
    let none = Map::new();
    let extra = match config.members.get("extra_config") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(extra)) => extra,
        Some(_) => return Err(config.unsupported("extra_config", "an object of settings by layers")),
    };
    let quantized = survey.stems(".qweight");
    let names: HashSet<String> = quantized.iter().cloned().chain(survey.stems(".weight")).collect();
    let unsupported = |key: String, found: String, expected: &str| Problem::Unsupported {
        method: config.method.clone(),
        key,
        found,
        expected: expected.to_owned(),
    };
    let mut patterns = Vec::new();
    for (key, settings) in extra.iter().filter(|(key, _)| !names.contains(*key)) {
        let expected = "names of layers, or patterns without look-around";
        let pattern = Regex::new(key).map_err(|_| {
            unsupported("extra_config".to_owned(), format!("`{}`", key.escape_debug()), expected)
        })?;
        if settings.as_object().is_none_or(|settings| !settings.is_empty()) {
            patterns.push((pattern, settings));
        }
    }
    let settings = |module: &str| {
        let by_pattern = || patterns.iter().find(|(pattern, _)| pattern.is_match(module));
        extra.get(module).or_else(|| by_pattern().map(|(_, settings)| *settings))
    };
    let is_awq = config.text(PACKING_FORMAT).is_some_and(|packing| packing.ends_with("awq"));
    let known = if is_awq { 4..=7 } else { 2..=8 };
    quantized
        .into_iter()
        .map(|module| {
            let own = settings(&module);
            let setting = |key| own.and_then(|own| own.get(key)).or_else(|| config.members.get(key));
            let bits = setting("bits").and_then(Value::as_u64).and_then(|bits| u32::try_from(bits).ok());
            let bits = bits.filter(|bits| known.contains(bits)).ok_or_else(|| {
                let found = setting("bits").map_or_else(|| "missing".to_owned(), ToString::to_string);
                let expected = format!("{} to {}", known.start(), known.end());
                unsupported(format!("{module}: bits"), found, &expected)
            })?;
            let group_size = setting("group_size").and_then(Value::as_i64);
            Ok((module, bits, group_size))
        })
        .collect()
}
