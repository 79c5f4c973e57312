//! Blocks of 256 numbers whose groups have scales of a few bits, and one scale of these.

#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats, and indices are those of a block")]

use super::bits::{byte, centred, code, fill, take, take_scale};
use super::small_blocks::{NON_LINEAR, value};

pub(super) fn q2_k(mut block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (take::<16>(&mut block), take::<64>(&mut block));
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    let groups = scales.map(|it| (scale * f32::from(it & 15), least * f32::from(it >> 4)));
    fill(out, |at| {
        let (scale, least) = groups.get(at / 16).copied().unwrap_or_default();
        scale * f32::from(code::<32, 2>(&codes, at)) - least
    });
}

pub(super) fn q3_k(mut block: &[u8], out: &mut [f32]) {
    let (high, codes) = (take::<32>(&mut block), take::<64>(&mut block));
    let (low_scales, high_scales) = (take::<8>(&mut block), take::<4>(&mut block));
    let scale = take_scale(&mut block);
    let mut scales = [0.0; 16];
    fill(&mut scales, |at| {
        scale * centred(code::<8, 4>(&low_scales, at) | (code::<4, 2>(&high_scales, at) << 4), 32)
    });
    fill(out, |at| {
        // A number without its high bit is 4 less.
        let number = code::<32, 2>(&codes, at) | (code::<32, 1>(&high, at) << 2);
        scales.get(at / 16).copied().unwrap_or(0.0) * centred(number, 4)
    });
}

/// Returns the scale and the least number of each group of 32, from 6 bits each.
fn scales_and_least(scale: f32, least: f32, packed: [u8; 12]) -> [(f32, f32); 8] {
    let mut groups = [(0.0, 0.0); 8];
    for (at, group) in groups.iter_mut().enumerate() {
        let six_bits = |field: usize, nibble: u8| {
            let first = byte(&packed, field + at % 4);
            f32::from(if at < 4 { first & 63 } else { nibble | ((first >> 2) & 48) })
        };
        let nibbles = byte(&packed, 8 + at % 4);
        *group = (scale * six_bits(0, nibbles & 15), least * six_bits(4, nibbles >> 4));
    }
    groups
}

pub(super) fn q4_k(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    let groups = scales_and_least(scale, least, take(&mut block));
    fill(out, |at| {
        let (scale, least) = groups.get(at / 32).copied().unwrap_or_default();
        scale * f32::from(code::<32, 4>(block, at)) - least
    });
}

pub(super) fn q5_k(mut block: &[u8], out: &mut [f32]) {
    let (scale, least) = (take_scale(&mut block), take_scale(&mut block));
    let groups = scales_and_least(scale, least, take(&mut block));
    let high = take::<32>(&mut block);
    fill(out, |at| {
        let (scale, least) = groups.get(at / 32).copied().unwrap_or_default();
        scale * f32::from(code::<32, 4>(block, at) | (code::<32, 1>(&high, at) << 4)) - least
    });
}

pub(super) fn q6_k(mut block: &[u8], out: &mut [f32]) {
    let (low, high) = (take::<128>(&mut block), take::<64>(&mut block));
    let scales = take::<16>(&mut block);
    let scale = take_scale(&mut block);
    let scales = scales.map(|it| scale * f32::from(it.cast_signed()));
    fill(out, |at| {
        let number = code::<64, 4>(&low, at) | (code::<32, 2>(&high, at) << 4);
        scales.get(at / 16).copied().unwrap_or(0.0) * centred(number, 32)
    });
}

pub(super) fn iq4_xs(mut block: &[u8], out: &mut [f32]) {
    let scale = take_scale(&mut block);
    let (high_scales, low_scales) = (take::<2>(&mut block), take::<4>(&mut block));
    let mut scales = [0.0; 8];
    fill(&mut scales, |at| {
        scale * centred(code::<1, 4>(&low_scales, at) | (code::<1, 2>(&high_scales, at) << 4), 32)
    });
    fill(out, |at| {
        scales.get(at / 32).copied().unwrap_or(0.0) * value(&NON_LINEAR, code::<16, 4>(block, at))
    });
}
