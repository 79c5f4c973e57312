//! The forward of a decoder as TorchScript source text: the one that is written now, and those that were written before.
//!
//! Facts: the older texts are those of this project's history. An archive that has one of them runs like a new one, so
//! they are kept as they were, byte for byte. Where the text changes, the old one becomes a file and a row here.

mod first;
mod newest;
mod second;

use crate::module::{TensorId, Value};

/// A text, and how it finds the weights.
pub(super) struct Text {
    /// `forward` and the other methods. `{linear PART X}` stands for [`linear`](Self::linear) of this layer's PART and X.
    pub(super) forward: &'static str,
    /// The functions that the methods call. `{split}` and `{dim}` depend on what rotation pairs.
    pub(super) functions: &'static str,
    /// The product of a layer's matrix, from the list `weights`, with `x`, and the bias from the list `biases`.
    pub(super) linear: fn(weights: &str, biases: Option<&str>, x: &str) -> String,
    /// The attributes that hold the lists of weights.
    pub(super) weights: fn(Lists) -> Vec<(String, Value)>,
}

/// Lists of tensors, each with its name.
type Lists = Vec<(String, Vec<TensorId>)>;

/// All texts, the newest first.
pub(super) static TEXTS: [&Text; 3] = [NEWEST, &second::TEXT, &first::TEXT];

/// The text that is written now.
pub(super) static NEWEST: &Text = &newest::TEXT;

/// The lists are in one dict.
fn one_dict(lists: Lists) -> Vec<(String, Value)> {
    vec![("__tensors__".to_owned(), Value::Lists(Box::new(lists)))]
}

fn linear_of_dict(weights: &str, biases: Option<&str>, x: &str) -> String {
    linear(|list| format!("(weights[\"{list}\"])[i]"), weights, biases, x)
}

/// Each list is an attribute.
fn lists(lists: Lists) -> Vec<(String, Value)> {
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

/// What calls a text's `forward`, which is then `infer`, where `forward` takes and returns a tensor. A tensor or a module
/// may have the name of a method: PyTorch looks for the method first.
pub(super) const POSITIONAL: &str = r#"  def forward(self: Self,
    tokens: Tensor) -> Tensor:
    out = (self).infer(annotate(Dict[str, Tensor], {"tokens": tokens}), )
    return out["logits"]
"#;
