//! The table of families: what each model type of transformers has.

mod dense;
mod encoders;
mod gemma;
mod gpt;
mod hybrid;
mod mllama;
mod moe;

use crate::family::{Body, Family, built, family};
use crate::rule;

pub(crate) use hybrid::qwen_mtp;

/// Returns the family of a model type.
pub(crate) fn find(model_type: &str) -> Option<Family> {
    let row = FAMILIES.iter().find(|(types, _)| types.contains(&model_type))?;
    Some(row.1)
}

/// Returns the model types that have one part.
pub(crate) fn model_types() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|(types, _)| types.iter().copied())
}

/// Returns the other names that a module or tensor has in any family: in memory for a released one, and the reverse.
///
/// ```
/// let others: Vec<String> = families::other_names("model.layers.0.mlp.gate.weight").collect();
/// assert!(others.contains(&"model.layers.0.block_sparse_moe.gate.weight".to_owned()));
/// ```
pub fn other_names(name: &str) -> impl Iterator<Item = String> {
    FAMILIES.iter().filter_map(move |(_, family)| rule::other_name(family.rules, name))
}

const GPT: Family =
    Family { prefix: "transformer", embedding: "word_embeddings.weight", ..built(gpt::bloom, &[]) };
const MAMBA: Family =
    Family { prefix: "backbone", embedding: "embeddings.weight", ..built(hybrid::mamba, &[]) };

/// Heads that predict several tokens, for which transformers has no modules.
const MTP: &[&str] = &["mtp."];

#[rustfmt::skip]
const FAMILIES: &[(&[&str], Family)] = &[
    (&["llama", "mistral", "ministral3", "granite", "smollm3", "gemma"], family(&dense::PLAIN, &[])),
    (&["qwen2", "qwen2_vl_text", "qwen2_5_vl_text"], family(&dense::QWEN2, &[])),
    (&["qwen3", "qwen3_vl_text"], family(&dense::QWEN3, &[])),
    (&["gemma2"], family(&dense::GEMMA2, &[])),
    (&["gemma3_text"], family(&dense::GEMMA3, &[])),
    (&["gemma3n_text"], built(gemma::gemma3n, &[])),
    (&["gemma4_text"], built(gemma::gemma4, &[])),
    (&["phi"], family(&dense::PHI, &[])),
    (&["phi3"], family(&dense::PHI3, &[])),
    (&["olmo"], family(&dense::OLMO, &[])),
    (&["olmo2", "olmo3"], family(&dense::OLMO2, &[])),
    (&["starcoder2"], family(&dense::STARCODER2, &[])),
    (&["stablelm"], family(&dense::STABLELM, &[])),
    (&["cohere", "cohere2"], family(&dense::COHERE, &[])),
    (&["glm"], family(&dense::GLM, &[])),
    (&["glm4"], family(&dense::GLM4, &[])),
    (&["ernie4_5"], family(&dense::ERNIE, &[])),
    (&["exaone4"], family(&dense::EXAONE4, &[])),
    (&["seed_oss"], family(&dense::SEED_OSS, &[])),
    (&["hunyuan_v1_dense"], family(&dense::HUNYUAN, &[])),
    (&["arcee"], family(&dense::ARCEE, &[])),
    (&["apertus"], family(&dense::APERTUS, &[])),
    (&["helium"], family(&dense::HELIUM, &[])),
    (&["ministral"], family(&dense::MINISTRAL, &[])),
    (&["gpt2"], Family { embedding: "wte.weight", bare: rule::BARE, unread: &[".attn.bias", ".attn.masked_bias"], body: Body::Built(gpt::gpt2), ..GPT }),
    (&["gpt_neox"], Family { prefix: "gpt_neox", unread: &[".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"], embedding: "embed_in.weight", ..built(gpt::gpt_neox, rule::GPT_NEOX) }),
    (&["opt"], Family { embedding: "decoder.embed_tokens.weight", bare: rule::BARE_OPT, ..built(gpt::opt, &[]) }),
    (&["bloom"], Family { bare: rule::BARE, ..GPT }),
    (&["falcon"], Family { body: Body::Built(gpt::falcon), ..GPT }),
    (&["mixtral"], family(&moe::MIXTRAL, rule::MIXTRAL)),
    (&["minimax_m2"], family(&moe::MINIMAX, rule::MIXTRAL)),
    (&["phimoe"], family(&moe::PHIMOE, rule::PHIMOE)),
    (&["qwen2_moe"], family(&moe::QWEN2_MOE, rule::QWEN_MOE)),
    (&["qwen3_moe"], family(&moe::QWEN3_MOE, rule::QWEN_MOE)),
    (&["granitemoe", "granitemoeshared"], family(&moe::GRANITEMOE, rule::GRANITE)),
    (&["olmoe"], family(&moe::OLMOE, rule::QWEN_MOE)),
    (&["gpt_oss"], family(&moe::GPT_OSS, &[])),
    (&["glm4_moe"], family(&moe::GLM4_MOE, rule::QWEN_MOE)),
    (&["glm4_moe_lite"], family(&moe::GLM4_MOE_LITE, rule::QWEN_MOE)),
    (&["deepseek_v2"], family(&moe::DEEPSEEK_V2, rule::QWEN_MOE)),
    (&["deepseek_v3"], family(&moe::DEEPSEEK_V3, rule::QWEN_MOE)),
    (&["ernie4_5_moe"], family(&moe::ERNIE_MOE, rule::ERNIE_MOE)),
    (&["mllama_text_model"], built(mllama::text, &[])),
    (&["qwen3_vl_moe_text"], family(&moe::QWEN3_MOE, &[])),
    (&["llama4_text"], built(gemma::llama4, &[])),
    (&["lfm2_moe"], built(hybrid::lfm2_moe, rule::LFM2_MOE)),
    (&["qwen3_next"], Family { unread: MTP, ..built(hybrid::qwen3_next, rule::QWEN_MOE) }),
    (&["qwen3_5_text"], Family { unread: MTP, ..built(hybrid::qwen3_5, &[]) }),
    (&["qwen3_5_moe_text"], Family { unread: MTP, ..built(hybrid::qwen3_5_moe, rule::QWEN_MOE) }),
    (&["granitemoehybrid"], built(hybrid::granite, rule::GRANITE)),
    (&["lfm2"], built(hybrid::lfm2, &[])),
    (&["mamba"], MAMBA),
    (&["mamba2"], Family { body: Body::Built(hybrid::mamba2), ..MAMBA }),
    (&["falcon_h1"], built(hybrid::falcon_h1, &[])),
    (&["nemotron_h"], Family { embedding: "embeddings.weight", ..built(hybrid::nemotron_h, rule::NEMOTRON_H) }),
    (&["whisper"], Family { embedding: "decoder.embed_tokens.weight", head: "proj_out", ..built(encoders::whisper, &[]) }),
    (&["bert"], Family { prefix: "bert", embedding: "embeddings.word_embeddings.weight", ..built(encoders::bert, &[]) }),
    (&["roberta"], Family { prefix: "roberta", embedding: "embeddings.word_embeddings.weight", ..built(encoders::bert, &[]) }),
    (&["distilbert"], Family { prefix: "distilbert", embedding: "embeddings.word_embeddings.weight", ..built(encoders::distilbert, &[]) }),
    (&["t5"], Family { prefix: "", embedding: "shared.weight", ..built(encoders::t5, &[]) }),
    (&["bart"], Family { embedding: "shared.weight", ..built(encoders::bart, &[]) }),
    (&["vit"], Family { prefix: "vit", ..built(encoders::vit, rule::VIT) }),
];
