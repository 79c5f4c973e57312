//! How Megatron divides a tensor among its ranks, by the tensor's name, and the numbers of layers and experts in a name.
//!
//! Facts: `ColumnParallelLinear`, `RowParallelLinear` and `VocabParallelEmbedding` in `megatron/core/tensor_parallel/layers.py`
//! and the modules of `megatron/core/transformer` in megatron-core 0.16.1; `language_model.py` of Megatron-LM for the older
//! names. A state dict does not say along which dimension a tensor is divided.

use std::ops::Range;

/// Modules whose weights and biases are divided by rows.
const COLUMN_PARALLEL: &[&str] = &[
    "word_embeddings",
    "word_embeddings_for_head",
    "output_layer",
    "linear_qkv",
    "linear_q",
    "linear_kv",
    "query_key_value",
    "query",
    "key_value",
];
/// Modules whose rows are divided, and whose rows are two matrices if the activation is gated; with their partners.
const GATED: &[(&str, &str)] = &[("linear_fc1", "linear_fc2"), ("dense_h_to_4h", "dense_4h_to_h")];
/// Modules whose weights are divided by columns, while each rank has the biases.
const ROW_PARALLEL: &[&str] = &["linear_proj", "linear_fc2", "dense", "dense_4h_to_h"];
/// Modules of which each rank has a copy.
const COPIED: &[&str] = &["position_embeddings", "tokentype_embeddings", "router", "rotary_pos_emb"];

/// Division of a tensor among tensor parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// Each rank has the whole tensor.
    Copies,
    Along(usize),
    /// Along the rows of two matrices, of both of which each rank has a part.
    Gated,
}

impl Split {
    /// Returns the division of a tensor; `None` if it is not known. `is_gated` says whether a matrix has twice as many rows as
    /// the tensor with the given name has columns.
    pub(super) fn of(name: &str, is_gated: impl Fn(&str) -> Option<bool>) -> Option<Self> {
        let (path, parameter) = name.rsplit_once('.')?;
        let (parent, module) = path.rsplit_once('.').unwrap_or(("", path));
        // With one tensor for each expert, its number follows.
        let kind = parameter.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_copied =
            COPIED.contains(&module) || module.contains("norm") || kind.starts_with("layer_norm_");
        if is_copied || kind == "_extra_state" || kind == "gate_weight" {
            return Some(Self::Copies);
        }
        if kind != "weight" && kind != "bias" {
            return None;
        }
        if COLUMN_PARALLEL.contains(&module) {
            return Some(Self::Along(0));
        }
        if ROW_PARALLEL.contains(&module) {
            return Some(if kind == "weight" { Self::Along(1) } else { Self::Copies });
        }
        let (_, partner) = GATED.iter().find(|(gated, _)| *gated == module)?;
        let number = parameter.get(kind.len()..).unwrap_or_default();
        let gated = is_gated(&format!("{parent}.{partner}.weight{number}"))?;
        Some(if gated { Self::Gated } else { Self::Along(0) })
    }
}

/// Returns true for the tensors that the ranks of experts have different ones of.
pub(super) fn is_of_expert(name: &str) -> bool {
    name.contains(".experts.") && !name.contains(".shared_experts.")
}

/// Returns the place of a layer's number in a name, and the number.
pub(super) fn layer_number(name: &str) -> Option<(Range<usize>, u64)> {
    number_after(name, "layers.").filter(|_| !name.starts_with("mtp.") && !name.contains(".mtp."))
}

/// Returns the place of an expert's number in a name, and the number.
pub(super) fn expert_number(name: &str) -> Option<(Range<usize>, u64)> {
    if !is_of_expert(name) {
        return None;
    }
    if let Some(found) = number_after(name, ".local_experts.") {
        return Some(found);
    }
    // One tensor for each expert: `experts.linear_fc1.weight3`.
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number = name.get(start..)?.parse().ok()?;
    Some((start..name.len(), number))
}

pub(super) fn with_number(name: &str, place: Range<usize>, number: u64) -> String {
    let (before, after) = (name.get(..place.start), name.get(place.end..));
    format!("{}{number}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

fn number_after(name: &str, key: &str) -> Option<(Range<usize>, u64)> {
    let start = name.find(key)?.checked_add(key.len())?;
    let digits = name.get(start..)?.split('.').next()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse().ok()).flatten()?;
    Some((start..start.checked_add(digits.len())?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_those_of_megatron() {
        let split = |name: &str| Split::of(name, |partner| Some(partner.contains("gated")));
        let layer = "decoder.layers.0";
        assert_eq!(split("embedding.word_embeddings.weight"), Some(Split::Along(0)));
        assert_eq!(split(&format!("{layer}.self_attention.linear_qkv.bias")), Some(Split::Along(0)));
        assert_eq!(
            split(&format!("{layer}.self_attention.linear_qkv.layer_norm_weight")),
            Some(Split::Copies)
        );
        assert_eq!(split(&format!("{layer}.self_attention.linear_proj.weight")), Some(Split::Along(1)));
        assert_eq!(split(&format!("{layer}.self_attention.linear_proj.bias")), Some(Split::Copies));
        assert_eq!(split(&format!("{layer}.mlp.linear_fc1.weight")), Some(Split::Along(0)));
        assert_eq!(split(&format!("{layer}.gated.linear_fc1.weight7")), Some(Split::Gated));
        assert_eq!(split(&format!("{layer}.mlp.router.expert_bias")), Some(Split::Copies));
        assert_eq!(split(&format!("{layer}.mixer.in_proj.weight")), None);
    }

    #[test]
    fn numbers_of_layers_and_experts_are_found() {
        let number = |found: Option<(Range<usize>, u64)>| found.map(|(_, number)| number);
        assert_eq!(number(layer_number("decoder.layers.12.mlp.linear_fc1.weight")), Some(12));
        assert_eq!(number(layer_number("mtp.layers.0.eh_proj.weight")), None);
        let name = "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1.weight";
        assert_eq!(number(expert_number(name)), Some(3));
        let (place, _) = expert_number(name).expect("an expert");
        assert!(with_number(name, place, 11).contains("local_experts.11.linear"));
        assert_eq!(number(expert_number("decoder.layers.1.mlp.experts.linear_fc1.weight10")), Some(10));
        assert_eq!(number(expert_number("decoder.layers.1.mlp.shared_experts.linear_fc1.weight")), None);
    }
}
