//! Architectures: the classes of `transformers`, with their names in llama.cpp, and what is special of each.
//!
//! Facts: the classes in `conversion/` of llama.cpp's converter, `MODEL_TENSORS` and `tensor_mapping.py` of `gguf` 0.19.0.

mod table;

use byte_source::Result;

use crate::Problem;
pub(crate) use table::STACKED;
use table::{ARCHITECTURES, MTP};

/// Architecture of a model.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// Name in llama.cpp, with which its keys begin.
    pub(crate) name: &'static str,
    /// Names of the class of a model, without `ForCausalLM`.
    pub(crate) classes: &'static [&'static str],
    pub(crate) model_type: &'static str,
    pub(crate) keys: KeyRule,
    pub(crate) tokenizer: TokenizerRule,
    /// Name of the norm before the feed-forward layer.
    pub(crate) ffn_norm: &'static str,
    /// Weights that a layer may have in llama.cpp, besides those of attention.
    pub(crate) has: &'static [&'static [&'static str]],
    /// True if rows of queries and keys are in the order of Meta's code.
    pub(crate) permutes: bool,
    /// True if 1 is added to norms.
    pub(crate) shifts_norms: bool,
    /// Order in which the weights of experts follow the last one of a layer.
    pub(crate) experts: [&'static str; 3],
    /// Tensors that hold several in llama.cpp, in the files of the class.
    pub(crate) joined: &'static [JoinedTensor],
    /// True if the queries, the key and the value of each head of keys follow each other in one matrix.
    pub(crate) mixes_heads: bool,
    pub(crate) output: OutputRule,
}

/// A tensor with the weights of all experts, or with two weights of one.
#[derive(Debug)]
pub(crate) struct JoinedTensor {
    /// Name in a layer, without `.weight`.
    pub(crate) module: &'static str,
    /// Names of its parts in llama.cpp.
    pub(crate) parts: &'static [&'static str],
}

/// Hyperparameters that are keys of a file, in the converter's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRule {
    Common,
    Bloom,
    Cohere,
    Cohere2,
    Exaone4,
    Falcon,
    Gemma,
    Gemma2,
    Gemma3,
    Gemma4,
    Glm4,
    Glm4Moe,
    Gpt2,
    GptNeox,
    GptOss,
    Granite,
    Hunyuan,
    Llama,
    MinimaxM2,
    Ministral3,
    Olmo2,
    Olmoe,
    Phi2,
    Phi3,
    Phimoe,
    QwenMoe,
    Qwen3Next,
    Qwen3Vl,
    Stablelm,
}

/// Treatment of the output matrix in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRule {
    Stored,
    /// Left out, because it equals the embeddings.
    Dropped,
    /// Left out if a configuration says that it equals the embeddings.
    DroppedIfTied,
    /// Refused, because llama.cpp has no tensor for it.
    Unknown,
}

/// Files that a tokenizer is read from, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenizerRule {
    /// tokenizer.model, else tokenizer.json with bytes as tokens, else another tokenizer.json.
    Llama,
    /// tokenizer.model, else tokenizer.json.
    Either,
    /// tokenizer.json.
    Json,
    /// tokenizer.model, with the tokens of `CodeGemma`.
    Gemma,
    /// tokenizer.model.
    Gemma2,
    /// tokenizer.model, else tokenizer.json.
    Gemma3,
    /// tokenizer.json that was a `SentencePiece` model, with its merges.
    Gemma4,
    /// tokenizer.model with the added tokens of tokenizer.json, or tokenizer.json alone.
    Phi3,
    /// tokenizer.model, with or without a space before a text.
    Ernie,
    /// tokenizer.json with the tokens of the first GLM 4, and none before a text.
    Glm,
    /// tokenizer.json with the tokens of GLM 4.
    Glm4,
    /// tokenizer.json with the tokens of GLM 4.5.
    Glm4Moe,
    /// tokenizer.json with the ends of Hunyuan's texts and turns.
    Hunyuan,
}

impl Architecture {
    /// Returns the name that the architecture has for a module, whose name in most others is `known`.
    pub(crate) fn own_name(&self, module: &str, known: &'static str) -> &'static str {
        match (known, module) {
            ("ffn_norm", "ln_mlp") => "attn_norm",
            ("attn_norm", "ln_attn") => "attn_norm_2",
            ("ffn_norm", _) => self.ffn_norm,
            _ => known,
        }
    }

    /// Returns true for architectures whose factors of rotary frequencies are tensors.
    pub(crate) fn has_factors(&self) -> bool {
        ["phi3", "phimoe"].contains(&self.name)
    }

    /// Returns true if files have the layers that predict further tokens.
    pub(crate) fn has_mtp(&self) -> bool {
        self.has.contains(&MTP)
    }

    /// Returns true for Qwen's architectures with linear attention.
    pub(crate) fn has_delta_net(&self) -> bool {
        self.keys == KeyRule::Qwen3Next
    }

    /// Returns the modules of layers that predict further tokens, with their names in llama.cpp.
    pub(crate) fn mtp_modules(&self) -> impl Iterator<Item = (String, &'static str)> {
        let names = if self.has_mtp() { MTP } else { &[] };
        names
            .iter()
            .map(|known| (known.trim_start_matches("nextn.").replace("shared_head_", "shared_head."), *known))
    }

    /// Returns true for matrices that the class has with their columns first.
    pub(crate) fn transposes(&self, known: &str) -> bool {
        self.model_type == "gpt2" && ["attn_qkv", "attn_output", "ffn_up", "ffn_down"].contains(&known)
    }
}

/// Returns the architecture of a file with a name of llama.cpp. Several classes may have the same; `has` tells which keys the file has.
///
/// # Errors
/// When it is not read.
pub(crate) fn of_name(name: &str, has: impl Fn(&str) -> bool) -> Result<&'static Architecture> {
    let model_type = match name {
        "llama" if has("expert_count") => Some("mixtral"),
        "olmo2" if has("attention.sliding_window") => Some("olmo3"),
        "granitemoe" if has("expert_shared_feed_forward_length") => Some("granitemoeshared"),
        // The text model of one with images has no class of its own.
        "qwen2vl" => Some("qwen2"),
        "qwen3vl" => Some("qwen3"),
        "qwen3vlmoe" => Some("qwen3_moe"),
        _ => None,
    };
    let mut rows = ARCHITECTURES.iter().filter(|row| row.name == name);
    let found = rows.find(|row| model_type.is_none_or(|model_type| row.model_type == model_type));
    found.ok_or_else(|| Problem::OtherArchitecture { name: name.to_owned() }.into())
}

/// Returns the architecture of a class, or of a model type if the class is not given.
///
/// # Errors
/// When it is not written.
pub(crate) fn of_class(class: &str, model_type: &str) -> Result<&'static Architecture> {
    let short = class.strip_suffix("ForCausalLM").unwrap_or(class);
    let found = ARCHITECTURES
        .iter()
        .find(|row| row.classes.contains(&short) || class.is_empty() && row.model_type == model_type);
    found.ok_or_else(|| {
        let mut known: Vec<&str> = ARCHITECTURES.iter().map(|row| row.name).collect();
        known.dedup();
        let class = if class.is_empty() { model_type } else { class }.to_owned();
        Problem::Architecture { class, known }.into()
    })
}
