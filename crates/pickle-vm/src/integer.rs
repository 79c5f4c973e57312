//! Integers of any size: 64 bits, or two's complement bytes that are borrowed from the pickle.
//!
//! A long integer is `int.from_bytes(data, 'little', signed=True)`; 4,300 digits is CPython's
//! `sys.int_info.default_max_str_digits`.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::value::ByteString;

/// Maximum number of decimal digits of an integer that is read or printed, as in CPython.
pub(crate) const MAX_DIGITS: usize = 4300;

/// An integer that does not fit an `i64`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Long<'p>(ByteString<'p>);

/// An integer of any size: an `i64` if it fits.
pub(crate) enum Integer<'p> {
    Small(i64),
    Large(Long<'p>),
}

impl<'p> Integer<'p> {
    /// Creates an integer from two's complement bytes, little-endian.
    pub(crate) fn from_le_bytes(bytes: &'p [u8]) -> Self {
        let bytes = without_sign_extension(bytes);
        match to_i64(bytes) {
            Some(value) => Integer::Small(value),
            None => Integer::Large(Long(bytes.into())),
        }
    }

    /// Creates an integer from a sign and at most [`MAX_DIGITS`] decimal digits.
    pub(crate) fn from_digits(negative: bool, digits: &[u8]) -> Self {
        let mut limbs: Vec<u32> = Vec::new();
        for chunk in digits.chunks(9) {
            let (scale, value) = chunk.iter().fold((1_u64, 0_u64), |(scale, value), digit| {
                let digit = u64::from(digit.wrapping_sub(b'0'));
                (scale.wrapping_mul(10), value.wrapping_mul(10).wrapping_add(digit))
            });
            let mut carry = value;
            for limb in &mut limbs {
                // Below 2³² × 10⁹ + 2³², so neither step wraps.
                let sum = u64::from(*limb).wrapping_mul(scale).wrapping_add(carry);
                *limb = low_half(sum);
                carry = sum >> 32;
            }
            if carry != 0 {
                limbs.push(low_half(carry));
            }
        }
        let mut bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        bytes.push(0);
        if negative {
            negate(&mut bytes);
        }
        let trimmed = without_sign_extension(&bytes).len();
        bytes.truncate(trimmed);
        match to_i64(&bytes) {
            Some(value) => Integer::Small(value),
            None => Integer::Large(Long(Cow::<[u8]>::Owned(bytes).into())),
        }
    }
}

impl Long<'_> {
    /// Returns the bytes of the blocks that an integer of decimal digits owns.
    pub(crate) fn owned_nbytes(&self) -> usize {
        self.0.owned_nbytes()
    }

    /// Returns the two's complement bytes, little-endian, in the shortest form (at least nine bytes).
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the integer is negative.
    pub fn is_negative(&self) -> bool {
        self.0.last().is_some_and(|byte| byte & 0x80 != 0)
    }

    /// Returns the integer as an `i128`, or `None` if it does not fit.
    pub fn to_i128(&self) -> Option<i128> {
        let mut value = [if self.is_negative() { 0xff } else { 0 }; 16];
        value.get_mut(..self.0.len())?.copy_from_slice(&self.0);
        Some(i128::from_le_bytes(value))
    }

    /// Returns the decimal digits, or `None` if there are more than 4,300. CPython has the same limit, because the
    /// conversion is quadratic.
    pub fn to_decimal(&self) -> Option<String> {
        // 10⁴³⁰⁰ has 14,285 bits, which with a sign are 1,786 bytes.
        if self.0.len() > 1787 {
            return None;
        }
        let mut magnitude = self.0.to_vec();
        if self.is_negative() {
            negate(&mut magnitude);
        }
        let mut limbs: Vec<u32> = magnitude
            .chunks(4)
            .map(|chunk| chunk.iter().rev().fold(0, |limb, &byte| limb << 8 | u32::from(byte)))
            .collect();
        let mut groups: Vec<u32> = Vec::new();
        while limbs.iter().any(|&limb| limb != 0) {
            let mut remainder = 0_u64;
            for limb in limbs.iter_mut().rev() {
                let dividend = remainder << 32 | u64::from(*limb);
                *limb = low_half(dividend / 1_000_000_000);
                remainder = dividend % 1_000_000_000;
            }
            groups.push(low_half(remainder));
            while limbs.last() == Some(&0) {
                limbs.pop();
            }
        }
        let mut out = String::new();
        if self.is_negative() {
            out.push('-');
        }
        let signs = out.len();
        let mut groups = groups.iter().rev();
        out.push_str(&groups.next()?.to_string());
        for group in groups {
            write!(out, "{group:09}").ok()?;
        }
        (out.len().saturating_sub(signs) <= MAX_DIGITS).then_some(out)
    }
}

impl fmt::Display for Long<'_> {
    /// Writes the decimal digits, or `<integer of 2000 bytes>` above 4,300 digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_decimal() {
            Some(decimal) => f.write_str(&decimal),
            None => write!(f, "<integer of {} bytes>", self.0.len()),
        }
    }
}

impl fmt::Debug for Long<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn low_half(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX)
}

/// Negates a two's complement integer in place.
fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes {
        let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
        *byte = sum;
        carry = overflow;
    }
}

/// Drops the most significant bytes that only repeat the sign of the byte below them.
pub(crate) fn without_sign_extension(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., below, top] = bytes {
        let sign = if below & 0x80 == 0 { 0 } else { 0xff };
        if *top != sign {
            break;
        }
        bytes = bytes.get(..rest.len().saturating_add(1)).unwrap_or(rest);
    }
    if bytes == [0] { &[] } else { bytes }
}

fn to_i64(bytes: &[u8]) -> Option<i64> {
    let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let mut value = [fill; 8];
    value.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(negative: bool, digits: &str) -> String {
        match Integer::from_digits(negative, digits.as_bytes()) {
            Integer::Small(value) => format!("{value}"),
            Integer::Large(long) => format!("{long} long"),
        }
    }

    #[test]
    fn integers_of_any_size_keep_sign_and_digits() {
        assert_eq!(decimal(false, "0"), "0");
        assert_eq!(decimal(true, "9223372036854775808"), "-9223372036854775808");
        assert_eq!(decimal(false, "9223372036854775808"), "9223372036854775808 long");
        assert_eq!(decimal(true, "9223372036854775809"), "-9223372036854775809 long");
        let nines = "9".repeat(MAX_DIGITS);
        assert_eq!(decimal(true, &nines), format!("-{nines} long"));
        let zeros = format!("1{}", "0".repeat(MAX_DIGITS - 1));
        assert_eq!(decimal(false, &zeros), format!("{zeros} long"));
    }

    #[test]
    fn little_endian_integers_are_signed() {
        for (bytes, expected) in [
            (&[][..], 0),
            (&[0xff, 0], 255),
            (&[0xff, 0x7f], 32767),
            (&[0, 0xff], -256),
            (&[0, 0x80], -32768),
            (&[0x80], -128),
            (&[0x7f], 127),
            (&[0xff; 20], -1),
        ] {
            assert!(matches!(Integer::from_le_bytes(bytes), Integer::Small(value) if value == expected));
        }
        let Integer::Large(magic) = Integer::from_le_bytes(b"l\xfc\x9cF\xf9 j\xa8P\x19") else {
            panic!("ten bytes do not fit an i64");
        };
        assert_eq!(magic.to_i128(), Some(0x1950_a86a_20f9_469c_fc6c));
        assert_eq!(magic.to_string(), "119547037146038801333356");
    }

    #[test]
    fn huge_integers_are_not_printed() {
        let bytes = [0x7f; 4000];
        let Integer::Large(long) = Integer::from_le_bytes(&bytes) else {
            panic!("4000 bytes do not fit an i64")
        };
        assert_eq!(long.to_string(), "<integer of 4000 bytes>");
    }

    #[test]
    fn every_limb_of_a_long_is_printed() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
        let Integer::Large(long) = Integer::from_le_bytes(&bytes) else { panic!("it does not fit 64 bits") };
        let value = long.to_i128().expect("it fits 128 bits");
        assert_eq!(long.to_decimal(), Some(value.to_string()));
        assert_eq!(format!("{long:?}"), value.to_string());
    }

    #[test]
    fn a_long_of_megabytes_is_not_converted_to_digits() {
        // A conversion would take hours, so the test would not end.
        let bytes = vec![0x7f; 8 << 20];
        let Integer::Large(long) = Integer::from_le_bytes(&bytes) else { panic!("it does not fit 64 bits") };
        assert_eq!(long.to_decimal(), None);
    }
}
