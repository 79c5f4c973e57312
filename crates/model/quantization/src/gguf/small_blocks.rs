//! Blocks with one scale, or one scale for a few numbers: the first types, ternary ones, and those of four-bit floats.

#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats")]

use kernels::decode_q8_block;

use super::bits::{centred, codes, fill, fill_groups, joined, take, take_scale};

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
    fill(out, &codes::<16, 4, 32>(block), |code| scale * centred(code, 8));
}

pub(super) fn q4_1(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    fill(out, &codes::<16, 4, 32>(block), |code| scale * f32::from(code) + least);
}

/// Takes codes of five bits: first the highest bits.
fn five_bits(mut rest: &[u8]) -> [u8; 32] {
    let high = codes::<1, 1, 32>(&take::<4>(&mut rest));
    joined(codes::<16, 4, 32>(rest), &high, 4)
}

pub(super) fn q5_0(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    fill(out, &five_bits(block), |code| scale * centred(code, 16));
}

pub(super) fn q5_1(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    fill(out, &five_bits(block), |code| scale * f32::from(code) + least);
}

pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    if let Ok(block) = block.try_into() {
        out.iter_mut().zip(decode_q8_block(block)).for_each(|(out, number)| *out = number);
    }
}

/// Five numbers in a byte, as digits to the base of three: of 32 bytes, of 16, and the last four bytes have four.
pub(super) fn tq1_0(mut block: &[u8], out: &mut [f32]) {
    let mut digits = [0; 256];
    let mut rest = digits.as_mut_slice();
    for (bytes, count) in [
        (&take::<32>(&mut block)[..], 160),
        (&take::<16>(&mut block)[..], 80),
        (&take::<4>(&mut block)[..], 16),
    ] {
        let (part, later) = std::mem::take(&mut rest).split_at_mut_checked(count).unwrap_or_default();
        rest = later;
        let mut power = 1_u8;
        for digits in part.chunks_exact_mut(bytes.len()) {
            for (digit, byte) in digits.iter_mut().zip(bytes) {
                let [_, high] = (u16::from(byte.wrapping_mul(power)) * 3).to_le_bytes();
                *digit = high;
            }
            power = power.wrapping_mul(3);
        }
    }
    let scale = take_scale(&mut block);
    fill(out, &digits, |digit| scale * centred(digit, 1));
}

pub(super) fn tq2_0(mut block: &[u8], out: &mut [f32]) {
    let digits = codes::<32, 2, 256>(&take::<64>(&mut block));
    let scale = take_scale(&mut block);
    fill(out, &digits, |digit| scale * centred(digit, 1));
}

pub(super) fn mxfp4(mut block: &[u8], out: &mut [f32]) {
    let [exponent] = take(&mut block);
    // Half of the power of two, because the values are doubled; the two least ones are not normal.
    let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 };
    let scale = f32::from_bits(bits);
    fill(out, &codes::<16, 4, 32>(block), |code| scale * value(&DOUBLED_E2M1, code));
}

pub(super) fn nvfp4(mut block: &[u8], out: &mut [f32]) {
    let scales = take::<4>(&mut block).map(half_of_e4m3);
    fill_groups(out, &codes::<8, 4, 64>(block), &scales, |scale, code| scale * value(&DOUBLED_E2M1, code));
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
    fill(out, &codes::<16, 4, 32>(block), |code| scale * value(&NON_LINEAR, code));
}
