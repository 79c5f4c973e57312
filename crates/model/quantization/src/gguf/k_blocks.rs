//! Blocks of 256 numbers whose groups have scales of a few bits, and one scale of these.

#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats, and indices are those of a block")]

use super::bits::{byte, centred, codes, fill_groups, joined, take, take_scale};
use super::small_blocks::{NON_LINEAR, value};

/// A code times a scale, minus the least number of its group.
fn affine((scale, least): (f32, f32), code: u8) -> f32 {
    scale * f32::from(code) - least
}

pub(super) fn q2_k(mut block: &[u8], out: &mut [f32]) {
    let (scales, numbers) = (take::<16>(&mut block), codes::<32, 2, 256>(&take::<64>(&mut block)));
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    let groups = scales.map(|it| (scale * f32::from(it & 15), least * f32::from(it >> 4)));
    fill_groups(out, &numbers, &groups, affine);
}

pub(super) fn q3_k(mut block: &[u8], out: &mut [f32]) {
    let high = codes::<32, 1, 256>(&take::<32>(&mut block));
    let numbers = joined(codes::<32, 2, 256>(&take::<64>(&mut block)), &high, 2);
    let low_scales = codes::<8, 4, 16>(&take::<8>(&mut block));
    let scales = joined(low_scales, &codes::<4, 2, 16>(&take::<4>(&mut block)), 4);
    let scale = take_scale(&mut block);
    let scales = scales.map(|it| scale * centred(it, 32));
    fill_groups(out, &numbers, &scales, |scale, code| scale * centred(code, 4));
}

/// Returns the scale and the least number of each group of 32, from 6 bits each.
fn scales_and_least(scale: f32, least: f32, packed: [u8; 12]) -> [(f32, f32); 8] {
    let mut groups = [(0.0, 0.0); 8];
    for (at, group) in groups.iter_mut().enumerate() {
        let six_bits = |field: usize, nibble: u8| {
            let first = byte(&packed, field + at % 4);
            f32::from(if at < 4 { first & 63 } else { nibble | ((first >> 2) & 0x30) })
        };
        let nibbles = byte(&packed, 8 + at % 4);
        *group = (scale * six_bits(0, nibbles & 15), least * six_bits(4, nibbles >> 4));
    }
    groups
}

pub(super) fn q4_k(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    let groups = scales_and_least(scale, least, take(&mut block));
    fill_groups(out, &codes::<32, 4, 256>(block), &groups, affine);
}

pub(super) fn q5_k(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    let groups = scales_and_least(scale, least, take(&mut block));
    let high = codes::<32, 1, 256>(&take::<32>(&mut block));
    fill_groups(out, &joined(codes::<32, 4, 256>(block), &high, 4), &groups, affine);
}

pub(super) fn q6_k(mut block: &[u8], out: &mut [f32]) {
    let low = codes::<64, 4, 256>(&take::<128>(&mut block));
    let numbers = joined(low, &codes::<32, 2, 256>(&take::<64>(&mut block)), 4);
    let scales = take::<16>(&mut block);
    let scale = take_scale(&mut block);
    let scales = scales.map(|it| scale * f32::from(it.cast_signed()));
    fill_groups(out, &numbers, &scales, |scale, code| scale * centred(code, 32));
}

pub(super) fn iq4_xs(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    let high_scales = codes::<1, 2, 8>(&take::<2>(&mut block));
    let scales = joined(codes::<1, 4, 8>(&take::<4>(&mut block)), &high_scales, 4);
    let scales = scales.map(|it| scale * centred(it, 32));
    fill_groups(out, &codes::<16, 4, 256>(block), &scales, |scale, code| scale * value(&NON_LINEAR, code));
}
