//! Experts of gpt-oss in MXFP4, as they are published: its blocks as those of llama.cpp, whose numbers they are.
//!
//! Facts: `generate_extra_tensors` of `GptOssModel` in llama.cpp's converter. A block there is its exponent and 16 bytes, each with a code
//! of the first half and one of the second; in `transformers`, two codes that follow each other share a byte.

#![expect(clippy::arithmetic_side_effects, reason = "lengths are those of tensors")]

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use byte_source::Result;
use gguf_format::{GgmlType, GgufOutput};
use tensor::{Compute, Dtype, Inputs, Storage, Tensor, contiguous_strides};

use crate::Problem;
use crate::names::{ModuleNames, language_name};
use crate::views::half;

/// Bytes of codes of a block, before which is its exponent.
const CODES: usize = 16;
const BLOCK: usize = CODES + 1;
/// Largest number of blocks that are read together.
const BLOCKS_MAX: usize = 1 << 12;

/// Returns the experts that are packed, in the order of their exponents, and the names of the tensors that they are made of.
///
/// # Errors
/// When a tensor has another shape than its exponents say.
pub(crate) fn packed_experts<'t>(
    tensors: &'t [(String, Tensor)],
    names: &ModuleNames,
    layers: u64,
) -> Result<(Vec<GgufOutput>, HashSet<&'t str>)> {
    let known: HashMap<&str, &Tensor> = tensors.iter().map(|(name, it)| (name.as_str(), it)).collect();
    let (mut placed, mut used) = (Vec::new(), HashSet::new());
    for (name, exponents) in tensors {
        let codes = name.strip_suffix("_scales").map(|start| format!("{start}_blocks"));
        let codes = codes.and_then(|codes| known.get_key_value(codes.as_str()));
        let (Some((codes_name, codes)), Some(short)) = (codes, language_name(name)) else { continue };
        let Some(split) = names.split(&short).filter(|split| split.layer < Some(layers)) else { continue };
        let roles: &[&str] = match split.weight {
            "mlp.experts.down_proj_scales" => &["ffn_down_exps"],
            "mlp.experts.gate_up_proj_scales" => &["ffn_gate_exps", "ffn_up_exps"],
            _ => continue,
        };
        for (part, role) in (0..).zip(roles) {
            let packed = match roles.len() {
                1 => blocks(codes, exponents),
                _ => blocks(&half(codes, 1, part, true)?, &half(exponents, 1, part, true)?),
            };
            let (kind, shape, data) = packed.ok_or_else(|| Problem::Shape {
                tensor: (*codes_name).to_owned(),
                shape: codes.shape().to_vec(),
                expected: format!("16 bytes for each of {:?}", exponents.shape()),
            })?;
            placed.push(GgufOutput { name: split.in_layer(role, ".weight"), kind, shape, data });
        }
        used.extend([name.as_str(), codes_name]);
    }
    Ok((placed, used))
}

/// Returns the type, the shape and the bytes of blocks; `None` if codes and exponents do not belong together.
fn blocks(codes: &Tensor, exponents: &Tensor) -> Option<(&'static GgmlType, Vec<u64>, Tensor)> {
    let kind = GgmlType::from_name("MXFP4")?;
    let (&[experts, rows, groups], &[.., bytes]) = (exponents.shape(), codes.shape()) else { return None };
    let fits = codes.shape() == [experts, rows, groups, CODES as u64] && bytes == CODES as u64;
    if !fits || [codes, exponents].iter().any(|tensor| tensor.dtype() != Dtype::UInt8) {
        return None;
    }
    let shape = vec![experts, rows, groups.checked_mul(kind.block_len)?];
    let nbytes = kind.nbytes(&shape)?;
    let flat = |tensor: &Tensor| tensor.reshaped(&[tensor.numel()]).ok();
    let (codes, exponents) = (flat(codes)?, flat(exponents)?);
    let starts = [codes.span().start, exponents.span().start];
    let inputs = [codes.storage().clone(), exponents.storage().clone()];
    let bytes_shape = vec![experts, rows, groups.checked_mul(kind.block_bytes)?];
    let strides = contiguous_strides(&bytes_shape);
    let storage = Storage::computed(Arc::new(Blocks { inputs, starts, nbytes }));
    Some((kind, shape, Tensor::new(Dtype::UInt8, bytes_shape, strides, 0, storage).ok()?))
}

/// Blocks, each of which is made of 16 bytes of the first input and one of the second.
#[derive(Debug)]
struct Blocks {
    inputs: [Storage; 2],
    /// Offsets of the first bytes.
    starts: [u64; 2],
    nbytes: u64,
}

impl Compute for Blocks {
    fn len(&self) -> u64 {
        self.nbytes
    }

    fn inputs(&self) -> &[Storage] {
        &self.inputs
    }

    fn granule(&self) -> u64 {
        1
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut block = offset / BLOCK as u64;
        let mut skipped = usize::try_from(offset % BLOCK as u64).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut left = buffer;
        let [codes_start, exponents_start] = self.starts;
        let (mut codes, mut exponents, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
        while !left.is_empty() {
            let count = (skipped + left.len()).div_ceil(BLOCK).min(BLOCKS_MAX);
            codes.resize(count, [0; CODES]);
            exponents.resize(count, 0);
            inputs.read(0, codes.as_flattened_mut(), codes_start + block * CODES as u64)?;
            inputs.read(1, &mut exponents, exponents_start + block)?;
            blocks.clear();
            for (codes, exponent) in codes.iter().zip(&exponents) {
                blocks.push(*exponent);
                blocks.extend(halves(codes));
            }
            let part = blocks.get(skipped..).unwrap_or_default();
            let (now, later) = left.split_at_mut(part.len().min(left.len()));
            now.copy_from_slice(part.get(..now.len()).unwrap_or_default());
            (left, skipped, block) = (later, 0, block + count as u64);
        }
        Ok(())
    }
}

/// Puts each code of the first half into a byte with one of the second.
fn halves(pairs: &[u8; CODES]) -> [u8; CODES] {
    let mut bytes = [0; CODES];
    let (first, second) = pairs.split_at(CODES / 2);
    for ((two, first), second) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(first).zip(second) {
        *two = [(first & 15) | (second << 4), (first >> 4) | (second & 0xf0)];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_halves_share_a_byte() {
        let code = |at: usize| u8::try_from((7 * at + at / 16) % 16).expect("it is below 16");
        let pairs = std::array::from_fn(|at| code(2 * at) | (code(2 * at + 1) << 4));
        let expected = std::array::from_fn(|at| code(at) | (code(at + 16) << 4));
        assert_eq!(halves(&pairs), expected);
    }
}
