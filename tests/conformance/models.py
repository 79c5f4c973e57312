"""The kinds of models that the suite converts and runs: tiny, random, one for each option that changes the arithmetic."""

VOCAB, WINDOW = 96, 16
SIZES = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5}
PARAMS = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1, "multiple_of": 32, "norm_eps": 1e-5}


def llama3(factor):
    return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}


# Meta's names: the keys of params.json in addition to PARAMS. `None` removes a key.
META = {
    "meta mha": {"n_kv_heads": None},
    "meta gqa": {},
    "meta mqa": {"n_kv_heads": 1},
    "meta rope x8": {"rope_theta": 500000.0, "use_scaled_rope": True},
    "meta rope x32": {"rope_theta": 500000.0, "use_scaled_rope": True, "rope_scaling_factor": 32},
    "meta tied": {},
    "meta head_dim": {"head_dim": 24},
    "meta norm_eps": {"norm_eps": 1e-2},
}
# Meta's code only divides dim by n_heads and scales by 8, so other kinds are compared with transformers, with their rows permuted.
NOT_METAS = ["meta rope x32", "meta head_dim"]

# Hugging Face's names: model_type, and the keys of config.json in addition to SIZES.
HUGGING_FACE = {
    "llama mha": ("llama", {"num_key_value_heads": 4}),
    "llama gqa": ("llama", {}),
    "llama mqa": ("llama", {"num_key_value_heads": 1}),
    "llama rope x8": ("llama", {"rope_theta": 500000.0, "rope_scaling": llama3(8.0)}),
    "llama rope x32": ("llama", {"rope_parameters": llama3(32.0) | {"rope_theta": 500000.0}}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama head_dim": ("llama", {"head_dim": 24}),
    "llama norm_eps": ("llama", {"rms_norm_eps": 1e-2}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "mistral no window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"rope_theta": 1000000.0}),
    "qwen2 window": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen2 layer_types": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW,
                                    "layer_types": ["sliding_attention", "full_attention"]}),
}
# More of Hugging Face's, which transformers writes itself: its names, config.json and shards.
ROPE = {"rope_theta": 10000.0}
LONG_FACTORS = {"short_factor": [1.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0]}
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 6, "num_local_experts": 6, "num_experts_per_tok": 2}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 192, "n_positions": 2048}
BLOOM = {"hidden_size": 64, "n_layer": 2}
FALCON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_hidden_size": 192}
DELTA_NET = {"head_dim": 24, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
             "linear_key_head_dim": 16, "linear_value_head_dim": 12}
SHARP = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
         "llama_4_scaling_beta": 0.1}
GROUPED = {"num_experts_per_tok": 2, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 48,
           "routed_scaling_factor": 1.5, "num_nextn_predict_layers": 0}
GEMMA4 = {"head_dim": 16, "global_head_dim": 24, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"],
          "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCAB, "pad_token_id": 0}
KEYS_AS_VALUES = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
SAVED = {
    "llama linear": ("llama", {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}}),
    "llama dynamic": ("llama", {"rope_parameters": ROPE | {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 32}),
    "llama yarn": ("llama", {"rope_parameters": ROPE | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}),
    "llama yarn mscale": ("llama", {"rope_parameters": ROPE | {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.5,
        "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}}),
    "llama longrope": ("llama", {"rope_parameters": ROPE | LONG_FACTORS | {
        "rope_type": "longrope", "original_max_position_embeddings": 32}, "max_position_embeddings": 64}),
    "llama gelu": ("llama", {"hidden_act": "gelu"}),
    "qwen3": ("qwen3", {"head_dim": 24, "attention_bias": True}),
    "qwen3 window": ("qwen3", {"head_dim": 16, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "phi3": ("phi3", {"sliding_window": WINDOW, "pad_token_id": 0}),
    "phi3 longrope": ("phi3", {
        "partial_rotary_factor": 0.75, "original_max_position_embeddings": 32, "max_position_embeddings": 64, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "longrope", "partial_rotary_factor": 0.75} | ROPE
        | {key: factors[:6] for key, factors in LONG_FACTORS.items()}}),
    "gemma": ("gemma", {"head_dim": 24}),
    "gemma2": ("gemma2", {"head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": WINDOW, "attn_logit_softcapping": 5.0,
                          "final_logit_softcapping": 60.0}),
    "gemma2 no caps": ("gemma2", MIXED | {"head_dim": 16, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma3": ("gemma3_text", MIXED | {"head_dim": 24, "query_pre_attn_scalar": 20, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "gemma3 pattern": ("gemma3_text", {"head_dim": 16, "sliding_window": WINDOW, "sliding_window_pattern": 2}),
    "granite": ("granite", {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625,
                            "logits_scaling": 8.0, "attention_bias": True, "mlp_bias": True}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0], "pad_token_id": 0, "tie_word_embeddings": False}),
    "smollm3 window": ("smollm3", {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": WINDOW, "pad_token_id": 0,
                                   "tie_word_embeddings": False}),
    "olmo2": ("olmo2", {}),
    "stablelm": ("stablelm", {"layer_norm_eps": 1e-3, "use_qkv_bias": True, "num_key_value_heads": 4}),
    "stablelm parallel": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True, "partial_rotary_factor": 0.5}),
    "ministral": ("ministral", MIXED | {"head_dim": 24}),
    "mixtral": ("mixtral", EXPERTS),
    "qwen3_moe": ("qwen3_moe", EXPERTS | {"head_dim": 24, "moe_intermediate_size": 48, "norm_topk_prob": True}),
    "qwen3_moe dense": ("qwen3_moe", EXPERTS | {"moe_intermediate_size": 48, "mlp_only_layers": [0]}),
    "gpt_oss": ("gpt_oss", EXPERTS | MIXED | {"head_dim": 24, "rope_parameters": ROPE | {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}),
    "qwen2_moe": ("qwen2_moe", EXPERTS | {"moe_intermediate_size": 48, "shared_expert_intermediate_size": 80}),
    "arcee": ("arcee", {"attention_bias": True, "mlp_bias": True}),
    "seed_oss": ("seed_oss", {"head_dim": 24, "attention_out_bias": True}),
    "ministral3": ("ministral3", {"head_dim": 24, "rope_parameters": ROPE | SHARP}),
    "olmo3": ("olmo3", MIXED | {"rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.1}}),
    "cohere": ("cohere", {"layer_norm_eps": 1e-5, "use_qk_norm": True, "logit_scale": 1.5, "tie_word_embeddings": False, "pad_token_id": 0}),
    "cohere tied": ("cohere", {"layer_norm_eps": 1e-4, "logit_scale": 0.5, "tie_word_embeddings": True, "pad_token_id": 0}),
    "cohere2": ("cohere2", MIXED | {"layer_norm_eps": 1e-5, "logit_scale": 0.25, "pad_token_id": 0}),
    "glm": ("glm", {"head_dim": 16, "pad_token_id": 0}),
    "glm4": ("glm4", {"head_dim": 24, "attention_bias": False, "pad_token_id": 0}),
    "exaone4": ("exaone4", MIXED),
    "exaone4 no window": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "helium": ("helium", {"head_dim": 16, "attention_bias": True, "mlp_bias": True}),
    "ernie4_5": ("ernie4_5", {"head_dim": 24, "use_bias": True, "tie_word_embeddings": False}),
    "hunyuan": ("hunyuan_v1_dense", {"head_dim": 24, "attention_bias": True, "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}}),
    "granitemoe": ("granitemoe", EXPERTS | {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625}),
    "olmoe": ("olmoe", EXPERTS | {"clip_qkv": 1.5, "norm_topk_prob": True}),
    "apertus": ("apertus", {"attention_bias": True}),
    "starcoder2": ("starcoder2", {"norm_epsilon": 1e-5, "sliding_window": WINDOW}),
    "starcoder2 no biases": ("starcoder2", {"norm_epsilon": 1e-5, "use_bias": False, "tie_word_embeddings": False}),
    "phi": ("phi", {"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25}),
    "phi whole heads": ("phi", {"layer_norm_eps": 1e-3, "partial_rotary_factor": 1.0, "num_key_value_heads": 4}),
    "phi norms": ("phi", {"layer_norm_eps": 1e-4, "qk_layernorm": True, "num_key_value_heads": 4}),
    "phimoe": ("phimoe", EXPERTS | {"attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.1}),
    "minimax_m2": ("minimax_m2", EXPERTS | {"head_dim": 24, "rotary_dim": 12}),
    "gpt2": ("gpt2", GPT2 | {"scale_attn_weights": False}),
    "gpt2 untied": ("gpt2", GPT2 | {"tie_word_embeddings": False}),
    "opt": ("opt", {"ffn_dim": 192, "word_embed_proj_dim": 64}),
    "opt no biases": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64, "enable_bias": False, "tie_word_embeddings": False}),
    "gpt_neox": ("gpt_neox", {"rotary_emb_base": 500.0, "rotary_pct": 0.5}),
    "gpt_neox serial": ("gpt_neox", {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0, "hidden_act": "gelu_new"}),
    "bloom": ("bloom", BLOOM | {"n_head": 4}),
    "bloom residual": ("bloom", BLOOM | {"n_head": 2, "apply_residual_connection_post_layernorm": True, "tie_word_embeddings": False}),
    "falcon 7b": ("falcon", FALCON),
    "falcon 40b": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon 11b": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    "falcon rw": ("falcon", FALCON | {"alibi": True, "bias": True, "parallel_attn": False, "multi_query": False}),
    "qwen3_next": ("qwen3_next", EXPERTS | DELTA_NET | {"moe_intermediate_size": 48, "shared_expert_intermediate_size": 80}),
    "qwen3_next dense": ("qwen3_next", EXPERTS | DELTA_NET | {
        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80, "mlp_only_layers": [0], "attention_bias": True, "norm_topk_prob": False}),
    "qwen3_5": ("qwen3_5_text", DELTA_NET),
    "qwen3_5 reversed": ("qwen3_5_text", DELTA_NET | {
        "layer_types": ["full_attention", "linear_attention"], "linear_conv_kernel_dim": 3, "tie_word_embeddings": True}),
    "qwen3_5_moe": ("qwen3_5_moe_text", EXPERTS | DELTA_NET | {"moe_intermediate_size": 48, "shared_expert_intermediate_size": 80}),
    "gemma4": ("gemma4_text", GEMMA4 | {
        "num_hidden_layers": 6, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True, "hidden_size_per_layer_input": 8, "final_logit_softcapping": 30.0}),
    "gemma4 keys as values": ("gemma4_text", GEMMA4 | KEYS_AS_VALUES | {"rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "gemma4 experts": ("gemma4_text", GEMMA4 | KEYS_AS_VALUES | {
        "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 48}),
    "gemma4 full": ("gemma4_text", GEMMA4 | {
        "layer_types": ["full_attention"] * 2, "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": VOCAB + 4,
        "attention_bias": True}),
    "glm4_moe": ("glm4_moe", GROUPED | {"head_dim": 24, "use_qk_norm": True, "attention_bias": True}),
}
# The names of the modules of transformers 5, which some programs write.
STACKED = {"mixtral stacked": SAVED["mixtral"], "qwen3_moe stacked": SAVED["qwen3_moe"]}
HUGGING_FACE |= SAVED | STACKED
# A token may go through other experts in a dtype of few digits, for the reference's code and for ours.
CHOOSING = [kind for kind, (_, changes) in HUGGING_FACE.items() if {"num_experts_per_tok", "top_k_experts"} & {*changes}]
# Their modules compute 64 tokens at once, and the CPU forward one by one.
CHUNKED = [kind for kind, (_, changes) in HUGGING_FACE.items() if "linear_num_key_heads" in changes]
# Their frequencies depend on the number of tokens. Those of the first grow with each token, so that one pass gives earlier
# tokens other logits than decoding.
GROWING = ["llama dynamic", "llama longrope", "phi3 longrope"]
# RoPE frequencies that older checkpoints contain: no program reads them, and they are kept.
FREQUENCIES = {
    "meta mha": ["rope.freqs"],
    "llama mha": [f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in range(2)],
}
KINDS = [*META, *HUGGING_FACE]
DTYPES = ["float32", "bfloat16", "float16", "float64"]
# Batches that are run in one call, and the length of the first part when the rest follows token by token.
BATCHES = {"3x60": (3, 60), "1x1": (1, 1), "2x7": (2, 7)}
PREFILL = 40


def tokens(folder, seed):
    """A file of random tokens for each of `BATCHES`."""
    import numpy

    path = folder / "tokens.npz"
    chance = numpy.random.default_rng(seed)
    numpy.savez(path, **{key: chance.integers(0, VOCAB, shape) for key, shape in BATCHES.items()})
    return path


def error(kind, logits, exact):
    """How far logits are from exact ones: the largest difference, or the mean one where tokens may go through other experts."""
    import numpy

    apart = numpy.concatenate([numpy.abs(logits(key) - exact[key]).ravel() for key in exact])
    return float(apart.mean() if kind in CHOOSING else apart.max())


def params(kind):
    return {k: v for k, v in (PARAMS | META[kind]).items() if v is not None}


def config(kind):
    model_type, changes = HUGGING_FACE[kind]
    return SIZES | {"model_type": model_type} | changes
