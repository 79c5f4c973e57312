//! Writer of the documents of a model in another layout: `config.json` and `params.json`.
//!
//! Facts: `LlamaConfig` in Hugging Face's `transformers` 5.23, which still reads the keys of version 4, so that both
//! versions read these files; `ModelArgs`, `FeedForward` and `apply_scaling` in Meta's `llama-models` 0.3.0.

use serde_json::{Map, Value, json};
use tensor::{Dtype, Tensors};

use crate::documents::config::FREQUENCIES_KEY;
use crate::documents::params::feed_forward_width;
use crate::documents::token_ids::TokenIds;
use crate::feed_forward::Activation;
use crate::layout::LayoutOwner;
use crate::rope::{Llama3, Rope, RopeScaling};
use crate::sizes::Decoder;
use crate::{DecoderNote, Problem, Result};

/// A generated document that describes a model in another layout.
#[derive(Clone, Debug)]
pub struct LayoutDocument {
    owner: LayoutOwner,
    keys: Map<String, Value>,
}

impl LayoutDocument {
    /// Returns the name of the file, such as `config.json`.
    pub fn file(&self) -> &'static str {
        self.owner.file()
    }

    /// Creates a `config.json` with these keys.
    pub fn of_hugging_face(keys: Map<String, Value>) -> Self {
        Self { owner: LayoutOwner::HuggingFace, keys }
    }

    /// Returns the text of the document for these tensors: a `config.json` states their dtype.
    pub fn text(&self, tensors: &Tensors) -> String {
        let mut keys = self.keys.clone();
        if self.owner == LayoutOwner::HuggingFace
            && let Some(dtype) = promoted_dtype(tensors)
        {
            keys.insert("torch_dtype".to_owned(), dtype.name().into());
        }
        keys.sort_keys();
        format!("{:#}\n", Value::Object(keys))
    }

    /// Builds the `config.json` of a model. `tied` means that the output matrix is the embeddings; `frequencies` are the
    /// names and dtypes of rotary frequency tensors to record.
    pub(crate) fn config(
        decoder: &Decoder,
        tied: bool,
        frequencies: &[(String, Dtype)],
        ids: &TokenIds,
    ) -> Self {
        let (architecture, rope, biases) = (decoder.architecture(), decoder.rope(), decoder.biases());
        let scaling = llama3_scaling(rope).map(|Llama3 { factor, low, high, old }| {
            json!({
                "factor": factor,
                "high_freq_factor": high,
                "low_freq_factor": low,
                "original_max_position_embeddings": json_number(old),
                "rope_type": "llama3",
            })
        });
        let recorded: Map<String, Value> =
            frequencies.iter().map(|(name, dtype)| (name.clone(), dtype.name().into())).collect();
        let mut document = Self::new(
            LayoutOwner::HuggingFace,
            &[
                ("architectures", json!([format!("{}ForCausalLM", architecture.class())])),
                ("attention_bias", biases.qkv.into()),
                ("head_dim", decoder.head_dim().into()),
                ("hidden_act", "silu".into()),
                ("hidden_size", decoder.dim().into()),
                ("intermediate_size", decoder.hidden().into()),
                ("max_position_embeddings", context_length(rope).into()),
                ("mlp_bias", biases.feed_forward.into()),
                ("model_type", architecture.name().into()),
                ("num_attention_heads", decoder.n_heads().into()),
                ("num_hidden_layers", decoder.n_layers().into()),
                ("num_key_value_heads", decoder.n_kv_heads().into()),
                ("rms_norm_eps", decoder.norm_eps().into()),
                (FREQUENCIES_KEY, if recorded.is_empty() { Value::Null } else { recorded.into() }),
                ("rope_scaling", scaling.into()),
                ("rope_theta", rope.theta.into()),
                ("tie_word_embeddings", tied.into()),
                ("use_cache", true.into()),
                ("vocab_size", decoder.vocab().into()),
            ],
        );
        // Without these keys, `LlamaConfig` would assume the ids of Llama 2.
        document.keys.insert("bos_token_id".to_owned(), ids.begin.clone());
        document.keys.insert("eos_token_id".to_owned(), ids.end.clone());
        document
    }

    /// Builds the `params.json` of a model.
    ///
    /// # Errors
    /// Returns an error if Meta's code cannot express the model.
    pub(crate) fn params(decoder: &Decoder) -> Result<Self> {
        let (dim, hidden) = (decoder.dim(), decoder.hidden());
        let inexpressible = |what: String, why: &str| Problem::Inexpressible {
            file: LayoutOwner::Meta.file(),
            what,
            why: why.to_owned(),
        };
        let Some((multiple_of, multiplier)) = feed_forward_multiples(dim, hidden) else {
            return Err(inexpressible(
                format!("a feed-forward width of {hidden} with dim {dim}"),
                "no `multiple_of` that is a power of two leads to it, with or without an `ffn_dim_multiplier` of two decimals",
            ).into());
        };
        let (theta, scaling) = (decoder.rope().theta, llama3_scaling(decoder.rope()));
        if decoder.rope().scaling.is_some() && scaling.is_none() {
            let what = "RoPE scaling of this kind".to_owned();
            return Err(inexpressible(what, "Meta's code has only that of Llama 3.1").into());
        }
        if decoder.block().activation != Activation::Silu {
            let what = "this activation of the feed-forward layers".to_owned();
            return Err(inexpressible(what, "Meta's code has only SiLU").into());
        }
        if let Some(scaling) = scaling.filter(|scaling| *scaling != Llama3::with_factor(scaling.factor)) {
            let Llama3 { low, high, old, .. } = scaling;
            return Err(inexpressible(
                format!(
                    "RoPE scaling with low_freq_factor {low}, high_freq_factor {high} and original context {old}"
                ),
                "in Meta's code they are 1, 4 and 8192",
            ).into());
        }
        Ok(Self::new(
            LayoutOwner::Meta,
            &[
                ("dim", dim.into()),
                ("ffn_dim_multiplier", multiplier.into()),
                ("head_dim", explicit_head_dim(decoder).into()),
                ("multiple_of", multiple_of.into()),
                ("n_heads", decoder.n_heads().into()),
                ("n_kv_heads", decoder.n_kv_heads().into()),
                ("n_layers", decoder.n_layers().into()),
                ("norm_eps", decoder.norm_eps().into()),
                ("rope_scaling_factor", scaling.map(|scaling| scaling.factor).into()),
                ("rope_theta", theta.into()),
                ("use_scaled_rope", scaling.map(|_| true).into()),
                ("vocab_size", decoder.vocab().into()),
            ],
        ))
    }

    pub(crate) fn config_notes(decoder: &Decoder, ids: &TokenIds) -> Vec<DecoderNote> {
        let (file, value) = (LayoutOwner::HuggingFace.file(), context_length(decoder.rope()));
        let mut notes = vec![DecoderNote::AssumedValue { file, key: "max_position_embeddings", value }];
        let keys = ids.unknown_keys();
        if !keys.is_empty() {
            notes.push(DecoderNote::UnknownTokenIds { file, keys });
        }
        notes
    }

    pub(crate) fn params_notes(decoder: &Decoder) -> Vec<DecoderNote> {
        let head_dim = explicit_head_dim(decoder);
        head_dim
            .map(|head_dim| DecoderNote::HeadSize { file: LayoutOwner::Meta.file(), head_dim })
            .into_iter()
            .collect()
    }

    /// Builds a document of these keys, without those that are `null`.
    fn new(owner: LayoutOwner, keys: &[(&str, Value)]) -> Self {
        let given = keys.iter().filter(|(_, value)| !value.is_null());
        Self { owner, keys: given.map(|(key, value)| ((*key).to_owned(), value.clone())).collect() }
    }
}

fn llama3_scaling(rope: &Rope) -> Option<Llama3> {
    match rope.scaling {
        Some(RopeScaling::Llama3(llama3)) => Some(llama3),
        _ => None,
    }
}

/// Returns the context length of Meta's models, in tokens. Their files do not state it, but their RoPE bases tell them
/// apart.
fn context_length(rope: &Rope) -> u64 {
    match *rope {
        Rope { scaling: Some(_), .. } => 131_072,      // Llama 3.1 and later
        Rope { theta, .. } if theta >= 1e6 => 16_384,  // Code Llama
        Rope { theta, .. } if theta >= 500e3 => 8_192, // Llama 3
        _ => 4_096,                                    // Llama 2
    }
}

/// Returns the size of a head unless it is the quotient that Meta's code computes.
fn explicit_head_dim(decoder: &Decoder) -> Option<u64> {
    let usual = decoder.head_dim().checked_mul(decoder.n_heads()) == Some(decoder.dim());
    (!usual).then(|| decoder.head_dim())
}

/// Finds `multiple_of` and `ffn_dim_multiplier` from which Meta's code computes the width `hidden`. As in Meta's files, the
/// first is a power of two, preferably 256, and the second a short decimal, preferably absent.
fn feed_forward_multiples(dim: u64, hidden: u64) -> Option<(u64, Option<f64>)> {
    let expresses = |power: u64, multiplier| feed_forward_width(dim, power, multiplier) == Some(hidden);
    let powers = || (8..=16).chain((0..8).rev()).map(|power: u32| 1_u64 << power);
    let decimals = |scale: u32| (1..scale.saturating_mul(10)).map(move |n| f64::from(n) / f64::from(scale));
    let with = |scale| {
        let mut all = powers().flat_map(|power| decimals(scale).map(move |decimal| (power, Some(decimal))));
        all.find(|(power, multiplier)| expresses(*power, *multiplier))
    };
    let without = powers().find(|power| expresses(*power, None));
    without.map(|power| (power, None)).or_else(|| with(10)).or_else(|| with(100))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a whole number below 2^53"
)]
fn json_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && (0.0..EXACT).contains(&number) {
        (number as u64).into()
    } else {
        number.into()
    }
}

/// Returns the dtype that can represent all numbers of the tensors, as `torch.promote_types` does.
fn promoted_dtype(tensors: &Tensors) -> Option<Dtype> {
    let is_float =
        |dtype: &Dtype| matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16);
    tensors.iter().map(|(_, tensor)| tensor.dtype()).filter(is_float).reduce(|one, other| {
        match (one, other) {
            (one, other) if one == other => one,
            (Dtype::Float64, _) | (_, Dtype::Float64) => Dtype::Float64,
            _ => Dtype::Float32,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_length_follows_from_the_rotary_embedding() {
        let length = |theta, scaling| context_length(&Rope { theta, scaling });
        let [code_llama, llama3, llama2] = [1e6, 5e5, 4.9e5].map(|theta| length(theta, None));
        assert_eq!([code_llama, llama3, llama2], [16_384, 8_192, 4_096]);
        assert_eq!(length(5e5, Some(RopeScaling::Llama3(Llama3::with_factor(8.0)))), 131_072);
    }

    #[test]
    fn only_whole_numbers_are_written_without_a_fraction() {
        let text = |number: f64| json_number(number).to_string();
        assert_eq!([8.0, 0.0, 0.5, 1e5, -1.0].map(text), ["8", "0", "0.5", "100000", "-1.0"]);
        assert_eq!(text(9_007_199_254_740_992.0), "9007199254740992.0");
    }

    #[test]
    fn dtypes_are_promoted_as_in_torch() {
        use Dtype::{BFloat16, Float16, Float32, Float64, Int64};
        let promoted = |dtypes: &[Dtype]| {
            let tensor = |(number, dtype): (usize, &Dtype)| {
                let storage = tensor::Storage::owned(vec![0; 8]);
                let tensor = tensor::Tensor::new(*dtype, vec![1], vec![1], 0, storage).expect("inside");
                (number.to_string(), tensor)
            };
            promoted_dtype(&dtypes.iter().enumerate().map(tensor).collect())
        };
        assert_eq!(promoted(&[Float16, Float16]), Some(Float16));
        assert_eq!(promoted(&[BFloat16, Int64]), Some(BFloat16));
        assert_eq!(promoted(&[Float16, BFloat16]), Some(Float32));
        assert_eq!(promoted(&[Float16, Float64]), Some(Float64));
        assert_eq!(promoted(&[Float64, Float32]), Some(Float64));
        assert_eq!(promoted(&[Int64]), None);
    }

    #[test]
    fn the_width_is_expressed_as_in_metas_files() {
        for (dim, hidden, expected) in [
            (4096, 11_008, Some((256, None))),         // 7B
            (5120, 13_824, Some((256, None))),         // 13B
            (6656, 17_920, Some((256, None))),         // 30B
            (8192, 22_016, Some((256, None))),         // 65B, and Code Llama 34B
            (8192, 28_672, Some((512, Some(1.3)))),    // 70B; in Meta's file, multiple_of is 4096
            (4096, 14_336, Some((256, Some(1.3)))),    // 8B; in Meta's file, multiple_of is 1024
            (2048, 8192, Some((4096, None))),          // 1B; in Meta's file, 256 and 1.5
            (3072, 8192, Some((256, None))),           // 3B
            (16_384, 53_248, Some((1024, Some(1.2)))), // 405B; in Meta's file, 4096
            (3200, 8640, Some((64, Some(1.01)))),      // OpenLLaMA 3B
            (64, 192, Some((64, None))),
            (64, 170, Some((2, None))),
            (64, 100, Some((4, Some(0.58)))),
            (4096, 11_007, None),
            (4096, 0, None),
            (0, 0, Some((256, None))),
            (u64::MAX, 1, None),
        ] {
            assert_eq!(feed_forward_multiples(dim, hidden), expected, "{dim} {hidden}");
            if let Some((multiple_of, multiplier)) = expected {
                assert_eq!(feed_forward_width(dim, multiple_of, multiplier), Some(hidden));
            }
        }
    }
}
