//! Table of the architectures: the classes of `transformers`, with their names in llama.cpp, and what is special of each.
//!
//! Facts: the classes in `conversion/` of llama.cpp's converter, `MODEL_TENSORS` and `tensor_mapping.py` of `gguf` 0.19.0.

use byte_source::Result;

use crate::Problem;

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
    pub(crate) output: OutputRule,
}

/// Hyperparameters that are keys of a file, in the converter's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRule {
    Common,
    Cohere,
    Exaone4,
    Gemma,
    Gemma2,
    Gemma3,
    GptOss,
    Granite,
    Llama,
    Ministral3,
    Olmo2,
    Olmoe,
    Phi2,
    Phi3,
    QwenMoe,
    Stablelm,
}

/// Treatment of the output matrix in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRule {
    Stored,
    /// Left out, because it equals the embeddings.
    Dropped,
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
    /// tokenizer.model with the added tokens of tokenizer.json, or tokenizer.json alone.
    Phi3,
}

const NORMS: &[&str] = &["attn_norm", "ffn_norm"];
const DENSE: &[&str] = &["ffn_gate", "ffn_down", "ffn_up"];
const HEAD_NORMS: &[&str] = &["attn_q_norm", "attn_k_norm"];
const EXPERTS: &[&str] = &["ffn_gate_inp", "ffn_gate_exps", "ffn_down_exps", "ffn_up_exps"];
const SHARED_EXPERT: &[&str] = &["ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_down_shexp", "ffn_up_shexp"];
const LATER_NORMS: &[&str] = &["post_attention_norm", "post_ffw_norm"];

const BASE: Architecture = Architecture {
    name: "",
    classes: &[],
    model_type: "",
    keys: KeyRule::Common,
    tokenizer: TokenizerRule::Json,
    ffn_norm: "ffn_norm",
    has: &[NORMS, DENSE],
    permutes: false,
    shifts_norms: false,
    experts: ["down", "gate", "up"],
    output: OutputRule::Stored,
};

const LLAMA: Architecture = Architecture {
    name: "llama",
    keys: KeyRule::Llama,
    tokenizer: TokenizerRule::Llama,
    has: &[NORMS, DENSE, EXPERTS],
    permutes: true,
    experts: ["gate", "down", "up"],
    ..BASE
};

static ARCHITECTURES: &[Architecture] = &[
    Architecture { classes: &["Llama", "LLaMA"], model_type: "llama", ..LLAMA },
    Architecture { classes: &["Mistral"], model_type: "mistral", ..LLAMA },
    Architecture { classes: &["Mixtral"], model_type: "mixtral", ..LLAMA },
    Architecture {
        name: "mistral3",
        classes: &["Ministral3"],
        model_type: "ministral3",
        keys: KeyRule::Ministral3,
        ..LLAMA
    },
    Architecture {
        name: "granite",
        classes: &["Granite"],
        model_type: "granite",
        keys: KeyRule::Granite,
        has: BASE.has,
        ..LLAMA
    },
    Architecture { name: "smollm3", classes: &["SmolLM3"], model_type: "smollm3", has: BASE.has, ..LLAMA },
    Architecture {
        name: "arcee",
        classes: &["Arcee"],
        model_type: "arcee",
        has: &[NORMS, &["ffn_down", "ffn_up"]],
        ..LLAMA
    },
    Architecture {
        name: "seed_oss",
        classes: &["SeedOss"],
        model_type: "seed_oss",
        ffn_norm: "post_attention_norm",
        has: &[&["attn_norm", "post_attention_norm"], DENSE],
        ..BASE
    },
    Architecture {
        name: "olmoe",
        classes: &["Olmoe"],
        model_type: "olmoe",
        keys: KeyRule::Olmoe,
        has: &[NORMS, EXPERTS, HEAD_NORMS],
        ..BASE
    },
    Architecture {
        name: "exaone4",
        classes: &["Exaone4"],
        model_type: "exaone4",
        keys: KeyRule::Exaone4,
        has: &[DENSE, LATER_NORMS, HEAD_NORMS],
        ..BASE
    },
    Architecture {
        name: "starcoder2",
        classes: &["Starcoder2"],
        model_type: "starcoder2",
        has: &[NORMS, &["ffn_down", "ffn_up"]],
        ..BASE
    },
    Architecture {
        name: "qwen2",
        classes: &["Qwen2"],
        model_type: "qwen2",
        tokenizer: TokenizerRule::Either,
        ..BASE
    },
    Architecture {
        name: "qwen3",
        classes: &["Qwen3"],
        model_type: "qwen3",
        has: &[NORMS, DENSE, HEAD_NORMS],
        tokenizer: TokenizerRule::Either,
        ..BASE
    },
    Architecture {
        name: "qwen2moe",
        classes: &["Qwen2Moe"],
        model_type: "qwen2_moe",
        has: &[NORMS, EXPERTS, SHARED_EXPERT],
        keys: KeyRule::QwenMoe,
        ..BASE
    },
    Architecture {
        name: "qwen3moe",
        classes: &["Qwen3Moe"],
        model_type: "qwen3_moe",
        has: &[NORMS, EXPERTS, HEAD_NORMS],
        keys: KeyRule::QwenMoe,
        ..BASE
    },
    Architecture {
        name: "gemma",
        classes: &["Gemma"],
        model_type: "gemma",
        keys: KeyRule::Gemma,
        tokenizer: TokenizerRule::Gemma,
        shifts_norms: true,
        output: OutputRule::Dropped,
        ..BASE
    },
    Architecture {
        name: "gemma2",
        classes: &["Gemma2"],
        model_type: "gemma2",
        has: &[NORMS, DENSE, LATER_NORMS],
        keys: KeyRule::Gemma2,
        tokenizer: TokenizerRule::Gemma2,
        shifts_norms: true,
        output: OutputRule::Dropped,
        ..BASE
    },
    Architecture {
        name: "gemma3",
        classes: &["Gemma3", "Gemma3ForConditionalGeneration"],
        model_type: "gemma3_text",
        has: &[NORMS, DENSE, LATER_NORMS, HEAD_NORMS],
        keys: KeyRule::Gemma3,
        tokenizer: TokenizerRule::Gemma3,
        shifts_norms: true,
        ..BASE
    },
    Architecture {
        name: "phi3",
        classes: &["Phi3"],
        model_type: "phi3",
        has: &[NORMS, &["ffn_down", "ffn_up"]],
        keys: KeyRule::Phi3,
        tokenizer: TokenizerRule::Phi3,
        ..BASE
    },
    Architecture {
        name: "phi2",
        classes: &["Phi"],
        model_type: "phi",
        has: &[&["attn_norm"], &["ffn_down", "ffn_up"]],
        keys: KeyRule::Phi2,
        ..BASE
    },
    Architecture {
        name: "command-r",
        classes: &["Cohere"],
        model_type: "cohere",
        has: &[&["attn_norm"], DENSE, HEAD_NORMS],
        keys: KeyRule::Cohere,
        output: OutputRule::Unknown,
        ..BASE
    },
    Architecture {
        name: "olmo2",
        classes: &["Olmo2"],
        model_type: "olmo2",
        has: &[DENSE, LATER_NORMS, HEAD_NORMS],
        keys: KeyRule::Olmo2,
        ..BASE
    },
    Architecture {
        name: "stablelm",
        classes: &["StableLm", "StableLMEpoch"],
        model_type: "stablelm",
        has: &[NORMS, DENSE, HEAD_NORMS],
        keys: KeyRule::Stablelm,
        ..BASE
    },
    Architecture {
        name: "gpt-oss",
        classes: &["GptOss"],
        model_type: "gpt_oss",
        has: &[&["attn_norm", "post_attention_norm", "attn_sinks"], EXPERTS],
        keys: KeyRule::GptOss,
        ffn_norm: "post_attention_norm",
        ..BASE
    },
];

impl Architecture {
    /// Returns the name that the architecture has for a weight.
    pub(crate) fn own_name(&self, known: &'static str) -> &'static str {
        if known == "ffn_norm" { self.ffn_norm } else { known }
    }
}

/// Returns the architecture with a name of llama.cpp, where one of LLaMA with experts is Mixtral.
///
/// # Errors
/// When it is not read.
pub(crate) fn of_name(name: &str, has_experts: bool) -> Result<&'static Architecture> {
    let is_mixtral = name == "llama" && has_experts;
    let mut rows = ARCHITECTURES.iter().filter(|row| row.name == name);
    let found = rows.find(|row| !is_mixtral || row.model_type == "mixtral");
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
