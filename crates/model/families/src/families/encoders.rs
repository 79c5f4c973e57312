//! Encoders, and encoders with a decoder.

use crate::config::Config;
use crate::indices::Indices;
use crate::size::Size;
use crate::tree::Scope;

fn norms(l: &Scope<'_>, hidden: Size, names: &[&str]) {
    for norm in names {
        l.module(norm, &[hidden], true);
    }
}

fn linears(l: &Scope<'_>, names: &[&str], shape: [Size; 2]) {
    for name in names {
        l.linear(name, shape, true);
    }
}

pub(crate) fn bert(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let e = s.at("embeddings");
    e.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    e.tensor("position_embeddings.weight", &[c.size("max_position_embeddings"), hidden]);
    e.tensor("token_type_embeddings.weight", &[c.size("type_vocab_size"), hidden]);
    norms(&e, hidden, &["LayerNorm"]);
    let l = s.at("encoder").each("layer", &c.layers());
    let attention = |a: &Scope<'_>| {
        linears(a, &["self.query", "self.key", "self.value", "output.dense"], [hidden, hidden]);
        norms(a, hidden, &["output.LayerNorm"]);
    };
    attention(&l.at("attention"));
    if c.flag("add_cross_attention") {
        attention(&l.at("crossattention"));
    }
    linears(&l, &["intermediate.dense"], [inner, hidden]);
    linears(&l, &["output.dense"], [hidden, inner]);
    norms(&l, hidden, &["output.LayerNorm"]);
}

pub(crate) fn distilbert(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("dim"), c.size("hidden_dim"));
    let e = s.at("embeddings");
    e.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    e.tensor("position_embeddings.weight", &[c.size("max_position_embeddings"), hidden]);
    norms(&e, hidden, &["LayerNorm"]);
    let l = s.at("transformer").each("layer", &c.layers());
    linears(&l.at("attention"), &["q_lin", "k_lin", "v_lin", "out_lin"], [hidden, hidden]);
    linears(&l, &["ffn.lin1"], [inner, hidden]);
    linears(&l, &["ffn.lin2"], [hidden, inner]);
    norms(&l, hidden, &["sa_layer_norm", "output_layer_norm"]);
}

/// Adds the layers of a transformer with the names of fairseq.
fn fairseq_layers(
    s: &Scope<'_>,
    layers: &Indices,
    [hidden, inner]: [Size; 2],
    has_cross: bool,
    key_bias: bool,
) {
    let l = s.each("layers", layers);
    for (module, norm) in [("self_attn", "self_attn_layer_norm"), ("encoder_attn", "encoder_attn_layer_norm")]
    {
        if module == "self_attn" || has_cross {
            linears(&l.at(module), &["q_proj", "v_proj", "out_proj"], [hidden, hidden]);
            l.at(module).linear("k_proj", [hidden, hidden], key_bias);
            norms(&l, hidden, &[norm]);
        }
    }
    linears(&l, &["fc1"], [inner, hidden]);
    linears(&l, &["fc2"], [hidden, inner]);
    norms(&l, hidden, &["final_layer_norm"]);
}

pub(crate) fn whisper(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("d_model");
    let (e, d) = (s.at("encoder"), s.at("decoder"));
    e.module("conv1", &[hidden, c.size("num_mel_bins"), Size(3)], true);
    e.module("conv2", &[hidden, hidden, Size(3)], true);
    e.tensor("embed_positions.weight", &[c.size("max_source_positions"), hidden]);
    let layers = |key: &str| Indices::below(c.count(key));
    fairseq_layers(&e, &layers("encoder_layers"), [hidden, c.size("encoder_ffn_dim")], false, false);
    norms(&e, hidden, &["layer_norm"]);
    d.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    d.tensor("embed_positions.weight", &[c.size("max_target_positions"), hidden]);
    fairseq_layers(&d, &layers("decoder_layers"), [hidden, c.size("decoder_ffn_dim")], true, false);
    norms(&d, hidden, &["layer_norm"]);
}

pub(crate) fn bart(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, vocab) = (c.size("d_model"), c.size("vocab_size"));
    s.tensor("shared.weight", &[vocab, hidden]);
    for (part, has_cross) in [("encoder", false), ("decoder", true)] {
        let p = s.at(part);
        p.tensor("embed_tokens.weight", &[vocab, hidden]);
        p.tensor("embed_positions.weight", &[c.size("max_position_embeddings") + 2, hidden]);
        let layers = Indices::below(c.count(&format!("{part}_layers")));
        fairseq_layers(&p, &layers, [hidden, c.size(&format!("{part}_ffn_dim"))], has_cross, true);
        norms(&p, hidden, &["layernorm_embedding"]);
    }
}

pub(crate) fn t5(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, heads, inner) = (c.size("d_model"), c.size("num_heads"), c.size("d_ff"));
    let width = heads * c.size("d_kv");
    let is_gated = c.text("feed_forward_proj").starts_with("gated");
    s.tensor("shared.weight", &[c.size("vocab_size"), hidden]);
    let decoder_layers = c.number("num_decoder_layers").unwrap_or_else(|| c.size("num_layers"));
    for (part, count) in [("encoder", Size(c.count("num_layers"))), ("decoder", decoder_layers)] {
        let p = s.at(part);
        p.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
        let b = p.each("block", &Indices::below(count.0));
        let mut kinds = vec!["SelfAttention", "DenseReluDense"];
        if part == "decoder" {
            kinds.insert(1, "EncDecAttention");
        }
        for (number, kind) in kinds.iter().enumerate() {
            let l = b.at(&format!("layer.{number}"));
            l.module("layer_norm", &[hidden], false);
            let m = l.at(kind);
            if *kind == "DenseReluDense" {
                let names: &[&str] = if is_gated { &["wi_0", "wi_1"] } else { &["wi"] };
                for name in names {
                    m.linear(name, [inner, hidden], false);
                }
                m.linear("wo", [hidden, inner], false);
            } else {
                for name in ["q", "k", "v"] {
                    m.linear(name, [width, hidden], false);
                }
                m.linear("o", [hidden, width], false);
            }
        }
        p.tensor(
            "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            &[c.size("relative_attention_num_buckets"), heads],
        );
        p.module("final_layer_norm", &[hidden], false);
    }
}

pub(crate) fn vit(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let patch = c.size("patch_size");
    let side = c.size("image_size") / patch;
    let e = s.at("embeddings");
    e.tensor("cls_token", &[Size(1), Size(1), hidden]);
    e.tensor("position_embeddings", &[Size(1), side * side + 1, hidden]);
    e.module("patch_embeddings.projection", &[hidden, c.size("num_channels"), patch, patch], true);
    let l = s.each("layers", &c.layers());
    for name in ["q_proj", "k_proj", "v_proj"] {
        l.at("attention").linear(name, [hidden, hidden], c.flag("qkv_bias"));
    }
    linears(&l, &["attention.o_proj"], [hidden, hidden]);
    linears(&l, &["mlp.fc1"], [inner, hidden]);
    linears(&l, &["mlp.fc2"], [hidden, inner]);
    norms(&l, hidden, &["layernorm_before", "layernorm_after"]);
    norms(s, hidden, &["layernorm"]);
}
