//! Blocks of 256 numbers that are points of a grid, with signs or a shift.

#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats, and indices are those of a block")]

use super::bits::{byte, code, fill, take, take_scale, word, word32};
use super::grids::{self, Grid};

/// Returns −1 or 1 for a bit of a byte.
fn sign(signs: u8, bit: usize) -> f32 {
    if (signs >> bit) & 1 == 0 { 1.0 } else { -1.0 }
}

/// Returns eight signs of which seven are stored: the number of minus signs is even.
fn even_signs(seven: u32) -> u8 {
    let seven = u8::try_from(seven & 127).unwrap_or(0);
    seven | (u8::try_from(seven.count_ones() & 1).unwrap_or(0) << 7)
}

pub(super) fn iq2_xxs(mut block: &[u8], out: &mut [f32]) {
    let (scale, grid) = (take_scale(&mut block), &*grids::IQ2_XXS);
    fill(out, |at| {
        let packed = word32(block, at / 32 * 2 + 1);
        let scale = scale * (0.5 + small(packed >> 28)) * 0.25;
        let signs = even_signs(packed >> (7 * (at / 8 % 4)));
        let point = usize::from(byte(block, at / 32 * 8 + at / 8 % 4));
        scale * grid.at::<8>(point, at) * sign(signs, at % 8)
    });
}

pub(super) fn iq2_xs(mut block: &[u8], out: &mut [f32]) {
    let (scale, points, grid) = (take_scale(&mut block), take::<64>(&mut block), &*grids::IQ2_XS);
    fill(out, |at| {
        let scale = scale * (0.5 + f32::from(code::<1, 4>(block, at / 16))) * 0.25;
        let packed = word(&points, at / 8);
        let signs = even_signs(u32::from(packed >> 9));
        scale * grid.at::<8>(usize::from(packed & 511), at) * sign(signs, at % 8)
    });
}

pub(super) fn iq2_s(mut block: &[u8], out: &mut [f32]) {
    let (scale, points, signs) = (take_scale(&mut block), take::<32>(&mut block), take::<32>(&mut block));
    let (high, grid) = (take::<8>(&mut block), &*grids::IQ2_S);
    fill(out, |at| {
        let scale = scale * (0.5 + f32::from(code::<1, 4>(block, at / 16))) * 0.25;
        let point = usize::from(byte(&points, at / 8)) | (usize::from(code::<1, 2>(&high, at / 8)) << 8);
        scale * grid.at::<8>(point, at) * sign(byte(&signs, at / 8), at % 8)
    });
}

pub(super) fn iq3_xxs(mut block: &[u8], out: &mut [f32]) {
    let (scale, points, grid) = (take_scale(&mut block), take::<64>(&mut block), &*grids::IQ3_XXS);
    fill(out, |at| {
        let packed = word32(block, at / 32);
        let scale = scale * (0.5 + small(packed >> 28)) * 0.5;
        let signs = even_signs(packed >> (7 * (at / 8 % 4)));
        scale * grid.at::<4>(usize::from(byte(&points, at / 4)), at) * sign(signs, at % 8)
    });
}

pub(super) fn iq3_s(mut block: &[u8], out: &mut [f32]) {
    let (scale, points, high) = (take_scale(&mut block), take::<64>(&mut block), take::<8>(&mut block));
    let (signs, grid) = (take::<32>(&mut block), &*grids::IQ3_S);
    fill(out, |at| {
        let scale = scale * f32::from(1 + 2 * code::<1, 4>(block, at / 32));
        let point = usize::from(byte(&points, at / 4)) | (usize::from(code::<1, 1>(&high, at / 4)) << 8);
        scale * grid.at::<4>(point, at) * sign(byte(&signs, at / 8), at % 8)
    });
}

/// What is added to each number of a group, or taken away.
const SHIFT: f32 = 0.125;

pub(super) fn iq1_s(mut block: &[u8], out: &mut [f32]) {
    let (scale, points, grid) = (take_scale(&mut block), take::<32>(&mut block), &*grids::IQ1_S);
    fill(out, |at| {
        let packed = word(block, at / 32);
        let scale = scale * f32::from(2 * ((packed >> 12) & 7) + 1);
        let shift = if packed & 0x8000 == 0 { SHIFT } else { -SHIFT };
        let high = usize::from((packed >> (3 * (at / 8 % 4))) & 7);
        scale * (grid.at::<8>(usize::from(byte(&points, at / 8)) | (high << 8), at) + shift)
    });
}

pub(super) fn iq1_m(mut block: &[u8], out: &mut [f32]) {
    let (points, high, grid) = (take::<32>(&mut block), take::<16>(&mut block), &*grids::IQ1_S);
    // The scale is in the highest bits of the four words of scales.
    let nibbles = [0, 1, 2, 3].map(|at| (word(block, at) >> 12) << (4 * at));
    let scale = nibbles.iter().fold(0, |bits, nibble| bits | nibble).to_le_bytes();
    let scale = take_scale(&mut scale.as_slice());
    fill(out, |at| {
        let scales = word(block, at / 64) >> (3 * (at / 16 % 4));
        let high = code::<1, 4>(&high, at / 8);
        let shift = if high & 8 == 0 { SHIFT } else { -SHIFT };
        let point = usize::from(byte(&points, at / 8)) | (usize::from(high & 7) << 8);
        scale * f32::from(2 * (scales & 7) + 1) * (grid.at::<8>(point, at) + shift)
    });
}

/// Returns a number of four bits.
fn small(bits: u32) -> f32 {
    f32::from(u8::try_from(bits).unwrap_or(0))
}

impl Grid {
    /// Returns the coordinate of a point that the number with this index has; points have `SIZE` coordinates.
    fn at<const SIZE: usize>(&self, point: usize, index: usize) -> f32 {
        self.0.get(point * SIZE + index % SIZE).copied().unwrap_or(0.0)
    }
}
