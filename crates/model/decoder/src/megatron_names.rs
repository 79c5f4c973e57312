//! Names of Megatron's tensors. The table of families has those of modules.
//!
//! Facts: the modules of `GPTModel` in megatron-core 0.16.1, and `language_model.py` of Megatron-LM for the older names. In a
//! `torch_dist` checkpoint, the layers of a model that are alike are stacked, and their names have no number; so are the experts.

use crate::weight::LayerPart;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MegatronName {
    pub(crate) part: MegatronPart,
    /// Number of the layer; `None` if all layers are stacked.
    pub(crate) layer: Option<u64>,
    /// True for a tensor of one expert, or of all of them.
    pub(crate) experts: bool,
    /// Number of the expert; `None` if all experts are stacked.
    pub(crate) expert: Option<u64>,
    pub(crate) bias: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MegatronPart {
    Embedding,
    Norm,
    Output,
    /// Queries, keys and values.
    Qkv,
    GateUp {
        gate: LayerPart,
        up: LayerPart,
    },
    Layer(LayerPart),
    /// Rotary frequencies, and the state of modules, which is not a weight.
    Ignored,
}

impl MegatronPart {
    /// Returns what a module of a layer holds, from its path.
    fn of_module(path: &str) -> Option<Self> {
        match *LayerPart::of_megatron(path)? {
            [part] => Some(Self::Layer(part)),
            [gate, up] => Some(Self::GateUp { gate, up }),
            _ => Some(Self::Qkv),
        }
    }
}

impl MegatronName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let whole = |part, bias| Some(Self { part, layer: None, experts: false, expert: None, bias });
        let mut path = name;
        for prefix in ["model.", "module.", "module.", "language_model."] {
            path = path.strip_prefix(prefix).unwrap_or(path);
        }
        if path.ends_with("._extra_state")
            || path.contains("rotary_pos_emb.")
            || path.ends_with(".rotary_emb.inv_freq")
        {
            return whole(MegatronPart::Ignored, false);
        }
        match path {
            "embedding.word_embeddings.weight" => return whole(MegatronPart::Embedding, false),
            "output_layer.weight" => return whole(MegatronPart::Output, false),
            _ => {}
        }
        let path =
            ["decoder.", "encoder.", "transformer."].iter().find_map(|prefix| path.strip_prefix(prefix))?;
        if let "final_layernorm.weight" | "final_norm.weight" = path {
            return whole(MegatronPart::Norm, false);
        }
        let path = path.strip_prefix("layers.")?;
        let (layer, path) = match path.split_once('.') {
            Some((digits, rest)) if is_number(digits) => (Some(digits.parse().ok()?), rest),
            _ => (None, path),
        };
        Some(Self { layer, ..parse_in_layer(path)? })
    }
}

fn parse_in_layer(path: &str) -> Option<MegatronName> {
    let found = |part, bias| MegatronName { part, layer: None, experts: false, expert: None, bias };
    let (module, parameter) = path.rsplit_once('.')?;
    if let Some(module) = module.strip_prefix("mlp.experts.") {
        return parse_expert(module, parameter);
    }
    // The norm before a matrix may be in the module of the matrix.
    if let Some(inner) = parameter.strip_suffix("_weight") {
        return Some(found(MegatronPart::of_module(&format!("{module}.{inner}"))?, false));
    }
    // The gate and the up matrix may be two tensors.
    let (parameter, half) = match parameter.strip_suffix("_w").or_else(|| parameter.strip_suffix("_v")) {
        Some(whole) => (whole, parameter.chars().last()),
        None => (parameter, None),
    };
    Some(found(half_of(MegatronPart::of_module(module)?, half)?, bias_of(parameter)?))
}

fn parse_expert(module: &str, parameter: &str) -> Option<MegatronName> {
    let (parameter, half) = match parameter.strip_suffix("_w").or_else(|| parameter.strip_suffix("_v")) {
        Some(whole) => (whole, parameter.chars().last()),
        None => (parameter, None),
    };
    let kind = parameter.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut expert = parameter.get(kind.len()..).filter(|digits| !digits.is_empty());
    let module = ["local_experts.", "experts."]
        .iter()
        .find_map(|prefix| module.strip_prefix(prefix))
        .unwrap_or(module);
    let module = match module.split_once('.') {
        Some((digits, rest)) if is_number(digits) && expert.is_none() => {
            expert = Some(digits);
            rest
        }
        _ => module,
    };
    let part = MegatronPart::of_module(&format!("mlp.{module}"))?;
    if !matches!(part, MegatronPart::GateUp { .. } | MegatronPart::Layer(LayerPart::W2)) {
        return None;
    }
    let expert = match expert {
        Some(digits) => Some(digits.parse().ok()?),
        None => None,
    };
    let (part, bias) = (half_of(part, half)?, bias_of(kind)?);
    Some(MegatronName { part, layer: None, experts: true, expert, bias })
}

/// Returns the part that the suffix `_w` or `_v` chooses.
fn half_of(part: MegatronPart, half: Option<char>) -> Option<MegatronPart> {
    match (part, half) {
        (part, None) => Some(part),
        (MegatronPart::GateUp { gate, .. }, Some('w')) => Some(MegatronPart::Layer(gate)),
        (MegatronPart::GateUp { up, .. }, Some(_)) => Some(MegatronPart::Layer(up)),
        _ => None,
    }
}

fn bias_of(parameter: &str) -> Option<bool> {
    match parameter {
        "weight" => Some(false),
        "bias" => Some(true),
        _ => None,
    }
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_versions_are_parsed() {
        const GATE_UP: MegatronPart = MegatronPart::GateUp { gate: LayerPart::W1, up: LayerPart::W3 };
        let part = |name: &str| MegatronName::parse(name).map(|it| (it.part, it.layer, it.expert, it.bias));
        let qkv = |layer, bias| Some((MegatronPart::Qkv, layer, None, bias));
        assert_eq!(part("decoder.layers.self_attention.linear_qkv.weight"), qkv(None, false));
        assert_eq!(part("module.decoder.layers.7.self_attention.linear_qkv.bias"), qkv(Some(7), true));
        let old = "language_model.encoder.layers.3.self_attention.query_key_value.weight";
        assert_eq!(part(old), qkv(Some(3), false));
        assert_eq!(
            part("decoder.layers.0.mlp.experts.local_experts.5.linear_fc1.weight"),
            Some((GATE_UP, Some(0), Some(5), false))
        );
        assert_eq!(
            part("decoder.layers.mlp.experts.experts.linear_fc1.weight"),
            Some((GATE_UP, None, None, false))
        );
        assert_eq!(
            part("decoder.layers.1.mlp.experts.experts.9.linear_fc1.weight_v"),
            Some((MegatronPart::Layer(LayerPart::W3), Some(1), Some(9), false))
        );
        assert_eq!(
            part("decoder.layers.1.mlp.experts.linear_fc2.weight12"),
            Some((MegatronPart::Layer(LayerPart::W2), Some(1), Some(12), false))
        );
        for name in [
            "model.layers.0.self_attn.q_proj.weight",
            "transformer.h.0.mlp.dense_h_to_4h.weight",
            "decoder.layers.0.mixer.in_proj.weight",
        ] {
            assert_eq!(part(name), None, "{name}");
        }
    }
}
