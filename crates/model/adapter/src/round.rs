//! Rounds a double to a narrower floating-point number in one step: to nearest, ties to even. Processors disagree on the sign and the
//! payload of a NaN that they compute, so that each NaN becomes the same one.
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
    if value.is_nan() { f32::NAN } else { f32::from_bits(bits | u32::from(!is_exact)) }
}

#[inline(always)]
pub(crate) fn to_f32(value: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "`as` rounds to nearest, ties to even")]
    let rounded = value as f32;
    (if value.is_nan() { f32::NAN } else { rounded }).to_bits()
}

#[inline(always)]
pub(crate) fn to_f64(value: f64) -> u64 {
    (if value.is_nan() { f64::NAN } else { value }).to_bits()
}

#[inline(always)]
pub(crate) fn to_bf16(value: f64) -> u16 {
    kernels::to_bf16(to_odd_f32(value))
}

#[inline(always)]
pub(crate) fn to_f16(value: f64) -> u16 {
    kernels::to_f16(to_odd_f32(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::{from_bf16, from_f16};

    /// Function that widens numbers of a dtype, and the one that rounds to it.
    type Conversions = (fn(u16) -> f64, fn(f64) -> u16);

    const DTYPES: [Conversions; 2] =
        [(|bits| from_bf16(bits).into(), to_bf16), (|bits| from_f16(bits).into(), to_f16)];

    #[test]
    fn every_number_of_16_bits_is_itself() {
        for bits in 0..=u16::MAX {
            for (widen, round) in DTYPES {
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
    fn each_nan_is_the_same() {
        for nan in [f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001)] {
            assert_eq!((to_bf16(nan), to_f16(nan)), (0x7fc0, 0x7e00));
            assert_eq!((to_f32(nan), to_f64(nan)), (0x7fc0_0000, 0x7ff8_0000_0000_0000));
        }
    }

    #[test]
    fn numbers_between_two_are_rounded_once() {
        for (widen, round) in DTYPES {
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
