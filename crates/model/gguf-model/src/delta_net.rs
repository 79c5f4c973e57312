//! `DeltaNet` layers of Qwen, whose heads of values have another order in llama.cpp, and some of whose weights another form.
//!
//! Facts: `Qwen3NextModel` and `_LinearAttentionVReorderBase` in `conversion/qwen.py` of llama.cpp's converter. In `transformers`, heads of
//! values follow each other by the head of keys that they share, and in Qwen 3.5's files the first ones of all heads of keys come first.

use byte_source::Result;
use tensor::Tensor;

use crate::architecture::Architecture;
use crate::mapped::mapped;
use crate::views::{joined_groups, parts_of_groups};

/// Sizes of the heads of a `DeltaNet`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaNetHeads {
    keys: u64,
    /// Heads of values for each head of keys.
    per_key: u64,
    /// Rows of a head of keys.
    key_dim: u64,
    /// Rows of the heads of values of a head of keys.
    value_rows: u64,
    /// True if files have the heads of values in another order.
    is_reordered: bool,
}

impl DeltaNetHeads {
    /// Reads the sizes of an architecture; `None` if it has no such layers.
    ///
    /// # Errors
    /// Those of `size`, which returns the number of a key of `config.json`.
    pub(crate) fn read(
        architecture: &Architecture,
        size: impl Fn(&'static str) -> Result<u64>,
    ) -> Result<Option<Self>> {
        if !architecture.has_delta_net() {
            return Ok(None);
        }
        let keys = size("linear_num_key_heads")?;
        let per_key = size("linear_num_value_heads")?.checked_div(keys).unwrap_or_default();
        Ok(Some(Self {
            keys,
            per_key,
            key_dim: size("linear_key_head_dim")?,
            value_rows: per_key.saturating_mul(size("linear_value_head_dim")?),
            is_reordered: architecture.name != "qwen3next",
        }))
    }

    /// Returns a weight as llama.cpp has it, by its name there; `None` for one that is not a tensor of real numbers.
    pub(crate) fn converted(self, known: &str, tensor: &Tensor) -> Result<Option<Tensor>> {
        let tensor = self.reordered(known, tensor, [self.keys, self.per_key])?;
        Ok(match (known, tensor.shape()) {
            ("ssm_a", _) => mapped(&tensor, |number| -exp(number)),
            ("ssm_conv1d", [channels, 1, kernel]) => Some(tensor.reshaped(&[*channels, *kernel])?),
            _ => Some(tensor),
        })
    }

    /// Returns a weight as `transformers` has it, by its name in llama.cpp; `None` for one that is not a tensor of real numbers.
    pub(crate) fn restored(self, known: &str, tensor: &Tensor) -> Result<Option<Tensor>> {
        let tensor = match known {
            "ssm_a" => mapped(tensor, |number| ln(-number)),
            "ssm_conv1d" => tensor.unsqueeze(1),
            _ => Some(tensor.clone()),
        };
        let Some(tensor) = tensor else { return Ok(None) };
        Ok(Some(self.reordered(known, &tensor, [self.per_key, self.keys])?))
    }

    /// Exchanges the `counts` of heads of values, by which they are numbered, in the dimension that a weight has for them.
    fn reordered(self, known: &str, tensor: &Tensor, counts: [u64; 2]) -> Result<Tensor> {
        let all_keys = self.keys.saturating_mul(self.key_dim).saturating_mul(2);
        let rows = tensor.shape().first().copied().unwrap_or_default();
        match known {
            _ if !self.is_reordered => Ok(tensor.clone()),
            "attn_gate" | "ssm_beta" | "ssm_alpha" | "ssm_a" | "ssm_dt" => Ok(exchanged(tensor, 1, counts)?),
            "ssm_out" => Ok(exchanged(tensor, rows, counts)?),
            "attn_qkv" | "ssm_conv1d" => {
                let mut parts = parts_of_groups(tensor, 1, &[all_keys, rows.saturating_sub(all_keys)])?;
                for values in parts.iter_mut().skip(1) {
                    *values = exchanged(values, 1, counts)?;
                }
                Ok(Tensor::concat(0, &parts)?)
            }
            _ => Ok(tensor.clone()),
        }
    }

    /// Divides the joined matrix of Qwen 3 Next into queries, keys and values, and gates.
    pub(crate) fn divided(self, tensor: &Tensor) -> Result<(Tensor, Tensor)> {
        let counts = [self.key_dim, self.key_dim, self.value_rows, self.value_rows];
        let mut parts = parts_of_groups(tensor, self.keys, &counts)?;
        let gates = parts.split_off(3);
        Ok((Tensor::concat(0, &parts)?, Tensor::concat(0, &gates)?))
    }

    /// Joins the matrices that [`divided`](Self::divided) returns.
    pub(crate) fn joined(self, qkv: &Tensor, gates: &Tensor) -> Result<Tensor> {
        let [key, value] = [self.key_dim, self.value_rows].map(|rows| rows.saturating_mul(self.keys));
        let mut parts = parts_of_groups(qkv, 1, &[key, key, value])?;
        parts.push(gates.clone());
        Ok(joined_groups(&parts, self.keys)?)
    }
}

/// Views the elements as `groups` × `first` × `second` × the rest, and exchanges the `first` and the `second`.
fn exchanged(tensor: &Tensor, groups: u64, [first, second]: [u64; 2]) -> Result<Tensor, tensor::Error> {
    let counts = [groups, first, second];
    let rest = counts.iter().try_fold(tensor.numel(), |rest, count| rest.checked_div(*count));
    let grid = tensor.reshaped(&[groups, first, second, rest.unwrap_or_default()])?;
    grid.transpose(1, 2).unwrap_or(grid).reshaped(tensor.shape())
}

/// Computes the exponential as float32 has it.
#[expect(clippy::cast_possible_truncation, reason = "a number of float32 is wanted")]
fn exp(number: f32) -> f32 {
    libm::exp(number.into()) as f32
}

/// Computes the natural logarithm as float32 has it.
#[expect(clippy::cast_possible_truncation, reason = "a number of float32 is wanted")]
fn ln(number: f32) -> f32 {
    libm::log(number.into()) as f32
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage};

    use super::*;

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        let mut bytes: Vec<u8> = Vec::new();
        byte_source::Blob::write_to(&tensor.gathered(), &mut bytes).expect("memory can be read");
        bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
    }

    #[test]
    fn each_weight_comes_back() {
        let heads = DeltaNetHeads { keys: 2, per_key: 2, key_dim: 1, value_rows: 2, is_reordered: true };
        let tensor = |shape: &[u64]| {
            let count = u16::try_from(shape.iter().product::<u64>()).expect("it is small");
            let numbers = (0..count).flat_map(|number| f32::from(number).to_le_bytes());
            let storage = Storage::owned(numbers.collect());
            Tensor::new(Dtype::Float32, shape.to_vec(), tensor::contiguous_strides(shape), 0, storage)
                .expect("it is whole")
        };
        for (known, shape) in [
            ("ssm_dt", &[4][..]),
            ("ssm_beta", &[4, 3]),
            ("attn_gate", &[4, 3]),
            ("ssm_out", &[3, 4]),
            ("attn_qkv", &[8, 3]),
            ("ssm_conv1d", &[8, 1, 3]),
        ] {
            let before = tensor(shape);
            let inside = heads.converted(known, &before).expect("its shape is right").expect("numbers");
            assert_ne!(numbers(&inside), numbers(&before), "{known}");
            let after = heads.restored(known, &inside).expect("its shape is right").expect("numbers");
            assert_eq!((after.shape(), numbers(&after)), (shape, numbers(&before)), "{known}");
        }
        assert_eq!(
            numbers(&heads.converted("ssm_dt", &tensor(&[4])).expect("right").expect("numbers")),
            [0.0, 2.0, 1.0, 3.0]
        );
        let joined = tensor(&[12, 2]);
        let (qkv, gates) = heads.divided(&joined).expect("its shape is right");
        assert_eq!(
            numbers(&gates.reshaped(&[8]).expect("8")),
            [8.0, 9.0, 10.0, 11.0, 20.0, 21.0, 22.0, 23.0]
        );
        assert_eq!(numbers(&heads.joined(&qkv, &gates).expect("they fit")), numbers(&joined));
        heads.converted("attn_qkv", &tensor(&[3, 3])).expect_err("too few rows");
        heads.divided(&tensor(&[11, 2])).expect_err("too few rows");
    }
}
