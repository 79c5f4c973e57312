//! Tensor names and document keys of Meta's and Hugging Face's checkpoints, and the fused and stacked tensors that hold
//! several weights.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0; the modeling files and `conversion_mapping.py` of Hugging Face's
//! `transformers` 5.23.

use tensor::Tensors;

use crate::weight::{LayerPart, Weight};

/// Names of tensors and of hyperparameters in a family of checkpoints.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug)]
pub struct CheckpointLayout {
    /// Organisation that defines the layout, such as Meta.
    pub owner: &'static str,
    /// Name of the document that states the sizes.
    pub file: &'static str,
    /// Keys of the sizes in that document.
    pub keys: SizeKeys,
    /// Path of the token embeddings.
    pub embedding: &'static str,
    /// Path of the table of learned positions; empty if no model has one.
    pub(crate) positions: &'static str,
    /// Path of the norm of the embeddings; empty if no model has one.
    pub(crate) embedding_norm: &'static str,
    /// Path of the last norm.
    pub norm: &'static str,
    /// Path of the output matrix.
    pub output: &'static str,
    /// Path of the output matrix in older files; empty if it is the same.
    pub(crate) older_output: &'static str,
    /// True if rotary embeddings pair the two halves of a head; false if they pair adjacent dimensions.
    pub rotates_halves: bool,
    /// True if the matrices of layers are stored with their columns first.
    pub(crate) has_columns_first: bool,
    /// Ends of names of tensors that files have and models do not use, or starts, which end with a dot.
    pub(crate) unused: &'static [&'static str],
    /// True if matrices may have biases.
    pub(crate) has_biases: bool,
    /// True if tied embeddings are also stored as the output matrix.
    pub(crate) repeats_ties: bool,
    /// Name of the model's rotary frequency tensor, and the suffix of a layer's.
    pub(crate) frequencies: [&'static str; 2],
    /// Prefix of a layer's index in tensor names.
    pub(crate) layers: &'static str,
    pub(crate) part_path: fn(LayerPart) -> &'static str,
    /// Fused tensors: the path, and the matrices whose rows are concatenated.
    pub(crate) fused_tensors: &'static [(&'static str, &'static [LayerPart])],
    /// Path of an expert's matrix, split around the index of the expert; `None` for a matrix that only stacks hold.
    pub(crate) expert_path: fn(LayerPart) -> Option<[&'static str; 2]>,
    /// Tensors that stack the matrices of all experts.
    pub(crate) stacks: &'static [Stack],
    /// Part whose tensor in the first layer identifies a checkpoint of this layout.
    pub(crate) signature_part: LayerPart,
}

/// A tensor that stacks matrices of all experts: `[experts, rows, columns]`. The tensor of the biases has the suffix
/// `_bias`.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) name: &'static str,
    pub(crate) parts: &'static [LayerPart],
    /// True if the shape is `[experts, columns, rows]`.
    pub(crate) transposed: bool,
}

/// Keys of sizes in a document.
#[derive(Clone, Copy, Debug)]
pub struct SizeKeys {
    pub dim: &'static str,
    pub n_layers: &'static str,
    pub n_heads: &'static str,
    pub n_kv_heads: &'static str,
    pub head_dim: &'static str,
    pub vocab: &'static str,
}

#[derive(Debug)]
pub(crate) struct WeightPlace {
    pub(crate) name: String,
    /// Parts whose rows the tensor concatenates; empty if the tensor is not fused.
    pub(crate) fused_parts: &'static [LayerPart],
    /// True for a matrix that is stored with its columns first.
    pub(crate) has_columns_first: bool,
    /// For a tensor that stacks all experts: the index of the expert, and true if columns come before rows.
    pub(crate) stack_index: Option<(u64, bool)>,
}

impl WeightPlace {
    /// Returns a substitute for the location of a weight that the layout does not support.
    pub(crate) fn unsupported_weight(weight: Weight) -> Self {
        Self { name: format!("{weight:?}"), fused_parts: &[], has_columns_first: false, stack_index: None }
    }
}

/// Layout of Meta's LLaMA checkpoints.
pub static META: CheckpointLayout = CheckpointLayout {
    owner: "Meta",
    file: "params.json",
    keys: SizeKeys {
        dim: "dim",
        n_layers: "n_layers",
        n_heads: "n_heads",
        n_kv_heads: "n_kv_heads",
        head_dim: "head_dim",
        vocab: "vocab_size",
    },
    embedding: "tok_embeddings",
    positions: "",
    embedding_norm: "",
    has_columns_first: false,
    unused: &[],
    norm: "norm",
    output: "output",
    older_output: "",
    frequencies: ["rope.freqs", ".attention.inner_attention.rope.freqs"],
    layers: "layers.",
    part_path: |part| match part {
        LayerPart::Wq => "attention.wq",
        LayerPart::Wk => "attention.wk",
        LayerPart::Wv => "attention.wv",
        LayerPart::Wo => "attention.wo",
        LayerPart::W1 => "feed_forward.w1",
        LayerPart::W2 => "feed_forward.w2",
        LayerPart::W3 => "feed_forward.w3",
        LayerPart::AttentionNorm => "attention_norm",
        LayerPart::FfnNorm => "ffn_norm",
        _ => "",
    },
    fused_tensors: &[],
    expert_path: |_| None,
    stacks: &[],
    signature_part: LayerPart::Wq,
    rotates_halves: false,
    has_biases: false,
    repeats_ties: true,
};

/// Layout of Hugging Face's `…ForCausalLM`, which most architectures share.
pub static HUGGING_FACE: CheckpointLayout = CheckpointLayout {
    owner: "Hugging Face",
    file: "config.json",
    keys: SizeKeys {
        dim: "hidden_size",
        n_layers: "num_hidden_layers",
        n_heads: "num_attention_heads",
        n_kv_heads: "num_key_value_heads",
        head_dim: "head_dim",
        vocab: "vocab_size",
    },
    embedding: "model.embed_tokens",
    positions: "",
    embedding_norm: "",
    has_columns_first: false,
    unused: &[],
    norm: "model.norm",
    output: "lm_head",
    older_output: "",
    frequencies: ["model.rotary_emb.inv_freq", ".rotary_emb.inv_freq"],
    layers: "model.layers.",
    part_path: |part| match part {
        LayerPart::Wq => "self_attn.q_proj",
        LayerPart::Wk => "self_attn.k_proj",
        LayerPart::Wv => "self_attn.v_proj",
        LayerPart::Wo => "self_attn.o_proj",
        LayerPart::W1 => "mlp.gate_proj",
        LayerPart::W2 => "mlp.down_proj",
        LayerPart::W3 => "mlp.up_proj",
        LayerPart::AttentionNorm => "input_layernorm",
        LayerPart::FfnNorm | LayerPart::AttentionPostNorm => "post_attention_layernorm",
        LayerPart::QNorm => "self_attn.q_norm",
        LayerPart::KNorm => "self_attn.k_norm",
        LayerPart::FfnPostNorm => "post_feedforward_layernorm",
        LayerPart::Sinks => "self_attn.sinks",
        LayerPart::Router => "mlp.gate",
        LayerPart::SharedW1 => "mlp.shared_expert.gate_proj",
        LayerPart::SharedW2 => "mlp.shared_expert.down_proj",
        LayerPart::SharedW3 => "mlp.shared_expert.up_proj",
        LayerPart::SharedGate => "mlp.shared_expert_gate",
        LayerPart::ChoiceBias => "mlp.gate.e_score_correction_bias",
        LayerPart::XieluPositive => "mlp.act_fn.alpha_p",
        LayerPart::XieluNegative => "mlp.act_fn.alpha_n",
        LayerPart::XieluBeta => "mlp.act_fn.beta",
        LayerPart::XieluEps => "mlp.act_fn.eps",
        LayerPart::W13
        | LayerPart::Wqkv
        | LayerPart::DeltaQkv
        | LayerPart::DeltaZ
        | LayerPart::DeltaB
        | LayerPart::DeltaA
        | LayerPart::DeltaQkvz
        | LayerPart::DeltaBa
        | LayerPart::DeltaConv
        | LayerPart::DeltaLog
        | LayerPart::DeltaBias
        | LayerPart::DeltaNorm
        | LayerPart::DeltaOut => "",
    },
    fused_tensors: &[],
    expert_path: |part| match part {
        LayerPart::W1 => Some(["mlp.experts.", ".gate_proj"]),
        LayerPart::W2 => Some(["mlp.experts.", ".down_proj"]),
        LayerPart::W3 => Some(["mlp.experts.", ".up_proj"]),
        _ => None,
    },
    stacks: &[
        Stack { name: "mlp.experts.gate_up_proj", parts: &[LayerPart::W1, LayerPart::W3], transposed: false },
        Stack { name: "mlp.experts.down_proj", parts: &[LayerPart::W2], transposed: false },
    ],
    signature_part: LayerPart::Wq,
    rotates_halves: true,
    has_biases: true,
    repeats_ties: false,
};

impl CheckpointLayout {
    /// Returns the entry of tensors that models do not use to which the name belongs.
    pub(crate) fn unused_part(&self, name: &str) -> Option<&'static str> {
        let is_it = |part: &&str| {
            if part.ends_with('.') { name.starts_with(part) } else { name.ends_with(part) }
        };
        self.unused.iter().copied().find(is_it)
    }

    /// Returns the name of the tensor that holds a layer's weight.
    pub fn weight(&self, layer: u64, part: LayerPart) -> String {
        let (path, _) = self.tensor_path(part);
        let weight = if part.is_bare() { "" } else { ".weight" };
        format!("{}{layer}.{path}{weight}", self.layers)
    }

    /// Returns the name of the tensor that holds a layer's bias.
    pub fn bias(&self, layer: u64, part: LayerPart) -> String {
        format!("{}{layer}.{}.bias", self.layers, self.tensor_path(part).0)
    }

    /// Returns the name of a weight's tensor; `None` for a bias if the layout has no biases.
    pub fn name(&self, weight: Weight) -> Option<String> {
        self.places(weight).into_iter().next().map(|place| place.name)
    }

    pub(crate) fn places(&self, weight: Weight) -> Vec<WeightPlace> {
        let alone = |name: String| {
            vec![WeightPlace { name, fused_parts: &[], has_columns_first: false, stack_index: None }]
        };
        match weight {
            Weight::Embedding => alone(format!("{}.weight", self.embedding)),
            Weight::Positions => alone(format!("{}.weight", self.positions)),
            Weight::EmbeddingNorm => alone(format!("{}.weight", self.embedding_norm)),
            Weight::EmbeddingNormBias => alone(format!("{}.bias", self.embedding_norm)),
            Weight::Norm => alone(format!("{}.weight", self.norm)),
            Weight::NormBias => alone(format!("{}.bias", self.norm)),
            Weight::Output => {
                let paths = [self.output, self.older_output].into_iter().filter(|path| !path.is_empty());
                paths.flat_map(|path| alone(format!("{path}.weight"))).collect()
            }
            Weight::OutputBias => alone(format!("{}.bias", self.output)),
            Weight::Layer { layer, part } => {
                vec![WeightPlace {
                    name: self.weight(layer, part),
                    fused_parts: self.tensor_path(part).1,
                    has_columns_first: self.has_columns_first,
                    stack_index: None,
                }]
            }
            Weight::Bias { layer, part } if self.has_biases => {
                vec![WeightPlace {
                    name: self.bias(layer, part),
                    fused_parts: self.tensor_path(part).1,
                    has_columns_first: false,
                    stack_index: None,
                }]
            }
            Weight::Bias { .. } => Vec::new(),
            Weight::Head { layer, part, head } => {
                alone(format!("{}{layer}.{}.{head}.weight", self.layers, (self.part_path)(part)))
            }
            Weight::Expert { layer, part, expert } => self.expert_places(layer, part, expert, false),
            Weight::ExpertBias { layer, part, expert } => self.expert_places(layer, part, expert, true),
        }
    }

    fn expert_places(&self, layer: u64, part: LayerPart, expert: u64, bias: bool) -> Vec<WeightPlace> {
        let path = format!("{}{layer}.", self.layers);
        let alone = (self.expert_path)(part).map(|[before, after]| {
            let name = format!("{path}{before}{expert}{after}.{}", if bias { "bias" } else { "weight" });
            WeightPlace { name, fused_parts: &[], has_columns_first: false, stack_index: None }
        });
        let stack = self.stacks.iter().filter(|stack| stack.parts.contains(&part)).map(|stack| {
            let name = format!("{path}{}{}", stack.name, if bias { "_bias" } else { "" });
            WeightPlace {
                name,
                fused_parts: stack.parts,
                has_columns_first: false,
                stack_index: Some((expert, stack.transposed && !bias)),
            }
        });
        alone.into_iter().chain(stack).collect()
    }

    /// Returns the path of the tensor that holds a part, and all parts of that tensor if it is fused.
    fn tensor_path(&self, part: LayerPart) -> (&'static str, &'static [LayerPart]) {
        let packed = self.fused_tensors.iter().find(|(_, parts)| parts.contains(&part));
        packed.copied().unwrap_or_else(|| ((self.part_path)(part), &[]))
    }

    /// Returns true if a part is in a fused tensor, whose shape does not reveal the part's.
    pub(crate) fn is_fused(&self, part: LayerPart) -> bool {
        !self.tensor_path(part).1.is_empty()
    }

    pub(crate) fn has_owner_of(&self, other: &Self) -> bool {
        self.owner == other.owner
    }

    /// Returns the first tensor name that identifies this layout and that `tensors` lack.
    pub(crate) fn missing_tensor(&self, tensors: &Tensors) -> Option<String> {
        self.missing_tensor_from(0, tensors)
    }

    /// Does the same for tensors whose first layer is `first`.
    pub(crate) fn missing_tensor_from(&self, first: u64, tensors: &Tensors) -> Option<String> {
        let signs = [self.weight(first, self.signature_part), format!("{}.weight", self.embedding)];
        signs.into_iter().find(|sign| !tensors.contains(sign))
    }

    pub(crate) fn layer_number(&self, name: &str) -> Option<u64> {
        name.strip_prefix(self.layers)?.split('.').next()?.parse().ok()
    }

    pub(crate) fn count_layers<'n>(&self, names: impl Iterator<Item = &'n str>) -> u64 {
        names.filter_map(|name| self.layer_number(name)).max().map_or(0, |last| last.saturating_add(1))
    }

    /// Returns true if the name is that of a rotary frequency tensor in any layout.
    pub(crate) fn is_frequencies_name(name: &str) -> bool {
        [&META, &HUGGING_FACE].iter().any(|layout| layout.names_frequencies(name))
    }

    /// Returns true if the name is that of a rotary frequency tensor in this layout, of the model or of a layer.
    pub(crate) fn names_frequencies(&self, name: &str) -> bool {
        let [whole, of_layer] = self.frequencies;
        name == whole || (self.layer_number(name).is_some() && name.ends_with(of_layer))
    }
}
