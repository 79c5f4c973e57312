//! Table of the architectures.

use super::{Architecture, JoinedTensor, KeyRule, OutputRule, TokenizerRule};

const NORMS: &[&str] = &["attn_norm", "ffn_norm"];
const DENSE: &[&str] = &["ffn_gate", "ffn_down", "ffn_up"];
const HEAD_NORMS: &[&str] = &["attn_q_norm", "attn_k_norm"];
const EXPERTS: &[&str] = &["ffn_gate_inp", "ffn_gate_exps", "ffn_down_exps", "ffn_up_exps"];
const SHARED_EXPERT: &[&str] = &["ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_down_shexp", "ffn_up_shexp"];
const LATER_NORMS: &[&str] = &["post_attention_norm", "post_ffw_norm"];
const PLAIN: &[&str] = &["ffn_down", "ffn_up"];
const DELTA_NORMS: &[&str] = &["attn_norm", "post_attention_norm"];
const DELTA_NET: &[&str] =
    &["attn_gate", "ssm_a", "ssm_alpha", "ssm_ba", "ssm_beta", "ssm_conv1d", "ssm_dt", "ssm_norm", "ssm_out"];
/// Weights of a layer that predicts a further token.
pub(super) const MTP: &[&str] = &[
    "nextn.eh_proj",
    "nextn.embed_tokens",
    "nextn.enorm",
    "nextn.hnorm",
    "nextn.shared_head_head",
    "nextn.shared_head_norm",
];

const GATE_UP_EXPERTS: &[&str] = &["ffn_gate_exps", "ffn_up_exps"];
const DOWN_EXPERTS: &[&str] = &["ffn_down_exps"];
/// Experts as `transformers` has them in memory.
pub(crate) const STACKED: &[JoinedTensor] = &[
    JoinedTensor { module: "mlp.experts.gate_up_proj", parts: GATE_UP_EXPERTS },
    JoinedTensor { module: "mlp.experts.down_proj", parts: DOWN_EXPERTS },
    JoinedTensor { module: "block_sparse_moe.experts.gate_up_proj", parts: GATE_UP_EXPERTS },
    JoinedTensor { module: "block_sparse_moe.experts.down_proj", parts: DOWN_EXPERTS },
];
const OF_GRANITE: &[JoinedTensor] = &[
    JoinedTensor { module: "block_sparse_moe.input_linear", parts: GATE_UP_EXPERTS },
    JoinedTensor { module: "block_sparse_moe.output_linear", parts: DOWN_EXPERTS },
    JoinedTensor { module: "shared_mlp.input_linear", parts: &["ffn_gate_shexp", "ffn_up_shexp"] },
    JoinedTensor { module: "shared_mlp.output_linear", parts: &["ffn_down_shexp"] },
];

const OF_GEMMA4: &[JoinedTensor] = &[
    JoinedTensor { module: "experts.gate_up_proj", parts: &["ffn_gate_up_exps"] },
    JoinedTensor { module: "experts.down_proj", parts: DOWN_EXPERTS },
];
/// Weights in layers of Gemma 4 that Gemma 3 does not have.
const GEMMA4_PARTS: &[&str] = &[
    "ffn_gate_inp",
    "ffn_gate_up_exps",
    "ffn_down_exps",
    "pre_ffw_norm_2",
    "post_ffw_norm_1",
    "post_ffw_norm_2",
    "layer_output_scale",
    "inp_gate",
    "proj",
    "post_norm",
];

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
    joined: &[],
    mixes_heads: false,
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

const GRANITE_MOE: Architecture = Architecture {
    keys: KeyRule::Granite,
    has: &[NORMS, EXPERTS, SHARED_EXPERT],
    joined: OF_GRANITE,
    ..LLAMA
};

const QWEN3_NEXT: Architecture = Architecture {
    name: "qwen3next",
    classes: &["Qwen3Next"],
    model_type: "qwen3_next",
    keys: KeyRule::Qwen3Next,
    ffn_norm: "post_attention_norm",
    has: &[DELTA_NORMS, DELTA_NET, EXPERTS, SHARED_EXPERT, HEAD_NORMS, MTP],
    shifts_norms: true,
    ..BASE
};

const QWEN2_VL: Architecture = Architecture {
    name: "qwen2vl",
    classes: &["Qwen2VLModel", "Qwen2VLForConditionalGeneration"],
    model_type: "qwen2_vl_text",
    tokenizer: TokenizerRule::Either,
    ..BASE
};

const QWEN3_VL: Architecture = Architecture {
    name: "qwen3vl",
    classes: &["Qwen3VLForConditionalGeneration"],
    model_type: "qwen3_vl_text",
    has: &[NORMS, DENSE, HEAD_NORMS],
    keys: KeyRule::Qwen3Vl,
    tokenizer: TokenizerRule::Either,
    ..BASE
};

const QWEN3_VL_MOE: Architecture = Architecture {
    name: "qwen3vlmoe",
    classes: &["Qwen3VLMoeForConditionalGeneration"],
    model_type: "qwen3_vl_moe_text",
    has: &[NORMS, EXPERTS, HEAD_NORMS],
    keys: KeyRule::Qwen3Vl,
    ..BASE
};

const GLM4: Architecture = Architecture {
    name: "glm4",
    classes: &["Glm4"],
    model_type: "glm4",
    has: &[NORMS, PLAIN, LATER_NORMS],
    keys: KeyRule::Glm4,
    tokenizer: TokenizerRule::Glm4,
    ..BASE
};

const GLM: Architecture = Architecture {
    name: "chatglm",
    classes: &["Glm"],
    model_type: "glm",
    has: &[NORMS, PLAIN],
    tokenizer: TokenizerRule::Glm,
    ..GLM4
};

/// A decoder with two norms, biases, and a feed-forward layer without a gate.
const OLDER: Architecture = Architecture { has: &[NORMS, PLAIN], mixes_heads: true, ..BASE };

pub(super) static ARCHITECTURES: &[Architecture] = &[
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
    Architecture {
        name: "granitemoe",
        classes: &["GraniteMoe"],
        model_type: "granitemoe",
        has: &[NORMS, EXPERTS],
        ..GRANITE_MOE
    },
    Architecture {
        name: "granitemoe",
        classes: &["GraniteMoeShared"],
        model_type: "granitemoeshared",
        ..GRANITE_MOE
    },
    Architecture {
        name: "apertus",
        classes: &["Apertus"],
        model_type: "apertus",
        has: &[NORMS, PLAIN, HEAD_NORMS],
        permutes: false,
        ..LLAMA
    },
    Architecture { name: "smollm3", classes: &["SmolLM3"], model_type: "smollm3", has: BASE.has, ..LLAMA },
    Architecture { name: "arcee", classes: &["Arcee"], model_type: "arcee", has: &[NORMS, PLAIN], ..LLAMA },
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
        has: &[NORMS, PLAIN],
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
    QWEN3_NEXT,
    Architecture {
        name: "qwen35",
        classes: &["Qwen3_5", "Qwen3_5ForConditionalGeneration"],
        model_type: "qwen3_5_text",
        has: &[DELTA_NORMS, DELTA_NET, DENSE, HEAD_NORMS, MTP],
        ..QWEN3_NEXT
    },
    Architecture {
        name: "qwen35moe",
        classes: &["Qwen3_5Moe", "Qwen3_5MoeForConditionalGeneration"],
        model_type: "qwen3_5_moe_text",
        ..QWEN3_NEXT
    },
    QWEN2_VL,
    Architecture {
        classes: &["Qwen2_5_VLForConditionalGeneration"],
        model_type: "qwen2_5_vl_text",
        ..QWEN2_VL
    },
    QWEN3_VL,
    QWEN3_VL_MOE,
    // What their files become.
    Architecture { classes: &[], model_type: "qwen2", ..QWEN2_VL },
    Architecture { classes: &[], model_type: "qwen3", ..QWEN3_VL },
    Architecture { classes: &[], model_type: "qwen3_moe", ..QWEN3_VL_MOE },
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
        name: "gemma4",
        classes: &["Gemma4", "Gemma4ForConditionalGeneration"],
        model_type: "gemma4_text",
        has: &[NORMS, DENSE, LATER_NORMS, HEAD_NORMS, GEMMA4_PARTS],
        keys: KeyRule::Gemma4,
        tokenizer: TokenizerRule::Gemma4,
        joined: OF_GEMMA4,
        ..BASE
    },
    Architecture {
        name: "phi3",
        classes: &["Phi3"],
        model_type: "phi3",
        has: &[NORMS, PLAIN],
        keys: KeyRule::Phi3,
        tokenizer: TokenizerRule::Phi3,
        ..BASE
    },
    Architecture {
        name: "phimoe",
        classes: &["PhiMoE", "Phimoe"],
        model_type: "phimoe",
        has: &[NORMS, EXPERTS],
        keys: KeyRule::Phimoe,
        tokenizer: TokenizerRule::Phi3,
        experts: ["gate", "down", "up"],
        ..BASE
    },
    Architecture {
        name: "phi2",
        classes: &["Phi"],
        model_type: "phi",
        has: &[&["attn_norm"], PLAIN],
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
        name: "olmo2",
        classes: &["Olmo3"],
        model_type: "olmo3",
        has: &[DENSE, LATER_NORMS, HEAD_NORMS],
        keys: KeyRule::Olmo2,
        ..BASE
    },
    Architecture {
        name: "cohere2",
        classes: &["Cohere2"],
        model_type: "cohere2",
        has: &[&["attn_norm"], DENSE],
        keys: KeyRule::Cohere2,
        output: OutputRule::Unknown,
        ..BASE
    },
    Architecture {
        name: "ernie4_5",
        classes: &["Ernie4_5", "Ernie4_5_"],
        model_type: "ernie4_5",
        tokenizer: TokenizerRule::Ernie,
        ..BASE
    },
    GLM,
    GLM4,
    Architecture {
        name: "glm4moe",
        classes: &["Glm4Moe"],
        model_type: "glm4_moe",
        ffn_norm: "post_attention_norm",
        has: &[
            &["attn_norm", "post_attention_norm", "exp_probs_b"],
            DENSE,
            EXPERTS,
            SHARED_EXPERT,
            HEAD_NORMS,
            MTP,
        ],
        keys: KeyRule::Glm4Moe,
        tokenizer: TokenizerRule::Glm4Moe,
        ..GLM4
    },
    Architecture {
        name: "hunyuan-dense",
        classes: &["HunYuanDenseV1"],
        model_type: "hunyuan_v1_dense",
        has: &[NORMS, DENSE, HEAD_NORMS],
        keys: KeyRule::Hunyuan,
        tokenizer: TokenizerRule::Hunyuan,
        output: OutputRule::DroppedIfTied,
        ..BASE
    },
    Architecture {
        name: "minimax-m2",
        classes: &["MiniMaxM2"],
        model_type: "minimax_m2",
        has: &[NORMS, EXPERTS, HEAD_NORMS, &["exp_probs_b"]],
        keys: KeyRule::MinimaxM2,
        experts: ["gate", "down", "up"],
        ..BASE
    },
    Architecture {
        name: "gptneox",
        classes: &["GPTNeoX"],
        model_type: "gpt_neox",
        keys: KeyRule::GptNeox,
        ..OLDER
    },
    Architecture {
        name: "bloom",
        classes: &["Bloom", "BloomModel"],
        model_type: "bloom",
        keys: KeyRule::Bloom,
        ..OLDER
    },
    Architecture {
        name: "falcon",
        classes: &["Falcon", "RW"],
        model_type: "falcon",
        has: &[&["attn_norm", "attn_norm_2"], PLAIN],
        keys: KeyRule::Falcon,
        ..OLDER
    },
    Architecture {
        name: "gpt2",
        classes: &["GPT2LMHeadModel"],
        model_type: "gpt2",
        keys: KeyRule::Gpt2,
        mixes_heads: false,
        ..OLDER
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
        joined: STACKED,
        model_type: "gpt_oss",
        has: &[&["attn_norm", "post_attention_norm", "attn_sinks"], EXPERTS],
        keys: KeyRule::GptOss,
        ffn_norm: "post_attention_norm",
        ..BASE
    },
];
