//! Rounds a double to a narrower floating-point number in one step: to nearest, ties to even.
//!
//! Facts: a value that is rounded to odd in a format with at least two more bits, and then to nearest, is rounded as if in
//! one step (Boldo and Melquiond, "When double rounding is odd", 2004).

/// Rounds to float32 so that a further rounding has the result of a single one: inexact values get an odd last bit.
#[inline(always)]
fn to_odd_f32(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the rounding is corrected below")]
    let nearest = value as f32;
    #[expect(clippy::float_cmp, reason = "exact values need no correction")]
    let is_exact = f64::from(nearest) == value;
    let back = f64::from(nearest);
    // Towards zero: the bits of a float grow with its magnitude.
    let bits = nearest.to_bits().wrapping_sub(u32::from(back.abs() > value.abs()));
    let odd = bits | u32::from(!is_exact && !value.is_nan());
    f32::from_bits(if value.is_nan() { nearest.to_bits() } else { odd })
}

/// Rounds to float32.
#[inline(always)]
pub(crate) fn to_f32(value: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "`as` rounds to nearest, ties to even")]
    let rounded = value as f32;
    rounded.to_bits()
}

/// Rounds to bfloat16.
#[inline(always)]
pub(crate) fn to_bf16(value: f64) -> u16 {
    f32_to_bf16(to_odd_f32(value))
}

/// Rounds a float32 to bfloat16.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let high = bits >> 16;
    let rounded = bits.wrapping_add(0x7fff).wrapping_add(high & 1) >> 16;
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    #[expect(clippy::cast_possible_truncation, reason = "both are below 2^16")]
    let result = if is_nan { high | 0x40 } else { rounded } as u16;
    result
}

/// Rounds to float16.
#[inline(always)]
pub(crate) fn to_f16(value: f64) -> u16 {
    f32_to_f16(to_odd_f32(value))
}

/// Rounds a float32 to float16.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
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

/// Widens a bfloat16.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f64 {
    f64::from(bf16_to_f32(bits))
}

/// Widens a bfloat16 to float32.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Widens a float16.
#[inline(always)]
pub(crate) fn from_f16(bits: u16) -> f64 {
    f64::from(f16_to_f32(bits))
}

/// Widens a float16 to float32.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_16_bits_is_itself() {
        for bits in 0..=u16::MAX {
            for (widen, round) in
                [(from_bf16 as fn(u16) -> f64, to_bf16 as fn(f64) -> u16), (from_f16, to_f16)]
            {
                let value = widen(bits);
                if value.is_nan() {
                    assert!(widen(round(value)).is_nan(), "{bits:#x}");
                } else {
                    assert_eq!(round(value), bits, "{value}");
                }
            }
        }
    }

    #[test]
    fn numbers_between_two_are_rounded_once() {
        for (widen, round) in [(from_bf16 as fn(u16) -> f64, to_bf16 as fn(f64) -> u16), (from_f16, to_f16)] {
            for bits in (0..0x7b00_u16).step_by(97) {
                let (low, high) = (widen(bits), widen(bits + 1));
                let middle = f64::midpoint(low, high);
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                assert_eq!(round(middle), even, "{middle}");
                // So close to the middle that a float32 does not see the difference.
                assert_eq!(round(middle + (high - low) * 1e-9), bits + 1, "above {middle}");
                assert_eq!(round(middle - (high - low) * 1e-9), bits, "below {middle}");
                assert_eq!(round(-(middle + (high - low) * 1e-9)), (bits + 1) | 0x8000);
            }
        }
        assert_eq!((to_f16(65519.99), to_f16(65520.0), to_f16(1e300)), (0x7bff, 0x7c00, 0x7c00));
        assert_eq!((to_bf16(3.3895e38), to_bf16(1e300)), (0x7f7f, 0x7f80));
    }
}
