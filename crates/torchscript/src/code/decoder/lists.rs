//! The lists that hold the weights of a module: one for each part of the layers, and one for those outside of them.

use decoder::{Assigned, Part, Weight};

use crate::module::TensorId;

/// The weights as the text finds them, in the order of layers.
pub(super) fn lists(weights: &[Assigned]) -> Vec<(String, Vec<TensorId>)> {
    let mut lists: Vec<(String, Vec<TensorId>)> = Vec::new();
    for Assigned { weight, index, .. } in weights {
        let list = match *weight {
            Weight::Embedding | Weight::Norm | Weight::NormBias | Weight::Output => "outer".to_owned(),
            Weight::Layer { part, .. } | Weight::Head { part, .. } | Weight::Expert { part, .. } => {
                weights_list(part).to_owned()
            }
            Weight::Bias { part, .. } | Weight::ExpertBias { part, .. } => biases_list(part),
        };
        match lists.iter_mut().find(|(known, _)| *known == list) {
            Some((_, ids)) => ids.push(TensorId(*index)),
            None => lists.push((list, vec![TensorId(*index)])),
        }
    }
    lists
}

/// The list in the text that holds this part's weights of all layers.
pub(super) fn weights_list(part: Part) -> &'static str {
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

/// The list in the text that holds this part's biases of all layers.
pub(super) fn biases_list(part: Part) -> String {
    weights_list(part).replacen('w', "b", 1)
}
