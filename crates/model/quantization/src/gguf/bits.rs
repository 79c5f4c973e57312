//! Fields of a block, and codes of a few bits in them.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the widths of fields are constants, and indices are those of a block"
)]

use kernels::from_f16;

/// Takes the next bytes of a block, whose length is that of its type.
pub(super) fn take<const LEN: usize>(rest: &mut &[u8]) -> [u8; LEN] {
    let (taken, later) = rest.split_first_chunk().unwrap_or((&[0; LEN], &[]));
    *rest = later;
    *taken
}

/// Takes a scale in float16.
pub(super) fn take_scale(rest: &mut &[u8]) -> f32 {
    from_f16(u16::from_le_bytes(take(rest)))
}

/// Returns the byte at an index that is inside of the field.
pub(super) fn byte(field: &[u8], at: usize) -> u8 {
    field.get(at).copied().unwrap_or(0)
}

/// Returns the 16-bit word with this index.
pub(super) fn word(field: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([byte(field, 2 * at), byte(field, 2 * at + 1)])
}

/// Returns the 32-bit word with this index.
pub(super) fn word32(field: &[u8], at: usize) -> u32 {
    u32::from(word(field, 2 * at)) | (u32::from(word(field, 2 * at + 1)) << 16)
}

/// Returns the codes of `BITS` bits in a field. Those of `WIDTH` bytes are consecutive: first those in the lowest bits of each byte, then
/// the next ones.
pub(super) fn codes<const WIDTH: usize, const BITS: usize, const LEN: usize>(field: &[u8]) -> [u8; LEN] {
    let mut codes = [0; LEN];
    let groups = codes.chunks_exact_mut(WIDTH * (8 / BITS));
    for (codes, bytes) in groups.zip(field.chunks_exact(WIDTH)) {
        for (at, codes) in codes.chunks_exact_mut(WIDTH).enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code = (byte >> (BITS * at)) & ((1 << BITS) - 1);
            }
        }
    }
    codes
}

/// Returns the codes with more bits, from `shift` on.
pub(super) fn joined<const LEN: usize>(mut low: [u8; LEN], high: &[u8; LEN], shift: u32) -> [u8; LEN] {
    low.iter_mut().zip(high).for_each(|(low, high)| *low |= high << shift);
    low
}

/// Computes each number of a block, or of a group, from its code.
pub(super) fn fill(out: &mut [f32], codes: &[u8], number: impl Fn(u8) -> f32) {
    out.iter_mut().zip(codes).for_each(|(out, code)| *out = number(*code));
}

/// Computes the numbers of a block from the scales of each group and the codes.
pub(super) fn fill_groups<S: Copy>(
    out: &mut [f32],
    codes: &[u8],
    scales: &[S],
    number: impl Fn(S, u8) -> f32,
) {
    let size = codes.len().checked_div(scales.len()).unwrap_or(1).max(1);
    let groups = out.chunks_exact_mut(size).zip(codes.chunks_exact(size));
    groups.zip(scales).for_each(|((out, codes), scale)| fill(out, codes, |code| number(*scale, code)));
}

/// Returns the code minus `middle`.
pub(super) fn centred(code: u8, middle: u8) -> f32 {
    f32::from(code) - f32::from(middle)
}
