//! Conversions between float32 and the floating-point numbers of 16 bits, without branches, so that loops over them become
//! vector instructions.
//!
//! Facts: IEEE 754-2019 for float16; bfloat16 is the upper half of a float32, and PyTorch rounds to it to nearest even
//! (`c10/util/BFloat16.h`).

/// Converts a bfloat16 to the equal f32.
#[inline(always)]
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Converts a float16 to the equal f32.
// Subnormal numbers are integers first, because arithmetic with a subnormal f32 is slow.
#[inline(always)]
pub fn from_f16(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    let sign = u32::from(bits & 0x8000) << 16;
    #[expect(
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        reason = "integers below 2^10 are exact"
    )]
    let subnormal = (magnitude as i32 as f32 * (1.0 / (1 << 24) as f32)).to_bits();
    let normal = (magnitude << 13).wrapping_add(112 << 23);
    let special = 0x7f80_0000 | (magnitude & 0x3ff) << 13;
    let widened = if magnitude >= 0x7c00 {
        special
    } else if magnitude < 0x400 {
        subnormal
    } else {
        normal
    };
    f32::from_bits(widened | sign)
}

/// Returns the scale of a block as float16, and its codes.
#[inline(always)]
pub(crate) fn split_block(block: &[u8; 34]) -> (u16, [u8; 32]) {
    let [low, high, codes @ ..] = *block;
    (u16::from_le_bytes([low, high]), codes)
}

/// Decodes a block of `Q8_0`: a float16 scale, and then 32 codes of eight bits, whose products with it are exact.
#[inline(always)]
pub fn decode_q8_block(block: &[u8; 34]) -> [f32; 32] {
    let (scale, codes) = split_block(block);
    let scale = from_f16(scale);
    codes.map(|code| f32::from(code.cast_signed()) * scale)
}

/// Rounds a number to the nearest bfloat16, from halfway to the even one.
#[inline(always)]
pub fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff).wrapping_add((bits >> 16) & 1);
    // The payload of a NaN in the lower half would be lost, and the rest could be an infinity.
    let kept = if value.is_nan() { bits | 0x40_0000 } else { rounded };
    (kept >> 16) as u16
}

/// Rounds a number to the nearest float16, from halfway to the even one.
#[inline(always)]
pub fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Above the middle of 65504 and 65536 is infinity; a NaN keeps a bit.
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let normal =
        magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff).wrapping_add((magnitude >> 13) & 1) >> 13;
    // Below 2^-14, adding 2^-1 leaves the units of 2^-24 in the last bits of the sum, rounded to nearest.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let result = if magnitude >= 0x4780_0000 {
        special
    } else if magnitude < 0x3880_0000 {
        subnormal
    } else {
        normal.min(0x7c00)
    };
    #[expect(clippy::cast_possible_truncation, reason = "both are below 2^16")]
    let result = (sign | result) as u16;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float16_keeps_what_is_not_finite() {
        assert!(from_f16(0x7e00).is_nan() && from_f16(0xfc01).is_nan());
        assert!(from_f16(0x7c00) > f32::MAX && from_f16(0xfc00) < f32::MIN);
    }
}
