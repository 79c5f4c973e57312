//! Names of tensors: those of `transformers`, and what llama.cpp calls them.

/// Weights outside of layers.
pub(crate) const OUTSIDE: &[(&str, &str)] =
    &[("model.embed_tokens", "token_embd"), ("lm_head", "output"), ("model.norm", "output_norm")];

/// Weights of a layer, after `model.layers.N.` and `blk.N.`.
pub(crate) const LAYER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("self_attn.sinks", "attn_sinks"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.router", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// Weights of one expert, after its number, and their roles.
const EXPERT: &[(&str, &str)] = &[
    ("gate_proj.weight", "gate"),
    ("up_proj.weight", "up"),
    ("down_proj.weight", "down"),
    ("w1.weight", "gate"),
    ("w3.weight", "up"),
    ("w2.weight", "down"),
];

/// Parts of the names of tensors that do not belong to the language model: those of the towers for images and sound.
const OTHER_PARTS: &[&str] =
    &["visual.", "vision.", "audio.", "vision_", "audio_", "projector.", "patch_embed", "image_newline"];
/// Ends of the names of buffers that the forward pass computes.
const COMPUTED: &[&str] = &[".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"];

/// A name, split into what the tables know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitName<'n> {
    pub(crate) layer: Option<u64>,
    /// Name of the weight, without its layer and its end.
    pub(crate) weight: &'n str,
    /// `.weight`, `.bias`, or nothing.
    pub(crate) end: &'n str,
}

impl<'n> SplitName<'n> {
    /// Splits a name; `None` if its layer is not a number.
    pub(crate) fn new(name: &'n str) -> Option<Self> {
        let end = [".weight", ".bias"].into_iter().find(|end| name.ends_with(end)).unwrap_or_default();
        let rest = name.strip_suffix(end)?;
        match rest.strip_prefix("model.layers.") {
            None => Some(Self { layer: None, weight: rest, end }),
            Some(rest) => {
                let (layer, weight) = rest.split_once('.')?;
                Some(Self { layer: Some(layer.parse().ok()?), weight, end })
            }
        }
    }

    /// Returns what llama.cpp calls the weight; `own` are the names of the architecture that come first.
    pub(crate) fn known(self, own: &[(&str, &'static str)]) -> Option<&'static str> {
        let tables = if self.layer.is_some() { [own, LAYER] } else { [OUTSIDE, &[]] };
        tables.into_iter().flatten().find(|(name, _)| *name == self.weight).map(|(_, known)| *known)
    }

    /// Returns the number of an expert, and the role of the weight in it.
    pub(crate) fn expert(self) -> Option<(u64, &'static str)> {
        let rest = ["mlp.experts.", "block_sparse_moe.experts."]
            .into_iter()
            .find_map(|start| self.weight.strip_prefix(start))?;
        let (number, weight) = rest.split_once('.')?;
        let number = number.parse().ok()?;
        let role = EXPERT.iter().find(|(name, _)| name.strip_suffix(self.end) == Some(weight))?;
        Some((number, role.1)).filter(|_| !self.end.is_empty())
    }

    /// Returns the number of a norm of one head, and the name of the norms.
    pub(crate) fn head_norm(self) -> Option<(u64, &'n str)> {
        let (norms, number) = self.weight.split_once(".norms.")?;
        Some((number.parse().ok()?, norms))
    }

    /// Returns a name of llama.cpp in this name's layer.
    pub(crate) fn in_layer(self, known: &str, end: &str) -> String {
        match self.layer {
            Some(layer) => format!("blk.{layer}.{known}{end}"),
            None => format!("{known}{end}"),
        }
    }
}

/// Returns the name of a weight of a language model; `None` for what llama.cpp does not store.
pub(crate) fn language_name(name: &str) -> Option<String> {
    let is_other = name.starts_with("mlp") || OTHER_PARTS.iter().any(|part| name.contains(part));
    let is_computed = COMPUTED.iter().any(|end| name.ends_with(end));
    (!is_other && !is_computed).then(|| name.replace("language_model.", ""))
}
