//! How Meta and Hugging Face name a decoder's tensors and sizes.

use tensor::Tensor;

use super::config;

/// How a family of files names tensors and sizes.
#[derive(Debug)]
pub(in crate::code) struct Layout {
    /// The document that tells the sizes.
    pub(in crate::code) file: &'static str,
    pub(in crate::code) keys: Keys,
    pub(super) embedding: &'static str,
    pub(super) norm: &'static str,
    pub(in crate::code) output: &'static str,
    /// What a layer's number stands behind.
    layers: &'static str,
    /// The parts of a layer, in the order of [`PARTS`](super::PARTS).
    parts: [&'static str; 9],
    /// Whether the numbers that are rotated together are a head's two halves, and not neighbours.
    pub(super) halves: bool,
}

/// The keys of sizes in the document.
#[derive(Debug)]
pub(in crate::code) struct Keys {
    pub(super) dim: &'static str,
    pub(super) n_layers: &'static str,
    pub(in crate::code) n_heads: &'static str,
    pub(super) n_kv_heads: &'static str,
    pub(super) head_dim: &'static str,
    pub(super) vocab: &'static str,
}

/// Meta's names.
pub(in crate::code) static META: Layout = Layout {
    file: "params.json",
    keys: Keys {
        dim: "dim",
        n_layers: "n_layers",
        n_heads: "n_heads",
        n_kv_heads: "n_kv_heads",
        head_dim: "head_dim",
        vocab: "vocab_size",
    },
    embedding: "tok_embeddings",
    norm: "norm",
    output: "output",
    layers: "layers.",
    parts: [
        "attention.wq",
        "attention.wk",
        "attention.wv",
        "attention.wo",
        "feed_forward.w1",
        "feed_forward.w2",
        "feed_forward.w3",
        "attention_norm",
        "ffn_norm",
    ],
    halves: false,
};

/// The names of Hugging Face's `…ForCausalLM`.
pub(in crate::code) static HUGGING_FACE: Layout = Layout {
    file: config::FILE,
    keys: Keys {
        dim: "hidden_size",
        n_layers: "num_hidden_layers",
        n_heads: "num_attention_heads",
        n_kv_heads: "num_key_value_heads",
        head_dim: "head_dim",
        vocab: "vocab_size",
    },
    embedding: "model.embed_tokens",
    norm: "model.norm",
    output: "lm_head",
    layers: "model.layers.",
    parts: [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.down_proj",
        "mlp.up_proj",
        "input_layernorm",
        "post_attention_layernorm",
    ],
    halves: true,
};

impl Layout {
    /// The first of the tensors that tell this layout by their names and are not there.
    pub(in crate::code) fn lacks(&self, tensors: &[(String, Tensor)]) -> Option<String> {
        let signs = [self.part(0, 0), format!("{}.weight", self.embedding)];
        signs.into_iter().find(|sign| !tensors.iter().any(|(name, _)| name == sign))
    }

    /// The name of a layer's weight.
    pub(in crate::code) fn part(&self, layer: u64, part: usize) -> String {
        let part = self.parts.get(part).copied().unwrap_or_default();
        format!("{}{layer}.{part}.weight", self.layers)
    }

    /// The number of the layer that a tensor belongs to.
    pub(super) fn layer_of(&self, name: &str) -> Option<u64> {
        name.strip_prefix(self.layers)?.split('.').next()?.parse().ok()
    }

    /// Frequencies of positions, which are computed anew, and kept.
    pub(super) fn is_frequencies(name: &str) -> bool {
        name == "rope.freqs" || name.ends_with("rotary_emb.inv_freq")
    }
}
