"""Random `config.json` documents of all architectures, each made from a seed.

`random_model(seed)` is a document with keys in old and new spellings, with default values, `null` or no value at all, and how its
model is written and called. The sizes are tiny. Facts: the configuration classes and `modeling_rope_utils.py` of `transformers`
5.23. It also makes documents that `transformers` refuses, and a few that torch2carton refuses.
"""

import random
from types import SimpleNamespace

ARCHITECTURES = (
    "llama mistral qwen2 qwen3 phi3 gemma gemma2 gemma3_text granite smollm3 olmo2 stablelm ministral mixtral qwen3_moe gpt_oss "
    "qwen2_moe arcee seed_oss ministral3 olmo3 cohere cohere2 glm glm4 exaone4 helium ernie4_5 hunyuan_v1_dense granitemoe olmoe apertus "
    "starcoder2 phi phimoe glm4_moe gpt2 opt minimax_m2 "
    "gpt_neox bloom falcon qwen3_next qwen3_5_text qwen3_5_moe_text gemma4_text").split()
WITH_EXPERTS = "mixtral", "qwen3_moe", "gpt_oss", "qwen2_moe", "granitemoe", "olmoe", "phimoe", "glm4_moe", "minimax_m2", "qwen3_next", "qwen3_5_moe_text", "gemma4_text"
# Classes whose default of `num_key_value_heads` is the number of heads, and those in which `null` means it.
HEADS_BY_DEFAULT = ("llama", "phi3", "granite", "olmo2", "arcee", "olmo3", "cohere", "cohere2", "hunyuan_v1_dense", "granitemoe", "olmoe", "apertus",
                    "phi")
HEADS_BY_NULL = *HEADS_BY_DEFAULT, "qwen2", "qwen3", "smollm3", "qwen2_moe", "seed_oss", "ernie4_5"
# Classes whose defaults of `head_dim` are sizes of published models, and those that do not run with some settings without it.
OWN_HEAD_DIM = "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3", "gemma", "gemma2", "gemma3_text", "gemma4_text", "gpt_oss", "seed_oss", "ministral3", "glm", "glm4", "helium", "ernie4_5", "minimax_m2"
# Classes that compute it, or do not rotate the part of a head that it says.
NO_HEAD_DIM = "stablelm", "cohere2", "phi", "gpt2", "opt", "gpt_neox", "bloom", "falcon"
NEED_HEAD_DIM = *OWN_HEAD_DIM, "ministral", "mixtral", "hunyuan_v1_dense"
# Other names of keys; `None` leaves them out.
OLD_NAMES = {"num_key_value_heads": None, "head_dim": None, "hidden_act": "activation_function", "rms_norm_eps": "layer_norm_epsilon"}
NAMES = {
    "gpt2": OLD_NAMES | {"hidden_size": "n_embd", "intermediate_size": "n_inner", "max_position_embeddings": "n_positions",
                         "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    "opt": OLD_NAMES | {"intermediate_size": "ffn_dim", "rms_norm_eps": None},
    "gpt_neox": {"num_key_value_heads": None, "rms_norm_eps": "layer_norm_eps"},
    "bloom": OLD_NAMES | {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "intermediate_size": None, "hidden_act": None},
    "falcon": OLD_NAMES | {"intermediate_size": "ffn_hidden_size", "hidden_act": "activation"},
}

# Keys that only some classes read. The others keep them, and they change nothing there.
FOREIGN = {
    "attention_bias": (True, False), "mlp_bias": (True,), "qkv_bias": (True,), "use_qkv_bias": (True,), "lm_head_bias": (False,),
    "sliding_window": (3, None), "use_sliding_window": (True, False), "max_window_layers": (0, 1), "sliding_window_pattern": (2,),
    "layer_types": (["full_attention"], ["sliding_attention"], None), "rope_local_base_freq": (100.0,), "no_rope_layers": ([0], None),
    "no_rope_layer_interval": (2,), "partial_rotary_factor": (1.0, None), "original_max_position_embeddings": (16, None),
    "attn_logit_softcapping": (5.0,), "final_logit_softcapping": (5.0,), "query_pre_attn_scalar": (16,), "qk_layernorm": (True,),
    "use_parallel_residual": (True,), "embedding_multiplier": (2.0,), "residual_multiplier": (0.5,), "logits_scaling": (3.0,),
    "num_experts": (4,), "num_local_experts": (4,), "norm_topk_prob": (True,), "mlp_only_layers": ([0],), "swiglu_limit": (1.0,),
    "head_dim": (8, None), "hidden_activation": ("silu",), "hidden_act": ("gelu",), "rms_norm_eps": (0.1,), "layer_norm_eps": (0.1,),
    "rope_theta": (None,), "clip_qkv": (None,), "pretraining_tp": (2,), "is_decoder": (True,), "tie_word_embeddings": (True, False),
}

ACTIVATIONS = "silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new"
THETAS = 10000.0, 10000, 500000.0, 1000000, 150000.0, 100.0, 7.5
CONTEXTS = 1, 2, 4, 6, 8, 16, 32, 64, 128, 4096
FACTORS = 1.0, 1, 1.5, 2, 4.0, 8, 32.0


def random_model(seed):
    """The document (`config`), the form of its files, and the shape of the tokens."""
    r = random.Random(seed)
    config = Document(r, ARCHITECTURES[seed % len(ARCHITECTURES)]).write()
    has_experts = config["model_type"] in WITH_EXPERTS
    return SimpleNamespace(
        config=config,
        # In float32, a token may go through other experts.
        dtype="float64" if has_experts or r.random() < 0.8 else "float32",
        # As `save_pretrained` writes it, document included, or the tensors with the names of the modules.
        is_saved=r.random() < 0.3,
        tokens=[[r.randrange(config["vocab_size"]) for _ in range(length)] for length in [r.choice((1, 2, 7, 18, 33, 48))]
                for _ in range(r.choice((1, 1, 2, 3)))],
        part=r.random(),
    )


class Document:
    """Writes one document. `config` is what it has so far."""

    def __init__(self, r, model_type):
        self.r, self.model_type = r, model_type
        self.config = {"model_type": model_type}

    def write(self):
        self.sizes()
        self.common()
        getattr(self, self.model_type)()
        if "rope" not in self.__dict__:
            self.rope = self.shared_rope(self.head_dim)
        self.config |= self.rope
        for key in self.r.sample([*FOREIGN], self.r.choice((0, 0, 0, 1, 2))):
            self.config.setdefault(key, self.r.choice(FOREIGN[key]))
        names = NAMES.get(self.model_type, {})
        items = [(names.get(key, key), value) for key, value in self.config.items() if names.get(key, key)]
        self.r.shuffle(items)
        return dict(items)

    # Values

    def chance(self, probability):
        return self.r.random() < probability

    def put(self, key, *values, absent=0.2, target=None):
        """Sets a key to one of the values, or leaves it out."""
        if not self.chance(absent):
            (self.config if target is None else target)[key] = self.r.choice(values)

    def flags(self, *keys):
        for key in keys:
            self.put(key, True, False, absent=0.3)

    def layer_types(self, probability=0.4):
        if self.chance(probability):
            kinds = "full_attention", "sliding_attention"
            self.config["layer_types"] = [self.r.choice(kinds) for _ in range(self.layers)]

    # Keys that all classes share

    def sizes(self):
        r, config = self.r, self.config
        self.heads, self.head_dim, self.layers = r.choice((1, 2, 3, 4, 6)), r.choice((4, 6, 8, 10, 12, 16, 24)), r.randint(1, 4)
        if self.model_type == "gemma3_text" and self.chance(0.3):
            self.layers = r.randint(5, 8)
        kv_heads = r.choice([count for count in range(1, self.heads + 1) if self.heads % count == 0])
        config |= {"vocab_size": r.randint(11, 70), "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
                   "intermediate_size": r.choice((8, 17, 24, 33, 64)), "hidden_size": self.heads * self.head_dim}
        if kv_heads != self.heads or self.model_type not in HEADS_BY_NULL or self.chance(0.6):
            config["num_key_value_heads"] = kv_heads
        elif self.model_type not in HEADS_BY_DEFAULT or self.chance(0.5):
            config["num_key_value_heads"] = None
        if self.model_type not in NO_HEAD_DIM and self.chance(0.97 if self.model_type in NEED_HEAD_DIM else 0.3):
            config["head_dim"] = self.head_dim
            if self.chance(0.5) and self.model_type != "helium":  # its output matrix is square
                config["hidden_size"] = self.heads * r.choice((5, 8, 12, 20))

    def common(self):
        eps = {"stablelm": "layer_norm_eps", "cohere": "layer_norm_eps", "cohere2": "layer_norm_eps", "phi": "layer_norm_eps",
               "starcoder2": "norm_epsilon"}.get(self.model_type, "rms_norm_eps")
        self.put(eps, 1e-5, 1e-6, 1e-8, 1e-3, 0.1)
        self.put("max_position_embeddings", *CONTEXTS[3:], absent=0.15)
        self.put("tie_word_embeddings", True, False, absent=0.4)
        activation = "hidden_activation" if self.model_type in ("gemma2", "gemma3_text", "gemma4_text") else "hidden_act"
        if self.model_type in ("gpt2", "opt"):
            self.put("max_position_embeddings", 48, 64, absent=0.1)
        known = {"opt": ("relu", "gelu"), "apertus": ("xielu", "relu2"), "arcee": ("relu2", "relu", *ACTIVATIONS)}.get(self.model_type, ACTIVATIONS)
        self.put(activation, *known, absent=0.4)
        # A padding token must be in the vocabulary.
        self.config["pad_token_id"] = self.r.choice((0, 3, None))
        self.put("attention_dropout", 0.0, absent=0.8)
        self.put("use_cache", True, False, absent=0.8)
        self.put("initializer_range", 0.02, absent=0.8)
        self.put("dtype", "float32", "bfloat16", absent=0.8)
        self.put("transformers_version", "4.40.0", "5.23.0", absent=0.8)
        self.put("a_key_of_a_trainer", 1, "text", [2], absent=0.9)

    # Rotary embeddings

    def shared_rope(self, rotated, names=None, partial=()):
        """Keys of a rotary embedding of all layers. `names` has the names of kinds of scaling; `partial`, fractions of a head."""
        outer, key = {}, self.r.choice(("rope_scaling", "rope_parameters"))
        kind, name = self.r.choice(names or [(kind, kind) for kind in SCALINGS])
        if partial:
            place = self.r.choice(("outer", "inner", "both", "none"))
            fraction = self.r.choice(partial)
            rotated = int(self.head_dim * (self.default_partial if place == "none" else fraction))
            if place in ("outer", "both"):
                outer["partial_rotary_factor"] = self.r.choice(partial) if place == "both" else fraction
        inner = self.scaling(kind, name, rotated, outer)
        if partial and place in ("inner", "both"):
            inner["partial_rotary_factor"] = fraction
        self.put("rope_theta", *THETAS, target=outer, absent=0.4)
        self.put("rope_theta", *THETAS, target=inner, absent=0.6)
        if inner or self.chance(0.1):
            outer[key] = inner
        if key == "rope_scaling" and self.chance(0.1):  # `rope_scaling` goes first
            outer["rope_parameters"] = {"rope_type": "default", "rope_theta": 77.0}
        elif key == "rope_parameters" and self.chance(0.1):
            outer["rope_scaling"] = None
        return outer

    def scaling(self, kind, name, rotated, outer):
        """The object about a kind of scaling. Keys next to the object go to `outer`."""
        inner = {}
        if kind != "default" or self.chance(0.5):
            key = self.r.choice(("rope_type", "rope_type", "type"))
            inner[key] = name
            if key == "rope_type" and self.chance(0.1):
                inner["type"] = self.r.choice((name, "linear"))
        elif self.chance(0.3):
            inner["rope_type"] = "default"
        SCALINGS[kind](self, inner, rotated)
        if kind in ("yarn", "longrope", "llama3"):
            place = self.r.choice(("inner", "inner", "outer", "none"))
            # LongRoPE divides by the logarithm of this length.
            contexts = CONTEXTS if kind == "yarn" else CONTEXTS[1:]
            if place != "none":
                self.put("original_max_position_embeddings", *contexts, absent=0, target=inner if place == "inner" else outer)
        return inner

    def no_scaling(self, inner, rotated):
        pass

    def linear(self, inner, rotated):
        self.put("factor", 0.5, *FACTORS, absent=0, target=inner)

    def dynamic(self, inner, rotated):
        self.put("factor", *FACTORS, absent=0, target=inner)

    def yarn(self, inner, rotated):
        self.put("factor", 0.5, *FACTORS, absent=0, target=inner)
        if self.chance(0.1):
            inner["factor"] = None
        self.put("beta_fast", 32, 16.0, 2, 0.5, None, absent=0.5, target=inner)
        self.put("beta_slow", 1, 2.0, 4, 0.25, None, absent=0.5, target=inner)
        self.put("attention_factor", 1.3, 0.7, None, absent=0.7, target=inner)
        self.put("mscale", 1.0, 0.707, 0, None, absent=0.6, target=inner)
        self.put("mscale_all_dim", 1.0, 0.5, 0, None, absent=0.6, target=inner)
        self.put("truncate", True, False, absent=0.5, target=inner)

    def longrope(self, inner, rotated):
        for key in ("short_factor", "long_factor"):
            inner[key] = [self.r.choice((1, 1.0, round(self.r.uniform(0.5, 9), 3))) for _ in range(rotated // 2)]
        self.put("factor", 1.0, 4.0, 16, None, absent=0.5, target=inner)
        self.put("attention_factor", 1.19, 0.7, None, absent=0.7, target=inner)

    def llama3(self, inner, rotated):
        self.put("factor", 0.5, *FACTORS, absent=0, target=inner)
        self.put("low_freq_factor", 1.0, 1, 0.25, absent=0, target=inner)
        self.put("high_freq_factor", 4.0, 2, 1.5, absent=0, target=inner)

    # Windows

    def window(self, absent=0.1):
        self.put("sliding_window", 1, 2, 3, 5, 8, 16, 64, None, absent=absent)

    def switched_window(self):
        self.flags("use_sliding_window")
        self.window()

    def some_windows(self):
        """A window in layers that `layer_types` lists or the class chooses."""
        self.layer_types()
        self.window()
        if self.config.get("sliding_window", 1) is None and self.chance(0.8):  # without a window, no layer may have one
            self.config["layer_types"] = ["full_attention"] * self.layers

    # Experts

    def experts(self, *keys):
        count = self.r.randint(1, 6)
        for key in self.r.choice((keys, keys[:1], keys[-1:])):
            self.config[key] = count
        self.config["num_experts_per_tok"] = self.r.randint(1, count)
        self.put("output_router_logits", False, absent=0.7)
        self.put("router_aux_loss_coef", 0.01, absent=0.7)

    def qwen_experts(self, *keys):
        self.experts(*keys)
        self.config["moe_intermediate_size"] = self.r.choice((8, 12, 24))
        self.put("norm_topk_prob", True, False)
        self.put("decoder_sparse_step", 1, 2, 3, absent=0.6)
        self.put("mlp_only_layers", [], [0], [1, 2], None, absent=0.6)

    # Architectures

    def llama_keys(self):
        self.flags("attention_bias", "mlp_bias")

    def mistral(self):
        self.window()

    def qwen2(self):
        self.switched_window()
        self.put("max_window_layers", 0, 1, 2, 28)
        if self.config.get("use_sliding_window") and self.config.get("sliding_window"):
            self.layer_types(0.3)

    def qwen3(self):
        self.flags("attention_bias")
        self.qwen2()

    def phi3(self):
        self.window()
        self.default_partial = 1.0
        names = [("default", "default"), ("longrope", "longrope"), ("longrope", "su"), ("longrope", "yarn")]
        self.rope = self.shared_rope(self.head_dim, names, partial=(1.0, 0.75, 0.5))

    def gemma(self):
        self.flags("attention_bias")
        self.put("hidden_activation", *ACTIVATIONS, None, absent=0.7)  # the class does not read it
        self.put("use_bidirectional_attention", False, None, absent=0.7)

    def gemma2(self):
        self.flags("attention_bias")
        self.some_windows()
        self.put("query_pre_attn_scalar", 1, 16, 20, 256)
        self.put("attn_logit_softcapping", 50.0, 3.0, 0.5, None)
        self.put("final_logit_softcapping", 30.0, 5.0, None)

    def gemma3_text(self):
        self.gemma2()
        self.put("sliding_window_pattern", 1, 2, 3, 6, absent=0.5)
        self.rope = {}
        if self.chance(0.4):  # older files
            self.put("rope_theta", *THETAS, target=self.rope)
            self.put("rope_local_base_freq", *THETAS, target=self.rope)
            if self.chance(0.7):
                kind = self.r.choice([*SCALINGS])
                self.rope["rope_scaling"] = self.scaling(kind, kind, self.head_dim, {}) or None
            return
        objects = self.rope["rope_parameters"] = {}
        for layers in ("full_attention", "sliding_attention"):
            if self.chance(0.9):
                kind = self.r.choice(["default", *SCALINGS])
                objects[layers] = self.scaling(kind, kind, self.head_dim, {})
                self.put("rope_theta", *THETAS, target=objects[layers])

    def gemma4_text(self):
        """Layers may share keys and values only if there is an earlier one of their kind, and inputs of layers."""
        r, config = self.r, self.config
        self.layers = config["num_hidden_layers"] = r.randint(1, 6)
        self.flags("attention_bias", "attention_k_eq_v", "use_double_wide_mlp")
        self.put("sliding_window", 1, 2, 3, 8, 16, 64, absent=0.1)
        kinds = self.kinds_of_layers()
        self.put("global_head_dim", 4, 8, 12, 24, absent=0)
        self.put("num_global_key_value_heads", 1, self.heads, None, absent=0.3)
        width = config["hidden_size_per_layer_input"] = r.choice((0, 4, 8))
        config["vocab_size_per_layer_input"] = config["vocab_size"] + r.choice((0, 3))
        shared = [count for count in range(self.layers) if {*kinds[:self.layers - count]} == {*kinds}]
        self.put("num_kv_shared_layers", *(shared if width else [0]), absent=0 if width else 0.5)
        self.put("final_logit_softcapping", 30.0, 5.0, None)
        self.put("use_bidirectional_attention", "vision", None, absent=0.7)
        if self.chance(0.4):
            config |= {"enable_moe_block": True, "num_experts": r.randint(1, 6), "moe_intermediate_size": r.choice((8, 12))}
            config["top_k_experts"] = r.randint(1, config["num_experts"])
        self.rope = {}
        if self.chance(0.6):
            objects = self.rope["rope_parameters"] = {}
            for layers in ("full_attention", "sliding_attention"):
                objects[layers] = {"rope_type": r.choice(("default", "proportional")), "rope_theta": r.choice(THETAS)}
                self.put("partial_rotary_factor", 0.25, 0.5, 1.0, target=objects[layers])
                self.put("factor", 1.0, 4.0, absent=0.6, target=objects[layers])

    def kinds_of_layers(self):
        """The kinds that the class makes of `layer_types`; the last layer is always one of full attention."""
        kinds = [self.r.choice(("full_attention", "sliding_attention")) for _ in range(self.layers)]
        if self.chance(0.8):
            self.config["layer_types"] = kinds
        else:
            kinds = ["sliding_attention" if (layer + 1) % 6 else "full_attention" for layer in range(self.layers)]
        return [*kinds[:-1], "full_attention"]

    def granite(self):
        self.llama_keys()
        for key in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
            self.put(key, 1.0, 1, 12.0, 0.22, 0.0625, absent=0.3)

    def smollm3(self):
        self.llama_keys()
        self.switched_window()
        self.put("no_rope_layer_interval", 1, 2, 3, absent=0.5)
        if self.chance(0.4):
            self.config["no_rope_layers"] = [self.r.choice((0, 1)) for _ in range(self.layers)]
        if self.config.get("use_sliding_window") and self.config.get("sliding_window"):
            self.layer_types(0.3)

    def olmo2(self):
        self.flags("attention_bias")

    def stablelm(self):
        self.flags("use_qkv_bias", "qk_layernorm", "use_parallel_residual")
        self.default_partial = 0.25
        if self.head_dim in (4, 6, 10):  # a quarter of them is odd or less than 2
            self.head_dim = 16
            self.config["hidden_size"] = 16 * self.heads
        self.rope = self.shared_rope(self.head_dim, partial=(1.0, 0.75, 0.5, 0.25))

    def ministral(self):
        self.some_windows()

    def mixtral(self):
        self.experts("num_local_experts", "num_experts")
        self.window(absent=0.4)

    def qwen3_moe(self):
        self.flags("attention_bias")
        self.switched_window()
        self.qwen_experts("num_experts", "num_local_experts")

    def gpt_oss(self):
        self.flags("attention_bias")
        self.experts("num_local_experts", "num_experts")
        self.some_windows()
        self.put("swiglu_limit", 7.0, 0.5, absent=0.5)
        self.put("swiglu_alpha", 1.702, 1.0, absent=0.5)
        if self.chance(0.2):
            self.rope = {}  # YaRN by default
            self.put("rope_theta", *THETAS, target=self.rope)

    def qwen2_moe(self):
        self.flags("qkv_bias")
        self.switched_window()
        self.put("max_window_layers", 0, 1, 2, 28)
        if self.config.get("use_sliding_window") and self.config.get("sliding_window"):
            self.layer_types(0.3)
        self.qwen_experts("num_experts")
        self.config["shared_expert_intermediate_size"] = self.r.choice((8, 20))

    def arcee(self):
        self.llama_keys()

    def seed_oss(self):
        self.flags("attention_bias", "attention_out_bias", "mlp_bias")

    def ministral3(self):
        self.window(absent=0.4)
        if self.chance(0.2):
            self.rope = {}  # YaRN by default
            return
        inner = self.scaling("yarn", "yarn", self.head_dim, {})
        inner["original_max_position_embeddings"] = self.r.choice(CONTEXTS)
        inner["llama_4_scaling_beta"] = self.r.choice((0.1, 0.5, 1))
        self.put("rope_theta", *THETAS, target=inner)
        self.rope = {self.r.choice(("rope_scaling", "rope_parameters")): inner}

    def olmo3(self):
        self.flags("attention_bias")
        self.some_windows()
        self.rope = {}
        if self.chance(0.6):
            self.put("rope_theta", *THETAS, target=self.rope)
            kind = self.r.choice([*SCALINGS])
            self.rope["rope_scaling"] = self.scaling(kind, kind, self.head_dim, {}) or None

    def cohere(self):
        self.flags("attention_bias", "use_qk_norm")
        self.put("logit_scale", 0.0625, 1.0, 2.5)

    def cohere2(self):
        self.flags("attention_bias")
        self.put("logit_scale", 0.0625, 1.0, 2.5)
        self.layer_types()
        self.put("sliding_window", 1, 3, 8, 64)
        self.put("sliding_window_pattern", 1, 2, 4, absent=0.5)

    def glm(self):
        self.flags("attention_bias")
        self.default_partial = 0.5
        if self.head_dim % 4:  # half of it is odd
            self.head_dim = 16
            self.config |= {"hidden_size": 16 * self.heads} | ({"head_dim": 16} if "head_dim" in self.config else {})
        self.rope = self.shared_rope(self.head_dim, partial=(1.0, 0.5))

    def glm4(self):
        self.glm()

    def exaone4(self):
        self.layer_types(0.7)
        self.put("sliding_window", 1, 3, 8, 64)
        if "layer_types" not in self.config:
            self.put("sliding_window_pattern", 1, 2, 4, absent=0.5)
        elif self.chance(0.3):
            self.config |= {"sliding_window": None, "layer_types": ["full_attention"] * self.layers}

    def helium(self):
        self.flags("attention_bias", "mlp_bias")

    def ernie4_5(self):
        self.flags("use_bias")

    def hunyuan_v1_dense(self):
        self.flags("attention_bias")
        names = [(kind, kind) for kind in ("default", "linear", "yarn", "llama3")]
        self.rope = self.shared_rope(self.head_dim, names)
        if self.chance(0.5):
            self.rope = {"rope_scaling": {"type": "dynamic", "alpha": self.r.choice((1000.0, 7)), "factor": 1.0}}

    def granitemoe(self):
        self.granite()
        self.config.pop("mlp_bias", None)
        self.experts("num_local_experts")

    def olmoe(self):
        self.flags("attention_bias", "norm_topk_prob")
        self.put("clip_qkv", 0.5, 8, None, absent=0.4)
        self.experts("num_experts", "num_local_experts")

    def apertus(self):
        self.flags("attention_bias")
        if self.chance(0.2):
            self.rope = {}  # scaled by default

    def starcoder2(self):
        self.flags("use_bias")
        self.window(absent=0.4)

    def phi(self):
        self.flags("qk_layernorm")
        self.default_partial = 0.5
        if self.head_dim % 4:
            self.head_dim = 16
            self.config["hidden_size"] = 16 * self.heads
        self.rope = self.shared_rope(self.head_dim, partial=(1.0, 0.5))

    def phimoe(self):
        self.flags("attention_bias", "lm_head_bias")
        self.window(absent=0.4)
        self.config |= {"num_local_experts": self.r.randint(2, 6), "num_experts_per_tok": 2}
        self.put("router_jitter_noise", 0.01, 0.2, 1)
        if self.chance(0.5):
            inner = {"rope_type": "longrope", "short_mscale": 1.2, "long_mscale": 1.2, "original_max_position_embeddings": 16}
            self.longrope(inner, self.head_dim)
            self.rope = {"rope_scaling": inner}
        else:
            self.rope = self.shared_rope(self.head_dim, [("default", "default")])

    def glm4_moe(self):
        self.glm()
        self.flags("use_qk_norm", "norm_topk_prob")
        groups = self.r.choice((1, 1, 2, 3))
        self.config |= {"n_routed_experts": groups * self.r.choice((2, 3)), "num_experts_per_tok": self.r.choice((1, 2)), "n_group": groups,
                        "topk_group": self.r.randint(1, groups), "moe_intermediate_size": self.r.choice((8, 24)),
                        "first_k_dense_replace": self.r.choice((0, 1, 2)), "num_nextn_predict_layers": 0}
        self.put("n_shared_experts", 1, 2)
        self.put("routed_scaling_factor", 1.0, 2.5)

    def minimax_m2(self):
        self.experts("num_local_experts")
        self.default_partial = 1.0
        self.config["head_dim"] = self.head_dim
        self.rope = self.shared_rope(self.head_dim, partial=(1.0, 0.5) if self.head_dim % 4 == 0 else (1.0,))
        if self.chance(0.5) and self.head_dim % 4 == 0:
            self.rope = {"rotary_dim": self.head_dim // 2}

    def gpt2(self):
        self.put("scale_attn_weights", True, False, absent=0.5)
        self.rope = {}

    def gpt_neox(self):
        self.flags("attention_bias", "use_parallel_residual")
        self.config.pop("head_dim", None)
        self.default_partial = 0.25
        if self.head_dim in (4, 6, 10):
            self.head_dim = 16
            self.config["hidden_size"] = 16 * self.heads
        self.rope = self.shared_rope(self.head_dim, partial=(1.0, 0.5, 0.25))
        if self.chance(0.3):
            self.rope = {"rotary_pct": self.r.choice((1.0, 0.5, 0.25)), "rotary_emb_base": self.r.choice(THETAS)}

    def bloom(self):
        self.flags("apply_residual_connection_post_layernorm")
        self.rope = {}

    def falcon(self):
        self.flags("alibi", "new_decoder_architecture", "multi_query", "bias")
        is_new = self.config.get("new_decoder_architecture")
        if not is_new:
            self.flags("parallel_attn")
        self.put("num_ln_in_parallel_attn", *((1, 2) if is_new else (1,)))
        if is_new:
            self.put("num_kv_heads", *[count for count in range(1, self.heads + 1) if self.heads % count == 0])
        if self.config.get("alibi"):
            self.rope = {}

    def qwen3_5_text(self):
        self.flags("attention_bias")
        self.layers = self.config["num_hidden_layers"] = self.r.randint(2, 5)
        self.put("full_attention_interval", 2, 3)
        if self.config.get("full_attention_interval", 9) > self.layers or self.chance(0.3):
            kinds = ["linear_attention", "full_attention", *(self.r.choice(("linear_attention", "full_attention")) for _ in range(self.layers - 2))]
            self.config["layer_types"] = self.r.sample(kinds, self.layers)
        keys = self.r.choice((1, 2, 3))
        self.config |= {"linear_num_key_heads": keys, "linear_num_value_heads": keys * self.r.choice((1, 2, 3)),
                        "linear_key_head_dim": self.r.choice((4, 5, 16)), "linear_value_head_dim": self.r.choice((3, 8, 16))}
        self.put("linear_conv_kernel_dim", 2, 3, 4)
        self.default_partial = 0.25
        self.config["head_dim"] = self.head_dim = self.r.choice((8, 16, 24))
        names = [(kind, kind) for kind in ("default", "linear", "yarn", "llama3")]
        self.rope = self.shared_rope(self.head_dim, names, partial=(1.0, 0.5, 0.25))

    def qwen3_5_moe_text(self):
        self.qwen3_5_text()
        self.experts("num_experts")
        self.config |= {"moe_intermediate_size": self.r.choice((8, 24)), "shared_expert_intermediate_size": self.r.choice((8, 20))}

    def qwen3_next(self):
        self.qwen3_5_text()
        self.qwen_experts("num_experts")
        self.config["shared_expert_intermediate_size"] = self.r.choice((8, 20))

    def opt(self):
        self.flags("enable_bias")
        self.config["word_embed_proj_dim"] = self.config["hidden_size"]
        self.rope = {}


SCALINGS = {"default": Document.no_scaling, "linear": Document.linear, "dynamic": Document.dynamic, "yarn": Document.yarn,
            "longrope": Document.longrope, "llama3": Document.llama3}
Document.llama = Document.llama_keys
