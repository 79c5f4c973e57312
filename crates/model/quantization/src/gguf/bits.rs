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

/// Returns the code with this index of a field of codes of `BITS` bits. The codes of `WIDTH` bytes are consecutive: first those in the
/// lowest bits of each byte, then the next ones.
pub(super) fn code<const WIDTH: usize, const BITS: usize>(field: &[u8], at: usize) -> u8 {
    let group = WIDTH * (8 / BITS);
    let within = at % group;
    (byte(field, at / group * WIDTH + within % WIDTH) >> (BITS * (within / WIDTH))) & ((1 << BITS) - 1)
}

/// Computes each number of a block from its index.
pub(super) fn fill(out: &mut [f32], number: impl Fn(usize) -> f32) {
    out.iter_mut().enumerate().for_each(|(at, out)| *out = number(at));
}

/// Returns the code minus `middle`.
pub(super) fn centred(code: u8, middle: u8) -> f32 {
    f32::from(code) - f32::from(middle)
}
