//! NVIDIA's ModelOpt: FP8 with a scale for each tensor, channel or block, MXFP8, and NVFP4.
//!
//! Facts: `FP8QTensor.dequantize` and `NVFP4QTensor.dequantize` of nvidia-modelopt 0.47.0 with float32 as the dtype. The scale
//! of a block of NVFP4 is `weight_scale · weight_scale_2` in float32.

use crate::Result;
use crate::float8::{Dialect, recognise_as};
use crate::survey::Survey;

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[".weight_scale", ".weight_scale_2", ".pre_quant_scale"];
/// Algorithms whose weights are FP8 or FP4.
const ALGORITHMS: &[&str] = &[
    "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN",
    "FP8_PB_WO",
    "FP8_PB_REAL",
    "MIXED_PRECISION",
    "MXFP8",
    "NVFP4",
    "W4A16_NVFP4",
    "W4A8_NVFP4_FP8",
];

/// Adds all tensors that have scales.
///
/// # Errors
/// When the algorithm is another one, or a companion is missing or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let algorithm = survey.config.text("quant_algo");
    if algorithm
        .is_some_and(|algorithm| !ALGORITHMS.iter().any(|known| known.eq_ignore_ascii_case(algorithm)))
    {
        return Err(survey.config.unsupported("quant_algo", &ALGORITHMS.join(", ")));
    }
    recognise_as(survey, Dialect::ModelOpt)
}
