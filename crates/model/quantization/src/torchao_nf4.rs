//! torchao's NF4: codes for sixteen numbers in blocks of a flat list, whose maxima are quantized too.
//!
//! Facts: `NF4Tensor.get_original_weight` of torchao 0.18.0 on a CPU. `quantized_data` has two codes in a byte, the high one first;
//! a maximum is `quantized_scalers / quantization_factor + scaler_mean`. The quotient, the sum and the product are rounded to the dtype of
//! the tensor.

use tensor::Dtype;

use crate::Result;
use crate::bitsandbytes::{FlatBlocks, check_len, read_table};
use crate::scales::{QuotientScales, ScaleEncoding};
use crate::survey::{Draft, Survey};

/// Adds the tensor called `name` with the attributes `block_size` and `scaler_block_size`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn add(
    survey: &mut Survey<'_>,
    name: &str,
    block: u64,
    scale_block: u64,
    shape: &[u64],
    dtype: Dtype,
) -> Result<()> {
    let mut draft = Draft::new(name);
    let part = |part: &str| format!("{name}.{part}");
    let flat = FlatBlocks::new(survey, name, &part("quantized_data"), shape, block)?;
    check_len(survey, name, &part("quantized_scalers"), flat.blocks())?;
    check_len(survey, name, &part("quantization_factor"), flat.blocks().div_ceil(scale_block))?;
    check_len(survey, name, &part("scaler_mean"), 1)?;
    check_len(survey, name, &part("nf4"), 16)?;
    let codes = survey.operand(&mut draft, &part("quantized_data"))?;
    let scales = survey.operand(&mut draft, &part("quantized_scalers"))?;
    let quotients = QuotientScales {
        divisors: survey.operand(&mut draft, &part("quantization_factor"))?,
        block: scale_block,
        mean: survey.operand(&mut draft, &part("scaler_mean"))?,
        rounding: dtype,
    };
    let table = read_table(survey.companion(name, &part("nf4"))?, &part("nf4"))?;
    survey.operand(&mut draft, &part("nf4"))?;
    let encoding = ScaleEncoding::Quotients(Box::new(quotients));
    let scheme = format!("torchao, NF4, blocks of {block}, double quantization");
    survey.add(draft, flat.recognised(scheme, codes, &table, scales, encoding, dtype));
    Ok(())
}
