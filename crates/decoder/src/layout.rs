//! How Meta and Hugging Face name a decoder's tensors and sizes.

use tensor::Tensor;

use crate::weight::{Part, Weight};

/// How a family of checkpoints names tensors and sizes.
#[derive(Debug)]
pub struct Layout {
    /// Who made it.
    pub owner: &'static str,
    /// The document that states the sizes.
    pub file: &'static str,
    /// The keys of the sizes in that document.
    pub keys: Keys,
    /// The path of the token embeddings.
    pub embedding: &'static str,
    /// The path of the last norm.
    pub norm: &'static str,
    /// The path of the output matrix.
    pub output: &'static str,
    /// Whether rotation pairs the two halves of a head, instead of neighbouring numbers.
    pub rotates_halves: bool,
    /// Whether its matrices may have biases.
    pub(crate) has_biases: bool,
    /// Whether a checkpoint has an output matrix even if it is the embeddings.
    pub(crate) repeats_ties: bool,
    /// The name of the frequencies of positions, and what a layer's name for them ends in.
    frequencies: [&'static str; 2],
    /// What comes before the number of a layer.
    layers: &'static str,
    part_path: fn(Part) -> &'static str,
}

/// The keys of sizes in a document.
#[derive(Debug)]
#[expect(missing_docs, reason = "each field is called as Meta calls the size")]
pub struct Keys {
    pub dim: &'static str,
    pub n_layers: &'static str,
    pub n_heads: &'static str,
    pub n_kv_heads: &'static str,
    pub head_dim: &'static str,
    pub vocab: &'static str,
}

/// Meta's names.
pub static META: Layout = Layout {
    owner: "Meta",
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
    frequencies: ["rope.freqs", ".attention.inner_attention.rope.freqs"],
    layers: "layers.",
    part_path: |part| match part {
        Part::Wq => "attention.wq",
        Part::Wk => "attention.wk",
        Part::Wv => "attention.wv",
        Part::Wo => "attention.wo",
        Part::W1 => "feed_forward.w1",
        Part::W2 => "feed_forward.w2",
        Part::W3 => "feed_forward.w3",
        Part::AttentionNorm => "attention_norm",
        Part::FfnNorm => "ffn_norm",
        _ => "",
    },
    rotates_halves: false,
    has_biases: false,
    repeats_ties: true,
};

/// The names of Hugging Face's `…ForCausalLM`.
pub static HUGGING_FACE: Layout = Layout {
    owner: "Hugging Face",
    file: "config.json",
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
    frequencies: ["model.rotary_emb.inv_freq", ".rotary_emb.inv_freq"],
    layers: "model.layers.",
    part_path: |part| match part {
        Part::Wq => "self_attn.q_proj",
        Part::Wk => "self_attn.k_proj",
        Part::Wv => "self_attn.v_proj",
        Part::Wo => "self_attn.o_proj",
        Part::W1 => "mlp.gate_proj",
        Part::W2 => "mlp.down_proj",
        Part::W3 => "mlp.up_proj",
        Part::AttentionNorm => "input_layernorm",
        Part::FfnNorm => "post_attention_layernorm",
        _ => "",
    },
    rotates_halves: true,
    has_biases: true,
    repeats_ties: false,
};

impl Layout {
    /// The name of a layer's weight.
    pub fn weight(&self, layer: u64, part: Part) -> String {
        format!("{}{layer}.{}.weight", self.layers, (self.part_path)(part))
    }

    /// The name of a layer's bias.
    pub fn bias(&self, layer: u64, part: Part) -> String {
        format!("{}{layer}.{}.bias", self.layers, (self.part_path)(part))
    }

    /// The name of a weight; `None` for a bias if there are none.
    pub fn name(&self, weight: Weight) -> Option<String> {
        Some(match weight {
            Weight::Embedding => format!("{}.weight", self.embedding),
            Weight::Norm => format!("{}.weight", self.norm),
            Weight::Output => format!("{}.weight", self.output),
            Weight::Layer { layer, part } => self.weight(layer, part),
            Weight::Bias { layer, part } if self.has_biases => self.bias(layer, part),
            _ => return None,
        })
    }

    /// Whether both are one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }

    /// The first name that identifies this layout and that `tensors` do not have.
    pub(crate) fn missing_from(&self, tensors: &[(String, Tensor)]) -> Option<String> {
        let signs = [self.weight(0, Part::Wq), format!("{}.weight", self.embedding)];
        signs.into_iter().find(|sign| !tensors.iter().any(|(name, _)| name == sign))
    }

    /// The number of the layer that a tensor belongs to.
    pub(crate) fn layer_number(&self, name: &str) -> Option<u64> {
        name.strip_prefix(self.layers)?.split('.').next()?.parse().ok()
    }

    /// Whether a tensor holds the frequencies of positions, which the forward computes itself.
    pub(crate) fn is_frequencies(name: &str) -> bool {
        [&META, &HUGGING_FACE].iter().any(|layout| layout.has_frequencies(name))
    }

    /// Whether checkpoints of this layout have frequencies under this name: for all layers, or for each.
    pub(crate) fn has_frequencies(&self, name: &str) -> bool {
        let [whole, of_layer] = self.frequencies;
        name == whole || (self.layer_number(name).is_some() && name.ends_with(of_layer))
    }
}
