//! Arbitrary tensors, each with the elements that it must have, computed without the code that is tested.

use byte_source::{Blob, Region};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use tensor::{ByteOrder, Dtype, NegConj, Storage, Tensor};

use crate::input::source;

/// Concatenations of concatenations, and signs flipped twice, down to here.
const MAX_DEPTH: usize = 2;

/// The bytes that a blob sends, whose number it gave before.
///
/// # Errors
/// When the blob cannot be read.
pub fn bytes(blob: &dyn Blob) -> std::result::Result<Vec<u8>, byte_source::Error> {
    let mut out: Vec<u8> = Vec::new();
    blob.write_to(&mut out)?;
    assert_eq!(out.len() as u64, blob.len());
    Ok(out)
}

/// The elements of a tensor in C order, copied one by one from the bytes of its storage.
pub fn naive(tensor: &Tensor, storage: &[u8]) -> Vec<u8> {
    let size = tensor.dtype().size();
    let mut out = Vec::new();
    for number in 0..tensor.numel() {
        let (mut number, mut at) = (number, tensor.storage_offset());
        for (size, stride) in tensor.shape().iter().zip(tensor.stride()).rev() {
            at += number % size * stride;
            number /= size;
        }
        let start = (at * size) as usize;
        out.extend_from_slice(&storage[start..start + size as usize]);
    }
    out
}

/// Any dtype.
///
/// # Errors
/// When all of the input is used.
pub fn dtype(u: &mut Unstructured<'_>) -> Result<Dtype> {
    let all: Vec<Dtype> = Dtype::all().collect();
    u.choose(&all).copied()
}

/// A shape, strides and an offset, all small.
///
/// # Errors
/// When all of the input is used.
pub fn layout(u: &mut Unstructured<'_>) -> Result<(Vec<u64>, Vec<u64>, u64)> {
    let rank = u.int_in_range(0..=4)?;
    let mut shape = Vec::new();
    for _ in 0..rank {
        shape.push(u.int_in_range(0..=5)?);
    }
    let stride = if u.ratio(1, 3)? {
        tensor::contiguous_strides(&shape)
    } else {
        (0..rank).map(|_| u.int_in_range(0..=9)).collect::<Result<_>>()?
    };
    Ok((shape, stride, u.int_in_range(0..=7)?))
}

/// Bytes up to the end of the last element.
pub fn needed(dtype: Dtype, shape: &[u64], stride: &[u64], offset: u64) -> u64 {
    if shape.contains(&0) {
        return 0;
    }
    let last: u64 = shape.iter().zip(stride).map(|(size, stride)| (size - 1) * stride).sum();
    (offset + last + 1) * dtype.size()
}

/// A tensor over any kind of storage, and its elements in C order.
///
/// # Errors
/// When all of the input is used.
pub fn tensor(u: &mut Unstructured<'_>) -> Result<(Tensor, Vec<u8>)> {
    let dtype = dtype(u)?;
    strided(u, dtype, 0)
}

fn strided(u: &mut Unstructured<'_>, dtype: Dtype, depth: usize) -> Result<(Tensor, Vec<u8>)> {
    let (shape, stride, offset) = layout(u)?;
    over(u, dtype, shape, stride, offset, depth)
}

fn over(
    u: &mut Unstructured<'_>,
    dtype: Dtype,
    shape: Vec<u64>,
    stride: Vec<u64>,
    offset: u64,
    depth: usize,
) -> Result<(Tensor, Vec<u8>)> {
    let needed = needed(dtype, &shape, &stride, offset);
    let rest = u.int_in_range(0..=17)?;
    let (storage, bytes) = storage(u, dtype, needed + rest, depth)?;
    let tensor = Tensor::new(dtype, shape, stride, offset, storage);
    let tensor = tensor.expect("the storage has the bytes that the view needs");
    let expected = naive(&tensor, &bytes);
    Ok((tensor, expected))
}

/// A storage of at least `len` bytes, and what it must read as.
fn storage(u: &mut Unstructured<'_>, dtype: Dtype, len: u64, depth: usize) -> Result<(Storage, Vec<u8>)> {
    let component = dtype.component_size();
    let kinds = if depth < MAX_DEPTH { 4 } else { 2 };
    match u.int_in_range(0..=kinds)? {
        0 => {
            let bytes = pattern(u, len)?;
            Ok((Storage::owned(bytes.clone()), bytes))
        }
        1 => {
            let bytes = pattern(u, len)?;
            let before = u.int_in_range(0..=3)?;
            let file = [vec![0xee; before].as_slice(), &bytes, &[0xee]].concat();
            let region = Region::new(&source(&file), before as u64..(before + bytes.len()) as u64);
            Ok((Storage::stored(region.expect("it is inside the file"), None), bytes))
        }
        2 => {
            let bytes = pattern(u, len.next_multiple_of(component))?;
            let storage = Storage::owned(bytes.clone()).with_byte_order(ByteOrder::Big, component);
            let swapped = bytes.chunks(component as usize).flat_map(|number| number.iter().rev());
            Ok((storage, swapped.copied().collect()))
        }
        3 => {
            let (base, mut bytes) = storage(u, dtype, len.next_multiple_of(component * 2), depth + 1)?;
            let signs = *u.choose(&[NegConj::All, NegConj::Imaginary, NegConj::Real])?;
            for (index, number) in bytes.chunks_exact_mut(component as usize).enumerate() {
                let flips = match signs {
                    NegConj::All => true,
                    NegConj::Imaginary => index % 2 == 1,
                    NegConj::Real => index % 2 == 0,
                };
                if flips {
                    *number.last_mut().expect("a component has bytes") ^= 0x80;
                }
            }
            Ok((base.with_flipped_signs(component, signs), bytes))
        }
        _ => concat(u, dtype, len, depth + 1),
    }
}

/// Tensors that are joined along a dimension; the first is large enough for `len` bytes.
fn concat(u: &mut Unstructured<'_>, dtype: Dtype, len: u64, depth: usize) -> Result<(Storage, Vec<u8>)> {
    let rest: u64 = u.int_in_range(1..=3)?;
    let first = len.div_ceil(dtype.size()).max(1);
    let mut shape = vec![first.div_ceil(rest), rest];
    if u.ratio(1, 3)? {
        shape.insert(0, u.int_in_range(1..=2)?);
    }
    let dim = u.int_in_range(0..=shape.len() - 1)?;
    let (mut parts, mut elements) = (Vec::new(), Vec::new());
    for _ in 0..u.int_in_range(1..=3)? {
        let mut stride = tensor::contiguous_strides(&shape);
        if u.ratio(1, 2)? {
            // Any other order of the dimensions, or elements that repeat.
            stride.rotate_left(1);
        }
        let offset = u.int_in_range(0..=3)?;
        let (part, expected) = over(u, dtype, shape.clone(), stride, offset, depth)?;
        parts.push(part);
        elements.push((shape.clone(), expected));
        shape[dim] = u.int_in_range(0..=shape[dim])?;
    }
    let joined = Tensor::concat(dim, &parts).expect("they differ in one dimension");
    let (storage, joined) = (joined.storage().clone(), joined.shape().to_vec());
    let size = dtype.size() as usize;
    let outer: u64 = joined[..dim].iter().product();
    let mut expected = Vec::new();
    for row in 0..outer as usize {
        for (shape, bytes) in &elements {
            let run = shape[dim..].iter().product::<u64>() as usize * size;
            expected.extend_from_slice(&bytes[row * run..(row + 1) * run]);
        }
    }
    Ok((storage, expected))
}

/// Bytes that differ from their neighbours.
fn pattern(u: &mut Unstructured<'_>, len: u64) -> Result<Vec<u8>> {
    let seed: u8 = u.arbitrary()?;
    let byte = |index: u64| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ seed;
    Ok((0..len).map(byte).collect())
}
