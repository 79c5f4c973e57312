//! Tensors that llama.cpp has and a checkpoint has not: factors of rotary frequencies.
//!
//! Facts: `generate_extra_tensors` of `LlamaModel` and `Phi3MiniModel` in llama.cpp's converter, which computes in float32.

use byte_source::{Blob, Result};
use serde_json::{Map, Value};
use tensor::{Dtype, Storage, Tensor};

use crate::Problem;
use crate::config::{GgufConfig, invalid};

/// Largest number of factors: those of the largest heads.
pub(crate) const FACTORS_MAX: u64 = 1 << 12;

/// Returns the tensors that come first.
pub(crate) fn extra_tensors(config: &GgufConfig) -> Result<Vec<(String, Tensor)>> {
    let kind = config.rope().get("rope_type").and_then(Value::as_str).unwrap_or_default();
    if config.architecture.has_factors() {
        return long_rope(config);
    }
    let is_scaled =
        config.architecture.permutes || ["apertus", "exaone4"].contains(&config.architecture.name);
    if is_scaled && kind.eq_ignore_ascii_case("llama3") {
        return Ok(vec![("rope_freqs.weight".to_owned(), vector(&llama3(config)?)?)]);
    }
    Ok(Vec::new())
}

pub(crate) fn vector(numbers: &[f32]) -> Result<Tensor> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(Tensor::new(Dtype::Float32, vec![numbers.len() as u64], vec![1], 0, Storage::owned(bytes))?)
}

fn number(rope: &Map<String, Value>, key: &str, default: f64) -> Result<f64> {
    match rope.get(key) {
        None => Ok(default),
        Some(value) => value.as_f64().ok_or_else(|| invalid(key, Some(value), "a number")),
    }
}

/// Returns the factors of the settings of a configuration.
fn llama3(config: &GgufConfig) -> Result<Vec<f32>> {
    let rope = config.rope();
    let dim = config.head_dim()?;
    if dim > FACTORS_MAX {
        return Err(invalid("head_dim", config.get("head_dim"), "a smaller number"));
    }
    let settings = (
        number(rope, "factor", 8.0)?,
        number(rope, "low_freq_factor", 1.0)?,
        number(rope, "high_freq_factor", 4.0)?,
        number(rope, "original_max_position_embeddings", 8192.0)?,
    );
    Ok(llama3_factors(dim, number(rope, "rope_theta", 10_000.0)?, settings))
}

/// Returns the factors of Llama 3's scaling: 1 for high frequencies, the factor for low ones, and what lies between. The settings are the
/// factor, the bounds of low and of high frequencies, and the original context.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "PyTorch computes in float32 too"
)]
pub(crate) fn llama3_factors(
    dim: u64,
    base: f64,
    (factor, low, high, context): (f64, f64, f64, f64),
) -> Vec<f32> {
    let (longest, shortest) = ((context / low) as f32, (context / high) as f32);
    let factor_of = |pair: u64| {
        let exponent = pair as f32 / dim as f32;
        let frequency = (libm::pow(f64::from(base as f32), exponent.into()) as f32).recip();
        // PyTorch divides a number by a tensor in two steps.
        let wavelength = frequency.recip() * std::f32::consts::TAU;
        if wavelength < shortest {
            return 1.0;
        }
        if wavelength > longest {
            return factor as f32;
        }
        let smooth = (wavelength.recip() * context as f32 - low as f32) / (high - low) as f32;
        1.0 / ((1.0 - smooth) / factor as f32 + smooth)
    };
    (0..dim).step_by(2).map(factor_of).collect()
}

/// Reads the numbers of a short tensor.
///
/// # Errors
/// When it is not short, has no numbers, or cannot be read.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    let single = tensor.cast(Dtype::Float32).filter(|tensor| tensor.numel() <= FACTORS_MAX);
    let single = single.ok_or(Problem::Factors)?;
    let mut bytes: Vec<u8> = Vec::new();
    single.gathered().write_to(&mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// Returns the long factors, then the short ones.
fn long_rope(config: &GgufConfig) -> Result<Vec<(String, Tensor)>> {
    let rope = config.rope();
    let list = |key| rope.get(key).and_then(Value::as_array).filter(|factors| !factors.is_empty());
    let Some(long) = list("long_factor") else { return Ok(Vec::new()) };
    let short = list("short_factor").ok_or_else(|| invalid("short_factor", None, "a list of numbers"))?;
    let expected = config.rotated_of_head()? / 2;
    let tensor = |key: &str, factors: &[Value], name: &str| -> Result<(String, Tensor)> {
        #[expect(clippy::cast_possible_truncation, reason = "the format has float32")]
        let numbers: Option<Vec<f32>> =
            factors.iter().map(|factor| factor.as_f64().map(|factor| factor as f32)).collect();
        let numbers = numbers.filter(|numbers| numbers.len() as u64 == expected);
        let numbers = numbers.ok_or_else(|| {
            invalid(key, rope.get(key), "a number for each second dimension that is rotated")
        })?;
        Ok((name.to_owned(), vector(&numbers)?))
    };
    Ok(vec![
        tensor("long_factor", long, "rope_factors_long.weight")?,
        tensor("short_factor", short, "rope_factors_short.weight")?,
    ])
}

/// Returns the factor of attention that belongs to long factors, if there are any.
#[expect(clippy::cast_precision_loss, reason = "lengths of contexts are far below 2^53")]
pub(crate) fn attention_factor(config: &GgufConfig) -> Result<Option<f64>> {
    let rope = config.rope();
    if !config.architecture.has_factors() || rope.get("long_factor").is_none_or(Value::is_null) {
        return Ok(None);
    }
    let original = number(rope, "original_max_position_embeddings", 0.0)?;
    let scale = config.size("max_position_embeddings")? as f64 / original;
    let kind = rope.get("rope_type").and_then(Value::as_str).unwrap_or_default();
    let factor = match kind {
        _ if scale <= 1.0 => 1.0,
        "su" | "longrope" => (1.0 + libm::log(scale) / libm::log(original)).sqrt(),
        "yarn" => 0.1 * libm::log(scale) + 1.0,
        _ => return Err(invalid("rope_scaling.rope_type", rope.get("rope_type"), "longrope")),
    };
    Ok(Some(factor))
}
