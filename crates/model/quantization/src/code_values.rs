//! Tables of the numbers that codes stand for.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]

use tensor::Dtype;

/// Numbers of FP4 (E2M1), by their codes.
pub(crate) const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Numbers of FP4 in ModelOpt, which has no negative zero.
pub(crate) const E2M1_POSITIVE_ZERO: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Returns the numbers of a dtype of one byte; zeros for any other dtype.
pub(crate) fn dtype_values(dtype: Dtype) -> Box<[f32; 256]> {
    let codes: Vec<u8> = (0..=u8::MAX).collect();
    let values = dtype.decode_f32(&codes).and_then(|values| values.try_into().ok());
    values.unwrap_or_else(|| Box::new([0.0; 256]))
}

/// Returns the numbers of codes of four bits.
pub(crate) fn nibble_values(values: &[f32; 16]) -> Box<[f32; 256]> {
    let mut table = Box::new([0.0; 256]);
    table.iter_mut().zip(values).for_each(|(entry, value)| *entry = *value);
    table
}

/// Returns integers that begin with `-offset` at code 0.
pub(crate) fn offset_values(offset: f32) -> Box<[f32; 256]> {
    let mut table = Box::new([0.0; 256]);
    for (entry, code) in table.iter_mut().zip(0_u8..=u8::MAX) {
        *entry = f32::from(code) - offset;
    }
    table
}

/// Returns the numbers of FP6 in a byte, with two or three bits of exponent and the rest of mantissa.
pub(crate) fn float6_values(exponent: u32) -> Box<[f32; 256]> {
    let mantissa = 5_u32 - exponent;
    let bias = if exponent == 2 { 1 } else { 3 };
    let mask = (1_u8 << mantissa).wrapping_sub(1);
    let mut table = Box::new([0.0; 256]);
    for (entry, code) in table.iter_mut().zip(0_u8..=u8::MAX) {
        let exponent_bits = (code & 0x1F) >> mantissa;
        let fraction = f32::from(code & mask) / f32::from(1_u8 << mantissa);
        let (whole, power) = if exponent_bits == 0 { (0.0, 1) } else { (1.0, i32::from(exponent_bits)) };
        let number = (whole + fraction) * 2_f32.powi(power - bias);
        *entry = if code & 0x20 == 0 { number } else { -number };
    }
    table
}
