//! Archives from early versions of this program, which wrote no record of the decoder.
//!
//! Facts: the texts are from this project's history. An archive with one of them runs like a new one, so they are kept byte
//! for byte.

mod first;
mod second;
mod third;

use decoder::{Assignment, Biases, Decoder, Llama3, Part, Scaling};
use tensor::Tensors;

use super::lists::{Lists, biases_of, lists, weights_of};
use super::version::size;
use crate::archive::Archive;
use crate::code::state;
use crate::module::Value;
use crate::{Note, Result};

/// Version of the text, with its access to the weights.
pub(super) struct Text {
    /// Text of `forward` and the other methods. `{linear PART X}` stands for the result of [`linear`](Self::linear) for this
    /// layer's PART and X.
    forward: &'static str,
    /// Functions that the methods call. `{split}` and `{dim}` depend on the elements that rotation pairs: halves of a head,
    /// or neighbours.
    functions: &'static str,
    /// Returns the product of `x` and a layer's matrix in the list `weights`, plus the bias in the list `biases`.
    linear: fn(weights: &str, biases: Option<&str>, x: &str) -> String,
    /// Returns the attributes that hold the lists of weights.
    weights: fn(Lists) -> Vec<(String, Value)>,
}

/// All versions of the text, newest first.
pub(super) static TEXTS: [&Text; 3] = [&third::TEXT, &second::TEXT, &first::TEXT];

/// Makes the archive of a decoder whose module has this text, and notes about it.
pub(super) fn archive(
    text: &Text,
    decoder: &Decoder,
    assignment: &Assignment,
    tensors: &Tensors,
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
        size("cat_dim", 1)?,
    ]);
    let forward = forward(text, decoder.biases());
    let functions = functions(text, decoder.layout().rotates_halves);
    state::archive(tensors, decoder.architecture().class(), &forward, &functions, own)
}

fn forward(text: &Text, biases: Biases) -> String {
    let mut out = text.forward.to_owned();
    for part in Part::ALL {
        let list = weights_of(part);
        for x in ["x", "y", "o", "g"] {
            let call = (text.linear)(list, biases.contains(part).then(|| biases_of(list)).as_deref(), x);
            out = out.replace(&format!("{{linear {list} {x}}}"), &call);
        }
    }
    out
}

fn functions(text: &Text, rotates_halves: bool) -> String {
    let (split, dim) = if rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
    text.functions.replace("{split}", split).replace("{dim}", dim)
}

/// Puts all lists into one dict.
fn one_dict(lists: Lists) -> Vec<(String, Value)> {
    vec![("__tensors__".to_owned(), Value::Lists(Box::new(lists)))]
}

fn linear_of_dict(weights: &str, biases: Option<&str>, x: &str) -> String {
    linear(|list| format!("(weights[\"{list}\"])[i]"), weights, biases, x)
}

/// Makes each list an attribute.
fn separate(lists: Lists) -> Vec<(String, Value)> {
    lists.into_iter().map(|(list, ids)| (list, Value::List(Box::new(ids)))).collect()
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
