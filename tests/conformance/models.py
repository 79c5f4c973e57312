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


def params(kind):
    return {k: v for k, v in (PARAMS | META[kind]).items() if v is not None}


def config(kind):
    model_type, changes = HUGGING_FACE[kind]
    return SIZES | {"model_type": model_type} | changes
