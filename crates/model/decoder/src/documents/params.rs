//! Reader of Meta's `params.json`.
//!
//! Facts: `ModelArgs` and `FeedForward` in Meta's `llama-models` 0.3.0 (`models/llama3/args.py`, `model.py`); `head_dim` and
//! `hidden_dim` are Mistral's, `rope_scaling_factor` is in Meta's newer files.

use serde::Deserialize;
use serde_json::{Map, Value};
use tensor::Tensors;

use crate::block::Block;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, RotaryDims};
use crate::layout::LayoutOwner;
use crate::overrides::{number_text, reconcile};
use crate::rope::{Llama3, Rope, RopeScaling, THETA};
use crate::weight::{LayerPart, Weight};
use crate::{DecoderNote, Error, HyperparameterKind, Overrides, Problem, Result};

/// Unread keys that do not change the result.
const IGNORED_KEYS: &[&str] = &["max_batch_size", "max_seq_len"];
/// Prefixes of keys that select an unsupported model: experts, images, quantized or adapted weights, other attention, other
/// positions.
const UNSUPPORTED_PREFIXES: &[&str] = &[
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
/// Sizes (dim, layers) of Meta's Llama 3.2 models, whose RoPE scaling factor of 32 their `params.json` does not state.
const SCALED_BY_32: &[(u64, u64)] = &[(2048, 16), (3072, 28)];

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Params {
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

impl Params {
    /// Parses the text of a `params.json`.
    ///
    /// # Errors
    /// Returns an error if the text is not JSON, a value has the wrong type or is out of range, or a key selects an
    /// unsupported model.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let params: Self = serde_json::from_str(text)
            .map_err(|error| Problem::Document { file: LayoutOwner::Meta.file(), error })?;
        let off = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
        let other = params.others.iter().find(|(key, value)| {
            !off(value) && UNSUPPORTED_PREFIXES.iter().any(|beginning| key.starts_with(beginning))
        });
        if let Some((key, _)) = other {
            return Err(Problem::UnsupportedParam { file: LayoutOwner::Meta.file(), key: key.clone() }.into());
        }
        params.check()?;
        Ok(params)
    }

    /// Returns a substitute for a missing `params.json`, with at most the size of a head.
    pub(crate) fn from_head_dim(head_dim: Option<u64>) -> Self {
        Self { head_dim, ..Self::default() }
    }

    fn check(&self) -> Result<()> {
        for (key, size) in [
            ("dim", self.dim),
            ("n_layers", self.n_layers),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("head_dim", self.head_dim),
            ("hidden_dim", self.hidden_dim),
            ("multiple_of", self.multiple_of),
        ] {
            if size == Some(0) {
                return Err(invalid_param(key, &0, "at least 1"));
            }
        }
        for (key, number) in [
            ("ffn_dim_multiplier", self.ffn_dim_multiplier),
            ("norm_eps", self.norm_eps),
            ("rope_theta", self.rope_theta),
            ("rope_scaling_factor", self.rope_scaling_factor),
        ] {
            if let Some(number) = number.filter(|number| *number <= 0.0) {
                return Err(invalid_param(key, &number, "more than 0"));
            }
        }
        // In Llama 2's files, -1 leaves the vocabulary size to the tokenizer.
        match self.vocab_size.filter(|vocab| *vocab != -1 && *vocab <= 0) {
            Some(vocab) => Err(invalid_param("vocab_size", &vocab, "a size, or -1")),
            None => Ok(()),
        }
    }

    /// Fills in the numbers that the document omits. Returns true if the caller gives the number of heads and the document
    /// does not.
    ///
    /// # Errors
    /// Returns an error if the document has another number than `given`.
    pub(crate) fn override_params(&mut self, given: &Overrides) -> Result<bool> {
        let file = LayoutOwner::Meta.file();
        let heads_given = self.n_heads.is_none() && given.n_heads.is_some();
        self.n_heads = reconcile(HyperparameterKind::Heads, file, given.n_heads, self.n_heads)?;
        self.rope_theta = reconcile(HyperparameterKind::RopeTheta, file, given.rope_theta, self.rope_theta)?;
        self.norm_eps = reconcile(HyperparameterKind::NormEps, file, given.norm_eps, self.norm_eps)?;
        if let Some(factor) = given.rope_factor {
            let fact = HyperparameterKind::RopeFactor;
            if self.use_scaled_rope == Some(false) {
                let found = "`use_scaled_rope` false".to_owned();
                return Err(Problem::Contradiction { fact, given: number_text(factor), file, found }.into());
            }
            self.rope_scaling_factor = reconcile(fact, file, Some(factor), self.rope_scaling_factor)?;
            self.use_scaled_rope = Some(true);
        }
        Ok(heads_given)
    }

    /// Returns the number of model-parallel shards if the tensors are one shard of several: attention then has that fraction
    /// of the full width.
    pub(crate) fn shard_count(&self, tensors: &Tensors) -> Option<u64> {
        let shape = |part| match shape_in_first_layer(tensors, part)? {
            [rows, columns] => Some((*rows, *columns)),
            _ => None,
        };
        // Shards split the rows of wq and the columns of wo; the other dimension is the model's width.
        let (part, dim) = shape(LayerPart::Wq)?;
        let whole = match self.head_dim {
            None => dim,
            Some(head_dim) => self.n_heads?.checked_mul(head_dim)?,
        };
        let count = whole.checked_div(part)?;
        let exact = count.checked_mul(part)? == whole && shape(LayerPart::Wo)? == (dim, part);
        (exact && count > 1).then_some(count)
    }

    pub(crate) fn params_hyperparameters(&self, tensors: &Tensors) -> Hyperparameters {
        let dim = shape_in_first_layer(tensors, LayerPart::Wq).and_then(|shape| shape.get(1).copied());
        let dim = self.dim.or(dim);
        let by_32 = dim.zip(self.n_layers).is_some_and(|size| SCALED_BY_32.contains(&size));
        let factor = || self.rope_scaling_factor.unwrap_or(if by_32 { 32.0 } else { 8.0 });
        let unused = self.others.keys().filter(|key| !IGNORED_KEYS.contains(&key.as_str()));
        let note = |key: &String| DecoderNote::UnusedKeys {
            file: LayoutOwner::Meta.file(),
            keys: vec![key.clone()],
        };
        Hyperparameters {
            dim,
            n_layers: self.n_layers,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            hidden: dim.and_then(|dim| self.feed_forward_size(dim)),
            vocab: self.vocab_size.and_then(|vocab| u64::try_from(vocab).ok()),
            norm_eps: self.norm_eps.unwrap_or(1e-5),
            rope: Rope {
                theta: self.rope_theta.unwrap_or(THETA),
                scaling: self
                    .use_scaled_rope
                    .unwrap_or(false)
                    .then(|| RopeScaling::Llama3(Llama3::with_factor(factor()))),
            },
            tied: true,
            has_document: true,
            heads_from_caller: false,
            windows: AttentionWindows::default(),
            biases: Biases::default(),
            block: Block::default(),
            rotated: RotaryDims::All,
            more_ropes: Vec::new(),
            rope_of_layer: None,
            skipped_layers: Vec::new(),
            other_embeddings: 0,
            notes: unused.map(note).collect(),
        }
    }

    fn feed_forward_size(&self, dim: u64) -> Option<u64> {
        self.hidden_dim.or_else(|| feed_forward_width(dim, self.multiple_of?, self.ffn_dim_multiplier))
    }
}

/// Returns the width of the feed-forward layers, as Meta's code computes it from `dim`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Python's int(2 * n / 3) and int(m * n) go through a float; a size that is cut off here does not match any tensor"
)]
pub(crate) fn feed_forward_width(dim: u64, multiple_of: u64, multiplier: Option<f64>) -> Option<u64> {
    let mut hidden = (dim.checked_mul(8)? as f64 / 3.0) as u64;
    if let Some(multiplier) = multiplier {
        hidden = (multiplier * hidden as f64) as u64;
    }
    hidden.checked_next_multiple_of(multiple_of)
}

fn invalid_param(key: &str, found: &impl ToString, expected: impl Into<String>) -> Error {
    Problem::InvalidParam {
        file: Some(LayoutOwner::Meta.file()),
        key: key.to_owned(),
        found: found.to_string(),
        expected: expected.into(),
    }
    .into()
}

fn shape_in_first_layer(tensors: &Tensors, part: LayerPart) -> Option<&[u64]> {
    let name = LayoutOwner::Meta.llama_names().name(Weight::Layer { layer: 0, part })?;
    Some(tensors.get(&name)?.shape())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(json: &str, dim: u64) -> Option<u64> {
        Params::from_json(json).expect("right").feed_forward_size(dim)
    }

    #[test]
    fn the_feed_forward_width_is_computed_as_meta_does() {
        assert_eq!(hidden(r#"{"multiple_of": 256}"#, 4096), Some(11008)); // 7B
        assert_eq!(hidden(r#"{"multiple_of": 4096, "ffn_dim_multiplier": 1.3}"#, 8192), Some(28672)); // 70B
        assert_eq!(hidden(r#"{"multiple_of": 1024, "ffn_dim_multiplier": 1.3}"#, 4096), Some(14336)); // 3.1 8B
        assert_eq!(hidden(r#"{"multiple_of": 256, "ffn_dim_multiplier": 1.5}"#, 2048), Some(8192)); // 3.2 1B
        assert_eq!(hidden(r#"{"hidden_dim": 14336}"#, 4096), Some(14336)); // Mistral
        assert_eq!(hidden("{}", 4096), None);
        assert_eq!(hidden(r#"{"multiple_of": 18446744073709551615}"#, u64::MAX), None);
    }

    #[test]
    fn only_the_caller_gives_heads_that_the_document_omits() {
        let given = Overrides { n_heads: Some(4), ..Overrides::default() };
        let from_caller = |json: &str, given: &Overrides| {
            Params::from_json(json).expect("valid").override_params(given).expect("no contradiction")
        };
        assert!(from_caller("{}", &given));
        assert!(!from_caller("{}", &Overrides::default()));
        assert!(!from_caller(r#"{"n_heads": 4}"#, &given));
        assert_eq!(Params::from_head_dim(Some(8)).head_dim, Some(8));
    }

    #[test]
    fn keys_that_are_neither_read_nor_ignored_have_notes() {
        let params = Params::from_json(r#"{"dim": 64, "max_batch_size": 1, "zeal": 2}"#).expect("valid");
        let notes = params.params_hyperparameters(&Tensors::default()).notes;
        assert_eq!(
            notes,
            [DecoderNote::UnusedKeys { file: LayoutOwner::Meta.file(), keys: vec!["zeal".to_owned()] }]
        );
    }

    #[test]
    fn impossible_values_are_rejected() {
        let error = |json: &str| Params::from_json(json).expect_err("wrong").to_string();
        assert_eq!(error(r#"{"n_heads": 0}"#), "params.json: `n_heads` is 0, expected at least 1");
        assert_eq!(
            error(r#"{"norm_eps": -1e-5}"#),
            "params.json: `norm_eps` is -0.00001, expected more than 0"
        );
        assert_eq!(
            error(r#"{"moe": {"num_experts": 8}}"#),
            "params.json: `moe` changes the result and is not supported"
        );
        assert!(error("{").starts_with("params.json: EOF while parsing"));
        assert!(error(r#"{"dim": "64"}"#).starts_with("params.json: invalid type"));
        assert!(Params::from_json(r#"{"sliding_window": null, "moe": false}"#).is_ok());
    }
}
