"""Models of several parts: text alone has the logits of the whole model in transformers, in each spelling of its names."""

import json

import models
import numpy
import pytest
from carton_file import Carton, without_colour
from conftest import worker_fixture
from program import succeed
from test_forward import call, forward  # noqa: F401  (a fixture)
from test_random_models import CACHE_TOLERANCE, TOLERANCE, difference

TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
CLIP = TOWER | {"model_type": "clip_vision_model", "projection_dim": 16}
GEMMA4 = TOWER | {"model_type": "gemma4_vision", "head_dim": 8, "num_key_value_heads": 2, "patch_size": 7}
SIGLIP = TOWER | {"model_type": "siglip_vision_model"}
PIXTRAL = TOWER | {"model_type": "pixtral"}
QWEN = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}
QWEN2 = {"depth": 1, "embed_dim": 16, "hidden_size": 64, "num_heads": 2}
QWEN2_5 = QWEN | {"fullatt_block_indexes": [0]}
QWEN3 = QWEN | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
MLLAMA = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_global_layers": 1, "attention_heads": 2,
          "image_size": 28, "patch_size": 14, "vision_output_dim": 32, "intermediate_layers_indices": [0]}
SECTIONS = {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "rope_theta": 1000000.0}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


def parts(model_type, vision, text, **root):
    text = {key: value for key, value in (models.SIZES | text).items() if value is not None}
    return {"model_type": model_type, "text_config": text, "vision_config": vision, **root}


def flat(model_type, vision, text):
    """The document of published files: the keys of text are those of the whole model."""
    return models.SIZES | text | {"model_type": model_type, "vision_config": vision | {"model_type": model_type}}


KINDS = {
    "gemma3": parts("gemma3", SIGLIP, models.MIXED | {
        "model_type": "gemma3_text", "head_dim": 24, "query_pre_attn_scalar": 20, "final_logit_softcapping": 30.0}),
    "gemma3 few keys": parts("gemma3", SIGLIP, {
        "model_type": "gemma3_text", "num_attention_heads": None, "num_key_value_heads": None, "hidden_size": 64, "head_dim": 8,
        "sliding_window": 5, "sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "mistral3": parts("mistral3", PIXTRAL, {"model_type": "mistral", "head_dim": 24, "sliding_window": None}),
    "mistral3 of ministral3": parts("mistral3", PIXTRAL, {"model_type": "ministral3", "head_dim": 24, "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1000000.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}),
    "mistral3 untied": parts("mistral3", PIXTRAL, {
        "model_type": "mistral", "sliding_window": models.WINDOW, "tie_word_embeddings": False}, tie_word_embeddings=False),
    "llava": parts("llava", CLIP, {"model_type": "llama", "rope_theta": 500000.0}),
    "llava few keys": parts("llava", CLIP, {
        "model_type": "llama", "num_attention_heads": None, "num_key_value_heads": None, "hidden_size": 128}),
    "llava mistral": parts("llava", CLIP, {"model_type": "mistral", "sliding_window": 7}),
    "llava qwen2": parts("llava", CLIP, {"model_type": "qwen2"}, tie_word_embeddings=True),
    "qwen2_vl": parts("qwen2_vl", QWEN2, SECTIONS | {"model_type": "qwen2_vl_text"}),
    "qwen2_vl flat": flat("qwen2_vl", QWEN2, SECTIONS | {"tie_word_embeddings": True}),
    "qwen2_5_vl": parts("qwen2_5_vl", QWEN2_5, SECTIONS | {
        "model_type": "qwen2_5_vl_text", "use_sliding_window": True, "sliding_window": models.WINDOW, "max_window_layers": 1}),
    "qwen2_5_vl flat": flat("qwen2_5_vl", QWEN2_5, SECTIONS),
    "qwen3_vl": parts("qwen3_vl", QWEN3, {"model_type": "qwen3_vl_text", "head_dim": 24, "attention_bias": True}),
    "qwen3_vl tied": parts("qwen3_vl", QWEN3, {
        "model_type": "qwen3_vl_text", "head_dim": 16, "rope_scaling": {
            "rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}}, tie_word_embeddings=True),
    "qwen3_vl_moe": parts("qwen3_vl_moe", QWEN3, EXPERTS | {"model_type": "qwen3_vl_moe_text", "head_dim": 24}),
    "qwen3_vl_moe square": parts("qwen3_vl_moe", QWEN3, EXPERTS | {
        "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 32, "mlp_only_layers": [0], "norm_topk_prob": False}),
    "qwen3_5": parts("qwen3_5", QWEN, models.DELTA_NET | {"model_type": "qwen3_5_text", "num_hidden_layers": 3}),
    "qwen3_5 tied": parts("qwen3_5", QWEN, models.DELTA_NET | {
        "model_type": "qwen3_5_text", "attention_bias": True, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.5, "mrope_interleaved": True,
            "mrope_section": [2, 2, 2]}}, tie_word_embeddings=True),
    "qwen3_5_moe": parts("qwen3_5_moe", QWEN, EXPERTS | models.DELTA_NET | {
        "model_type": "qwen3_5_moe_text", "shared_expert_intermediate_size": 32}),
    "qwen3_5_moe wide heads": parts("qwen3_5_moe", QWEN, EXPERTS | models.DELTA_NET | {
        "model_type": "qwen3_5_moe_text", "shared_expert_intermediate_size": 32, "linear_value_head_dim": 32,
        "layer_types": ["full_attention", "linear_attention"]}),
    "gemma4": parts("gemma4", GEMMA4, models.GEMMA4 | {
        "model_type": "gemma4_text", "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 8, "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": "vision"}),
    "gemma4 experts": parts("gemma4", GEMMA4, models.GEMMA4 | models.KEYS_AS_VALUES | {
        "model_type": "gemma4_text", "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 48}),
    "mllama": parts("mllama", MLLAMA, {
        "model_type": "mllama_text_model", "num_hidden_layers": 5, "cross_attention_layers": [1, 4], "pad_token_id": 0}),
    "mllama scaled": parts("mllama", MLLAMA, {
        "model_type": "mllama_text_model", "num_hidden_layers": 4, "cross_attention_layers": [0, 2], "rope_scaling": models.llama3(8.0),
        "rope_theta": 500000.0, "pad_token_id": 0}),
}
workers = worker_fixture("NEWEST", "text_model_worker.py")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("is_published", [True, False], ids=["published", "modules"])
@pytest.mark.parametrize("kind", KINDS)
def test_text_alone_has_the_logits_of_the_whole_model(kind, is_published, dtype, workers, forward, tmp_path):  # noqa: F811
    tokens = numpy.random.default_rng(7).integers(1, models.VOCAB, (2, 40))
    numpy.save(tmp_path / "tokens.npy", tokens)
    workers.ask("make", config=KINDS[kind], folder=str(tmp_path), is_published=is_published, dtype=dtype)
    carton, archive = tmp_path / "made.carton", tmp_path / "made.pt"
    words = without_colour(succeed(tmp_path, "--require-model", "-o", carton).stderr)
    assert " left out, which logits of text do not depend on: `" in words, words
    assert f"module    {kind.split()[0]}: tokens -> logits\n" in words
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    workers.ask("run", archive=str(archive), folder=str(tmp_path), part=30)
    steps = [call(tokens[:, :30]), *(call(tokens[:, at:at + 1], cache="keep") for at in range(30, 40))]
    exact = numpy.load(tmp_path / "exact.npy")
    found = {"module": numpy.load(tmp_path / "whole.npy"), "module with a cache": numpy.load(tmp_path / "parts.npy")}
    for threads in (1, 3):
        whole, *parts = forward(carton, [call(tokens), *steps], threads)
        found |= {f"{threads} threads": whole, f"{threads} threads with a cache": numpy.concatenate(parts, 1)}
    for name, logits in found.items():
        tolerance = max(TOLERANCE[dtype], CACHE_TOLERANCE if "cache" in name else 0)
        assert not (why := difference(name, logits, exact, tolerance)), why
    listed = {row["name"] for row in json.loads(succeed("inspect", "--json", carton).stdout)["tensors"]}
    assert not any(part in name for name in listed for part in ("vision", "visual", "projector", "cross_attn"))
