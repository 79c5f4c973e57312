//! The formulas of the reference in f64, and numbers rounded to dtypes.
//!
//! Facts: rotary embeddings (Su et al., 2021), Llama 3.1's, `YaRN`'s (Peng et al., 2023) and `LongRoPE`'s (Ding et al., 2024)
//! scaling of wavelengths, IEEE 754-2019.

use decoder::{Rope, RopeScaling};
use tensor::Dtype;

/// How far a pair of `rotated` numbers turns from one token to the next in a text of `total` tokens.
pub(crate) fn frequency(rope: &Rope, pair: usize, rotated: usize, total: usize) -> f64 {
    let (d, total) = (rotated as f64, total as f64);
    let plain = |theta: f64| theta.powf(-((2 * pair) as f64) / d);
    let f = plain(rope.theta);
    match &rope.scaling {
        None => f,
        Some(RopeScaling::Linear { factor }) => f / factor,
        Some(RopeScaling::Proportional { part, factor }) => {
            if 2.0 * (pair as f64 + 1.0) <= part * d {
                f / factor
            } else {
                0.0
            }
        }
        Some(RopeScaling::Dynamic { factor, old }) => {
            let stretch = factor * total.max(*old) / old - (factor - 1.0);
            plain(rope.theta * stretch.powf(d / (d - 2.0)))
        }
        Some(RopeScaling::Llama3(scaling)) => {
            let wavelength = std::f64::consts::TAU / f;
            let smooth = (scaling.old / wavelength - scaling.low) / (scaling.high - scaling.low);
            if wavelength < scaling.old / scaling.high {
                f
            } else if wavelength > scaling.old / scaling.low {
                f / scaling.factor
            } else {
                f * ((1.0 - smooth) / scaling.factor + smooth)
            }
        }
        Some(RopeScaling::Yarn(yarn)) => {
            // The pair that turns so often within the old length, if pairs were not whole numbers.
            let turns =
                |turns: f64| d / 2.0 * (yarn.old / (turns * std::f64::consts::TAU)).ln() / rope.theta.ln();
            let (low, high) = (turns(yarn.fast).floor().max(0.0), turns(yarn.slow).ceil().min(d - 1.0));
            let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            f / yarn.factor * ramp + f * (1.0 - ramp)
        }
        Some(RopeScaling::LongRope(long)) => {
            f / if total > long.old { long.long[pair] } else { long.short[pair] }
        }
    }
}

pub(crate) fn softmax(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The error function, by its Taylor series: arguments are small.
pub(crate) fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

pub(crate) fn product(matrix: &[f64], x: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
    let rows = matrix.chunks_exact(x.len()).enumerate();
    rows.map(|(row, w)| dot(w, x) + bias.map_or(0.0, |bias| bias[row])).collect()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Numbers as a tensor of this dtype has them: their bytes and their values.
pub(crate) fn rounded(dtype: Dtype, exact: &[f64]) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = Vec::new();
    let mut numbers = Vec::new();
    for number in exact {
        match dtype {
            Dtype::Float64 => {
                bytes.extend(number.to_le_bytes());
                numbers.push(*number);
            }
            Dtype::Float32 => {
                let number = *number as f32;
                bytes.extend(number.to_le_bytes());
                numbers.push(number.into());
            }
            Dtype::BFloat16 => {
                let bits = (*number as f32).to_bits() & 0xffff_0000;
                bytes.extend(u16::try_from(bits >> 16).expect("16 bits").to_le_bytes());
                numbers.push(f32::from_bits(bits).into());
            }
            Dtype::Float16 => {
                // Numbers from 2^-14 to 2 in steps that a f16 has; smaller ones are 0.
                let magnitude = number.abs();
                let exponent =
                    if magnitude < 2.0_f64.powi(-14) { None } else { Some(magnitude.log2().floor()) };
                let (bits, value) = exponent.map_or((0, 0.0), |exponent| {
                    let mantissa = ((magnitude / exponent.exp2() - 1.0) * 1024.0).floor();
                    let bits = ((exponent + 15.0) as u16) << 10 | mantissa as u16;
                    (bits, (1.0 + mantissa / 1024.0) * exponent.exp2())
                });
                let sign = u16::from(*number < 0.0) << 15;
                bytes.extend((bits | sign).to_le_bytes());
                numbers.push(value * number.signum());
            }
            _ => panic!("{dtype} is not a weight's"),
        }
    }
    (bytes, numbers)
}
