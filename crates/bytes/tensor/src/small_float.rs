//! Conversions of floating-point formats of 8 and 16 bits from and to float32.
//!
//! Facts: `torch/headeronly/util/` of PyTorch 2.15: `BFloat16.h`, `Half.h`, `Float8_e4m3fn.h`, `Float8_e4m3fnuz.h`,
//! `Float8_e5m2.h`, `Float8_e5m2fnuz.h` and `Float8_e8m0fnu.h`. All round to the nearest value, and from halfway to the
//! even one.

#![expect(
    clippy::inline_always,
    reason = "a loop over a format's numbers is only vectorised with the format as a constant"
)]

/// Floating-point format of a sign, an exponent and a mantissa. The bit patterns below are without the sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallFloat {
    mantissa: u32,
    /// Bit pattern of the exponent of 1.0.
    bias: u32,
    /// Bit pattern of the largest finite number.
    max: u32,
    /// Bit pattern for values above the maximum.
    overflow_code: u32,
    nan: u32,
    /// Mask of the sign bit.
    sign: u32,
    /// True if the sign bit alone is NaN, so that there is neither a negative zero nor an infinity.
    is_fnuz: bool,
}

pub(crate) const BFLOAT16: SmallFloat = SmallFloat {
    mantissa: 7,
    bias: 127,
    max: 0x7f7f,
    overflow_code: 0x7f80,
    nan: 0x7fc0,
    sign: 0x8000,
    is_fnuz: false,
};
pub(crate) const FLOAT16: SmallFloat = SmallFloat {
    mantissa: 10,
    bias: 15,
    max: 0x7bff,
    overflow_code: 0x7c00,
    nan: 0x7e00,
    sign: 0x8000,
    is_fnuz: false,
};
/// Format `float8_e4m3fn`. Values above the maximum become the maximum since PyTorch 2.15; older versions return NaN.
pub(crate) const FLOAT8_E4M3FN: SmallFloat = SmallFloat {
    mantissa: 3,
    bias: 7,
    max: 0x7e,
    overflow_code: 0x7e,
    nan: 0x7f,
    sign: 0x80,
    is_fnuz: false,
};
pub(crate) const FLOAT8_E5M2: SmallFloat = SmallFloat {
    mantissa: 2,
    bias: 15,
    max: 0x7b,
    overflow_code: 0x7c,
    nan: 0x7f,
    sign: 0x80,
    is_fnuz: false,
};
pub(crate) const FLOAT8_E4M3FNUZ: SmallFloat =
    SmallFloat { mantissa: 3, bias: 8, max: 0x7f, overflow_code: 0x80, nan: 0x80, sign: 0x80, is_fnuz: true };
pub(crate) const FLOAT8_E5M2FNUZ: SmallFloat = SmallFloat {
    mantissa: 2,
    bias: 16,
    max: 0x7f,
    overflow_code: 0x80,
    nan: 0x80,
    sign: 0x80,
    is_fnuz: true,
};

const F32_MANTISSA: u32 = 23;
const F32_BIAS: u32 = 127;
const F32_SIGN: u32 = 1 << 31;
const F32_INFINITY: u32 = 0xff << F32_MANTISSA;

impl SmallFloat {
    /// Rounds a number to the format. Returns the bit pattern, and true if the number is in the range of the format.
    /// NaN is in range, and so are infinities if the format has them.
    // Without branches, so that the compiler vectorises loops over it.
    #[inline(always)]
    pub(crate) fn encode(self, number: f32) -> (u32, bool) {
        let bits = number.to_bits() & !F32_SIGN;
        let sign = if number.to_bits() & F32_SIGN == 0 { 0 } else { self.sign };
        let dropped = F32_MANTISSA.saturating_sub(self.mantissa);
        let rebias = F32_BIAS.saturating_sub(self.bias);
        // Rounds to nearest even: half of the last place that is kept, or a bit less if that place is even.
        let half = (1_u32 << dropped.saturating_sub(1)).saturating_sub(1);
        let rounded = bits.wrapping_add(half).wrapping_add((bits >> dropped) & 1) >> dropped;
        let normal = rounded.wrapping_sub(rebias << self.mantissa);
        // Below the smallest normal number, an addition aligns and rounds the last place.
        let magic = (rebias.saturating_add(dropped).saturating_add(1)) << F32_MANTISSA;
        let aligned = (f32::from_bits(bits) + f32::from_bits(magic)).to_bits().wrapping_sub(magic);
        let is_normal = rebias == 0 || bits >= rebias.saturating_add(1) << F32_MANTISSA;
        let code = if is_normal { normal } else { aligned };
        let is_above = code > self.max;
        let code = if is_above { self.overflow_code } else { code };
        let is_nan = bits > F32_INFINITY;
        let code = if is_nan { self.nan } else { code };
        let has_infinity = self.overflow_code > self.max && !self.is_fnuz;
        let fits = !is_above || is_nan || (has_infinity && bits == F32_INFINITY);
        let sign = if self.is_fnuz && code == 0 { 0 } else { sign };
        (code | sign, fits)
    }

    #[inline(always)]
    pub(crate) fn decode(self, code: u32) -> f32 {
        let sign = if code & self.sign == 0 { 0 } else { F32_SIGN };
        let code = if self.is_fnuz && code == self.nan { self.nan } else { code & !self.sign };
        let dropped = F32_MANTISSA.saturating_sub(self.mantissa);
        let rebias = F32_BIAS.saturating_sub(self.bias);
        let bits = if rebias > 0 && code >> self.mantissa == 0 {
            // A product with a power of two is exact.
            let scale = rebias.saturating_add(1).saturating_sub(self.mantissa);
            let [low, high, ..] = code.to_le_bytes();
            (f32::from(u16::from_le_bytes([low, high])) * f32::from_bits(scale << F32_MANTISSA)).to_bits()
        } else {
            (code << dropped).wrapping_add(rebias << F32_MANTISSA)
        };
        let bits = if code > self.max {
            let has_infinity = self.overflow_code > self.max && !self.is_fnuz;
            if has_infinity && code == self.overflow_code { F32_INFINITY } else { f32::NAN.to_bits() }
        } else {
            bits
        };
        f32::from_bits(bits | sign)
    }
}

/// Rounds a number to the nearest power of two. Returns its biased exponent, without a sign, and true if it is in the
/// range of the format.
#[inline(always)]
pub(crate) fn encode_e8m0(number: f32) -> (u8, bool) {
    let bits = number.to_bits() & !F32_SIGN;
    let [exponent, ..] = (bits >> F32_MANTISSA).to_le_bytes();
    let mantissa = bits & ((1 << F32_MANTISSA) - 1);
    let half = 1 << (F32_MANTISSA - 1);
    // Of two nearest powers, a normal number takes the larger and a subnormal number the smaller.
    let is_up = mantissa > half || (mantissa == half && exponent > 0);
    let code = if exponent < u8::MAX && is_up { exponent.saturating_add(1) } else { exponent };
    (code, code < u8::MAX || bits > F32_INFINITY)
}

#[inline(always)]
pub(crate) fn decode_e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << (F32_MANTISSA - 1)),
        u8::MAX => f32::NAN,
        code => f32::from_bits(u32::from(code) << F32_MANTISSA),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(SmallFloat, u32, f32, f32); 6] = [
        (BFLOAT16, 0xffff, f32::from_bits(0x7f7f_0000), f32::from_bits(0x0001_0000)),
        (FLOAT16, 0xffff, 65504.0, 5.960_464_5e-8),
        (FLOAT8_E4M3FN, 0xff, 448.0, 0.001_953_125),
        (FLOAT8_E5M2, 0xff, 57344.0, 1.525_878_9e-5),
        (FLOAT8_E4M3FNUZ, 0xff, 240.0, 0.000_976_562_5),
        (FLOAT8_E5M2FNUZ, 0xff, 57344.0, 7.629_394_5e-6),
    ];

    #[test]
    fn every_code_is_that_of_its_number() {
        for (format, codes, largest, smallest) in ALL {
            let numbers = [format.max, 1].map(|code| format.decode(code).to_bits());
            assert_eq!(numbers, [largest, smallest].map(f32::to_bits), "{format:?}");
            for code in 0..=codes {
                let number = format.decode(code);
                let (again, fits) = format.encode(number);
                if number.is_nan() {
                    assert!(format.decode(again).is_nan(), "{format:?} {code:x}");
                } else {
                    assert_eq!(again, code, "{format:?} {number}");
                }
                assert!(fits, "{format:?} {code:x}");
            }
        }
        for code in 0..=u8::MAX {
            assert_eq!(encode_e8m0(decode_e8m0(code)), (code, true));
        }
    }

    #[test]
    fn a_number_between_two_codes_becomes_the_nearer_one() {
        for (format, ..) in ALL {
            for code in 0..format.max {
                let (low, high) = (format.decode(code), format.decode(code + 1));
                let (low, high) = (f64::from(low), f64::from(high));
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "it is exact, but for the bits of bfloat16's least"
                )]
                let middle = f64::midpoint(low, high) as f32;
                let even = if code % 2 == 0 { code } else { code + 1 };
                assert_eq!(format.encode(middle), (even, true), "{format:?} {middle}");
                assert_eq!(format.encode(middle.next_down()), (code, true), "{format:?} {middle}");
                assert_eq!(format.encode(middle.next_up()), (code + 1, true), "{format:?} {middle}");
            }
        }
    }

    #[test]
    fn what_is_too_large_is_reported() {
        let codes = |number| ALL.map(|(format, ..)| format.encode(number));
        let above = [0x7f80, 0x7c00, 0x7e, 0x7c, 0x80, 0x80];
        let infinite = codes(f32::INFINITY);
        assert_eq!(infinite.map(|(code, _)| code), above);
        assert_eq!(infinite.map(|(_, fits)| fits), [true, true, false, true, false, false]);
        assert_eq!(codes(f32::MAX), above.map(|code| (code, false)));
        assert_eq!(codes(-f32::MAX).map(|(code, _)| code), [0xff80, 0xfc00, 0xfe, 0xfc, 0x80, 0x80]);
        assert!(codes(f32::NAN).iter().all(|(_, fits)| *fits));
        // The last numbers that are rounded down to the largest one, and the first that are not.
        for (format, down, up) in [
            (FLOAT16, 65519.996, 65520.0),
            (FLOAT8_E4M3FN, 464.0, 464.000_03),
            (FLOAT8_E5M2, 61439.996, 61440.0),
            (FLOAT8_E4M3FNUZ, 247.999_98, 248.0),
            (FLOAT8_E5M2FNUZ, 61439.996, 61440.0),
        ] {
            assert_eq!(format.encode(down), (format.max, true), "{format:?}");
            assert_eq!(format.encode(up), (format.overflow_code, false), "{format:?}");
        }
        assert_eq!(encode_e8m0(f32::MAX), (255, false));
        assert_eq!(encode_e8m0(f32::INFINITY), (255, false));
        assert_eq!(encode_e8m0(-3.0), (129, true));
        assert_eq!(encode_e8m0(0.0), (0, true));
    }
}
