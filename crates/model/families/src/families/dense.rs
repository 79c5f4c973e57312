//! Dense decoders.

use crate::decoder::{Bias, Decoder, HeadNorms, LLAMA, Mlp, NORMS, Projections};

const QK: HeadNorms = HeadNorms::Head("q_norm", "k_norm");
const GEMMA_NORMS: &[&str] = &[
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
];
const GLM_NORMS: &[&str] =
    &["input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"];
const AFTER: &[&str] = &["post_attention_layernorm", "post_feedforward_layernorm"];

/// `llama`, and the types that differ in their arithmetic alone.
pub(crate) const PLAIN: Decoder = LLAMA;
pub(crate) const QWEN2: Decoder = Decoder { qkv_bias: Bias::Yes, out_bias: Bias::No, ..LLAMA };
pub(crate) const QWEN3: Decoder = Decoder { head_norms: QK, ..LLAMA };
pub(crate) const GEMMA2: Decoder = Decoder { norms: GEMMA_NORMS, ..LLAMA };
pub(crate) const GEMMA3: Decoder = Decoder { head_norms: QK, ..GEMMA2 };
pub(crate) const PHI: Decoder = Decoder {
    projections: Projections::Four("dense"),
    qkv_bias: Bias::Yes,
    out_bias: Bias::Yes,
    head_norms: HeadNorms::Biased("qk_layernorm"),
    mlp: Mlp::Plain("fc1", "fc2", Bias::Yes),
    norms: &["input_layernorm"],
    norm_bias: Bias::Yes,
    last_norm: Some("final_layernorm"),
    ..LLAMA
};
pub(crate) const PHI3: Decoder = Decoder { projections: Projections::Joined, mlp: Mlp::GatedJoined, ..LLAMA };
pub(crate) const OLMO: Decoder = Decoder { norms: &[], last_norm: None, ..LLAMA };
pub(crate) const OLMO2: Decoder = Decoder { head_norms: HeadNorms::All, norms: AFTER, ..LLAMA };
pub(crate) const STARCODER2: Decoder = Decoder {
    qkv_bias: Bias::Key("use_bias"),
    out_bias: Bias::Key("use_bias"),
    mlp: Mlp::Plain("c_fc", "c_proj", Bias::Key("use_bias")),
    norm_bias: Bias::Yes,
    ..LLAMA
};
pub(crate) const COHERE: Decoder =
    Decoder { head_norms: HeadNorms::Each("use_qk_norm"), norms: &["input_layernorm"], ..LLAMA };
pub(crate) const GLM: Decoder = Decoder { out_bias: Bias::No, mlp: Mlp::GatedJoined, ..LLAMA };
pub(crate) const GLM4: Decoder = Decoder { norms: GLM_NORMS, ..GLM };
pub(crate) const ERNIE: Decoder = Decoder {
    qkv_bias: Bias::Key("use_bias"),
    out_bias: Bias::Key("use_bias"),
    mlp: Mlp::Gated(Bias::Key("use_bias")),
    ..LLAMA
};
pub(crate) const EXAONE4: Decoder = Decoder { head_norms: QK, norms: AFTER, ..LLAMA };
pub(crate) const SEED_OSS: Decoder = Decoder { out_bias: Bias::Key("attention_out_bias"), ..LLAMA };
pub(crate) const HUNYUAN: Decoder =
    Decoder { head_norms: HeadNorms::Head("query_layernorm", "key_layernorm"), ..LLAMA };
pub(crate) const ARCEE: Decoder =
    Decoder { mlp: Mlp::Plain("up_proj", "down_proj", Bias::Key("mlp_bias")), ..LLAMA };
pub(crate) const APERTUS: Decoder = Decoder {
    head_norms: QK,
    mlp: Mlp::Xielu,
    norms: &["attention_layernorm", "feedforward_layernorm"],
    ..LLAMA
};
pub(crate) const HELIUM: Decoder = Decoder { out_bias: Bias::No, ..LLAMA };
pub(crate) const MINISTRAL: Decoder =
    Decoder { qkv_bias: Bias::No, out_bias: Bias::No, mlp: Mlp::Gated(Bias::No), ..LLAMA };
pub(crate) const STABLELM: Decoder = Decoder {
    qkv_bias: Bias::Key("use_qkv_bias"),
    out_bias: Bias::No,
    head_norms: HeadNorms::Modules("qk_layernorm"),
    norms: NORMS,
    norm_bias: Bias::Yes,
    ..LLAMA
};
