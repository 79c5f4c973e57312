//! Errors of reading a decoder from documents and tensors.

use byte_source::{Place, details};
use tensor::Dtype;

use crate::NoModelReason;

/// An error of reading a decoder from documents and tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Two tensors have the same name.
    #[error("two tensors are called `{}`", name.escape_debug())]
    Duplicate { name: String },
    /// `params.json` or `config.json` is not JSON, or a value in it has the wrong type.
    #[error("{file}: {error}")]
    Document { file: &'static str, error: serde_json::Error },
    /// The model needs facts that neither the document nor the shapes state.
    #[error("{}", missing_facts(file, *has_document, facts))]
    MissingHyperparameters {
        /// Document that should state the facts.
        file: &'static str,
        /// True if the document is present.
        has_document: bool,
        facts: Vec<HyperparameterKind>,
    },
    /// The caller gives another number than the document.
    #[error("{} is given as {given}, but {file} says {found}", fact.name())]
    Contradiction {
        fact: HyperparameterKind,
        /// Number of the caller.
        given: String,
        file: &'static str,
        /// Number in the document.
        found: String,
    },
    /// The caller gives a number of heads that these tensors cannot have.
    #[error("{} is given as {found}, expected {expected}", HyperparameterKind::Heads.name())]
    InvalidHeads {
        /// Number of heads of the caller.
        found: u64,
        /// Description of a valid number.
        expected: String,
    },
    /// A document does not have a key that another of its keys requires.
    #[error("{file}: `{key}` is missing")]
    MissingKey { file: &'static str, key: String },
    /// A value is impossible for models of this architecture, or for these tensors.
    #[error("{}: `{key}` is {found}, expected {expected}", file.unwrap_or("the shapes"))]
    InvalidParam {
        /// Document with the value; `None` if the value comes from the shapes.
        file: Option<&'static str>,
        key: String,
        /// Value that was found, as JSON.
        found: String,
        /// Description of a valid value.
        expected: String,
    },
    /// A key of a document selects a model without a forward implementation.
    #[error("{file}: `{}` changes the result and is not supported", key.escape_debug())]
    UnsupportedParam { file: &'static str, key: String },
    /// The weights of the model are quantized.
    #[error(
        "{file}: the weights are quantized with `{}`{}, expected float32, float16, bfloat16 or float64 in a model that runs",
        method.escape_debug(),
        bits.map(|bits| format!(" ({bits} bits)")).unwrap_or_default()
    )]
    Quantized {
        file: &'static str,
        /// Quantization method by its name in the document, such as `gptq`.
        method: String,
        /// Number of bits per weight, if the document states it.
        bits: Option<u64>,
    },
    /// Numbers of a model are given, but the tensors are plain weights.
    #[error("these tensors are not a model that can run: {why}")]
    NotAModel { why: NoModelReason },
    /// No architecture with a forward implementation has this name.
    #[error("unknown architecture `{}`", name.escape_debug())]
    UnknownArchitecture { name: String },
    /// The names of the tensors are not those of the architecture.
    #[error("this is not a {architecture} model: there is no tensor `{name}`")]
    NotThisArchitecture {
        architecture: &'static str,
        /// Name of a tensor of the architecture that is missing.
        name: String,
    },
    /// Models of this architecture need their `config.json`, because their tensors do not reveal all of its facts.
    #[error("there is no config.json, which {architecture} models need")]
    NoConfig { architecture: &'static str },
    /// The tensors are one of several model-parallel shards.
    #[error("the tensors are one of {count} shards")]
    Shard { count: u64 },
    /// A tensor that the model needs is missing.
    #[error("there is no tensor `{name}`, which a model of {n_layers} layers needs")]
    MissingTensor {
        name: String,
        /// Number of layers, from the document or else from the names of the tensors.
        n_layers: u64,
    },
    /// Some tensors are not used by the model.
    #[error("the model does not use {}", list_names(names))]
    UnexpectedTensors { names: Vec<String> },
    /// A tensor does not have the shape that the model's sizes require.
    #[error("tensor `{tensor}`: shape {found:?}, expected {expected:?} from {why}")]
    Shape {
        tensor: String,
        found: Vec<u64>,
        /// Shape that follows from the model's sizes.
        expected: Vec<u64>,
        /// Sizes from which the expected shape is computed.
        why: String,
    },
    /// One of Megatron's tensors does not have the shape that config.json asks for.
    #[error("tensor `{}`: shape {found:?}, expected {expected}", tensor.escape_debug())]
    MegatronShape {
        tensor: String,
        found: Vec<u64>,
        /// Description of a valid shape.
        expected: String,
    },
    /// The tensors are plain weights, for which no other layout is known.
    #[error("no other names are known for these tensors: {why}")]
    NoLayout { why: NoModelReason },
    /// Models of this architecture do not have the requested layout.
    #[error("{owner}'s layout is for llama models, and this is a {architecture} model")]
    OtherLayout {
        architecture: &'static str,
        /// Organisation that defines the layout, such as Meta.
        owner: &'static str,
    },
    /// A layout has no names for some tensors.
    #[error("{owner}'s layout has no name for {}", list_names(names))]
    NoName {
        /// Organisation that defines the layout, such as Meta.
        owner: &'static str,
        /// Names of the tensors, at least one.
        names: Vec<String>,
    },
    /// A layout does not support biases, and the checkpoint has one.
    #[error("{owner}'s layout has no biases, and there is `{}`", tensor.escape_debug())]
    NoBias {
        /// Organisation that defines the layout, such as Meta.
        owner: &'static str,
        /// Name of the bias.
        tensor: String,
    },
    /// The document of a layout cannot express a property of the model.
    #[error("{file} cannot express {what}: {why}")]
    Inexpressible {
        file: &'static str,
        /// Property of the model.
        what: String,
        /// Range of values that the document can express.
        why: String,
    },
    /// A rotary frequency tensor differs from the frequencies that the model computes.
    #[error(
        "tensor `{}`: element {pair} is {found}, expected {expected} from a RoPE base (theta) of {theta}",
        tensor.escape_debug()
    )]
    Frequency {
        tensor: String,
        /// Index of the element, which is that of a rotated pair.
        pair: u64,
        /// Value in the tensor.
        found: f32,
        /// Value that the model computes.
        expected: f32,
        /// RoPE base of the model.
        theta: f64,
    },
    /// The dtype of a weight is not a floating-point type.
    #[error(
        "tensor `{tensor}`: {dtype}, expected float32, float16, bfloat16 or float64 in a model that runs"
    )]
    NotFloat { tensor: String, dtype: Dtype },
}

details! {
    Problem => Problem::place {
        Input: Duplicate, MissingHyperparameters, MissingKey, InvalidParam, NotAModel, NoConfig, Shard, MissingTensor,
            UnexpectedTensors, Shape, MegatronShape, Frequency;
        Option: Contradiction, InvalidHeads, UnknownArchitecture, NotThisArchitecture;
        Unsupported: UnsupportedParam, Quantized, NoLayout, OtherLayout, NoName, NoBias, Inexpressible, NotFloat;
        Damaged: Document;
    }
}

impl Problem {
    /// Returns the document that is wrong, with whose name the text begins.
    fn place(&self) -> Place {
        match self {
            Self::Document { file, .. }
            | Self::MissingHyperparameters { file, has_document: true, .. }
            | Self::MissingKey { file, .. }
            | Self::UnsupportedParam { file, .. }
            | Self::Quantized { file, .. }
            | Self::InvalidParam { file: Some(file), .. } => Place::file(file.as_ref()),
            _ => Place::default(),
        }
    }
}

/// A hyperparameter that shapes do not reveal and the caller can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HyperparameterKind {
    /// Number of query heads.
    Heads,
    /// RoPE base (theta) of the model.
    RopeTheta,
    /// Factor by which Llama 3.1 and 3.2 stretch long wavelengths.
    RopeFactor,
    /// Epsilon of the norms.
    NormEps,
}

impl HyperparameterKind {
    /// Returns the name of the field of [`Overrides`](crate::Overrides) with this number.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heads => "n_heads",
            Self::RopeTheta => "rope_theta",
            Self::RopeFactor => "rope_factor",
            Self::NormEps => "norm_eps",
        }
    }

    fn key(self, file: &str) -> &'static str {
        let metas = file == "params.json";
        match self {
            Self::Heads if metas => "n_heads",
            Self::Heads => "num_attention_heads",
            Self::RopeTheta => "rope_theta",
            Self::RopeFactor if metas => "rope_scaling_factor",
            Self::RopeFactor => "rope_scaling.factor",
            Self::NormEps if metas => "norm_eps",
            Self::NormEps => "rms_norm_eps",
        }
    }
}

fn missing_facts(file: &str, has_document: bool, facts: &[HyperparameterKind]) -> String {
    let keys: Vec<String> = facts.iter().map(|fact| format!("`{}`", fact.key(file))).collect();
    let keys = match keys.as_slice() {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        keys => keys.join(", "),
    };
    if has_document {
        format!("{file} has no {keys}, which cannot be inferred from the tensor shapes")
    } else {
        format!("there is no {file}, and {keys} cannot be inferred from the tensor shapes")
    }
}

/// Lists the first five names, quoted, and the number of the rest.
pub(crate) fn list_names(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut out: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push(format!("and {more} more"));
    }
    out.join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn keys_are_those_of_the_document() {
        use HyperparameterKind::{Heads, NormEps, RopeFactor, RopeTheta};
        let keys = |file| [Heads, RopeTheta, RopeFactor, NormEps].map(|kind| kind.key(file));
        assert_eq!(keys("params.json"), ["n_heads", "rope_theta", "rope_scaling_factor", "norm_eps"]);
        assert_eq!(
            keys("config.json"),
            ["num_attention_heads", "rope_theta", "rope_scaling.factor", "rms_norm_eps"]
        );
    }

    #[test]
    fn five_names_are_listed_and_the_others_counted() {
        let list = |count: usize| list_names(&vec!["w".to_owned(); count]);
        assert_eq!(list(1), "`w`");
        assert_eq!(list(5), "`w`, `w`, `w`, `w`, `w`");
        assert_eq!(list(6), "`w`, `w`, `w`, `w`, `w`, and 1 more");
        assert_eq!(list(8), "`w`, `w`, `w`, `w`, `w`, and 3 more");
    }

    #[test]
    fn errors_about_a_document_name_it() {
        let file = "config.json";
        let (key, found, expected) = ("key".to_owned(), String::new(), String::new());
        let missing =
            |has_document| Problem::MissingHyperparameters { file, has_document, facts: Vec::new() };
        let wrong = |file| Problem::InvalidParam {
            file,
            key: key.clone(),
            found: found.clone(),
            expected: expected.clone(),
        };
        for (error, document) in [
            (Problem::MissingKey { file, key: key.clone() }, Some(file)),
            (Problem::UnsupportedParam { file, key: key.clone() }, Some(file)),
            (Problem::Quantized { file, method: String::new(), bits: None }, Some(file)),
            (missing(true), Some(file)),
            (missing(false), None),
            (wrong(Some(file)), Some(file)),
            (wrong(None), None),
            (Problem::NoConfig { architecture: "qwen2" }, None),
        ] {
            assert_eq!(error.place().path.as_deref(), document.map(Path::new), "{error}");
            let located = byte_source::Error::from(error).in_file(Path::new("a/config.json")).to_string();
            let rest = located.strip_prefix("a/config.json").expect("the place is named");
            assert!(!rest.starts_with(": config.json"), "{located}");
        }
    }
}
