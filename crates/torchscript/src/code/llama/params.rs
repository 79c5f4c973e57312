//! `params.json`, and what it and the shapes together say of a LLaMA.
//!
//! Facts: `ModelArgs` and `FeedForward` in Meta's `llama-models` 0.3.0 (`models/llama3/args.py`, `model.py`);
//! `head_dim` and `hidden_dim` are Mistral's, `rope_scaling_factor` is of Meta's newer files.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use tensor::Tensor;

use crate::{Error, Result};

/// Keys that say nothing about the result.
const IGNORED: &[&str] = &["max_batch_size", "max_seq_len"];
/// Beginnings of keys that make another model of it: experts, images, quantized or adapted weights, other
/// attention, other positions.
const OTHER_MODELS: &[&str] = &[
    "attention_chunk_size",
    "attn_",
    "ffn_exp",
    "lora",
    "moe",
    "nope_",
    "quantization",
    "rope_",
    "sliding_window",
    "use_qk_norm",
    "vision",
];
/// Meta's sizes (dim, layers) of Llama 3.2, whose `params.json` does not tell that they scale by 32.
const SCALED_BY_32: &[(u64, u64)] = &[(2048, 16), (3072, 28)];

/// What `params.json` says of a model. Every value may be missing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LlamaParams {
    dim: Option<u64>,
    n_layers: Option<u64>,
    n_heads: Option<u64>,
    n_kv_heads: Option<u64>,
    head_dim: Option<u64>,
    hidden_dim: Option<u64>,
    vocab_size: Option<i64>,
    multiple_of: Option<u64>,
    ffn_dim_multiplier: Option<f64>,
    norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    use_scaled_rope: Option<bool>,
    rope_scaling_factor: Option<f64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl LlamaParams {
    /// Reads the text of a `params.json`.
    ///
    /// # Errors
    /// When it is no JSON, a value has the wrong type or is no size, or a key makes another model of it.
    pub fn from_json(text: &str) -> Result<Self> {
        let params: Self = serde_json::from_str(text).map_err(Error::Params)?;
        let off = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
        let other = params.others.iter().find(|(key, value)| {
            !off(value) && OTHER_MODELS.iter().any(|beginning| key.starts_with(beginning))
        });
        if let Some((key, _)) = other {
            return Err(Error::UnknownParam { key: key.clone() });
        }
        for (key, size) in [
            ("dim", params.dim),
            ("n_layers", params.n_layers),
            ("n_heads", params.n_heads),
            ("n_kv_heads", params.n_kv_heads),
            ("head_dim", params.head_dim),
            ("hidden_dim", params.hidden_dim),
            ("multiple_of", params.multiple_of),
        ] {
            if size == Some(0) {
                return Err(wrong(key, &0, "at least 1"));
            }
        }
        for (key, number) in [
            ("ffn_dim_multiplier", params.ffn_dim_multiplier),
            ("norm_eps", params.norm_eps),
            ("rope_theta", params.rope_theta),
            ("rope_scaling_factor", params.rope_scaling_factor),
        ] {
            if let Some(number) = number.filter(|number| *number <= 0.0) {
                return Err(wrong(key, &number, "more than 0"));
            }
        }
        Ok(params)
    }

    /// Elements of all query heads together; `dim` is the width of the model.
    pub(super) fn attention_width(&self, dim: u64) -> Option<u64> {
        match self.head_dim {
            None => Some(dim),
            Some(head_dim) => self.n_heads?.checked_mul(head_dim),
        }
    }

    /// Keys that were not looked at.
    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.others.keys().map(String::as_str).filter(|key| !IGNORED.contains(key))
    }

    /// The width of the feed-forward layers, as Meta's code computes it from `dim`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "Python's int(2 * n / 3) and int(m * n) go through a float; a size that does not fit fits no tensor"
    )]
    fn hidden(&self, dim: u64) -> Option<u64> {
        if self.hidden_dim.is_some() {
            return self.hidden_dim;
        }
        let mut hidden = (dim.checked_mul(8)? as f64 / 3.0) as u64;
        if let Some(multiplier) = self.ffn_dim_multiplier {
            hidden = (multiplier * hidden as f64) as u64;
        }
        hidden.checked_next_multiple_of(self.multiple_of?)
    }
}

fn wrong(key: &str, found: &impl ToString, expected: impl Into<String>) -> Error {
    Error::Param { key: key.to_owned(), found: found.to_string(), expected: expected.into() }
}

/// A LLaMA whose params and shapes agree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    pub(super) dim: u64,
    pub(super) n_layers: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) head_dim: u64,
    pub(super) hidden: u64,
    pub(super) vocab: u64,
    pub(super) norm_eps: f64,
    pub(super) rope_theta: f64,
    /// The factor by which long wavelengths are stretched.
    pub(super) rope_factor: Option<f64>,
}

impl Config {
    /// What `params` say, and what they leave open and the shapes tell.
    pub(super) fn new(params: &LlamaParams, tensors: &HashMap<&str, &Tensor<'_>>) -> Result<Self> {
        let layers =
            tensors.keys().filter_map(|name| layer_of(name)).max().map_or(0, |n| n.saturating_add(1));
        let n_layers = params.n_layers.unwrap_or(layers);
        if n_layers != layers {
            return Err(wrong("n_layers", &n_layers, format!("{layers}, the checkpoint's layers")));
        }
        let size = |name: &str, dimension: usize| {
            let tensor = tensors.get(name);
            tensor
                .and_then(|tensor| tensor.shape().get(dimension).copied())
                .ok_or_else(|| Error::MissingTensor { name: name.to_owned(), n_layers })
        };
        let dim = params.dim.map_or_else(|| size("tok_embeddings.weight", 1), Ok)?;
        let n_heads = params.n_heads.ok_or(Error::MissingParam { key: "n_heads" })?;
        let head_dim = params.head_dim.or_else(|| dim.checked_div(n_heads)).unwrap_or(0);
        if params.head_dim.is_none() && head_dim.checked_mul(n_heads) != Some(dim) {
            return Err(wrong("n_heads", &n_heads, format!("a divisor of dim {dim}")));
        }
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(wrong("head_dim", &head_dim, "an even size, whose halves are rotated"));
        }
        let wk =
            || size("layers.0.attention.wk.weight", 0).map(|rows| rows.checked_div(head_dim).unwrap_or(0));
        let n_kv_heads = params.n_kv_heads.map_or_else(wk, Ok)?;
        if n_kv_heads == 0 || n_heads.checked_rem(n_kv_heads) != Some(0) {
            return Err(wrong("n_kv_heads", &n_kv_heads, format!("a divisor of n_heads {n_heads}")));
        }
        let w1 = || size("layers.0.feed_forward.w1.weight", 0);
        // -1 is Llama 2's word for "the tokenizer knows".
        let vocab = match params.vocab_size {
            None | Some(-1) => size("tok_embeddings.weight", 0)?,
            Some(vocab) => u64::try_from(vocab).map_err(|_| wrong("vocab_size", &vocab, "a size, or -1"))?,
        };
        let by_32 = SCALED_BY_32.contains(&(dim, n_layers));
        let factor = || params.rope_scaling_factor.unwrap_or(if by_32 { 32.0 } else { 8.0 });
        Ok(Self {
            dim,
            n_layers,
            n_heads,
            n_kv_heads,
            head_dim,
            hidden: params.hidden(dim).map_or_else(w1, Ok)?,
            vocab,
            norm_eps: params.norm_eps.unwrap_or(1e-5),
            rope_theta: params.rope_theta.unwrap_or(10_000.0),
            rope_factor: params.use_scaled_rope.unwrap_or(false).then(factor),
        })
    }
}

/// The number of the layer that a tensor belongs to.
fn layer_of(name: &str) -> Option<u64> {
    name.strip_prefix("layers.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(json: &str, dim: u64) -> Option<u64> {
        LlamaParams::from_json(json).expect("right").hidden(dim)
    }

    #[test]
    fn the_feed_forward_width_is_metas() {
        assert_eq!(hidden(r#"{"multiple_of": 256}"#, 4096), Some(11008)); // 7B
        assert_eq!(hidden(r#"{"multiple_of": 4096, "ffn_dim_multiplier": 1.3}"#, 8192), Some(28672)); // 70B
        assert_eq!(hidden(r#"{"multiple_of": 1024, "ffn_dim_multiplier": 1.3}"#, 4096), Some(14336)); // 3.1 8B
        assert_eq!(hidden(r#"{"multiple_of": 256, "ffn_dim_multiplier": 1.5}"#, 2048), Some(8192)); // 3.2 1B
        assert_eq!(hidden(r#"{"hidden_dim": 14336}"#, 4096), Some(14336)); // Mistral
        assert_eq!(hidden("{}", 4096), None);
        assert_eq!(hidden(r#"{"multiple_of": 18446744073709551615}"#, u64::MAX), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = |json: &str| LlamaParams::from_json(json).expect_err("wrong").to_string();
        assert_eq!(error(r#"{"n_heads": 0}"#), "params.json: `n_heads` is 0, expected at least 1");
        assert_eq!(
            error(r#"{"norm_eps": -1e-5}"#),
            "params.json: `norm_eps` is -0.00001, expected more than 0"
        );
        assert_eq!(
            error(r#"{"moe": {"num_experts": 8}}"#),
            "params.json: `moe` changes the result, and this LLaMA does not know it"
        );
        assert!(error("{").starts_with("params.json: EOF while parsing"));
        assert!(error(r#"{"dim": "64"}"#).starts_with("params.json: invalid type"));
        assert!(LlamaParams::from_json(r#"{"sliding_window": null, "moe": false}"#).is_ok());
    }
}
