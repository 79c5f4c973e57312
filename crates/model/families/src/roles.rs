//! Roles of tensors in a decoder, and their names: one table for the modules of transformers, for Meta's and Megatron's files, and
//! for llama.cpp.
//!
//! Facts: the modeling files of `transformers` 5.23; `model.py` in Meta's `llama-models` 0.3.0; the modules of `GPTModel` in
//! megatron-core 0.16.1, and `language_model.py` of Megatron-LM for the older names; `tensor_mapping.py` of `gguf` 0.19.0.

/// Parts of a layer that have weights, in the order and with the names of Meta's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerPart {
    /// Query matrix: `[n_heads × head_dim, dim]`.
    Wq,
    /// Key matrix: `[n_kv_heads × head_dim, dim]`.
    Wk,
    /// Value matrix: `[n_kv_heads × head_dim, dim]`.
    Wv,
    /// Query, key and value matrices of each head of keys, one after the other:
    /// `[(n_heads + 2 × n_kv_heads) × head_dim, dim]`.
    Wqkv,
    /// Output matrix of attention: `[dim, n_heads × head_dim]`.
    Wo,
    /// Gate matrix of the feed-forward layer: `[hidden, dim]`.
    W1,
    /// Down matrix of the feed-forward layer: `[dim, hidden]`.
    W2,
    /// Up matrix of the feed-forward layer: `[hidden, dim]`.
    W3,
    /// Norm before attention: `[dim]`.
    AttentionNorm,
    /// Norm before the feed-forward layer: `[dim]`.
    FfnNorm,
    /// Norm of queries: `[head_dim]` or `[n_heads × head_dim]`.
    QNorm,
    /// Norm of keys: `[head_dim]` or `[n_kv_heads × head_dim]`.
    KNorm,
    /// Norm after attention: `[dim]`.
    AttentionPostNorm,
    /// Norm after the feed-forward layer: `[dim]`.
    FfnPostNorm,
    /// Attention sinks, the extra score of each query head: `[n_heads]`.
    Sinks,
    /// Router of the experts: `[experts, dim]`.
    Router,
    /// Gate and up matrices of an expert in alternating rows, starting with the gate: `[2 × hidden, dim]`.
    W13,
    /// Gate matrix of the shared expert: `[hidden, dim]`.
    SharedW1,
    /// Down matrix of the shared expert: `[dim, hidden]`.
    SharedW2,
    /// Up matrix of the shared expert: `[hidden, dim]`.
    SharedW3,
    /// Gate of the shared expert's result: `[1, dim]`.
    SharedGate,
    /// Bias of the experts' scores in the choice: `[experts]`.
    ChoiceBias,
    /// First number of xIELU, of which the factor above 0 is the softplus: `[1]`.
    XieluPositive,
    /// Second number of xIELU: `[1]`.
    XieluNegative,
    /// Queries, keys and values of `DeltaNet`: `[channels, dim]`.
    DeltaQkv,
    /// Gates of the results of `DeltaNet`: `[values, dim]`.
    DeltaZ,
    /// Step sizes of `DeltaNet`: `[value_heads, dim]`.
    DeltaB,
    /// Decays of `DeltaNet`: `[value_heads, dim]`.
    DeltaA,
    /// Both of the first, by head of keys: `[channels + values, dim]`.
    DeltaQkvz,
    /// Both of the last, by head of keys: `[2 × value_heads, dim]`.
    DeltaBa,
    /// Convolution of `DeltaNet`, with the present token last: `[channels, 1, kernel]`.
    DeltaConv,
    /// Logarithms of the decays: `[value_heads]`.
    DeltaLog,
    /// Bias of the decays: `[value_heads]`.
    DeltaBias,
    /// Norm of the results of a head of `DeltaNet`: `[value_dim]`.
    DeltaNorm,
    /// Output matrix of `DeltaNet`: `[dim, values]`.
    DeltaOut,
    /// Slope of xIELU at 0: one number without dimensions.
    XieluBeta,
    /// Largest exponent of xIELU, near 0: one number without dimensions.
    XieluEps,
    /// Norm of the dense feed-forward layer's results, next to experts: `[dim]`.
    DensePostNorm,
    /// Norm before experts that are next to a dense feed-forward layer: `[dim]`.
    ExpertsNorm,
    /// Norm after these experts: `[dim]`.
    ExpertsPostNorm,
    /// Factors of what the router reads: `[dim]`.
    RouterScale,
    /// Factors of the experts' shares: `[experts]`.
    ExpertScale,
    /// Gate of the input of a layer: `[width, dim]`.
    LayerInputGate,
    /// Matrix from the gated input of a layer to its rows: `[dim, width]`.
    LayerInputOutput,
    /// Norm after that matrix: `[dim]`.
    LayerInputNorm,
    /// Factor of the layer's result: `[1]`.
    LayerScalar,
}

/// A tensor of a decoder by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Token embeddings, which may also be the output matrix.
    Embedding,
    /// Table of learned positions.
    Positions,
    /// Norm of the embeddings.
    EmbeddingNorm,
    /// Embeddings of tokens for each layer.
    LayerEmbedding,
    /// Matrix from embeddings to inputs of each layer.
    LayerProjection,
    /// Norm of the results of that matrix.
    LayerProjectionNorm,
    /// Norm after the last layer.
    Norm,
    /// Matrix that makes logits of the last norm's results.
    Output,
    /// A part of each layer.
    Layer(LayerPart),
    /// A matrix of each expert of each layer.
    Expert(LayerPart),
}

/// Names of a role outside of layers: in memory, in Meta's files, and in llama.cpp. Families have those of the embeddings and the
/// head in memory.
pub(crate) const OUTER: &[(Role, &[&str], &str, &str)] = &[
    (Role::Embedding, &[], "tok_embeddings.weight", "token_embd"),
    (Role::Positions, &["wpe.weight", "decoder.embed_positions.weight"], "", "position_embd"),
    (Role::EmbeddingNorm, &["word_embeddings_layernorm.weight"], "", "token_embd_norm"),
    (Role::LayerEmbedding, &["embed_tokens_per_layer.weight"], "", "per_layer_token_embd"),
    (Role::LayerProjection, &["per_layer_model_projection.weight"], "", "per_layer_model_proj"),
    (Role::LayerProjectionNorm, &["per_layer_projection_norm.weight"], "", "per_layer_proj_norm"),
    (
        Role::Norm,
        &[
            "norm.weight",
            "ln_f.weight",
            "final_layer_norm.weight",
            "decoder.final_layer_norm.weight",
            "final_layernorm.weight",
        ],
        "norm.weight",
        "output_norm",
    ),
    (Role::Output, &[], "output.weight", "output"),
];

/// Lists of the layers of a body.
pub(crate) const LISTS: [&str; 3] = ["layers", "h", "decoder.layers"];

/// Starts of the names of experts in a layer.
pub(crate) const WITH_EXPERTS: [&str; 4] = ["mlp.", "block_sparse_moe.", "feed_forward.", ""];

/// Names of a part of a layer.
pub(crate) struct PartNames {
    pub(crate) part: LayerPart,
    /// Paths in memory, of which those count first that the class of a model has.
    pub(crate) modules: &'static [&'static str],
    /// Path in Meta's files; empty if none has the part.
    pub(crate) meta: &'static str,
    pub(crate) megatron: &'static [&'static str],
    /// Name in llama.cpp; empty if it has none.
    pub(crate) gguf: &'static str,
}

const fn part(
    part: LayerPart,
    modules: &'static [&'static str],
    meta: &'static str,
    megatron: &'static [&'static str],
    gguf: &'static str,
) -> PartNames {
    PartNames { part, modules, meta, megatron, gguf }
}

#[rustfmt::skip]
pub(crate) const PARTS: &[PartNames] = &[
    part(LayerPart::Wq, &["self_attn.q_proj"], "attention.wq", &[], "attn_q"),
    part(LayerPart::Wk, &["self_attn.k_proj"], "attention.wk", &[], "attn_k"),
    part(LayerPart::Wv, &["self_attn.v_proj"], "attention.wv", &[], "attn_v"),
    part(LayerPart::Wqkv, &["self_attention.query_key_value", "attention.query_key_value"], "", &[], "attn_qkv"),
    part(
        LayerPart::Wo,
        &["self_attn.o_proj", "self_attn.out_proj", "self_attn.dense", "self_attention.dense", "attention.dense", "attn.c_proj"],
        "attention.wo",
        &["self_attention.linear_proj", "self_attention.dense"],
        "attn_output",
    ),
    part(LayerPart::W1, &["mlp.gate_proj"], "feed_forward.w1", &[], "ffn_gate"),
    part(
        LayerPart::W2,
        &["mlp.down_proj", "mlp.c_proj", "mlp.fc2", "fc2", "mlp.dense_4h_to_h"],
        "feed_forward.w2",
        &["mlp.linear_fc2", "mlp.dense_4h_to_h"],
        "ffn_down",
    ),
    part(LayerPart::W3, &["mlp.up_proj", "mlp.c_fc", "mlp.fc1", "fc1", "mlp.dense_h_to_4h"], "feed_forward.w3", &[], "ffn_up"),
    part(
        LayerPart::AttentionNorm,
        &["input_layernorm", "attention_layernorm", "self_attn_layer_norm", "ln_1", "ln_attn"],
        "attention_norm",
        &["input_layernorm", "input_norm", "self_attention.linear_qkv.layer_norm"],
        "attn_norm",
    ),
    part(
        LayerPart::FfnNorm,
        &["pre_feedforward_layernorm", "feedforward_layernorm", "post_attention_layernorm", "final_layer_norm", "ln_2", "ln_mlp"],
        "ffn_norm",
        &["pre_mlp_layernorm", "post_attention_layernorm", "post_attention_norm", "mlp.linear_fc1.layer_norm"],
        "ffn_norm",
    ),
    part(
        LayerPart::QNorm,
        &["self_attn.q_norm", "self_attn.q_layernorm", "self_attn.query_layernorm", "self_attn.q_layernorm.norms.{}"],
        "",
        &["self_attention.q_layernorm"],
        "attn_q_norm",
    ),
    part(
        LayerPart::KNorm,
        &["self_attn.k_norm", "self_attn.k_layernorm", "self_attn.key_layernorm", "self_attn.k_layernorm.norms.{}"],
        "",
        &["self_attention.k_layernorm"],
        "attn_k_norm",
    ),
    part(LayerPart::AttentionPostNorm, &["post_self_attn_layernorm", "post_attention_layernorm"], "", &[], "post_attention_norm"),
    part(LayerPart::FfnPostNorm, &["post_mlp_layernorm", "post_feedforward_layernorm"], "", &[], "post_ffw_norm"),
    part(LayerPart::Sinks, &["self_attn.sinks"], "", &[], "attn_sinks"),
    part(LayerPart::Router, &["mlp.gate", "mlp.router", "block_sparse_moe.router", "router.proj"], "", &["mlp.router"], "ffn_gate_inp"),
    part(LayerPart::SharedW1, &["mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"], "", &[], "ffn_gate_shexp"),
    part(
        LayerPart::SharedW2,
        &["mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"],
        "",
        &["mlp.shared_experts.linear_fc2"],
        "ffn_down_shexp",
    ),
    part(LayerPart::SharedW3, &["mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"], "", &[], "ffn_up_shexp"),
    part(LayerPart::SharedGate, &["mlp.shared_expert_gate"], "", &["mlp.shared_experts.gate"], "ffn_gate_inp_shexp"),
    part(LayerPart::ChoiceBias, &["mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"], "", &[], "exp_probs_b"),
    part(LayerPart::XieluPositive, &["mlp.act_fn.alpha_p"], "", &[], ""),
    part(LayerPart::XieluNegative, &["mlp.act_fn.alpha_n"], "", &[], ""),
    part(LayerPart::XieluBeta, &["mlp.act_fn.beta"], "", &[], ""),
    part(LayerPart::XieluEps, &["mlp.act_fn.eps"], "", &[], ""),
    part(LayerPart::DensePostNorm, &["post_feedforward_layernorm_1"], "", &[], "post_ffw_norm_1"),
    part(LayerPart::ExpertsNorm, &["pre_feedforward_layernorm_2"], "", &[], "pre_ffw_norm_2"),
    part(LayerPart::ExpertsPostNorm, &["post_feedforward_layernorm_2"], "", &[], "post_ffw_norm_2"),
    part(LayerPart::RouterScale, &["router.scale"], "", &[], "ffn_gate_inp.scale"),
    part(LayerPart::ExpertScale, &["router.per_expert_scale"], "", &[], "ffn_down_exps.scale"),
    part(LayerPart::LayerInputGate, &["per_layer_input_gate"], "", &[], "inp_gate"),
    part(LayerPart::LayerInputOutput, &["per_layer_projection"], "", &[], "proj"),
    part(LayerPart::LayerInputNorm, &["post_per_layer_input_norm"], "", &[], "post_norm"),
    part(LayerPart::LayerScalar, &["layer_scalar"], "", &[], "layer_output_scale"),
    part(LayerPart::DeltaQkv, &["linear_attn.in_proj_qkv"], "", &[], "attn_qkv"),
    part(LayerPart::DeltaZ, &["linear_attn.in_proj_z"], "", &[], "attn_gate"),
    part(LayerPart::DeltaB, &["linear_attn.in_proj_b"], "", &[], "ssm_beta"),
    part(LayerPart::DeltaA, &["linear_attn.in_proj_a"], "", &[], "ssm_alpha"),
    part(LayerPart::DeltaQkvz, &["linear_attn.in_proj_qkvz"], "", &[], "attn_qkv"),
    part(LayerPart::DeltaBa, &["linear_attn.in_proj_ba"], "", &[], "ssm_ba"),
    part(LayerPart::DeltaConv, &["linear_attn.conv1d"], "", &[], "ssm_conv1d"),
    part(LayerPart::DeltaLog, &["linear_attn.A_log"], "", &[], "ssm_a"),
    part(LayerPart::DeltaBias, &["linear_attn.dt_bias"], "", &[], "ssm_dt"),
    part(LayerPart::DeltaNorm, &["linear_attn.norm"], "", &[], "ssm_norm"),
    part(LayerPart::DeltaOut, &["linear_attn.out_proj"], "", &[], "ssm_out"),
];

/// Matrices whose rows are concatenated in one tensor.
pub(crate) struct FusedNames {
    pub(crate) parts: &'static [LayerPart],
    pub(crate) modules: &'static [&'static str],
    pub(crate) megatron: &'static [&'static str],
    /// Name in llama.cpp; empty if it has none.
    pub(crate) gguf: &'static str,
}

const QKV: &[LayerPart] = &[LayerPart::Wq, LayerPart::Wk, LayerPart::Wv];
const GATE_UP: &[LayerPart] = &[LayerPart::W1, LayerPart::W3];

pub(crate) const FUSED: &[FusedNames] = &[
    FusedNames {
        parts: QKV,
        modules: &["self_attn.qkv_proj", "attn.c_attn"],
        megatron: &["self_attention.linear_qkv", "self_attention.query_key_value"],
        gguf: "attn_qkv",
    },
    FusedNames {
        parts: GATE_UP,
        modules: &["mlp.gate_up_proj"],
        megatron: &["mlp.linear_fc1", "mlp.dense_h_to_4h"],
        gguf: "ffn_up",
    },
    FusedNames {
        parts: &[LayerPart::SharedW1, LayerPart::SharedW3],
        modules: &[],
        megatron: &["mlp.shared_experts.linear_fc1"],
        gguf: "",
    },
];

impl Role {
    /// Returns the name in llama.cpp, without that of the layer and the end; `None` if it has none. `fused_parts` are in the same
    /// tensor.
    pub(crate) fn gguf_name(self, fused_parts: &[LayerPart]) -> Option<&'static str> {
        let part_name = |part| PARTS.iter().find(|row| row.part == part).map(|row| row.gguf);
        let name = match self {
            Self::Layer(part) if fused_parts.is_empty() => part_name(part),
            Self::Layer(_) => FUSED.iter().find(|row| row.parts == fused_parts).map(|row| row.gguf),
            Self::Expert(LayerPart::W1) => Some("ffn_gate_exps"),
            Self::Expert(LayerPart::W2) => Some("ffn_down_exps"),
            Self::Expert(LayerPart::W3) => Some("ffn_up_exps"),
            Self::Expert(_) => None,
            _ => OUTER.iter().find(|(role, ..)| *role == self).map(|(.., gguf)| *gguf),
        };
        name.filter(|name| !name.is_empty())
    }
}

/// Tensors of all experts of a layer, and the matrices that they hold for each.
pub(crate) const EXPERTS: &[(&str, &[LayerPart])] = &[
    ("experts.gate_up_proj", GATE_UP),
    ("experts.gate_up_proj", &[LayerPart::W13]),
    ("experts.down_proj", &[LayerPart::W2]),
];

impl LayerPart {
    /// Parts of every LLaMA layer, in order.
    pub const ALL: [Self; 9] = [
        Self::Wq,
        Self::Wk,
        Self::Wv,
        Self::Wo,
        Self::W1,
        Self::W2,
        Self::W3,
        Self::AttentionNorm,
        Self::FfnNorm,
    ];

    /// Returns the parts that a module of a layer holds in Megatron's files, from its path; `None` if the path is not known.
    pub fn of_megatron(path: &str) -> Option<&'static [Self]> {
        let fused = FUSED.iter().find(|row| row.megatron.contains(&path)).map(|row| row.parts);
        fused.or_else(|| {
            let row = PARTS.iter().find(|row| row.megatron.contains(&path))?;
            Some(std::slice::from_ref(&row.part))
        })
    }

    /// Returns true for the norms before and after the parts of a layer.
    pub(crate) fn is_norm(self) -> bool {
        matches!(self, Self::AttentionNorm | Self::FfnNorm | Self::AttentionPostNorm | Self::FfnPostNorm)
    }

    /// Returns true for a parameter of its module, whose name has no `.weight` at its end.
    pub fn is_bare(self) -> bool {
        matches!(
            self,
            Self::Sinks
                | Self::ChoiceBias
                | Self::XieluPositive
                | Self::XieluNegative
                | Self::XieluBeta
                | Self::XieluEps
                | Self::DeltaLog
                | Self::DeltaBias
                | Self::RouterScale
                | Self::ExpertScale
                | Self::LayerScalar
        )
    }
}
