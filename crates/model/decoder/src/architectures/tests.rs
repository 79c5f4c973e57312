//! What each architecture reads from documents, as snapshots.

use super::*;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;

fn read(architecture: &Architecture, document: &str) -> crate::Result<Hyperparameters> {
    let config = ConfigJson::from_json(document).expect("valid JSON").with_layers(8);
    architecture.read_hyperparameters(&config)
}

fn facts(architecture: &Architecture, document: &str) -> Hyperparameters {
    read(architecture, document).expect("valid values")
}

/// The snapshot has all facts of LLaMA's, and of each other architecture those that differ. They are the defaults of the
/// configuration classes in `transformers` 5.23.
#[test]
fn keys_that_config_json_omits_have_the_defaults_of_the_class() {
    let lines = |architecture: &Architecture| -> Vec<String> {
        format!("{:#?}", facts(architecture, "{}")).lines().map(str::to_owned).collect()
    };
    let llama = lines(&llama::ARCHITECTURE);
    let differences = |architecture: &&Architecture| {
        let differs = |line: &String| !llama.contains(line);
        let lines: Vec<String> = lines(architecture).into_iter().filter(differs).collect();
        format!("\n\n{architecture:?}\n{}", lines.join("\n"))
    };
    let others: String = ARCHITECTURES.iter().map(differences).collect();
    insta::assert_snapshot!(llama.join("\n") + &others);
}

/// The snapshot has the default of `max_position_embeddings`, or of `original_max_position_embeddings` with `LongRoPE`; or why
/// the class has no such scaling.
#[test]
fn scaling_without_an_original_context_has_that_of_the_class() {
    let longrope = r#"{"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [2]}}"#;
    let dynamic = r#"{"rope_scaling": {"rope_type": "dynamic", "factor": 2}}"#;
    let scaling = |architecture: &&Architecture| {
        let document = if architecture.name == "phi3" { longrope } else { dynamic };
        match read(architecture, document) {
            Ok(facts) => format!("{architecture:?} {:?}\n", facts.rope),
            Err(error) => format!("{architecture:?} {error}\n"),
        }
    };
    insta::assert_snapshot!(ARCHITECTURES.iter().map(scaling).collect::<String>());
}

/// Documents of settings that classes read.
const SETTINGS: &[(&str, &str)] = &[
    ("llama", r#"{"attention_bias": true}"#),
    (
        "llama",
        r#"{"mlp_bias": true, "hidden_act": "gelu", "rms_norm_eps": 0.5, "tie_word_embeddings": true}"#,
    ),
    ("llama", r#"{"partial_rotary_factor": 1.0}"#),
    ("llama", r#"{"partial_rotary_factor": 0.5}"#),
    ("llama", r#"{"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 3}}"#),
    ("llama", r#"{"rope_scaling": {}, "rope_parameters": {"rope_theta": 3, "factor": 2}, "rope_theta": 4}"#),
    ("llama", r#"{"rope_parameters": {"full_attention": {"rope_theta": 3}}}"#),
    ("llama", YARN),
    ("llama", r#"{"rope_scaling": {"type": "yarn", "factor": 8, "mscale": 2, "mscale_all_dim": 1}}"#),
    ("llama", r#"{"rope_scaling": {"type": "yarn", "factor": 8, "mscale": 2, "mscale_all_dim": 0}}"#),
    ("llama", r#"{"rope_scaling": {"type": "yarn", "factor": 0.5, "attention_factor": null}}"#),
    (
        "llama",
        r#"{"rope_scaling": {"type": "yarn", "factor": null}, "original_max_position_embeddings": 64}"#,
    ),
    ("llama", r#"{"rope_scaling": {"type": "yarn"}}"#),
    ("llama", LONGROPE),
    (
        "llama",
        r#"{"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2], "factor": 4}}"#,
    ),
    (
        "llama",
        r#"{"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2], "factor": 0.5}}"#,
    ),
    ("llama", r#"{"num_attention_heads": 0}"#),
    ("llama", r#"{"num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": -1, "hidden_size": 2}"#),
    ("llama", r#"{"vocab_size": -2}"#),
    ("llama", r#"{"rms_norm_eps": 0}"#),
    ("llama", r#"{"rms_norm_eps": "1234567890123456789012345678901234567"}"#),
    ("llama", r#"{"rms_norm_eps": "12345678901234567890123456789012345678901"}"#),
    ("llama", r#"{"tie_word_embeddings": 1}"#),
    ("llama", r#"{"hidden_act": 3}"#),
    ("llama", r#"{"rope_scaling": []}"#),
    ("llama", r#"{"rope_scaling": {"type": "longrope", "short_factor": [1, 0], "long_factor": [2, 2]}}"#),
    ("llama", r#"{"rope_scaling": {"type": "yarn", "factor": 8, "mscale": -1}}"#),
    ("llama", r#"{"a_key": 1, "another": [2], "nothing": null}"#),
    ("llama", r#"{"quantization_config": {"quant_method": "gptq", "bits": 4}}"#),
    ("llama", r#"{"quantization_config": {"load_in_4bit": true}}"#),
    ("llama", r#"{"quantization_config": {"load_in_8bit": true, "quant_method": "bitsandbytes"}}"#),
    ("llama", r#"{"quantization_config": {"load_in_8bit": false}}"#),
    ("llama", r#"{"quantization_config": null}"#),
    ("qwen2", r#"{"max_window_layers": -1}"#),
    ("qwen2", r#"{"layer_types": "full_attention"}"#),
    ("smollm3", r#"{"no_rope_layers": [-1]}"#),
    ("mistral", r#"{"sliding_window": null, "layer_types": ["full_attention"]}"#),
    ("qwen2", r#"{"sliding_window": 7}"#),
    ("qwen2", r#"{"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 3}"#),
    ("qwen2", r#"{"use_sliding_window": true, "layer_types": ["full_attention", "sliding_attention"]}"#),
    ("qwen2", r#"{"layer_types": ["full_attention", "sliding_attention"]}"#),
    ("qwen2", r#"{"layer_types": ["full_attention", "chunked_attention"]}"#),
    ("qwen3", r#"{"attention_bias": true, "use_sliding_window": true}"#),
    ("phi3", r#"{"sliding_window": 7, "num_attention_heads": 4, "partial_rotary_factor": 0.5}"#),
    ("phi3", r#"{"rope_parameters": {"partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.25}"#),
    ("phi3", r#"{"partial_rotary_factor": 1.5}"#),
    ("phi3", r#"{"attention_bias": true}"#),
    ("phi3", r#"{"lm_head_bias": true}"#),
    ("phi3", r#"{"rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [2]}}"#),
    ("gemma", r#"{"hidden_size": 16, "attention_bias": true, "hidden_act": "gelu"}"#),
    ("gemma", r#"{"hidden_act": "silu"}"#),
    ("gemma", r#"{"use_bidirectional_attention": true}"#),
    (
        "gemma2",
        r#"{"query_pre_attn_scalar": 16, "attn_logit_softcapping": null, "final_logit_softcapping": null}"#,
    ),
    ("gemma2", r#"{"attn_logit_softcapping": 3, "final_logit_softcapping": 4, "hidden_activation": "silu"}"#),
    ("gemma2", r#"{"sliding_window": null}"#),
    ("gemma2", r#"{"sliding_window": null, "layer_types": ["full_attention"]}"#),
    ("gemma3_text", r#"{"sliding_window_pattern": 2, "final_logit_softcapping": 4}"#),
    ("gemma3_text", r#"{"rope_theta": 3, "rope_local_base_freq": 4}"#),
    ("gemma3_text", GEMMA3_ROPES),
    ("gemma3_text", r#"{"rope_parameters": {"rope_type": "default"}}"#),
    ("gemma3_text", r#"{"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}}"#),
    ("gemma3_text", r#"{"rope_parameters": {"sliding_attention": {"partial_rotary_factor": 0.5}}}"#),
    ("gemma3_text", r#"{"rope_parameters": {"full_attention": {"partial_rotary_factor": 1.0}}}"#),
    ("granite", r#"{"embedding_multiplier": 12, "residual_multiplier": 0.5, "attention_multiplier": 0.25}"#),
    ("granite", r#"{"logits_scaling": 8, "attention_bias": true, "mlp_bias": true}"#),
    ("smollm3", r#"{"no_rope_layer_interval": 3, "attention_bias": true, "mlp_bias": true}"#),
    ("smollm3", r#"{"no_rope_layers": [1, 0], "use_sliding_window": true, "sliding_window": 7}"#),
    ("smollm3", r#"{"use_sliding_window": true}"#),
    ("smollm3", r#"{"sliding_window": 7, "layer_types": ["full_attention"]}"#),
    ("smollm3", r#"{"sliding_window": 7, "layer_types": ["sliding_attention"]}"#),
    ("olmo2", r#"{"attention_bias": true}"#),
    (
        "stablelm",
        r#"{"use_qkv_bias": true, "qk_layernorm": true, "use_parallel_residual": true, "head_dim": 8}"#,
    ),
    ("stablelm", r#"{"partial_rotary_factor": 1.0, "layer_norm_eps": 0.5, "rms_norm_eps": 0.25}"#),
    ("ministral", r#"{"sliding_window": null}"#),
    ("ministral", r#"{"sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]}"#),
    (
        "mixtral",
        r#"{"num_local_experts": 4, "num_experts": 5, "num_experts_per_tok": 3, "sliding_window": 7}"#,
    ),
    ("mixtral", r#"{"num_experts": 5, "intermediate_size": 9}"#),
    ("qwen3_moe", r#"{"use_sliding_window": true, "attention_bias": true, "norm_topk_prob": true}"#),
    ("qwen3_moe", r#"{"num_experts": 4, "num_local_experts": 5, "num_experts_per_tok": 3}"#),
    ("qwen3_moe", r#"{"num_local_experts": 5, "moe_intermediate_size": 9, "decoder_sparse_step": 2}"#),
    ("qwen3_moe", r#"{"mlp_only_layers": [0, 2]}"#),
    ("gpt_oss", r#"{"attention_bias": false, "num_local_experts": 5, "num_experts_per_tok": 3}"#),
    ("gpt_oss", r#"{"num_local_experts": 4, "num_experts": 5}"#),
    ("gpt_oss", r#"{"num_experts": 5, "intermediate_size": 9, "swiglu_alpha": 2, "swiglu_limit": 3}"#),
    ("gpt_oss", r#"{"rope_parameters": {"rope_theta": 3}, "sliding_window": 7}"#),
    ("qwen2_moe", r#"{"qkv_bias": false, "num_experts": 5, "shared_expert_intermediate_size": 9}"#),
    ("qwen2_moe", r#"{"use_sliding_window": true, "max_window_layers": 3}"#),
    ("qwen2_moe", r#"{"use_sliding_window": true, "max_window_layers": 2}"#),
    ("qwen2_moe", r#"{"layer_types": ["full_attention"]}"#),
    ("qwen2_moe", r#"{"layer_types": ["sliding_attention"]}"#),
    ("arcee", r#"{"attention_bias": true, "mlp_bias": true, "hidden_act": "relu"}"#),
    (
        "seed_oss",
        r#"{"attention_bias": false, "attention_out_bias": true, "mlp_bias": true, "head_dim": null}"#,
    ),
    ("ministral3", r#"{"rope_parameters": {"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": 0.2}}"#),
    (
        "ministral3",
        r#"{"rope_scaling": {"llama_4_scaling_beta": 0.2, "original_max_position_embeddings": 8}}"#,
    ),
    ("ministral3", r#"{"rope_scaling": {"llama_4_scaling_beta": 0, "original_max_position_embeddings": 8}}"#),
    ("ministral3", r#"{"rope_scaling": {"rope_theta": 3}, "sliding_window": 7}"#),
    ("olmo3", r#"{"rope_theta": 3, "rope_scaling": {"rope_type": "yarn", "factor": 4}}"#),
    ("cohere", r#"{"use_qk_norm": true, "attention_bias": true, "logit_scale": 2}"#),
    ("cohere2", r#"{"sliding_window_pattern": 2, "head_dim": 8}"#),
    ("cohere2", r#"{"sliding_window": null}"#),
    ("glm", r#"{"attention_bias": false, "intermediate_size": 9, "partial_rotary_factor": 0.25}"#),
    ("exaone4", r#"{"sliding_window": null, "sliding_window_pattern": null}"#),
    (
        "exaone4",
        r#"{"sliding_window_pattern": "LLLG", "layer_types": ["full_attention", "sliding_attention"]}"#,
    ),
    ("exaone4", r#"{"sliding_window_pattern": "LLLG"}"#),
    ("helium", r#"{"attention_bias": true, "mlp_bias": true}"#),
    ("ernie4_5", r#"{"use_bias": true, "head_dim": null}"#),
    (
        "hunyuan_v1_dense",
        r#"{"head_dim": 8, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}"#,
    ),
    ("hunyuan_v1_dense", r#"{"rope_scaling": {"type": "dynamic", "alpha": 1000.0}}"#),
    ("hunyuan_v1_dense", r#"{"rope_scaling": {"type": "dynamic", "factor": 2.0}}"#),
    ("granitemoe", r#"{"attention_bias": true, "num_local_experts": 4, "logits_scaling": 8}"#),
    ("olmoe", r#"{"clip_qkv": 8, "norm_topk_prob": true, "num_experts": 4}"#),
    ("olmoe", r#"{"clip_qkv": -8}"#),
    ("apertus", r#"{"rope_parameters": {"rope_theta": 3}, "hidden_act": "relu2"}"#),
    ("starcoder2", r#"{"use_bias": false, "sliding_window": 7}"#),
    ("phi", r#"{"qk_layernorm": true}"#),
    ("phi", r#"{"partial_rotary_factor": 1.0}"#),
    ("phimoe", r#"{"attention_bias": true, "lm_head_bias": true, "router_jitter_noise": null}"#),
    ("phimoe", PHIMOE_ROPE),
    ("phimoe", r#"{"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2]}}"#),
    (
        "glm4_moe",
        r#"{"num_hidden_layers": 6, "first_k_dense_replace": 2, "n_shared_experts": 3, "use_qk_norm": true}"#,
    ),
    ("minimax_m2", r#"{"rotary_dim": 64, "num_local_experts": 4}"#),
    ("minimax_m2", r#"{"rotary_dim": 64, "partial_rotary_factor": 0.25}"#),
    ("gpt2", r#"{"scale_attn_weights": false, "hidden_size": 16, "intermediate_size": 8}"#),
    ("gpt2", r#"{"scale_attn_by_inverse_layer_idx": true}"#),
    ("gpt_neox", r#"{"use_parallel_residual": false, "attention_bias": false, "hidden_act": "gelu_new"}"#),
    ("gpt_neox", r#"{"partial_rotary_factor": 0.5, "rope_theta": 3}"#),
    ("bloom", r#"{"apply_residual_connection_post_layernorm": true, "hidden_size": 16}"#),
    ("falcon", r#"{"alibi": true, "bias": true, "parallel_attn": false, "multi_query": false}"#),
    ("falcon", r#"{"new_decoder_architecture": true, "num_kv_heads": 8, "num_attention_heads": 16}"#),
    ("falcon", r#"{"new_decoder_architecture": true, "num_ln_in_parallel_attn": 1}"#),
    ("falcon", r#"{"new_decoder_architecture": true, "parallel_attn": false}"#),
    ("falcon", r#"{"num_ln_in_parallel_attn": 2}"#),
    ("qwen3_next", r#"{"full_attention_interval": 2, "norm_topk_prob": false, "attention_bias": true}"#),
    ("qwen3_next", r#"{"layer_types": ["linear_attention", "sliding_attention"]}"#),
    ("qwen3_5_text", r#"{"linear_num_key_heads": 4, "linear_key_head_dim": 8, "linear_conv_kernel_dim": 3}"#),
    ("qwen3_5_moe_text", r#"{"num_experts": 4, "shared_expert_intermediate_size": 8}"#),
    ("opt", r#"{"enable_bias": false, "hidden_size": 16, "word_embed_proj_dim": 16}"#),
    ("opt", r#"{"hidden_size": 16, "word_embed_proj_dim": 8}"#),
    ("opt", r#"{"do_layer_norm_before": false}"#),
    (
        "gemma4_text",
        r#"{"attention_k_eq_v": true, "num_global_key_value_heads": 2, "num_kv_shared_layers": 2}"#,
    ),
    (
        "gemma4_text",
        r#"{"num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0, "sliding_window": 7}"#,
    ),
    ("gemma4_text", r#"{"num_kv_shared_layers": 9}"#),
    (
        "gemma4_text",
        r#"{"layer_types": ["full_attention", "sliding_attention"], "final_logit_softcapping": 4}"#,
    ),
    ("gemma4_text", r#"{"per_layer_config": {"5": {"head_dim": 8, "num_key_value_heads": 2}, "7": {}}}"#),
    ("gemma4_text", r#"{"num_hidden_layers": 6, "per_layer_config": {"4": {"head_dim": 8}}}"#),
    ("gemma4_text", r#"{"per_layer_config": {"5": {"intermediate_size": 8}}}"#),
    ("gemma4_text", r#"{"enable_moe_block": true, "num_experts": 4, "top_k_experts": 2}"#),
    ("gemma4_text", GEMMA4_EXPERTS),
    ("gemma4_text", r#"{"use_bidirectional_attention": "all"}"#),
    ("gemma4_text", r#"{"use_bidirectional_attention": "vision", "use_double_wide_mlp": true}"#),
    ("gemma4_text", r#"{"rope_parameters": {"full_attention": {"rope_type": "proportional", "factor": 2}}}"#),
    ("gemma4_text", r#"{"rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 2}}}"#),
    ("glm4_moe", r#"{"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": false}"#),
];

const PHIMOE_ROPE: &str = r#"{"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2], "short_mscale": 1.5,
    "long_mscale": 1.5, "original_max_position_embeddings": 8}}"#;

const YARN: &str = r#"{"max_position_embeddings": 256, "rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 16,
    "beta_slow": 2, "attention_factor": 3, "truncate": false, "original_max_position_embeddings": 64}}"#;

const LONGROPE: &str = r#"{"max_position_embeddings": 64, "original_max_position_embeddings": 16,
    "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2], "original_max_position_embeddings": 8}}"#;

const GEMMA4_EXPERTS: &str =
    r#"{"enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}"#;

const GEMMA3_ROPES: &str = r#"{"max_position_embeddings": 64, "original_max_position_embeddings": 16,
    "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4, "truncate": false, "rope_theta": 5}}}"#;

/// The snapshot has the facts that differ from the defaults, or the error.
#[test]
fn settings_change_the_facts() {
    let described = |(name, document): &(&str, &str)| {
        let architecture =
            ARCHITECTURES.iter().find(|known| known.name == *name).expect("a row of the table");
        let facts = match read(architecture, document) {
            Ok(facts) => fields(&facts),
            Err(error) => return format!("{name} {document}\n    {error}\n"),
        };
        let defaults = self::fields(&self::facts(architecture, "{}"));
        let changed = facts.iter().filter(|field| !defaults.contains(field));
        let lines: Vec<String> = changed.map(|field| format!("    {field}\n")).collect();
        format!("{name} {document}\n{}", lines.concat())
    };
    insta::assert_snapshot!(SETTINGS.iter().map(described).collect::<String>());
}

fn fields(facts: &Hyperparameters) -> Vec<String> {
    let Hyperparameters { dim, n_heads, head_dim, hidden, norm_eps, rope, tied, windows, biases, .. } = facts;
    let Hyperparameters {
        block, rotated, more_ropes, rope_of_layer, notes, n_kv_heads, skipped_layers, ..
    } = facts;
    let sizes = format!("{dim:?} {n_heads:?} {n_kv_heads:?} {head_dim:?} {hidden:?} {norm_eps} {tied}");
    let layers = format!("{windows:?} {rope_of_layer:?} {skipped_layers:?}");
    let ropes = format!("{rotated:?} {rope:?} {more_ropes:?}");
    vec![sizes, layers, ropes, format!("{biases:?}"), format!("{block:?}"), format!("{notes:?}")]
}

#[test]
fn no_note_names_a_key_of_the_class() {
    for architecture in ARCHITECTURES {
        let keys = architecture.config_defaults.own_keys.iter();
        let values: Vec<String> = keys.map(|key| format!("\"{key}\": {}", value_of(key))).collect();
        let notes = facts(architecture, &format!("{{{}}}", values.join(", "))).notes;
        assert!(notes.is_empty(), "{architecture:?}: {notes:?}");
    }
}

#[test]
fn adjacent_dimensions_are_rotated_by_few() {
    let adjacent = ARCHITECTURES.iter().filter(|it| !it.config_defaults.rotates_halves);
    let names: Vec<&str> = adjacent.map(|it| it.name).collect();
    assert_eq!(names, ["cohere", "cohere2", "glm", "glm4", "helium", "ernie4_5"]);
}

/// Returns a value that a key may have.
fn value_of(key: &str) -> &'static str {
    match key {
        "layer_types" => r#"["full_attention"]"#,
        "sliding_window" | "word_embed_proj_dim" | "use_bidirectional_attention" => "null",
        "num_ln_in_parallel_attn" => "1",
        "alibi"
        | "bias"
        | "new_decoder_architecture"
        | "multi_query"
        | "parallel_attn"
        | "apply_residual_connection_post_layernorm"
        | "add_cross_attention"
        | "enable_bias"
        | "attention_k_eq_v"
        | "enable_moe_block"
        | "_remove_final_layer_norm" => "false",
        "do_layer_norm_before" | "layer_norm_elementwise_affine" => "true",
        key if key.starts_with("scale_attn_") => "false",
        "mlp_only_layers" | "no_rope_layers" => "[]",
        "per_layer_config" => "{}",
        "cache_implementation" | "auto_map" => "\"x\"",
        "hidden_activation" => "\"gelu\"",
        key if key.starts_with("use_") || key.ends_with("_bias") || key.starts_with("qk_") => "false",
        "norm_topk_prob" => "true",
        _ => "2",
    }
}
