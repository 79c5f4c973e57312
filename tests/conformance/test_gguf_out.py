"""GGUF files of models, next to those of llama.cpp's converter: each key in its order, and each byte of each tensor.

Vocabularies here are small, so that the converter knows the pre-tokenizer of none: both are told one.
"""

import json
import shutil

import models
import pytest
from conftest import worker_fixture
from program import hashes, refuse, succeed
from test_run import TEXTS
from test_sentencepiece import LLAMA
from test_text_models import KINDS as WHOLE

converter = worker_fixture("CONVERTER", "converter_worker.py")
llama_cpp = worker_fixture("LLAMA_CPP", "llama_cpp_worker.py")
reference = worker_fixture("NEWEST", "run_worker.py")
pieces = worker_fixture("CONVERTER", "sentencepiece_worker.py")
TYPES = {"auto": "auto", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "q8_0": "q8_0"}
PRE = "llama-bpe"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# What the converter does not convert: soft caps that are null, norms of each head, layers without experts, an output of its own,
# one head of keys in Falcon, and Hunyuan's lengths here. It leaves out the factor of proportional embeddings.
REFUSED = ["gemma2 no caps", "stablelm parallel", "qwen3_moe dense", "ministral", "cohere", "phi norms", "falcon 7b", "falcon rw", "hunyuan", "qwen3_next dense",
           "gemma4 keys as values"]
# Keys that the converter reads, and that transformers leaves out when it saves a model.
OLDER = {"gpt_neox": {"rotary_pct": 0.5}, "gpt_neox serial": {"rotary_pct": 1.0}, "gpt2": {"n_ctx": 2048}, "gpt2 untied": {"n_ctx": 2048},
         "cohere2": {"rotary_pct": 1.0},
         "phimoe": {"architectures": ["PhiMoEForCausalLM"], "rope_scaling": models.LONG_FACTORS | {
             "type": "longrope", "original_max_position_embeddings": 512, "short_mscale": 1.1, "long_mscale": 1.2}, "rope_parameters": None}}
GLM = ["<|user|>", "[gMASK]", "<|observation|>"]
WRITTEN = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi3", "granite", "olmo2", "smollm3",
           "stablelm", "gpt_oss", "arcee", "seed_oss", "olmoe", "exaone4", "starcoder2", "phi", "cohere", "olmo3", "cohere2", "ernie4_5", "glm4",
           "glm4_moe", "hunyuan_v1_dense", "minimax_m2", "gpt_neox", "bloom", "falcon", "gpt2", "granitemoe", "granitemoeshared", "apertus", "phimoe",
           "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text"]
MORE = ["llama gqa", "llama rope x8", "llama biases", "llama tied", "mistral", "qwen2 window"]
KINDS = [kind for kind in [*models.SAVED, *MORE] if models.HUGGING_FACE[kind][0] in WRITTEN and kind not in REFUSED]


def tokenizer(package, folder, kind, **settings):
    """Gives a model the kind of tokenizer that its class reads."""
    if kind.startswith("gemma4"):
        package.ask("fallback", folder=str(folder), **settings)
    elif kind.startswith(("gemma", "phi3", "phimoe", "mistral", "ernie")) and not kind.startswith("gemma3"):
        package.ask("spm", folder=str(folder), added={"<extra>": 350}, **settings)
    else:
        package.ask("bpe", folder=str(folder), template=kind != "qwen3", added=["<tool>", " x", *GLM], **settings)


def model(package, folder, kind, dtype, **changes):
    package.ask("model", folder=str(folder), kind=kind, dtype=dtype, **changes)
    tokenizer(package, folder, kind)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | OLDER.get(kind, {})))


# The converter wants layers that predict further tokens, unless it is told that there are none.
ALONE = "qwen3_next", "qwen3_5"


def compare(package, folder, tmp_path, outtype, *more, flags=(), pre=PRE):
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    package.ask("convert", folder=str(folder), out=str(theirs), outtype=outtype, pre=pre, more=more)
    named = ["--pre-tokenizer", pre] if pre else []
    succeed(folder, "-o", ours, "--dtype", TYPES[outtype], "--force", *named, *flags)
    assert package.ask("compare", ours=str(ours), theirs=str(theirs)) == []


# Settings that each kind may have.
OTHERS = {"intermediate_size": 160, "num_key_value_heads": 1, "max_position_embeddings": 1024, "rope_theta": 5000.0}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, changes", [("bfloat16", {}), ("float32", {}), ("float16", OTHERS)])
def test_each_architecture(converter, tmp_path, kind, dtype, changes):
    folder = tmp_path / "tiny-7B-Instruct"
    model(converter, folder, kind, dtype, **changes)
    for outtype in TYPES:
        compare(converter, folder, tmp_path, outtype, *(["--no-mtp"] if kind.startswith(ALONE) else []))


def test_glm_has_the_numbers_of_its_configuration(converter, tmp_path):
    """The converter writes a context, an epsilon and a base of its own. The tensors and the tokenizer are the same, and it goes back."""
    folder, ours, theirs, back = (tmp_path / name for name in ("m", "ours.gguf", "theirs.gguf", "back"))
    model(converter, folder, "glm", "bfloat16", rms_norm_eps=1.5625e-7)
    converter.ask("convert", folder=str(folder), out=str(theirs), outtype="auto", pre=PRE, more=[])
    succeed(folder, "-o", ours, "--pre-tokenizer", PRE)
    differences = converter.ask("compare", ours=str(ours), theirs=str(theirs))
    assert [line for line in differences if not line.startswith(("keys: ", "chatglm."))] == []
    succeed(ours, "--names", "hf", "--dtype", "bfloat16", "-o", back, "--to", "safetensors")
    assert hashes(folder) == hashes(back)
    assert converter.ask("config", ours=str(back), theirs=str(folder)) == []


PARTS = [kind for kind in WHOLE if kind.startswith(("qwen", "gemma4")) and kind != "qwen3_vl_moe square"]


@pytest.mark.parametrize("kind", PARTS)
def test_text_models_of_models_with_images(converter, tmp_path, kind):
    """Both ways. The text model of Qwen 2 VL and 3 VL becomes one without images."""
    folder, back, again = tmp_path / "m", tmp_path / "back", tmp_path / "again.gguf"
    converter.ask("model", folder=str(folder), kind=kind, dtype="bfloat16", config=WHOLE[kind])
    tokenizer(converter, folder, kind if kind.startswith("gemma4") else "qwen3")
    succeed(folder, "-o", tmp_path / "saved.gguf", "--pre-tokenizer", PRE)
    if kind == "qwen3_vl_moe":
        converter.ask("publish", folder=str(folder))
    for outtype in TYPES:
        compare(converter, folder, tmp_path, outtype, *(["--no-mtp"] if kind.startswith(ALONE) else []))
    succeed(folder, "-o", tmp_path / "ours.gguf", "--force", "--pre-tokenizer", PRE)
    assert hashes(tmp_path / "ours.gguf") == hashes(tmp_path / "saved.gguf")
    succeed(tmp_path / "ours.gguf", "--names", "hf", "--dtype", "bfloat16", "-o", back, "--to", "safetensors")
    assert "whole" in succeed("check", back).stdout
    succeed(back, "-o", again, "--pre-tokenizer", PRE)
    ours, theirs = (converter.ask("bytes", path=str(path)) for path in (again, tmp_path / "ours.gguf"))
    assert ours == theirs


# llama.cpp wants heads of keys and values of one size, and sections that fit them.
SMALL = {"linear_value_head_dim": 16, "rope_parameters": {
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True, "mrope_section": [1, 1, 1]}}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
OTHERWISE = {
    **{kind: {"vocab_size_per_layer_input": 400} for kind in models.SAVED if kind.startswith("gemma4")},
    "gpt_oss": {"rope_parameters": models.ROPE | YARN | {"truncate": True}},
    "gpt_neox": {"rotary_emb_base": 10000.0},
    **{kind: {"attention_bias": False, "mlp_bias": False, "use_bias": False} for kind in ("qwen3", "arcee", "ernie4_5")},
    "seed_oss": {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False},
    "gpt2": {"n_inner": 256, "scale_attn_weights": True},
    "olmoe": {"num_key_value_heads": 4, "norm_topk_prob": False, "clip_qkv": None},
    "phi whole heads": {"intermediate_size": 256},
    "starcoder2 no biases": {"use_bias": True},
    "cohere2": {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
}
# It also wants other sizes of some.
LOADED = ["llama linear", "llama dynamic", "llama yarn", "llama gqa", "llama rope x8", "llama biases", "llama tied", "mistral", "mixtral", "qwen2 window",
          "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5 reversed", "qwen3_5_moe", "qwen2_vl", "qwen2_vl flat", "qwen3_vl tied", "phi3",
          "granite", "granitemoe", "olmo2", "stablelm", "cohere tied", "glm", "glm4", "glm4_moe", "exaone4 no window", "apertus", "starcoder2", "bloom",
          "gemma4", "gemma4 keys as values", "gemma4 experts", "gpt_oss", "gpt_neox", "cohere2", "qwen3", "qwen3 window", "arcee", "seed_oss", "ernie4_5", "gpt2", "olmoe", "phi whole heads", "gemma", "olmo3",
          "starcoder2 no biases"]


@pytest.mark.parametrize("kind", LOADED)
def test_llama_cpp_computes_what_transformers_does(converter, llama_cpp, tmp_path, kind):
    config = {"config": WHOLE[kind]} if "_vl" in kind else {}
    changes = OTHERWISE.get(kind, SMALL if kind.startswith(ALONE) else {})
    # Its GELU is a table of float16.
    assert next(distances(converter, llama_cpp, tmp_path, kind, **config, **changes)) < (5e-3 if kind.startswith(("gemma", "olmo3")) else 1e-3)


def distances(converter, llama_cpp, tmp_path, kind, **changes):
    """How far the logits of llama.cpp lie from those of transformers, with our file and with the converter's."""
    folder, path = tmp_path / "m", tmp_path / "x.gguf"
    model(converter, folder, kind, "float32", **changes)
    succeed(folder, "-o", path, "--dtype", "float32", "--pre-tokenizer", PRE)
    tokens = [5 + number * 7 % 200 for number in range(10)]  # fewer than any window
    exact = converter.ask("logits", folder=str(folder), tokens=tokens)

    def distance(path):
        found = llama_cpp.ask("logits", path=str(path), tokens=tokens, count=400)
        return max(abs(a - b) for a, b in zip(found, exact))

    yield distance(path)
    converter.ask("convert", folder=str(folder), out=str(tmp_path / "theirs.gguf"), outtype="f32", pre=PRE)
    yield distance(tmp_path / "theirs.gguf")


# Settings that no key has: truncated lengths of YaRN, the base of rotary embeddings, and layers with a window.
UNSAID = {"gpt_oss": 0.13, "gpt_neox": 0.07, "cohere2": 0.03}


@pytest.mark.parametrize("kind", UNSAID)
def test_what_no_key_says_llama_cpp_computes_in_its_own_way(converter, llama_cpp, tmp_path, kind):
    ours, theirs = distances(converter, llama_cpp, tmp_path, kind)
    assert ours == theirs and UNSAID[kind] / 2 < ours < UNSAID[kind]


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q5_0", "q5_1"])
def test_blocks_of_few_bits(converter, tmp_path, kind):
    folder, whole, path = tmp_path / "m", tmp_path / "whole.gguf", tmp_path / "x.gguf"
    converter.ask("model", folder=str(folder), kind="qwen2_moe", dtype="float32")
    tokenizer(converter, folder, "qwen2_moe")
    converter.ask("convert", folder=str(folder), out=str(whole), outtype="f32", pre=PRE)
    succeed(folder, "-o", path, "--dtype", kind, "--pre-tokenizer", PRE)
    assert converter.ask("bytes", path=str(path)) == converter.ask("quantize", path=str(whole), kind=kind.upper())
    assert converter.ask("keys", path=str(path))["general.file_type"] == {"q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9}[kind]
    refuse(folder, "-o", tmp_path / "x.safetensors", "--dtype", kind, status=(2,))


SETTINGS = {
    "no tokens are added": ("llama mha", {"template": False}),
    "prefix": ("llama mha", {"settings": {"add_prefix_space": True, "add_bos_token": True, "add_eos_token": False}}),
    "templates": ("llama mha", {"settings": {"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}}),
    "no token begins": ("llama mha", {"settings": {"bos_token": None, "cls_token": "<|endoftext|>"}}),
    "a named token": ("llama mha", {"added": ["<a1>"], "settings": {"extra_special_tokens": {"image_token": "<a1>"}}}),
    "new tokens": ("llama mha", {"settings": {
        "unk_token": "<unk>", "mask_token": {"content": "[MASK]", "special": True, "__type": "AddedToken"}, "image_token": "<img>",
        "additional_special_tokens": ["<x1>", "<unk>", "a"]}}),
    "listed tokens": ("llama mha", {"settings": {"pad_token": "[PAD]", "added_tokens_decoder": {
        "0": {"content": "<|begin|>", "special": True}, "390": {"content": "<n1>", "special": True}, "66": {"content": "b", "special": False},
        "386": {"content": "<n2>", "special": False}}}}),
    "flags of tokens": ("llama mha", {"added": ["<t1>", "<t2>", "<t3>"], "settings": {
        "image_token": "<t2>", "extra_special_tokens": ["<t1>", "<n2>"], "added_tokens_decoder": {
            "3": {"content": "<|endoftext|>", "special": False}, "349": {"content": "<t3>", "special": True}, "390": {"content": "<n2>", "special": False}}}}),
    "older documents": ("llama mha", {
        "map": b'{"pad_token": "[P]", "additional_special_tokens": ["<s1>"], "eos_token": {"content": "<e>", "lstrip": false, "normalized": false}}',
        "list": b'{"<n1>": 390, "<s1>": 395, "<n2>": 385, "[P]": 399}'}),
    "a class of tokens": ("qwen2", {"settings": {"tokenizer_class": "Qwen2Tokenizer", "pad_token": None}}),
    "lines of Windows": ("llama mha", {"jinja": b"{{ a }}\r\n{{ b }}\r"}),
    "an empty template": ("llama mha", {"jinja": b""}),
    "templates in files": ("llama mha", {"jinja": b"a", "named": b"b\r\n"}),
    "fallback": ("gemma4", {"added": ["<n1>", "x y"], "settings": {"pad_token": "<pad>", "soc_token": "<|channel>", "extra_special_tokens": ["<n2>", "<n1>"]}}),
    "fallback of llama": ("llama mha", {"class_name": "LlamaTokenizer", "added": ["<n1>"], "settings": {"pad_token": "<p>"}}),
    "fallback without a class": ("llama mha", {"class_name": "PreTrainedTokenizerFast", "settings": {"unk_token": None}}),
    "a class of bytes": ("cohere tied", {"settings": {"tokenizer_class": "CohereTokenizer"}}),
    "no class of bytes": ("cohere tied", {"settings": {"tokenizer_class": "PreTrainedTokenizerFast"}}),
    **{f"{name} of {kind}": (kind, {"settings": {"tokenizer_class": name}, "special": ["<|begin|>", "<|end|>", "<|pad|>"]}) for kind, name in [
        ("llama mha", "Qwen2Tokenizer"), ("llama mha", "LlamaTokenizer"), ("starcoder2", "GPT2Tokenizer"), ("olmoe", "GPTNeoXTokenizer"),
        ("qwen2", "PreTrainedTokenizerFast"), ("qwen3_moe", None), ("phi", None), ("cohere tied", None)]},
    "a class with more": ("llama mha", {"class_name": "CodeLlamaTokenizer", "settings": {"suffix_token": None, "middle_token": "<m>"}}),
    "turns": ("gemma", {"settings": {"eos_token": "<|im_end|>", "unk_token": None}}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_tokenizers(converter, tmp_path, name):
    kind, settings = SETTINGS[name]
    files = {"special_tokens_map.json": "map", "added_tokens.json": "list", "chat_template.jinja": "jinja", "additional_chat_templates/tool_use.jinja": "named"}
    told = {key: value for key, value in settings.items() if key not in files.values()}
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind=kind, dtype="bfloat16")
    made = "spm" if kind == "gemma" else "fallback" if kind == "gemma4" or "class_name" in told else "bpe"
    converter.ask(made, folder=str(folder), **told, **({"fill": False} if made == "fallback" else {}))
    for file in [file for file, key in files.items() if key in settings]:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(settings[files[file]])
    compare(converter, folder, tmp_path, "auto")


CHANGED = {
    "sigmoid": ("qwen3_moe", {"scoring_func": "sigmoid"}),
    "older scaling": ("gemma3", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 8.0}}),
    "newer scaling": ("gemma3", {"rope_parameters": None, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "sections": ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]}}),
    "a shared expert": ("granitemoe", {"model_type": "granitemoeshared", "shared_intermediate_size": 80}),
    "flat settings": ("olmo3", {"rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
                                "rope_parameters": None}),
    "no scaling": ("hunyuan", {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "one context": ("hunyuan", {"max_position_embeddings": 32768}),
    "yarn": ("granite", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}),
    **{f"llama3 {dim} {theta:.0f}": ("llama gqa", {"head_dim": dim, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": theta, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})
       for dim, theta in [(64, 1e4), (128, 1e4), (256, 5e5)]},
}


@pytest.mark.parametrize("name", CHANGED)
def test_settings_of_few_models(converter, tmp_path, name):
    kind, changes = CHANGED[name]
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind=kind, dtype="bfloat16", **({} if name == "sigmoid" else changes))
    tokenizer(converter, folder, kind)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    compare(converter, folder, tmp_path, "auto")


@pytest.mark.parametrize("kind", ["glm4_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"])
def test_layers_that_predict_further_tokens(converter, tmp_path, kind):
    folder = tmp_path / "m"
    model(converter, folder, kind, "bfloat16")
    converter.ask("mtp", folder=str(folder))
    compare(converter, folder, tmp_path, "auto")
    assert "whole" in succeed("check", tmp_path / "ours.gguf").stdout
    succeed(tmp_path / "ours.gguf", "--names", "hf", "--dtype", "bfloat16", "-o", tmp_path / "back", "--to", "safetensors")
    assert same_dtypes(hashes(tmp_path / "back")) == same_dtypes(hashes(folder))


@pytest.mark.parametrize("kind", ["falcon 7b", "gpt2", "gpt_neox", "cohere2"])
def test_what_only_we_write_comes_back(converter, tmp_path, kind):
    folder, path, back = tmp_path / "m", tmp_path / "x.gguf", tmp_path / "back"
    converter.ask("model", folder=str(folder), kind=kind, dtype="bfloat16")
    tokenizer(converter, folder, kind)
    succeed(folder, "-o", path, "--pre-tokenizer", PRE)
    succeed(path, "--names", "hf", "--dtype", "bfloat16", "-o", back, "--to", "safetensors")
    assert hashes(back) == hashes(folder)
    assert converter.ask("config", ours=str(back), theirs=str(folder)) == []


def test_numbers_of_fp8_are_where_the_weights_were(converter, tmp_path):
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind="llama gqa", dtype="bfloat16")
    tokenizer(converter, folder, "llama gqa")
    converter.ask("fp8", folder=str(folder))
    assert "--dequantize" in refuse(folder, "-o", tmp_path / "x.gguf", "--pre-tokenizer", PRE).stderr
    compare(converter, folder, tmp_path, "auto", flags=["--dequantize"])


def test_experts_of_gpt_oss_stay_packed(converter, tmp_path):
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind="gpt_oss", dtype="bfloat16")
    tokenizer(converter, folder, "gpt_oss")
    converter.ask("mxfp4", folder=str(folder))
    for outtype in TYPES:
        compare(converter, folder, tmp_path, outtype)


def test_a_layer_too_many_is_refused(converter, tmp_path):
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind="llama gqa", dtype="bfloat16")
    tokenizer(converter, folder, "llama gqa")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 1}))
    assert "model.layers.1." in refuse(folder, "-o", tmp_path / "x.gguf", "--pre-tokenizer", PRE).stderr


def test_a_lost_tensor_is_refused(converter, tmp_path):
    folder, out, lost = tmp_path / "m", tmp_path / "x.gguf", "model.layers.1.post_attention_layernorm.weight"
    converter.ask("model", folder=str(folder), kind="llama gqa", dtype="bfloat16")
    tokenizer(converter, folder, "llama gqa")
    succeed(folder, "--exclude", lost, "--to", "safetensors", "-o", tmp_path / "lost")
    for document in folder.glob("*.json"):
        (tmp_path / "lost" / document.name).write_bytes(document.read_bytes())
    assert lost in refuse(tmp_path / "lost", "-o", out, "--pre-tokenizer", PRE).stderr
    succeed(tmp_path / "lost", "-o", out, "--pre-tokenizer", PRE, "--incomplete")
    values = json.loads(succeed("inspect", "--json", "--all", out).stdout)["values"]
    assert any(row["path"] == "__metadata__.torch2carton.incomplete" and lost in json.dumps(row) for row in values), values
    assert len(hashes(out)) == len(hashes(folder)) - 1


def test_what_is_said_of_a_model(converter, tmp_path):
    card = """---
license: [mit, apache-2.0]
license_name: both
language:
- no
- en
tags: [a, b]
pipeline_tag: text-generation
base_model: meta-llama/Llama-3.2-1B
datasets:
- org/set-v1.0
- https://huggingface.co/org/other
model_creator: Someone
---
# Title
"""
    for name in ["Llama-3.2-1B-Instruct", "tiny-150K-v0.1", "x", "a-8x7B-4k", "phi-3-mini-128k"]:
        folder = tmp_path / name
        converter.ask("model", folder=str(folder), kind="llama gqa", dtype="bfloat16")
        tokenizer(converter, folder, "llama gqa")
        (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1}))
        compare(converter, folder, tmp_path, "auto")
        (folder / "README.md").write_text(card)
        compare(converter, folder, tmp_path, "auto")
        succeed(tmp_path / "ours.gguf", "-o", tmp_path / "again.gguf", "--pre-tokenizer", PRE, "--force")
        before, after = (converter.ask("keys", path=str(tmp_path / file)) for file in ("ours.gguf", "again.gguf"))
        assert {key: value for key, value in before.items() if key.startswith("general.")} == {
            key: value for key, value in after.items() if key.startswith("general.")}


def test_an_unknown_pre_tokenizer_is_refused_with_its_hash(converter, tmp_path):
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind="qwen3", dtype="bfloat16")
    tokenizer(converter, folder, "qwen3")
    text = refuse(folder, "-o", tmp_path / "x.gguf").stderr
    assert converter.ask("hash", folder=str(folder)) in text and "--pre-tokenizer" in text
    refuse(folder, "-o", tmp_path / "x.gguf", "--pre-tokenizer", "none-such", status=(2,))
    file = folder / "tokenizer.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"model": {"type": "WordPiece", "vocab": {"a": 0}}}))
    assert "WordPiece" in refuse(folder, "-o", tmp_path / "x.gguf", "--pre-tokenizer", PRE).stderr


def test_a_split_is_the_converters(converter, tmp_path):
    folder, ours, theirs = (tmp_path / name for name in ("m", "ours", "theirs"))
    converter.ask("model", folder=str(folder), kind="llama gqa", dtype="bfloat16")
    tokenizer(converter, folder, "llama gqa")
    ours.mkdir(), theirs.mkdir()
    converter.ask("convert", folder=str(folder), out=str(theirs / "x.gguf"), outtype="auto", pre=PRE, more=["--split-max-size", "100K"])
    succeed(folder, "-o", ours / "x.gguf", "--pre-tokenizer", PRE, "--split-max-size", "100KB")
    names = sorted(file.name for file in theirs.iterdir())
    assert len(names) > 2 and sorted(file.name for file in ours.iterdir()) == names
    for name in names:
        assert converter.ask("compare", ours=str(ours / name), theirs=str(theirs / name)) == []


def test_other_inputs_become_the_same_file(converter, tmp_path):
    folder, path = tmp_path / "m", tmp_path / "folder.gguf"
    converter.ask("model", folder=str(folder), kind="llama gqa", dtype="bfloat16")
    converter.ask("spm", folder=str(folder))
    succeed(folder, "-o", path)
    metas, pickled, carton = tmp_path / "meta", tmp_path / "pth", tmp_path / "x.carton"
    succeed(folder, "--names", "meta", "--to", "pth", "-o", metas)
    shutil.copy(folder / "tokenizer_config.json", metas)
    succeed(folder, "--to", "pth", "-o", pickled)
    succeed(folder, "-o", carton)
    expected = hashes(path)
    for number, given in enumerate((metas, pickled, carton)):
        out = tmp_path / f"{number}.gguf"
        succeed(given, "-o", out)
        assert hashes(out) == expected, given


def test_what_is_not_written_is_named(converter, tmp_path):
    folder = tmp_path / "m"
    converter.ask("model", folder=str(folder), kind="qwen3_moe dense", dtype="bfloat16")
    tokenizer(converter, folder, "qwen3_moe")
    assert "mlp.down_proj" in refuse(folder, "-o", tmp_path / "x.gguf", "--pre-tokenizer", PRE).stderr
    config = folder / "config.json"
    config.write_text(config.read_text().replace("Qwen3MoeForCausalLM", "BertModel"))
    assert "BertModel" in refuse(folder, "-o", tmp_path / "x.gguf").stderr


def same_dtypes(found):
    """What is float32 in the folder became another dtype on the way back."""
    return {name: {} if name.endswith("e_score_correction_bias") else row for name, row in found.items()}


BACK = [kind for kind in KINDS if kind not in ("llama longrope", "llama dynamic", "phi3 longrope")]


@pytest.mark.parametrize("kind", BACK)
def test_the_way_back(converter, tmp_path, kind):
    folder, path, back = tmp_path / "m", tmp_path / "x.gguf", tmp_path / "back"
    model(converter, folder, kind, "bfloat16")
    converter.ask("convert", folder=str(folder), out=str(path), outtype="auto", pre=PRE, more=["--no-mtp"] if kind.startswith(ALONE) else [])
    told = succeed(path, "--names", "hf", "--dtype", "bfloat16", "-o", back, "--to", "safetensors").stderr
    assert "tokenizer" in told
    assert "whole" in succeed("check", path).stdout
    expected, found = hashes(folder), hashes(back)
    if kind.startswith("gemma3"):  # the converter leaves out the embeddings of padding
        expected.pop("model.embed_tokens.weight"), found.pop("model.embed_tokens.weight")
    assert same_dtypes(found) == same_dtypes(expected)
    differences = [line for line in converter.ask("config", ours=str(back), theirs=str(folder)) if not (kind.startswith("gemma3") and "vocab_size" in line)]
    # Mistral is LLaMA then, and the class of Phi-MoE has the name that transformers gives it.
    assert differences == [] or kind in ("mistral", "phimoe"), differences


def test_blocks_get_names_as_numbers(converter, tmp_path):
    folder, path = tmp_path / "m", tmp_path / "x.gguf"
    converter.ask("model", folder=str(folder), kind="mixtral", dtype="bfloat16")
    tokenizer(converter, folder, "mixtral")
    succeed(folder, "-o", path, "--dtype", "q8_0", "--pre-tokenizer", PRE)
    assert "--dequantize" in refuse(path, "--names", "hf", "-o", tmp_path / "a", "--to", "safetensors").stderr
    succeed(path, "--names", "hf", "--dequantize", "-o", tmp_path / "a", "--to", "safetensors")
    found, expected = hashes(tmp_path / "a"), hashes(folder)
    assert {name: row["shape"] for name, row in found.items()} == {name: row["shape"] for name, row in expected.items()}


def answer_alike(tokens, *made):
    """Checks that models divide texts alike, and give the same answers."""
    for text in [text for text in TEXTS if text]:
        answers = [json.loads(succeed("run", "--json", model, "--max-tokens", tokens, "--", text).stdout) for model in made]
        assert all(answer["prompt_tokens"] == answers[0]["prompt_tokens"] for answer in answers), text
        assert all(answer["text"] == answers[0]["text"] for answer in answers), text


def test_a_file_of_gemma_4_answers_texts_as_the_folder_does(converter, tmp_path):
    folder, back, path, carton = tmp_path / "m", tmp_path / "back", tmp_path / "m.gguf", tmp_path / "m.carton"
    model(converter, folder, "gemma4", "float32", vocab_size_per_layer_input=400)
    succeed(folder, "-o", path, "--dtype", "float32")
    succeed(path, "--names", "hf", "--to", "safetensors", "-o", f"{back}/")
    succeed(path, "-o", carton)
    answer_alike(4, folder, path, back, carton)


@pytest.mark.parametrize("kind", ["llama gqa", "qwen3_5", "qwen3_5_moe", "gemma4 experts", "gpt_oss"])
def test_blocks_of_a_file_stay_in_another(converter, tmp_path, kind):
    folder, first, second = tmp_path / "m", tmp_path / "1.gguf", tmp_path / "2.gguf"
    model(converter, folder, kind, "bfloat16", **(SMALL if kind.startswith("qwen") else {}))
    succeed(folder, "-o", first, "--dtype", "q8_0", "--pre-tokenizer", PRE)
    assert "--dequantize" in refuse(first, "-o", second).stderr
    succeed(first, "-o", second, "--dequantize", "--dtype", "q8_0")
    assert converter.ask("bytes", path=str(second)) == converter.ask("bytes", path=str(first))
    before, after = (converter.ask("keys", path=str(path)) for path in (first, second))
    # Documents of the keys say what a tokenizer.json leaves out.
    unlike = {key for key in before | after if before.get(key) != after.get(key)} - {f"tokenizer.ggml.add_{kind}_token" for kind in ("eos", "sep")}
    assert unlike - {"qwen35moe.feed_forward_length"} == set()


@pytest.mark.parametrize("kind, pre", [("byte level", "llama-bpe"), ("gpt2", "qwen2"), ("pieces", None)])
def test_a_file_answers_texts_as_the_folder_does(kind, pre, reference, pieces, tmp_path):
    """The tokens of texts, the answers, and those of what the way back writes."""
    folder, back, path = tmp_path / "m", tmp_path / "back", tmp_path / "m.gguf"
    folder.mkdir()
    reference.ask("make", folder=str(folder), kind="byte level" if kind == "pieces" else kind, model_type="llama", seed=2)
    if kind == "pieces":
        for document in ["tokenizer.json", "tokenizer_config.json"]:
            (folder / document).unlink(missing_ok=True)
        pieces.ask("train", path=str(folder / "tokenizer.model"), settings=LLAMA)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": 0 if kind == "byte level" else 1, "eos_token_id": 1}))
    if kind == "gpt2":
        # How Qwen 2 splits a text.
        file = json.loads((folder / "tokenizer.json").read_text())
        split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]}
        (folder / "tokenizer.json").write_text(json.dumps(file))
    succeed(folder, "-o", path, "--dtype", "float32", *(["--pre-tokenizer", pre] if pre else []))
    succeed(path, "--names", "hf", "--to", "safetensors", "-o", f"{back}/")
    assert "whole" in succeed("check", path).stdout
    answer_alike(8, folder, path, back)


@pytest.mark.parametrize("kind", ["llama gqa", "mixtral", "qwen3_moe", "phi3", "gemma2", "gpt2"])
def test_a_carton_of_blocks_has_the_numbers_of_the_file(converter, tmp_path, kind):
    """`--dtype q8_0` in a carton and in a GGUF file, whose blocks are compared with the package `gguf` above."""
    folder, path = tmp_path / "m", tmp_path / "x.gguf"
    model(converter, folder, kind, "bfloat16")
    succeed(folder, "-o", path, "--dtype", "q8_0", "--pre-tokenizer", PRE)
    succeed(folder, "-o", tmp_path / "x.carton", "--dtype", "q8_0")
    succeed(path, "--names", "hf", "--dequantize", "-o", tmp_path / "file", "--to", "safetensors")
    succeed(tmp_path / "x.carton", "-o", tmp_path / "carton", "--to", "safetensors")
    listed = json.loads(succeed("inspect", "--json", tmp_path / "x.carton").stdout)["tensors"]
    blocks = [row["name"] for row in listed if row.get("blocks") == "Q8_0"]
    ours, theirs = hashes(tmp_path / "carton"), hashes(tmp_path / "file")
    assert len(blocks) > 8 and {name: ours[name] for name in blocks} == {name: theirs[name] for name in blocks}


@pytest.mark.parametrize("without", ["", "avx512", "avx512,avx2"])
@pytest.mark.parametrize("kind", ["llama gqa", "mixtral", "qwen3_moe", "phi3", "gemma2", "gpt2"])
def test_weights_of_eight_bits_run_in_place(converter, tmp_path, kind, without):
    """Logits of the blocks, and those of the numbers that they stand for, which other checks compare with gguf-py's."""
    folder, path, numbers = tmp_path / "m", tmp_path / "x.gguf", tmp_path / "numbers"
    model(converter, folder, kind, "float32")
    succeed(folder, "-o", path, "--dtype", "q8_0", "--pre-tokenizer", PRE)
    assert "Q8_0" in succeed("inspect", path).stdout
    succeed(path, "--names", "hf", "--dequantize", "-o", numbers, "--to", "safetensors")
    for count in [1, 7, 40]:
        tokens = ",".join(str(number * 7 % 200) for number in range(count))
        ours, theirs = ({row["id"]: row["logit"] for row in json.loads(
            succeed("run", "--json", made, "--tokens", tokens, "--top", 1000, env={"TORCH2CARTON_WITHOUT": without}).stdout)["candidates"]}
            for made in (path, numbers))
        assert ours.keys() == theirs.keys()
        largest = max(map(abs, theirs.values()))
        assert max(abs(ours[token] - theirs[token]) for token in theirs) <= 3e-6 * largest
