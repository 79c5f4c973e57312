//! Encodes numbers as blocks of the first types: `Q8_0`, and the four of four and five bits.
//!
//! Facts: `quants.py` of the Python package `gguf` 0.19.0, whose bytes these are, except those of a scale that is NaN: the scale is
//! rounded after the codes are computed with it, and what is not finite has the code 0.

#![expect(clippy::inline_always, reason = "vector instructions are used in what is inlined into their loop")]
#![expect(clippy::arithmetic_side_effects, reason = "numbers are floats, and lengths those of a tensor")]

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use gguf_format::GgmlType;
use kernels::{Loops, Simd, run_f32, to_f16};
use tensor::{Compute, Dtype, Inputs, Storage, Tensor, contiguous_strides};

use crate::Problem;

/// Elements of a block of each type here.
const LEN: usize = 32;
/// Largest number of blocks that are computed together: those of 64 KiB of numbers.
const BLOCKS_MAX: usize = 512;

/// Encodes the bytes of numbers as blocks of a length, each of which begins with its scale.
type Encode = fn(&[u8], &mut [u8], usize);

static ENCODERS: &[(&str, Encode)] = &[
    ("Q8_0", encode_all::<Q8_0>),
    ("Q4_0", encode_all::<Q4_0>),
    ("Q4_1", encode_all::<Q4_1>),
    ("Q5_0", encode_all::<Q5_0>),
    ("Q5_1", encode_all::<Q5_1>),
];

/// A type of blocks. A closure or a function as a value would be too large to become part of a function for the processor's
/// instructions.
trait Encoding {
    /// Encodes the numbers of a block, which has the length of the type. Implementations are `#[inline(always)]`.
    fn encode(numbers: &[f32; LEN], block: &mut [u8]);
}

fn encode_all<E: Encoding>(bytes: &[u8], blocks: &mut [u8], size: usize) {
    run_f32(AllBlocks::<E> { bytes, blocks, size, encoding: PhantomData });
}

struct AllBlocks<'b, E> {
    bytes: &'b [u8],
    blocks: &'b mut [u8],
    /// Length of a block in bytes.
    size: usize,
    encoding: PhantomData<E>,
}

impl<E: Encoding> Loops<f32> for AllBlocks<'_, E> {
    #[inline(always)]
    fn run<S: Simd<f32, N>, const N: usize>(self, _: S) {
        let all = self.bytes.as_chunks::<4>().0.as_chunks::<LEN>().0;
        for (bytes, block) in all.iter().zip(self.blocks.chunks_exact_mut(self.size)) {
            let mut numbers = [0.0; LEN];
            for (number, bytes) in numbers.iter_mut().zip(bytes) {
                *number = f32::from_le_bytes(*bytes);
            }
            E::encode(&numbers, block);
        }
    }
}

/// Returns the blocks of a type as a tensor of bytes, which are computed whenever they are read. Numbers of blocks of `Q8_0` have the same
/// blocks. `None` if the type is not written, a row does not consist of whole blocks, or the tensor does not have real numbers.
pub fn encode_blocks(tensor: &Tensor, kind: &'static GgmlType) -> Option<Tensor> {
    encode(tensor, kind, None)
}

/// Returns the blocks of `Q8_0`, as [`encode_blocks`] does. Reading them fails if a scale is not finite, with the name of the tensor.
pub fn encode_finite_q8_0(name: &str, tensor: &Tensor) -> Option<Tensor> {
    encode(tensor, GgmlType::from_name("Q8_0")?, Some(name.into()))
}

fn encode(tensor: &Tensor, kind: &'static GgmlType, finite: Option<Arc<str>>) -> Option<Tensor> {
    if kind.name == "Q8_0"
        && let Some(blocks) = tensor.q8_0_blocks()
    {
        return blocks.reshaped(blocks.shape()).ok();
    }
    let (_, encode) = ENCODERS.iter().find(|(name, _)| *name == kind.name)?;
    let nbytes = kind.nbytes(tensor.shape())?;
    let numbers = tensor.cast(Dtype::Float32)?.reshaped(&[tensor.numel()]).ok()?;
    let blocks = EncodedBlocks {
        start: numbers.span().start,
        numbers: [numbers.storage().clone()],
        encode: *encode,
        size: usize::try_from(kind.block_bytes).ok()?,
        nbytes,
        finite,
    };
    let mut shape = tensor.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = *last / kind.block_len * kind.block_bytes;
    }
    let strides = contiguous_strides(&shape);
    Tensor::new(Dtype::UInt8, shape, strides, 0, Storage::computed(Arc::new(blocks))).ok()
}

#[derive(Debug)]
struct EncodedBlocks {
    /// Storage of float32.
    numbers: [Storage; 1],
    /// Offset of the first number in bytes.
    start: u64,
    encode: Encode,
    /// Length of a block in bytes.
    size: usize,
    nbytes: u64,
    /// Name of the tensor, if its scales must be finite.
    finite: Option<Arc<str>>,
}

impl Compute for EncodedBlocks {
    fn len(&self) -> u64 {
        self.nbytes
    }

    fn inputs(&self) -> &[Storage] {
        &self.numbers
    }

    fn granule(&self) -> u64 {
        1
    }

    fn is_costly(&self) -> bool {
        true
    }

    /// A window of whole blocks has about as many bytes of numbers as any other window.
    fn window(&self) -> u64 {
        (16 * BLOCKS_MAX * self.size) as u64
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> byte_source::Result<()> {
        let size = self.size as u64;
        let mut block = offset / size;
        let mut skipped = usize::try_from(offset % size).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut left = buffer;
        let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let count = (skipped + left.len()).div_ceil(self.size).min(BLOCKS_MAX);
            bytes.resize(count * LEN * 4, 0);
            inputs.read(0, &mut bytes, self.start + block * (LEN as u64 * 4))?;
            blocks.resize(count * self.size, 0);
            (self.encode)(&bytes, &mut blocks, self.size);
            self.check_scales(&blocks)?;
            let part = blocks.get(skipped..).unwrap_or_default();
            let (now, later) = left.split_at_mut(part.len().min(left.len()));
            now.copy_from_slice(part.get(..now.len()).unwrap_or_default());
            (left, skipped, block) = (later, 0, block + count as u64);
        }
        Ok(())
    }
}

impl EncodedBlocks {
    /// Refuses a float16 scale that is infinite or not a number, if scales must be finite.
    fn check_scales(&self, blocks: &[u8]) -> byte_source::Result<()> {
        let Some(name) = &self.finite else { return Ok(()) };
        let mut high_bytes = blocks.iter().skip(1).step_by(self.size);
        if high_bytes.any(|byte| byte & 0x7c == 0x7c) {
            return Err(byte_source::Error::from(Problem::NoScale).in_tensor(name));
        }
        Ok(())
    }
}

/// Writes a number as float16, and returns the rest of the block.
#[inline(always)]
fn put_half(number: f32, block: &mut [u8]) -> &mut [u8] {
    let (half, rest) = block.split_at_mut_checked(2).unwrap_or_default();
    half.iter_mut().zip(to_f16(number).to_le_bytes()).for_each(|(byte, half)| *byte = half);
    rest
}

/// Returns the number that is not a number, if there is one, else the one that `is_better` than all before it.
#[inline(always)]
fn choose(numbers: &[f32; LEN], is_better: impl Fn(f32, f32) -> bool) -> f32 {
    let mut chosen = numbers[0];
    for number in numbers {
        if !chosen.is_nan() && (number.is_nan() || is_better(*number, chosen)) {
            chosen = *number;
        }
    }
    chosen
}

#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

struct Q8_0;

impl Encoding for Q8_0 {
    #[inline(always)]
    fn encode(numbers: &[f32; LEN], block: &mut [u8]) {
        // As integers, absolute values are in their order, and what is not a number is above infinity.
        let largest = numbers.iter().map(|number| number.abs().to_bits()).max().unwrap_or_default();
        let largest = if largest > f32::INFINITY.to_bits() { f32::NAN } else { f32::from_bits(largest) };
        let scale = largest / 127.0;
        let inverse = inverse(scale);
        for (code, number) in put_half(scale, block).iter_mut().zip(numbers) {
            let scaled = number * inverse;
            let (nearest, even) = nearest(scaled);
            // Of two integers, the one that is farther from zero.
            let is_between = (scaled - nearest).to_bits() == 0.5_f32.copysign(scaled).to_bits();
            let step = if scaled.is_sign_negative() { 255 } else { 1 };
            let rounded = even.wrapping_add(if is_between { step } else { 0 });
            *code = if scaled.is_finite() { rounded } else { 0 };
        }
    }
}

/// Returns the nearest integer of a small number, of two the even one, and its lowest byte. There are vector instructions for this, and
/// none for a conversion with bounds.
#[expect(clippy::cast_possible_truncation, reason = "the lowest byte is wanted")]
#[inline(always)]
fn nearest(number: f32) -> (f32, u8) {
    // Its last bits are units.
    const UNITS: f32 = 12_582_912.0;
    let shifted = number + UNITS;
    (shifted - UNITS, shifted.to_bits() as u8)
}

/// Computes codes below `limit` of the numbers less `least`; `shift` rounds, and makes codes positive.
#[inline(always)]
fn codes(numbers: &[f32; LEN], least: f32, inverse: f32, shift: f32, limit: u8) -> [u8; LEN] {
    numbers.map(|number| {
        let code = (number - least) * inverse + shift;
        let positive = code.max(0.0);
        let (nearest, whole) = nearest(positive);
        let whole = if nearest > positive { whole.wrapping_sub(1) } else { whole };
        if code.is_finite() { whole.min(limit) } else { 0 }
    })
}

/// Packs the highest of five bits, if there are five, and the other four.
#[inline(always)]
fn put_codes(codes: &[u8; LEN], has_five: bool, block: &mut [u8]) {
    let (high, block) = block.split_at_mut_checked(if has_five { 4 } else { 0 }).unwrap_or_default();
    for (byte, codes) in high.iter_mut().zip(codes.chunks_exact(8)) {
        *byte = codes.iter().rev().fold(0, |bits, code| bits << 1 | code >> 4 & 1);
    }
    let (first, second) = codes.split_at(LEN / 2);
    for ((byte, low), high) in block.iter_mut().zip(first).zip(second) {
        *byte = low & 15 | high << 4;
    }
}

/// Codes around zero: the number that is farthest from it has the least code.
#[inline(always)]
fn centred(numbers: &[f32; LEN], half: f32, limit: u8, block: &mut [u8]) {
    let scale = choose(numbers, |number, farthest| number.abs() > farthest.abs()) / -half;
    let block = put_half(scale, block);
    let codes = codes(numbers, 0.0, inverse(scale), half + 0.5, limit);
    put_codes(&codes, limit > 15, block);
}

/// Codes from the least number on.
#[inline(always)]
fn from_least(numbers: &[f32; LEN], limit: u8, block: &mut [u8]) {
    let least = choose(numbers, |number, least| number < least);
    let most = choose(numbers, |number, most| number > most);
    let scale = (most - least) / f32::from(limit);
    let block = put_half(least, put_half(scale, block));
    let codes = codes(numbers, least, inverse(scale), 0.5, limit);
    put_codes(&codes, limit > 15, block);
}

struct Q4_0;

impl Encoding for Q4_0 {
    #[inline(always)]
    fn encode(numbers: &[f32; LEN], block: &mut [u8]) {
        centred(numbers, 8.0, 15, block);
    }
}

struct Q5_0;

impl Encoding for Q5_0 {
    #[inline(always)]
    fn encode(numbers: &[f32; LEN], block: &mut [u8]) {
        centred(numbers, 16.0, 31, block);
    }
}

struct Q4_1;

impl Encoding for Q4_1 {
    #[inline(always)]
    fn encode(numbers: &[f32; LEN], block: &mut [u8]) {
        from_least(numbers, 15, block);
    }
}

struct Q5_1;

impl Encoding for Q5_1 {
    #[inline(always)]
    fn encode(numbers: &[f32; LEN], block: &mut [u8]) {
        from_least(numbers, 31, block);
    }
}
