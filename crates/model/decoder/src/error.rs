//! Why a decoder cannot be read from documents and tensors.

use byte_source::ErrorKind;
use tensor::Dtype;

use crate::WhyWeights;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a decoder cannot be read from documents and tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tensors have the same name.
    #[error("two tensors are called `{}`", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
    },
    /// `params.json` or `config.json` is not JSON, or a value in it has the wrong type.
    #[error("{file}: {error}")]
    Document {
        /// The document.
        file: &'static str,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// The model needs facts that neither the document nor the shapes state.
    #[error("{}", missing_facts(file, *has_document, facts))]
    MissingFacts {
        /// The document that should state them.
        file: &'static str,
        /// Whether the document is there.
        has_document: bool,
        /// The missing facts.
        facts: Vec<Fact>,
    },
    /// The caller gives another number than the document.
    #[error("{} is given as {given}, but {file} says {found}", fact.name())]
    Contradiction {
        /// Which number.
        fact: Fact,
        /// The number that is given.
        given: String,
        /// The document.
        file: &'static str,
        /// What the document says.
        found: String,
    },
    /// The caller gives a number of heads that these tensors cannot have.
    #[error("{} is given as {found}, expected {expected}", Fact::Heads.name())]
    Heads {
        /// The number that is given.
        found: u64,
        /// What it should be.
        expected: String,
    },
    /// A document does not have a key that another of its keys requires.
    #[error("{file}: `{key}` is missing")]
    MissingKey {
        /// The document.
        file: &'static str,
        /// The key.
        key: String,
    },
    /// A value that no model of this architecture has, or none with these tensors.
    #[error("{}: `{key}` is {found}, expected {expected}", file.unwrap_or("the shapes"))]
    Param {
        /// The document; `None` if the value comes from the shapes.
        file: Option<&'static str>,
        /// The key.
        key: String,
        /// The value, as JSON prints it.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A key in a document makes it a model that has no forward here.
    #[error("{file}: `{}` changes the result and is not supported", key.escape_debug())]
    UnknownParam {
        /// The document.
        file: &'static str,
        /// The key.
        key: String,
    },
    /// A model whose weights are quantized.
    #[error(
        "{file}: the weights are quantized with `{}`{}, expected float32, float16, bfloat16 or float64 in a model that runs",
        method.escape_debug(),
        bits.map(|bits| format!(" ({bits} bits)")).unwrap_or_default()
    )]
    Quantized {
        /// The document.
        file: &'static str,
        /// The method, as the document calls it, such as `gptq`.
        method: String,
        /// The number of bits of a weight, if the document has it.
        bits: Option<u64>,
    },
    /// Numbers of a model are given, but the tensors are only weights.
    #[error("these tensors are not a model that can run: {why}")]
    NotAModel {
        /// Why they are only weights.
        why: WhyWeights,
    },
    /// An unknown architecture.
    #[error("unknown architecture `{}`", name.escape_debug())]
    UnknownArchitecture {
        /// Its name.
        name: String,
    },
    /// The tensors' names are not those of the architecture.
    #[error("this is not a {architecture} model: there is no tensor `{name}`")]
    NotThisArchitecture {
        /// The architecture.
        architecture: &'static str,
        /// A tensor that the architecture has.
        name: String,
    },
    /// An architecture whose tensors do not state all that its `config.json` states.
    #[error("there is no config.json, which {architecture} models need")]
    NoConfig {
        /// The architecture.
        architecture: &'static str,
    },
    /// The tensors are one of several model-parallel shards.
    #[error("the tensors are one of {count} shards")]
    Shard {
        /// The number of shards.
        count: u64,
    },
    /// A tensor that the model needs is missing.
    #[error("there is no tensor `{name}`, which a model of {n_layers} layers needs")]
    MissingTensor {
        /// The tensor.
        name: String,
        /// The number of layers, from the document or else from the tensors' names.
        n_layers: u64,
    },
    /// Tensors that this model does not use.
    #[error("the model does not use {}", few(names))]
    UnexpectedTensors {
        /// Their names.
        names: Vec<String>,
    },
    /// A tensor does not have the shape that the model's sizes require.
    #[error("tensor `{tensor}`: shape {found:?}, expected {expected:?} from {why}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The shape that it has.
        found: Vec<u64>,
        /// The shape that it should have.
        expected: Vec<u64>,
        /// The sizes that it follows from.
        why: String,
    },
    /// The tensors are only weights, so they have no other layout.
    #[error("no other names are known for these tensors: {why}")]
    NoLayout {
        /// Why they are only weights.
        why: WhyWeights,
    },
    /// A layout that models of this architecture do not have.
    #[error("{owner}'s layout is for llama models, and this is a {architecture} model")]
    OtherLayout {
        /// The architecture.
        architecture: &'static str,
        /// Who made the layout.
        owner: &'static str,
    },
    /// Tensors that a layout has no names for.
    #[error("{owner}'s layout has no name for {}", few(names))]
    NoName {
        /// Who made the layout.
        owner: &'static str,
        /// Their names, at least one.
        names: Vec<String>,
    },
    /// A bias, which a layout has none of.
    #[error("{owner}'s layout has no biases, and there is `{}`", tensor.escape_debug())]
    NoBias {
        /// Who made the layout.
        owner: &'static str,
        /// The bias.
        tensor: String,
    },
    /// The document of a layout has no keys for what the model is.
    #[error("{file} cannot express {what}: {why}")]
    Inexpressible {
        /// The document.
        file: &'static str,
        /// What the model has.
        what: String,
        /// What the document can express.
        why: String,
    },
    /// A tensor with the frequencies of positions has a number that the model does not compute.
    #[error(
        "tensor `{}`: element {pair} is {found}, expected {expected} from a RoPE base (theta) of {theta}",
        tensor.escape_debug()
    )]
    Frequency {
        /// The tensor.
        tensor: String,
        /// The number of the element.
        pair: u64,
        /// What it is.
        found: f32,
        /// What the model computes.
        expected: f32,
        /// The base of the wavelengths.
        theta: f64,
    },
    /// The elements of a tensor cannot be read.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    Read {
        /// The tensor.
        tensor: String,
        /// What the system reported.
        reason: byte_source::ReadError,
    },
    /// A weight cannot be seen as rows of heads.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    Rows {
        /// The tensor.
        tensor: String,
        /// Why not.
        reason: tensor::Error,
    },
    /// A weight whose dtype is not a floating-point number.
    #[error(
        "tensor `{tensor}`: {dtype}, expected float32, float16, bfloat16 or float64 in a model that runs"
    )]
    NotFloat {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Duplicate { .. }
            | Self::MissingFacts { .. }
            | Self::MissingKey { .. }
            | Self::Param { .. }
            | Self::NotAModel { .. }
            | Self::NoConfig { .. }
            | Self::Shard { .. }
            | Self::MissingTensor { .. }
            | Self::UnexpectedTensors { .. }
            | Self::Shape { .. }
            | Self::Frequency { .. }
            | Self::Rows { .. } => ErrorKind::Input,
            Self::Contradiction { .. }
            | Self::Heads { .. }
            | Self::UnknownArchitecture { .. }
            | Self::NotThisArchitecture { .. } => ErrorKind::Option,
            Self::UnknownParam { .. }
            | Self::Quantized { .. }
            | Self::NoLayout { .. }
            | Self::OtherLayout { .. }
            | Self::NoName { .. }
            | Self::NoBias { .. }
            | Self::Inexpressible { .. }
            | Self::NotFloat { .. } => ErrorKind::Unsupported,
            Self::Document { .. } => ErrorKind::Damaged,
            Self::Read { reason, .. } => reason.kind(),
        }
    }
}

impl Error {
    /// Whether the tensors can be converted without a forward all the same.
    pub fn leaves_weights_usable(&self) -> bool {
        !matches!(self, Self::Duplicate { .. })
    }

    /// The document that is at fault; the text begins with its name.
    pub fn document(&self) -> Option<&'static str> {
        match self {
            Self::Document { file, .. }
            | Self::MissingFacts { file, has_document: true, .. }
            | Self::MissingKey { file, .. }
            | Self::UnknownParam { file, .. }
            | Self::Quantized { file, .. } => Some(file),
            Self::Param { file, .. } => *file,
            _ => None,
        }
    }
}

/// A number that shapes do not reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The number of query heads.
    Heads,
    /// The RoPE base (theta).
    RopeTheta,
    /// The factor by which long wavelengths are stretched.
    RopeFactor,
    /// The epsilon of the norms.
    NormEps,
}

impl Fact {
    /// Its name, as the fields of [`Given`](crate::Given) are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heads => "n_heads",
            Self::RopeTheta => "rope_theta",
            Self::RopeFactor => "rope_factor",
            Self::NormEps => "norm_eps",
        }
    }

    /// Its key in `file`.
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

fn missing_facts(file: &str, has_document: bool, facts: &[Fact]) -> String {
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

/// The first few of many names, quoted.
pub(crate) fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut out: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push(format!("and {more} more"));
    }
    out.join(", ")
}
