//! Blocks of 256 numbers that are points of a grid, with signs or a shift.

#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats, and indices are those of a block")]

use super::bits::{byte, codes, take, take_scale, word, word32};
use super::grids::{self, Grid};

/// Computes numbers from points of `SIZE` coordinates: `point` returns the number of a point and what `number` takes besides a
/// coordinate and its index.
fn fill_points<const SIZE: usize, P: Copy>(
    out: &mut [f32],
    grid: &Grid,
    point: impl Fn(usize) -> (usize, P),
    number: impl Fn(P, f32, usize) -> f32,
) {
    for (at, out) in out.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
        let (point, with) = point(at);
        let coordinates = grid.0.as_chunks::<SIZE>().0.get(point).unwrap_or(&[0.0; SIZE]);
        for (index, (out, coordinate)) in out.iter_mut().zip(coordinates).enumerate() {
            *out = number(with, *coordinate, index);
        }
    }
}

/// Multiplies a coordinate by the scale, and by −1 if its bit of the signs is set.
fn signed((scale, signs): (f32, u8), coordinate: f32, index: usize) -> f32 {
    scale * coordinate * if (signs >> index) & 1 == 0 { 1.0 } else { -1.0 }
}

/// Adds the shift to a coordinate, and multiplies the sum by the scale.
fn shifted((scale, shift): (f32, f32), coordinate: f32, _: usize) -> f32 {
    scale * (coordinate + shift)
}

/// Returns eight signs of which seven are stored: the number of minus signs is even.
fn even_signs(seven: u32) -> u8 {
    let seven = u8::try_from(seven & 127).unwrap_or(0);
    seven | (u8::try_from(seven.count_ones() & 1).unwrap_or(0) << 7)
}

/// Returns the number in the highest four bits.
fn high_nibble(packed: u32) -> f32 {
    f32::from(u8::try_from(packed >> 28).unwrap_or(0))
}

/// Returns the number of a point from its low byte and its higher bits.
fn joined(low: &[u8], high: &[u8], at: usize) -> usize {
    usize::from(byte(low, at)) | (usize::from(byte(high, at)) << 8)
}

/// Returns the scale of each 16 numbers of the types of two bits.
fn scales_of_two_bits(scale: f32, packed: &[u8]) -> [f32; 16] {
    codes::<1, 4, 16>(packed).map(|it| scale * (0.5 + f32::from(it)) * 0.25)
}

fn scale_at(scales: &[f32], at: usize) -> f32 {
    scales.get(at).copied().unwrap_or(0.0)
}

pub(super) fn iq2_xxs(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    let point = |at: usize| {
        let packed = word32(block, at / 4 * 2 + 1);
        let scale = scale * (0.5 + high_nibble(packed)) * 0.25;
        (usize::from(byte(block, at / 4 * 8 + at % 4)), (scale, even_signs(packed >> (7 * (at % 4)))))
    };
    fill_points::<8, _>(out, &grids::IQ2_XXS, point, signed);
}

pub(super) fn iq2_xs(mut block: &[u8], out: &mut [f32]) {
    let (scale, points) = (take_scale(&mut block), take::<64>(&mut block));
    let scales = scales_of_two_bits(scale, block);
    let point = |at: usize| {
        let packed = word(&points, at);
        (usize::from(packed & 511), (scale_at(&scales, at / 2), even_signs(u32::from(packed >> 9))))
    };
    fill_points::<8, _>(out, &grids::IQ2_XS, point, signed);
}

pub(super) fn iq2_s(mut block: &[u8], out: &mut [f32]) {
    let (scale, points, signs) = (take_scale(&mut block), take::<32>(&mut block), take::<32>(&mut block));
    let high = codes::<1, 2, 32>(&take::<8>(&mut block));
    let scales = scales_of_two_bits(scale, block);
    let point = |at: usize| (joined(&points, &high, at), (scale_at(&scales, at / 2), byte(&signs, at)));
    fill_points::<8, _>(out, &grids::IQ2_S, point, signed);
}

pub(super) fn iq3_xxs(mut block: &[u8], out: &mut [f32]) {
    let (scale, points) = (take_scale(&mut block), take::<64>(&mut block));
    let point = |at: usize| {
        let packed = word32(block, at / 8);
        let scale = scale * (0.5 + high_nibble(packed)) * 0.5;
        let signs = even_signs(packed >> (7 * (at / 2 % 4)));
        (usize::from(byte(&points, at)), (scale, signs >> (at % 2 * 4)))
    };
    fill_points::<4, _>(out, &grids::IQ3_XXS, point, signed);
}

pub(super) fn iq3_s(mut block: &[u8], out: &mut [f32]) {
    let (scale, points) = (take_scale(&mut block), take::<64>(&mut block));
    let high = codes::<1, 1, 64>(&take::<8>(&mut block));
    let signs = take::<32>(&mut block);
    let scales = codes::<1, 4, 8>(block).map(|it| scale * f32::from(1 + 2 * it));
    let point = |at: usize| {
        (joined(&points, &high, at), (scale_at(&scales, at / 8), byte(&signs, at / 2) >> (at % 2 * 4)))
    };
    fill_points::<4, _>(out, &grids::IQ3_S, point, signed);
}

/// What is added to each coordinate of a group, or taken away.
const SHIFT: f32 = 0.125;

pub(super) fn iq1_s(mut block: &[u8], out: &mut [f32]) {
    let (scale, points) = (take_scale(&mut block), take::<32>(&mut block));
    let point = |at: usize| {
        let packed = word(block, at / 4);
        let scale = scale * f32::from(2 * ((packed >> 12) & 7) + 1);
        let shift = if packed & 0x8000 == 0 { SHIFT } else { -SHIFT };
        let high = usize::from((packed >> (3 * (at % 4))) & 7);
        (usize::from(byte(&points, at)) | (high << 8), (scale, shift))
    };
    fill_points::<8, _>(out, &grids::IQ1_S, point, shifted);
}

pub(super) fn iq1_m(mut block: &[u8], out: &mut [f32]) {
    let (points, high) = (take::<32>(&mut block), codes::<1, 4, 32>(&take::<16>(&mut block)));
    // The scale is in the highest bits of the four words of scales.
    let nibbles = [0, 1, 2, 3].map(|at| (word(block, at) >> 12) << (4 * at));
    let scale = nibbles.iter().fold(0, |bits, nibble| bits | nibble).to_le_bytes();
    let scale = take_scale(&mut scale.as_slice());
    let point = |at: usize| {
        let scales = word(block, at / 8) >> (3 * (at / 2 % 4));
        let high = byte(&high, at);
        let shift = if high & 8 == 0 { SHIFT } else { -SHIFT };
        let point = usize::from(byte(&points, at)) | (usize::from(high & 7) << 8);
        (point, (scale * f32::from(2 * (scales & 7) + 1), shift))
    };
    fill_points::<8, _>(out, &grids::IQ1_S, point, shifted);
}
