//! Lists that hold the weights of a module: one for each part of the layers, and one for the weights outside the layers.

use decoder::{Assigned, Part, Weight};

use crate::module::{Item, TensorId};

/// Named lists of weights.
pub(super) type Lists = Vec<(String, Vec<Item>)>;

/// Groups the weights into the lists that the text reads, in the order of layers.
pub(super) fn lists(weights: &[Assigned]) -> Lists {
    let mut lists: Lists = Vec::new();
    for Assigned { weight, index, view } in weights {
        let list = match *weight {
            Weight::Embedding | Weight::Norm | Weight::Output => "outer".to_owned(),
            Weight::NormBias => "norm_bias".to_owned(),
            Weight::Layer { part, .. } | Weight::Head { part, .. } => weights_of(part).to_owned(),
            Weight::Bias { part, .. } => biases_of(weights_of(part)),
            Weight::Expert { part, .. } => format!("expert_{}", weights_of(part)),
            Weight::ExpertBias { part, .. } => biases_of(&format!("expert_{}", weights_of(part))),
        };
        let tensor = TensorId(*index);
        let item = match view {
            Some(view) => Item::View(tensor, view.clone()),
            None => Item::Whole(tensor),
        };
        match lists.iter_mut().find(|(known, _)| *known == list) {
            Some((_, items)) => items.push(item),
            None => lists.push((list, vec![item])),
        }
    }
    lists
}

/// Returns true if there is a list with this name.
pub(super) fn has_list(lists: &Lists, name: &str) -> bool {
    lists.iter().any(|(known, _)| known == name)
}

/// Returns the name of the list that holds one part's weights of all layers.
pub(super) fn weights_of(part: Part) -> &'static str {
    match part {
        Part::Wq => "wq",
        Part::Wk => "wk",
        Part::Wv => "wv",
        Part::Wo => "wo",
        Part::W1 => "w1",
        Part::W2 => "w2",
        Part::W3 => "w3",
        Part::AttentionNorm => "attention_norm",
        Part::FfnNorm => "ffn_norm",
        Part::QNorm => "q_norm",
        Part::KNorm => "k_norm",
        Part::AttentionPostNorm => "attention_post_norm",
        Part::FfnPostNorm => "ffn_post_norm",
        Part::Sinks => "sinks",
        Part::Router => "router",
        Part::W13 => "w13",
        Part::SharedW1 => "shared_w1",
        Part::SharedW2 => "shared_w2",
        Part::SharedW3 => "shared_w3",
        Part::SharedGate => "shared_gate",
    }
}

/// Returns the name of the bias list for a weight list: `bq` for `wq`, `router_bias` for `router`.
pub(super) fn biases_of(list: &str) -> String {
    match list.strip_prefix('w') {
        Some(rest) => format!("b{rest}"),
        None => format!("{list}_bias"),
    }
}
