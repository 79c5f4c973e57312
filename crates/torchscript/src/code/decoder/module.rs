//! The module that runs a decoder: its attributes, and the text with its gaps filled.

use decoder::{Assigned, Assignment, Biases, Decoder, Llama3, Part, Scaling, Weight};
use tensor::Tensor;

use super::ports;
use super::text::{self, Text};
use crate::archive::Archive;
use crate::code::state;
use crate::module::{TensorId, Value};
use crate::{Converted, Error, Errors, Kind, Note, Outputs, Result, Returns};

/// How `forward` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::code) enum Signature {
    /// With a dict of tensors. It returns a dict, as Carton's runner requires, and this is what it does with wrong inputs.
    Dict(Errors),
    /// With one tensor. It returns one, because Triton refuses a dict. Wrong inputs raise an exception.
    Positional,
}

/// A module that runs: `tokens` int64 [batch, seq] → `logits` float32 [batch, seq, vocab]. With `keep_extra`,
/// tensors that it does not use stay in its `state_dict`.
///
/// # Errors
/// When the tensors are not the decoder's, or TorchScript cannot express a name, a tensor or a size.
pub(in crate::code) fn module(
    decoder: &Decoder,
    tensors: &[(String, Tensor)],
    keep_extra: bool,
    signature: Signature,
) -> Result<Converted> {
    let assignment = decoder.assign(tensors, keep_extra)?;
    let (archive, more) = archive(text::NEWEST, signature, decoder, &assignment, tensors)?;
    let notes = assignment.notes.into_iter().map(Note::Decoder).chain(more).collect();
    let (mut inputs, mut outputs) = ports::ports(decoder);
    if signature == Signature::Positional {
        inputs.retain(|port| !port.optional);
        outputs.retain(|port| !port.optional);
    }
    let kind = Kind::Model { name: decoder.architecture().name() };
    let outputs = Outputs(Returns::Ports(outputs));
    Ok(Converted {
        archive,
        inputs,
        outputs,
        notes,
        kind,
        decoder: Some(decoder.clone()),
        why: None,
        signature: None,
    })
}

/// The archive of a decoder whose module has this text, and notes about it.
pub(super) fn archive(
    text: &Text,
    signature: Signature,
    decoder: &Decoder,
    assignment: &Assignment,
    tensors: &[(String, Tensor)],
) -> Result<(Archive, Vec<Note>)> {
    let rope = decoder.rope();
    let scaling = match rope.scaling {
        Some(Scaling::Llama3(scaling)) => Some(scaling),
        _ => None,
    };
    let scaled = scaling.unwrap_or(Llama3::by(1.0));
    let windows = decoder.windows();
    let windowed = |layer| i64::from(windows.at(layer).is_some());
    let number = |name: &str, value| (name.to_owned(), Value::Float(value));
    let size = |name: &str, value: u64| {
        let value =
            i64::try_from(value).map_err(|_| Error::TooLarge { tensor: name.to_owned(), number: value })?;
        Ok::<_, Error>((name.to_owned(), Value::Int(value)))
    };
    let mut own = (text.weights)(lists(&assignment.weights));
    own.extend([
        size("vocab", decoder.vocab())?,
        size("head_dim", decoder.head_dim())?,
        size("n_kv_heads", decoder.n_kv_heads())?,
        number("norm_eps", decoder.norm_eps()),
        number("rope_theta", rope.theta),
        ("rope_scaled".to_owned(), Value::Bool(scaling.is_some())),
        number("rope_factor", scaled.factor),
        number("rope_low", scaled.low),
        number("rope_high", scaled.high),
        number("rope_old", scaled.old),
        size("window", windows.size.unwrap_or(0))?,
        ("windowed".to_owned(), Value::Ints(Box::new((0..decoder.n_layers()).map(windowed).collect()))),
        // An attribute, because the fuser of 2.0.1 would take over a concatenation along a constant.
        size("cat_dim", 1)?,
    ]);
    let methods = methods(text, decoder.biases(), signature);
    let functions = functions(text, decoder.layout().rotates_halves);
    state::archive(tensors, decoder.architecture().class(), &methods, &functions, own)
}

fn methods(text: &Text, biases: Biases, signature: Signature) -> String {
    let forward = forward(text, biases);
    match signature {
        Signature::Dict(_) => forward,
        Signature::Positional => {
            [text::POSITIONAL, &forward.replacen("def forward(", "def infer(", 1)].concat()
        }
    }
}

fn forward(text: &Text, biases: Biases) -> String {
    let mut out = text.forward.to_owned();
    for part in Part::ALL {
        let list = weights_list(part);
        for x in ["x", "y", "o", "g"] {
            let call = (text.linear)(list, biases.contains(part).then(|| biases_list(part)).as_deref(), x);
            out = out.replace(&format!("{{linear {list} {x}}}"), &call);
        }
    }
    out
}

fn functions(text: &Text, rotates_halves: bool) -> String {
    let (split, dim) = if rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
    text.functions.replace("{split}", split).replace("{dim}", dim)
}

/// The weights as the text finds them: one list for each part of the layers, and one for those outside of them.
fn lists(weights: &[Assigned]) -> Vec<(String, Vec<TensorId>)> {
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
fn weights_list(part: Part) -> &'static str {
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
