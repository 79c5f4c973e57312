"""Tiny configurations of every model type that `check` knows, for transformers to make models of."""

import json
import os

SLIDING = ["sliding_attention", "full_attention"]
LINEAR = ["linear_attention", "full_attention"]
CONV = ["conv", "full_attention"]

# Values of every key that a class has; each dimension is another number where the class allows it.
TINY = dict(
    hidden_size=48, n_embd=48, d_model=48, dim=48, num_attention_heads=4, n_head=4, n_heads=4, num_heads=4, num_key_value_heads=2, head_dim=16,
    intermediate_size=56, ffn_dim=56, hidden_dim=56, d_ff=56, d_kv=8, vocab_size=104, num_hidden_layers=4, n_layer=4, n_layers=4, num_layers=2,
    num_decoder_layers=2, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=56,
    decoder_ffn_dim=72, max_position_embeddings=88, n_positions=88, max_source_positions=30, max_target_positions=28,
    moe_intermediate_size=20, shared_expert_intermediate_size=36, shared_intermediate_size=36, moe_shared_expert_intermediate_size=44,
    num_experts=6, num_local_experts=6, n_routed_experts=6, moe_num_experts=6, num_experts_per_tok=2, moe_k=2, n_shared_experts=2,
    moe_num_shared_experts=2, n_group=1, topk_group=1, first_k_dense_replace=1, q_lora_rank=28, kv_lora_rank=12, qk_nope_head_dim=10,
    qk_rope_head_dim=6, v_head_dim=14, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=10,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, hidden_size_per_layer_input=18, vocab_size_per_layer_input=76,
    laurel_rank=11, num_kv_shared_layers=0, state_size=9, mamba_d_state=9, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=1, mamba_d_ssm=96,
    ssm_state_size=9, mamba_num_heads=6, mamba_head_dim=16, n_groups=2, image_size=28, patch_size=14, num_channels=3, num_mel_bins=16,
)  # fmt: skip
VISION = dict(
    hidden_size=40, intermediate_size=44, num_attention_heads=4, num_hidden_layers=2, num_heads=4, depth=2, embed_dim=40, image_size=28,
    patch_size=14, mlp_ratio=4, out_hidden_size=48, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=16, head_dim=10,
    num_key_value_heads=4, fullatt_block_indexes=[1], deepstack_visual_indexes=[0], vision_output_dim=48, projector_input_dim=48,
    projector_output_dim=48, pixel_shuffle_ratio=0.5, num_global_layers=2, max_num_tiles=4, intermediate_layers_indices=[0, 1],
    attention_heads=4, position_embedding_size=32,
)  # fmt: skip

# For each model type the changes of the class, of the configuration, and of its parts; a type that is not here has one case without any.
CASES = {
    "llama": [{}, dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), dict(cls="LlamaModel"), dict(cls="LlamaForSequenceClassification"), dict(cls="LlamaForTokenClassification"), dict(cls="LlamaForQuestionAnswering")],
    "gemma3_text": [{}, dict(cls="Gemma3TextModel"), dict(cls="Gemma3TextForSequenceClassification")],
    "gemma3n_text": [{}, dict(num_kv_shared_layers=2, num_hidden_layers=6, intermediate_size=[56, 58, 56, 56, 60, 60], layer_types=SLIDING * 3)],
    "gemma4_text": [dict(layer_types=SLIDING * 2), dict(layer_types=SLIDING * 3, num_hidden_layers=6, num_kv_shared_layers=2, use_double_wide_mlp=True), dict(layer_types=SLIDING * 2, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, top_k_experts=2, hidden_size_per_layer_input=0)],
    "phi": [{}, dict(qk_layernorm=True)],
    "stablelm": [{}, dict(qk_layernorm=True, use_qkv_bias=True)],
    "cohere": [{}, dict(use_qk_norm=True)],
    "seed_oss": [{}, dict(attention_out_bias=True, mlp_bias=True, attention_bias=False)],
    "ernie4_5": [{}, dict(use_bias=True)],
    "starcoder2": [{}, dict(use_bias=False)],
    "falcon": [{}, dict(new_decoder_architecture=True, num_kv_heads=2), dict(parallel_attn=False, multi_query=False, bias=True, alibi=True), dict(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)],
    "gpt2": [{}, dict(cls="GPT2Model"), dict(n_inner=100, add_cross_attention=True), dict(cls="GPT2ForSequenceClassification"), dict(cls="GPT2ForTokenClassification"), dict(cls="GPT2DoubleHeadsModel")],
    "gpt_neox": [{}, dict(attention_bias=False, tie_word_embeddings=True), dict(cls="GPTNeoXForSequenceClassification"), dict(cls="GPTNeoXForTokenClassification")],
    "opt": [{}, dict(word_embed_proj_dim=40, do_layer_norm_before=False), dict(enable_bias=False), dict(layer_norm_elementwise_affine=False), dict(cls="OPTForSequenceClassification")],
    "qwen2_moe": [{}, dict(mlp_only_layers=[1], decoder_sparse_step=2, qkv_bias=False)],
    "qwen3_moe": [{}, dict(mlp_only_layers=[0], num_local_experts=4)],
    "phimoe": [{}, dict(lm_head_bias=True, attention_bias=True)],
    "granitemoeshared": [{}, dict(shared_intermediate_size=0)],
    "glm4_moe": [{}, dict(use_qk_norm=True, attention_bias=True, first_k_dense_replace=2)],
    "glm4_moe_lite": [{}, dict(mlp_layer_types=["dense", "dense", "sparse", "dense"])],
    "deepseek_v2": [{}, dict(q_lora_rank=None, first_k_dense_replace=0)],
    "deepseek_v3": [{}, dict(q_lora_rank=None, attention_bias=True, n_shared_experts=1, tie_word_embeddings=True)],
    "ernie4_5_moe": [{}, dict(moe_layer_start_index=2, moe_layer_end_index=2, use_bias=True), dict(moe_layer_interval=2, moe_num_shared_experts=0)],
    "llama4_text": [{}, dict(interleave_moe_layer_step=2, intermediate_size_mlp=60)],
    "lfm2_moe": [dict(layer_types=CONV * 2, num_dense_layers=1), dict(layer_types=CONV * 2, num_dense_layers=0, use_expert_bias=False, conv_bias=True)],
    "lfm2": [dict(layer_types=CONV * 2), dict(full_attn_idxs=[1, 2], block_auto_adjust_ff_dim=False)],
    "qwen3_next": [{}, dict(mlp_only_layers=[1], layer_types=LINEAR * 2)],
    "qwen3_5_text": [{}, dict(tie_word_embeddings=True, attention_bias=True)],
    "granitemoehybrid": [{}, dict(layer_types=LINEAR * 2), dict(num_local_experts=0, layer_types=LINEAR * 2, mamba_proj_bias=True)],
    "mamba": [{}, dict(use_bias=True, use_conv_bias=False, tie_word_embeddings=False, time_step_rank=7, expand=3)],
    "mamba2": [dict(num_heads=6, expand=2), dict(num_heads=6, expand=2, use_bias=True, tie_word_embeddings=True)],
    "falcon_h1": [{}, dict(mamba_rms_norm=True, projectors_bias=True, mamba_proj_bias=True, mlp_bias=True, attention_bias=True)],
    "nemotron_h": [{}, dict(moe_latent_size=30, mlp_bias=True, use_bias=True, layer_types=["moe", "linear_attention", "mlp", "full_attention", "moe"])],
    "whisper": [dict(cls="WhisperForConditionalGeneration"), dict(cls="WhisperModel"), dict(cls="WhisperForCausalLM"), dict(cls="WhisperForAudioClassification"), dict(cls="WhisperForAudioClassification", use_weighted_layer_sum=True)],
    "bert": [dict(cls=f"Bert{end}") for end in ("ForMaskedLM", "LMHeadModel", "ForPreTraining", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction")],
    "roberta": [dict(cls=f"Roberta{end}") for end in ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")],
    "distilbert": [dict(cls=f"DistilBert{end}") for end in ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")],
    "t5": [dict(cls="T5ForConditionalGeneration"), dict(cls="T5Model", feed_forward_proj="gated-gelu", num_decoder_layers=None), dict(cls="T5ForSequenceClassification"), dict(cls="T5ForTokenClassification"), dict(cls="T5EncoderModel")],
    "bart": [dict(cls="BartForConditionalGeneration"), dict(cls="BartModel"), dict(cls="BartForSequenceClassification"), dict(cls="BartForConditionalGeneration", tie_word_embeddings=False), dict(cls="BartForCausalLM"), dict(cls="BartForQuestionAnswering")],
    "vit": [dict(cls="ViTForImageClassification"), dict(cls="ViTModel", qkv_bias=False), dict(cls="ViTForMaskedImageModeling")],
    "qwen3_5": [{}, dict(tie_word_embeddings=True, cls="Qwen3_5Model"), dict(cls="Qwen3_5ForSequenceClassification"), dict(cls="Qwen3_5ForTokenClassification")],
    "gemma3": [{}, dict(vision=dict(vision_use_head=False), cls="Gemma3Model"), dict(cls="Gemma3ForSequenceClassification")],
    "gemma4": [dict(text=dict(layer_types=SLIDING * 2), audio=True), dict(text=dict(layer_types=SLIDING * 2), vision=dict(use_clipped_linears=True, standardize=True))],
    "llava": [{}, dict(cls="LlavaModel"), dict(vision_feature_layer=[-2, -1], multimodal_projector_bias=False)],
    "mllama": [dict(text=dict(cross_attention_layers=[1, 3], num_hidden_layers=5))],
    "internvl": [dict(vision=dict(attention_bias=True, use_qk_norm=True, norm_type="rms_norm")), dict(cls="InternVLModel")],
    "qwen3_vl_moe": [dict(text=dict(mlp_only_layers=[1]))],
    "clip": [{}, dict(cls="CLIPForImageClassification")],
    "lfm2_vl": [{}, dict(vision=dict(vision_use_head=False), downsample_factor=1, projector_use_layernorm=False)],
}  # fmt: skip
# Model types without a row above.
PLAIN = """mistral ministral3 qwen2 qwen3 gemma gemma2 phi3 granite olmo olmo2 olmo3 bloom cohere2 glm glm4 exaone4 smollm3 hunyuan_v1_dense arcee
mixtral granitemoe olmoe gpt_oss minimax_m2 qwen3_5_moe_text qwen3_5_moe llava_next llava_onevision mistral3 aya_vision paligemma qwen2_vl
qwen2_5_vl qwen3_vl llama4 idefics3 smolvlm""".split()
TYPES = [*CASES, *PLAIN]


def chosen():
    """The cases of all types, or of those that `T2C_CHECK_TYPES` names, with their numbers."""
    types = os.environ.get("T2C_CHECK_TYPES", "").split() or TYPES
    return [(name, number) for name in types for number in range(len(CASES.get(name, [{}])))]


# Types whose configuration declares heads that the model does not have.
DECLARED = {"deepseek_v3", "glm4_moe"}


def undeclare(folder):
    config = json.loads((folder / "config.json").read_text())
    if config.pop("num_nextn_predict_layers", None):
        (folder / "config.json").write_text(json.dumps(config))


# Types of the parts, where the class leaves them open.
PARTS = {
    "gemma3": ("siglip_vision_model", "gemma3_text"), "llava": ("clip_vision_model", "llama"), "llava_next": ("clip_vision_model", "mistral"),
    "llava_onevision": ("siglip_vision_model", "qwen2"), "mistral3": ("pixtral", "mistral"), "aya_vision": ("siglip_vision_model", "cohere2"),
    "internvl": ("internvl_vision", "qwen2"), "paligemma": ("siglip_vision_model", "gemma"), "lfm2_vl": ("siglip2_vision_model", "lfm2"),
    "idefics3": ("idefics3_vision", "llama"), "smolvlm": ("smolvlm_vision", "llama"), "gemma4": ("gemma4_vision", "gemma4_text"),
}  # fmt: skip
GRID = dict(image_grid_pinpoints=[[28, 28]])
ROOT = {"gemma3": dict(mm_tokens_per_image=4), "llava_next": GRID, "llava_onevision": GRID}
MROPE = dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]})
# Keys that a class computes or takes under conditions.
LEFT_OUT = {"falcon": ["head_dim"], "nemotron_h": ["num_hidden_layers"]}
ADDED = {"gemma4_text": dict(head_dim=16, global_head_dim=32), "gemma4_vision": dict(patch_size=7),
         **{f"{name}_text": MROPE for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")}}  # fmt: skip
