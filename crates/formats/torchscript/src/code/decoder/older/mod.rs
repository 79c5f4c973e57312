//! Archives from earlier versions of this program. The first three wrote no record of the decoder.
//!
//! Facts: the texts are from this project's history. An archive with one of them runs like a new one, so they are kept byte
//! for byte.

mod first;
pub(super) mod fourth;
mod second;
mod third;

use decoder::{Assignment, Biases, Decoder, LayerPart, Llama3, RopeScaling};
use tensor::Tensors;

use super::lists::{WeightLists, bias_list_name, group_weights, weight_list_name};
use super::version::size_attribute;
use crate::archive::ScriptArchive;
use crate::code::state_dict_tree::{self, OwnAttributes};
use crate::module_tree::AttributeValue;
use crate::{ModuleNote, Result};

/// Version of the text, with its access to the weights.
pub(super) struct LegacyText {
    /// Text of `forward` and the other methods. `{linear PART X}` stands for the result of [`linear`](Self::linear) for this
    /// layer's PART and X.
    forward: &'static str,
    /// Functions that the methods call. `{split}` and `{dim}` depend on the elements that rotation pairs: halves of a head,
    /// or neighbours.
    functions: &'static str,
    /// Returns the product of `x` and a layer's matrix in the list `weights`, plus the bias in the list `biases`.
    linear: fn(weights: &str, biases: Option<&str>, x: &str) -> String,
    weights: fn(WeightLists) -> Vec<(String, AttributeValue)>,
}

/// All versions of the text, newest first.
pub(super) static LEGACY_TEXTS: [&LegacyText; 3] = [&third::TEXT, &second::TEXT, &first::TEXT];

/// Makes the archive of a decoder whose module has this text, and notes about it.
pub(super) fn legacy_archive(
    text: &LegacyText,
    decoder: &Decoder,
    assignment: &Assignment,
    tensors: &Tensors,
) -> Result<(ScriptArchive, Vec<ModuleNote>)> {
    let rope = decoder.rope();
    let scaling = match rope.scaling {
        Some(RopeScaling::Llama3(scaling)) => Some(scaling),
        _ => None,
    };
    let scaled = scaling.unwrap_or(Llama3::with_factor(1.0));
    let windows = decoder.windows();
    let windowed = |layer| i64::from(windows.window_of(layer).is_some());
    let number = |name: &str, value| (name.to_owned(), AttributeValue::Float(value));
    let mut own = (text.weights)(group_weights(&assignment.weights));
    own.extend([
        size_attribute("vocab", decoder.vocab())?,
        size_attribute("head_dim", decoder.head_dim())?,
        size_attribute("n_kv_heads", decoder.n_kv_heads())?,
        number("norm_eps", decoder.norm_eps()),
        number("rope_theta", rope.theta),
        ("rope_scaled".to_owned(), AttributeValue::Bool(scaling.is_some())),
        number("rope_factor", scaled.factor),
        number("rope_low", scaled.low),
        number("rope_high", scaled.high),
        number("rope_old", scaled.old),
        size_attribute("window", windows.size.unwrap_or(0))?,
        (
            "windowed".to_owned(),
            AttributeValue::Ints(Box::new((0..decoder.n_layers()).map(windowed).collect())),
        ),
        size_attribute("cat_dim", 1)?,
    ]);
    let forward = forward(text, decoder.biases());
    let functions = functions(text, decoder.layout().rotates_halves);
    state_dict_tree::state_dict_archive(
        tensors,
        decoder.architecture().class(),
        &forward,
        &functions,
        OwnAttributes { values: own, entry: None },
    )
}

fn forward(text: &LegacyText, biases: Biases) -> String {
    let mut out = text.forward.to_owned();
    for part in LayerPart::ALL {
        let list = weight_list_name(part);
        for x in ["x", "y", "o", "g"] {
            let call = (text.linear)(list, biases.contains(part).then(|| bias_list_name(list)).as_deref(), x);
            out = out.replace(&format!("{{linear {list} {x}}}"), &call);
        }
    }
    out
}

fn functions(text: &LegacyText, rotates_halves: bool) -> String {
    let (split, dim) = if rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
    text.functions.replace("{split}", split).replace("{dim}", dim)
}

fn lists_in_dict(lists: WeightLists) -> Vec<(String, AttributeValue)> {
    vec![("__tensors__".to_owned(), AttributeValue::Lists(Box::new(lists)))]
}

fn linear_of_dict(weights: &str, biases: Option<&str>, x: &str) -> String {
    linear(|list| format!("(weights[\"{list}\"])[i]"), weights, biases, x)
}

fn lists_as_attributes(lists: WeightLists) -> Vec<(String, AttributeValue)> {
    lists.into_iter().map(|(list, ids)| (list, AttributeValue::List(Box::new(ids)))).collect()
}

fn linear_of_lists(weights: &str, biases: Option<&str>, x: &str) -> String {
    linear(|list| format!("(self.{list}{{_}})[i]"), weights, biases, x)
}

fn linear(item: impl Fn(&str) -> String, weights: &str, biases: Option<&str>, x: &str) -> String {
    let cast = |list: &str| format!("torch.to({}, ops.prim.dtype({x}))", item(list));
    match biases {
        Some(biases) => format!("torch.linear({x}, {}, {})", cast(weights), cast(biases)),
        None => format!("torch.linear({x}, {})", cast(weights)),
    }
}
