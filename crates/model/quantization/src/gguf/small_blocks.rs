//! Blocks with one scale, or one scale for a few numbers: the first types, ternary ones, and those of four-bit floats.

#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats, and indices are those of a block")]

use super::bits::{byte, centred, code, fill, take, take_scale};

/// Values of the codes of `IQ4_NL`, which `IQ4_XS` has, too.
pub(super) static NON_LINEAR: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];
/// Values of four-bit floats, doubled; minus zero is zero.
static DOUBLED_E2M1: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

pub(super) fn value(table: &[f32; 16], code: u8) -> f32 {
    table.get(usize::from(code)).copied().unwrap_or(0.0)
}

pub(super) fn q4_0(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    fill(out, |at| scale * centred(code::<16, 4>(block, at), 8));
}

pub(super) fn q4_1(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    fill(out, |at| scale * f32::from(code::<16, 4>(block, at)) + least);
}

pub(super) fn q5_0(mut block: &[u8], out: &mut [f32]) {
    let (scale, high) = (take_scale(&mut block), take::<4>(&mut block));
    fill(out, |at| scale * centred(code::<16, 4>(block, at) | (code::<1, 1>(&high, at) << 4), 16));
}

pub(super) fn q5_1(mut block: &[u8], out: &mut [f32]) {
    let (scale, least, high) = (take_scale(&mut block), take_scale(&mut block), take::<4>(&mut block));
    fill(out, |at| scale * f32::from(code::<16, 4>(block, at) | (code::<1, 1>(&high, at) << 4)) + least);
}

pub(super) fn q8_0(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    fill(out, |at| f32::from(byte(block, at).cast_signed()) * scale);
}

/// Five numbers in a byte, as digits to the base of three: of 32 bytes, of 16, and the last four bytes have four.
pub(super) fn tq1_0(mut block: &[u8], out: &mut [f32]) {
    let digits = take::<52>(&mut block);
    let scale = take_scale(&mut block);
    let digit = |at: usize| {
        let (start, width, within) = match at {
            0..160 => (0, 32, at),
            160..240 => (32, 16, at - 160),
            _ => (48, 4, at - 240),
        };
        let first = byte(&digits, start + within % width);
        let shifted = (0..within / width).fold(first, |digits, _| digits.wrapping_mul(3));
        u8::try_from((u16::from(shifted) * 3) >> 8).unwrap_or(0)
    };
    fill(out, |at| scale * centred(digit(at), 1));
}

pub(super) fn tq2_0(mut block: &[u8], out: &mut [f32]) {
    let codes = take::<64>(&mut block);
    let scale = take_scale(&mut block);
    fill(out, |at| scale * centred(code::<32, 2>(&codes, at), 1));
}

pub(super) fn mxfp4(mut block: &[u8], out: &mut [f32]) {
    let [exponent] = take(&mut block);
    // Half of the power of two, because the values are doubled; the two least ones are not normal.
    let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 };
    let scale = f32::from_bits(bits);
    fill(out, |at| scale * value(&DOUBLED_E2M1, code::<16, 4>(block, at)));
}

pub(super) fn nvfp4(mut block: &[u8], out: &mut [f32]) {
    let scales = take::<4>(&mut block).map(half_of_e4m3);
    fill(out, |at| {
        scales.get(at / 16).copied().unwrap_or(0.0) * value(&DOUBLED_E2M1, code::<8, 4>(block, at))
    });
}

/// Returns half of an eight-bit float without a sign. 127 stands for zero, and the highest bit for nothing.
fn half_of_e4m3(bits: u8) -> f32 {
    let (exponent, fraction) = ((bits >> 3) & 15, f32::from(bits & 7));
    match (bits, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => fraction / 1024.0,
        _ => (1.0 + fraction / 8.0) * (f32::from(exponent) - 7.0).exp2() * 0.5,
    }
}

pub(super) fn iq4_nl(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    fill(out, |at| scale * value(&NON_LINEAR, code::<16, 4>(block, at)));
}
