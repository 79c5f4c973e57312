//! Lists that hold the weights of a module: one for each part of the layers, and one for the weights outside the layers.

use decoder::{AssignedWeight, LayerPart, Weight};

use crate::module_tree::{ListItem, TensorId};

pub(super) type WeightLists = Vec<(String, Vec<ListItem>)>;

/// Groups the weights into the lists that the text reads, in the order of layers.
pub(super) fn group_weights(weights: &[AssignedWeight]) -> WeightLists {
    let mut lists: WeightLists = Vec::new();
    for AssignedWeight { weight, index, view } in weights {
        let list = match *weight {
            Weight::Embedding | Weight::Norm | Weight::Output => "outer".to_owned(),
            Weight::LayerEmbedding => "layer_embedding".to_owned(),
            Weight::LayerProjection => "layer_projection".to_owned(),
            Weight::LayerProjectionNorm => "layer_projection_norm".to_owned(),
            Weight::EmbeddingNorm => "embedding_norm".to_owned(),
            Weight::EmbeddingNormBias => "embedding_norm_bias".to_owned(),
            Weight::NormBias => "norm_bias".to_owned(),
            Weight::OutputBias => "output_bias".to_owned(),
            Weight::Positions => "positions".to_owned(),
            Weight::Layer { part, .. } | Weight::Head { part, .. } => weight_list_name(part).to_owned(),
            Weight::Bias { part, .. } => bias_list_name(weight_list_name(part)),
            Weight::Expert { part, .. } => format!("expert_{}", weight_list_name(part)),
            Weight::ExpertBias { part, .. } => bias_list_name(&format!("expert_{}", weight_list_name(part))),
        };
        let tensor = TensorId(*index);
        let item = match view {
            Some(view) => ListItem::View(tensor, view.clone()),
            None => ListItem::Whole(tensor),
        };
        match lists.iter_mut().find(|(known, _)| *known == list) {
            Some((_, items)) => items.push(item),
            None => lists.push((list, vec![item])),
        }
    }
    lists
}

pub(super) fn has_list(lists: &WeightLists, name: &str) -> bool {
    lists.iter().any(|(known, _)| known == name)
}

/// Returns the name of the list that holds one part's weights of all layers.
pub(super) fn weight_list_name(part: LayerPart) -> &'static str {
    match part {
        LayerPart::Wq => "wq",
        LayerPart::Wk => "wk",
        LayerPart::Wv => "wv",
        LayerPart::Wqkv => "wqkv",
        LayerPart::Wo => "wo",
        LayerPart::W1 => "w1",
        LayerPart::W2 => "w2",
        LayerPart::W3 => "w3",
        LayerPart::AttentionNorm => "attention_norm",
        LayerPart::FfnNorm => "ffn_norm",
        LayerPart::QNorm => "q_norm",
        LayerPart::KNorm => "k_norm",
        LayerPart::AttentionPostNorm => "attention_post_norm",
        LayerPart::FfnPostNorm => "ffn_post_norm",
        LayerPart::Sinks => "sinks",
        LayerPart::Router => "router",
        LayerPart::W13 => "w13",
        LayerPart::SharedW1 => "shared_w1",
        LayerPart::SharedW2 => "shared_w2",
        LayerPart::SharedW3 => "shared_w3",
        LayerPart::SharedGate => "shared_gate",
        LayerPart::ChoiceBias => "choice_bias",
        LayerPart::XieluPositive => "xielu_positive",
        LayerPart::XieluNegative => "xielu_negative",
        LayerPart::XieluBeta => "xielu_beta",
        LayerPart::XieluEps => "xielu_eps",
        LayerPart::DeltaQkv => "delta_qkv",
        LayerPart::DeltaZ => "delta_z",
        LayerPart::DeltaB => "delta_b",
        LayerPart::DeltaA => "delta_a",
        LayerPart::DeltaQkvz => "delta_qkvz",
        LayerPart::DeltaBa => "delta_ba",
        LayerPart::DeltaConv => "delta_conv",
        LayerPart::DeltaLog => "delta_log",
        LayerPart::DeltaBias => "delta_bias",
        LayerPart::DeltaNorm => "delta_norm",
        LayerPart::DeltaOut => "delta_out",
        LayerPart::DensePostNorm => "dense_post_norm",
        LayerPart::ExpertsNorm => "experts_norm",
        LayerPart::ExpertsPostNorm => "experts_post_norm",
        LayerPart::RouterScale => "router_scale",
        LayerPart::ExpertScale => "expert_scale",
        LayerPart::LayerInputGate => "layer_input_gate",
        LayerPart::LayerInputOutput => "layer_input_output",
        LayerPart::LayerInputNorm => "layer_input_norm",
        LayerPart::LayerScalar => "layer_scalar",
    }
}

/// Returns the name of the bias list for a weight list: `bq` for `wq`, `router_bias` for `router`.
pub(super) fn bias_list_name(list: &str) -> String {
    match list.strip_prefix('w') {
        Some(rest) => format!("b{rest}"),
        None => format!("{list}_bias"),
    }
}
