//! Towers: encoders of images and sounds in multimodal models.

use crate::config::Config;
use crate::indices::Indices;
use crate::parts::{Dims, gated, linears, norms};
use crate::size::Size;
use crate::tree::Scope;

/// Encoder of images or sounds.
type Tower = fn(&Config<'_>, &Scope<'_>);

const TOWERS: &[(&[&str], Tower)] = &[
    (&["clip_vision_model"], |c, s| clip(c, s)),
    (&["siglip_vision_model", "siglip2_vision_model"], |c, s| siglip(c, s)),
    (&["idefics3_vision", "smolvlm_vision"], |c, s| siglip_body(c, s, true)),
    (&["pixtral"], |c, s| pixtral(c, s)),
    (&["internvl_vision"], |c, s| internvl(c, s)),
    (&["qwen2_vl_vision"], |c, s| qwen2(c, s)),
    (&["qwen2_5_vl_vision"], |c, s| qwen2_5(c, s)),
    (&["qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_5_vision", "qwen3_5_moe_vision"], |c, s| qwen3(c, s)),
    (&["mllama_vision_model"], |c, s| mllama(c, s)),
    (&["llama4_vision_model"], |c, s| llama4(c, s)),
    (&["gemma4_vision"], |c, s| gemma4(c, s)),
    (&["gemma4_audio"], |c, s| gemma4_audio(c, s)),
    (&["clip_text_model"], |c, s| clip_text(c, s)),
];

/// Adds the tensors of a tower. A type that is not known adds none.
pub(crate) fn add(c: &Config<'_>, s: &Scope<'_>) -> Option<()> {
    let (_, tower) = TOWERS.iter().find(|(types, _)| types.contains(&c.model_type.as_str()))?;
    tower(c, s);
    Some(())
}

/// Returns the width, the width inside of a layer, and the number of patches along a side.
fn sizes(c: &Config<'_>) -> [Size; 3] {
    [c.size("hidden_size"), c.size("intermediate_size"), c.size("image_size") / c.size("patch_size")]
}

fn channels(c: &Config<'_>) -> Size {
    c.number("num_channels").or_else(|| c.number("in_channels")).unwrap_or(Size(3))
}

/// Adds the layers of CLIP, `SigLIP` and their kin.
fn clip_layers(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let l = s.each("encoder.layers", &c.layers());
    linears(&l.at("self_attn"), &["q_proj", "k_proj", "v_proj", "out_proj"], [hidden, hidden], true);
    norms(&l, hidden, &["layer_norm1", "layer_norm2"], true);
    linears(&l, &["mlp.fc1"], [inner, hidden], true);
    linears(&l, &["mlp.fc2"], [hidden, inner], true);
}

fn clip(c: &Config<'_>, s: &Scope<'_>) {
    let ([hidden, _, side], patch) = (sizes(c), c.size("patch_size"));
    let e = s.at("embeddings");
    e.tensor("class_embedding", &[hidden]);
    e.tensor("patch_embedding.weight", &[hidden, channels(c), patch, patch]);
    e.tensor("position_embedding.weight", &[side * side + 1, hidden]);
    norms(s, hidden, &["pre_layrnorm", "post_layernorm"], true);
    clip_layers(c, s);
}

fn clip_text(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("embeddings.token_embedding.weight", &[c.size("vocab_size"), hidden]);
    s.tensor("embeddings.position_embedding.weight", &[c.size("max_position_embeddings"), hidden]);
    clip_layers(c, s);
    norms(s, hidden, &["final_layer_norm"], true);
}

fn siglip_body(c: &Config<'_>, s: &Scope<'_>, is_image: bool) {
    let (hidden, patch) = (c.size("hidden_size"), c.size("patch_size"));
    let e = s.at("embeddings");
    if is_image {
        let side = c.size("image_size") / patch;
        e.module("patch_embedding", &[hidden, channels(c), patch, patch], true);
        e.tensor("position_embedding.weight", &[side * side, hidden]);
    } else {
        e.module("patch_embedding", &[hidden, channels(c) * patch * patch], true);
        e.tensor("position_embedding.weight", &[c.size("num_patches"), hidden]);
    }
    clip_layers(c, s);
    norms(s, hidden, &["post_layernorm"], true);
}

fn siglip(c: &Config<'_>, s: &Scope<'_>) {
    siglip_body(c, s, c.model_type == "siglip_vision_model");
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let has_head = c.value("vision_use_head").and_then(serde_json::Value::as_bool).unwrap_or(true);
    if has_head {
        let h = s.at("head");
        h.tensor("probe", &[Size(1), Size(1), hidden]);
        h.tensor("attention.in_proj_weight", &[hidden * 3, hidden]);
        h.tensor("attention.in_proj_bias", &[hidden * 3]);
        linears(&h, &["attention.out_proj"], [hidden, hidden], true);
        norms(&h, hidden, &["layernorm"], true);
        linears(&h, &["mlp.fc1"], [inner, hidden], true);
        linears(&h, &["mlp.fc2"], [hidden, inner], true);
    }
}

fn pixtral(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, patch) = (c.size("hidden_size"), c.size("patch_size"));
    s.tensor("patch_conv.weight", &[hidden, channels(c), patch, patch]);
    norms(s, hidden, &["ln_pre"], false);
    let l = s.at("transformer").each("layers", &c.layers());
    norms(&l, hidden, &["attention_norm", "ffn_norm"], false);
    gated(&l.at("feed_forward"), hidden, c.size("intermediate_size"), false);
    linears(&l.at("attention"), &["k_proj", "v_proj", "q_proj", "o_proj"], [hidden, hidden], false);
}

fn internvl(c: &Config<'_>, s: &Scope<'_>) {
    let [hidden, inner, side] = sizes(c);
    let patch = c.size("patch_size");
    let e = s.at("embeddings");
    e.tensor("cls_token", &[Size(1), Size(1), hidden]);
    if c.flag("use_mask_token") {
        e.tensor("mask_token", &[Size(1), Size(1), hidden]);
    }
    if c.flag("use_absolute_position_embeddings") {
        e.tensor("position_embeddings", &[Size(1), side * side + 1, hidden]);
    }
    e.module("patch_embeddings.projection", &[hidden, channels(c), patch, patch], true);
    let l = s.at("encoder").each("layer", &c.layers());
    l.tensor("lambda_1", &[hidden]);
    l.tensor("lambda_2", &[hidden]);
    let a = l.at("attention");
    linears(&a, &["q_proj", "k_proj", "v_proj"], [hidden, hidden], c.flag("attention_bias"));
    linears(&a, &["projection_layer"], [hidden, hidden], true);
    let is_root_mean_square = c.text("norm_type") == "rms_norm";
    if c.flag("use_qk_norm") {
        norms(&a, hidden, &["q_norm", "k_norm"], false);
    }
    norms(&l, hidden, &["layernorm_before", "layernorm_after"], !is_root_mean_square);
    linears(&l, &["mlp.fc1"], [inner, hidden], true);
    linears(&l, &["mlp.fc2"], [hidden, inner], true);
    if !c.value("use_mean_pooling").and_then(serde_json::Value::as_bool).unwrap_or(true) {
        norms(s, hidden, &["layernorm"], true);
    }
}

/// Adds the patches of a Qwen model, which span frames.
fn qwen_patches(c: &Config<'_>, s: &Scope<'_>, width: Size, bias: bool) {
    let (patch, frames) = (c.size("patch_size"), c.size("temporal_patch_size"));
    s.module("patch_embed.proj", &[width, channels(c), frames, patch, patch], bias);
}

fn qwen_attention(b: &Scope<'_>, width: Size) {
    linears(b, &["attn.qkv"], [width * 3, width], true);
    linears(b, &["attn.proj"], [width, width], true);
}

fn qwen2(c: &Config<'_>, s: &Scope<'_>) {
    // The names of these two keys are those of the other way around.
    let (width, out) = (c.size("embed_dim"), c.size("hidden_size"));
    let inner = width * c.number("mlp_ratio").unwrap_or(Size(4));
    qwen_patches(c, s, width, false);
    let b = s.each("blocks", &Indices::below(c.count("depth")));
    norms(&b, width, &["norm1", "norm2"], true);
    qwen_attention(&b, width);
    linears(&b, &["mlp.fc1"], [inner, width], true);
    linears(&b, &["mlp.fc2"], [width, inner], true);
    norms(s, width, &["merger.ln_q"], true);
    qwen_merger(c, s, width, out);
}

fn qwen_merger(c: &Config<'_>, s: &Scope<'_>, width: Size, out: Size) {
    let side = c.size("spatial_merge_size");
    let merged = width * side * side;
    linears(s, &["merger.mlp.0"], [merged, merged], true);
    linears(s, &["merger.mlp.2"], [out, merged], true);
}

fn qwen2_5(c: &Config<'_>, s: &Scope<'_>) {
    let width = c.size("hidden_size");
    qwen_patches(c, s, width, false);
    let b = s.each("blocks", &Indices::below(c.count("depth")));
    norms(&b, width, &["norm1", "norm2"], false);
    qwen_attention(&b, width);
    gated(&b.at("mlp"), width, c.size("intermediate_size"), true);
    norms(s, width, &["merger.ln_q"], false);
    qwen_merger(c, s, width, c.size("out_hidden_size"));
}

fn qwen3(c: &Config<'_>, s: &Scope<'_>) {
    let (width, inner, out) = (c.size("hidden_size"), c.size("intermediate_size"), c.size("out_hidden_size"));
    qwen_patches(c, s, width, true);
    s.tensor("pos_embed.weight", &[c.size("num_position_embeddings"), width]);
    let b = s.each("blocks", &Indices::below(c.count("depth")));
    norms(&b, width, &["norm1", "norm2"], true);
    qwen_attention(&b, width);
    linears(&b, &["mlp.linear_fc1"], [inner, width], true);
    linears(&b, &["mlp.linear_fc2"], [width, inner], true);
    let side = c.size("spatial_merge_size");
    let merged = width * side * side;
    let add = |m: &Scope<'_>, normed: Size| {
        norms(m, normed, &["norm"], true);
        linears(m, &["linear_fc1"], [merged, merged], true);
        linears(m, &["linear_fc2"], [out, merged], true);
    };
    add(&s.at("merger"), width);
    if let Some(layers) = c.numbers("deepstack_visual_indexes") {
        add(&s.each("deepstack_merger_list", &Indices::below(layers.len() as u64)), merged);
    }
}

fn mllama(c: &Config<'_>, s: &Scope<'_>) {
    let [hidden, inner, side] = sizes(c);
    let (patch, tiles) = (c.size("patch_size"), c.size("max_num_tiles"));
    let ratios = c.value("supported_aspect_ratios").and_then(serde_json::Value::as_array).map_or(8, Vec::len);
    let (ids, patches) = (Size(ratios as u64) + 1, side * side + 1);
    s.tensor("class_embedding", &[hidden]);
    s.tensor("patch_embedding.weight", &[hidden, channels(c), patch, patch]);
    let p = s.at("gated_positional_embedding");
    p.tensor("gate", &[Size(1)]);
    p.tensor("embedding", &[patches, hidden]);
    p.tensor("tile_embedding.weight", &[ids, tiles * patches * hidden]);
    for place in ["pre_tile_positional_embedding", "post_tile_positional_embedding"] {
        s.at(place).tensor("gate", &[Size(1)]);
        s.at(place).tensor("embedding.weight", &[ids, tiles * hidden]);
    }
    norms(s, hidden, &["layernorm_pre", "layernorm_post"], true);
    let heads = c.number("attention_heads").or_else(|| c.number("num_attention_heads")).unwrap_or(Size(1));
    let width = hidden / heads * heads;
    for (list, key) in [("transformer", "num_hidden_layers"), ("global_transformer", "num_global_layers")] {
        let l = s.at(list).each("layers", &Indices::below(c.count(key)));
        if list == "global_transformer" {
            l.tensor("gate_attn", &[Size(1)]);
            l.tensor("gate_ffn", &[Size(1)]);
        }
        linears(&l.at("self_attn"), &["q_proj", "k_proj", "v_proj"], [width, hidden], false);
        linears(&l.at("self_attn"), &["o_proj"], [hidden, width], false);
        linears(&l, &["mlp.fc1"], [inner, hidden], true);
        linears(&l, &["mlp.fc2"], [hidden, inner], true);
        norms(&l, hidden, &["input_layernorm", "post_attention_layernorm"], true);
    }
}

fn llama4(c: &Config<'_>, s: &Scope<'_>) {
    let [hidden, inner, side] = sizes(c);
    let patch = c.size("patch_size");
    s.tensor("class_embedding", &[hidden]);
    s.tensor("positional_embedding_vlm", &[side * side + 1, hidden]);
    linears(s, &["patch_embedding.linear"], [hidden, channels(c) * patch * patch], false);
    norms(s, hidden, &["layernorm_pre", "layernorm_post"], true);
    let l = s.at("model").each("layers", &c.layers());
    linears(&l.at("self_attn"), &["q_proj", "k_proj", "v_proj", "o_proj"], [hidden, hidden], true);
    linears(&l, &["mlp.fc1"], [inner, hidden], true);
    linears(&l, &["mlp.fc2"], [hidden, inner], true);
    norms(&l, hidden, &["input_layernorm", "post_attention_layernorm"], true);
    let out = c.size("projector_output_dim");
    linears(s, &["vision_adapter.mlp.fc1"], [c.size("projector_input_dim"), inner], false);
    linears(s, &["vision_adapter.mlp.fc2"], [out, out], false);
}

/// Adds a linear layer of Gemma 4, which may have limits.
fn clipped(c: &Config<'_>, l: &Scope<'_>, name: &str, shape: [Size; 2]) {
    let m = l.at(name);
    if c.flag("use_clipped_linears") {
        for limit in ["input_min", "input_max", "output_min", "output_max"] {
            m.tensor(limit, &[]);
        }
    }
    m.linear("linear", shape, false);
}

fn gemma4(c: &Config<'_>, s: &Scope<'_>) {
    let Dims { hidden, heads, kv, head } = Dims::of(c);
    let (inner, patch) = (c.size("intermediate_size"), c.size("patch_size"));
    if c.flag("standardize") {
        s.tensor("std_bias", &[hidden]);
        s.tensor("std_scale", &[hidden]);
    }
    let p = s.at("patch_embedder");
    p.tensor("position_embedding_table", &[Size(2), c.size("position_embedding_size"), hidden]);
    p.linear("input_proj", [hidden, patch * patch * 3], false);
    let l = s.each("encoder.layers", &c.layers());
    let a = l.at("self_attn");
    clipped(c, &a, "q_proj", [heads * head, hidden]);
    clipped(c, &a, "k_proj", [kv * head, hidden]);
    clipped(c, &a, "v_proj", [kv * head, hidden]);
    clipped(c, &a, "o_proj", [hidden, heads * head]);
    norms(&a, head, &["q_norm", "k_norm"], false);
    clipped(c, &l, "mlp.gate_proj", [inner, hidden]);
    clipped(c, &l, "mlp.up_proj", [inner, hidden]);
    clipped(c, &l, "mlp.down_proj", [hidden, inner]);
    let names = [
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ];
    norms(&l, hidden, &names, false);
}

fn gemma4_audio(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, heads) = (c.size("hidden_size"), c.size("num_attention_heads"));
    let channels = c.numbers("subsampling_conv_channels").unwrap_or_else(|| vec![128, 32]);
    let channel = |at: usize| Size(channels.get(at).copied().unwrap_or_default());
    let p = s.at("subsample_conv_projection");
    for (layer, input, out) in [("layer0", Size(1), channel(0)), ("layer1", channel(0), channel(1))] {
        p.at(layer).tensor("conv.weight", &[out, input, Size(3), Size(3)]);
        norms(&p.at(layer), out, &["norm"], false);
    }
    p.linear("input_proj_linear", [hidden, channel(0) / 4 * channel(1)], false);
    let l = s.each("layers", &c.layers());
    for feed in ["feed_forward1", "feed_forward2"] {
        let f = l.at(feed);
        clipped(c, &f, "ffw_layer_1", [hidden * 4, hidden]);
        clipped(c, &f, "ffw_layer_2", [hidden, hidden * 4]);
        norms(&f, hidden, &["pre_layer_norm", "post_layer_norm"], false);
    }
    let a = l.at("self_attn");
    a.tensor("per_dim_scale", &[hidden / heads]);
    for name in ["q_proj", "k_proj", "v_proj", "post"] {
        clipped(c, &a, name, [hidden, hidden]);
    }
    a.linear("relative_k_proj", [hidden, hidden], false);
    let v = l.at("lconv1d");
    clipped(c, &v, "linear_start", [hidden * 2, hidden]);
    clipped(c, &v, "linear_end", [hidden, hidden]);
    v.tensor("depthwise_conv1d.weight", &[hidden, Size(1), c.size("conv_kernel_size")]);
    norms(&v, hidden, &["pre_layer_norm", "conv_norm"], false);
    norms(&l, hidden, &["norm_pre_attn", "norm_post_attn", "norm_out"], false);
    linears(s, &["output_proj"], [c.size("output_proj_dims"), hidden], true);
}
