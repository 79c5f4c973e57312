//! Why tensors cannot become a TorchScript archive.

use tensor::Dtype;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why tensors cannot become a TorchScript archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tensors of one name.
    #[error("two tensors are called `{}`", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A name that no TorchScript module can give a tensor.
    #[error("tensor `{}`: TorchScript or PyTorch's modules use this name themselves", name.escape_debug())]
    Reserved {
        /// The name.
        name: String,
    },
    /// A dtype that libtorch 2.0.1, Carton's, does not load.
    #[error("tensor `{}`: {dtype} is not loaded by PyTorch 2.0, which Carton runs", tensor.escape_debug())]
    Newer {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// A dtype that no output of a carton can have.
    #[error("tensor `{}`: {dtype} is no dtype of Carton's outputs, nor becomes one; --exclude leaves a tensor out", tensor.escape_debug())]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// Tensors of several dtypes over the same bytes.
    #[error(
        "tensors `{}` ({first_dtype}) and `{}` ({second_dtype}) share a storage: TorchScript gives a storage one dtype",
        first.escape_debug(), second.escape_debug()
    )]
    MixedDtypes {
        /// The tensor that comes first.
        first: String,
        /// Its dtype.
        first_dtype: Dtype,
        /// A later one.
        second: String,
        /// Its dtype.
        second_dtype: Dtype,
    },
    /// A tensor without elements that starts behind its storage, which newer PyTorch refuses to load.
    #[error("tensor `{}`: starts at element {offset} of its storage, which has {numel}", tensor.escape_debug())]
    Outside {
        /// The tensor.
        tensor: String,
        /// Its storage offset, in elements.
        offset: u64,
        /// Elements of the storage.
        numel: u64,
    },
    /// A size or stride that TorchScript's signed numbers cannot express.
    #[error("tensor `{}`: {number} is larger than 2^63", tensor.escape_debug())]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// The number.
        number: u64,
    },
    /// `data.pkl` cannot be written.
    #[error("data.pkl: {0}")]
    Pickle(#[from] pickle_vm::Error),
    /// The archive cannot be laid out.
    #[error("model.pt: {0}")]
    Zip(#[from] std::io::Error),
    /// `params.json` or `config.json` is no JSON, or a value in it has another type than it should.
    #[error("{file}: {error}")]
    Document {
        /// The document.
        file: &'static str,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// Neither the document nor the shapes tell what a model needs.
    #[error("{}", untold(file, *there, facts))]
    Missing {
        /// The document that should tell.
        file: &'static str,
        /// Whether the document is there.
        there: bool,
        /// What is missing.
        facts: Vec<Fact>,
    },
    /// A person says something else than the document.
    #[error("{} is {asked}, but {file} says {said}", fact.option())]
    Contradiction {
        /// Of what.
        fact: Fact,
        /// What the person says.
        asked: String,
        /// The document.
        file: &'static str,
        /// What it says.
        said: String,
    },
    /// A number of heads that only a person says, and that is none of these tensors.
    #[error("{} is {found}, expected {expected}", Fact::Heads.option())]
    Heads {
        /// What the person says.
        found: u64,
        /// What it should be.
        expected: String,
    },
    /// A document lacks a key that goes with another one.
    #[error("{file}: there is no `{key}`")]
    MissingKey {
        /// The document.
        file: &'static str,
        /// The key.
        key: String,
    },
    /// A value in a document that no model of this architecture has, or not with these tensors.
    #[error("{}: `{key}` is {found}, expected {expected}", file.unwrap_or("the shapes"))]
    Param {
        /// The document; without one, the shapes tell the value.
        file: Option<&'static str>,
        /// The key.
        key: String,
        /// The value, as JSON prints it.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A key in a document that makes another model of it.
    #[error("{file}: `{}` changes the result, and no forward here knows it", key.escape_debug())]
    UnknownParam {
        /// The document.
        file: &'static str,
        /// The key.
        key: String,
    },
    /// Sizes were asked for, and this is only weights.
    #[error("this is no model that runs: {why}")]
    NoModel {
        /// Why not.
        why: String,
    },
    /// An architecture that is none of ours.
    #[error("there is no architecture `{}` here", name.escape_debug())]
    Architecture {
        /// Its name.
        name: String,
    },
    /// Tensors whose names are not those of the architecture.
    #[error("this is no {architecture}: there is no tensor `{name}`")]
    Misnamed {
        /// The architecture.
        architecture: &'static str,
        /// A tensor that it has.
        name: String,
    },
    /// An architecture whose tensors do not say all that a `config.json` says.
    #[error("there is no config.json, and the shapes do not tell all of {architecture}")]
    NoConfig {
        /// The architecture.
        architecture: &'static str,
    },
    /// One of several model-parallel shards.
    #[error("these are the shapes of one of {of} shards")]
    Shard {
        /// How many there are.
        of: u64,
    },
    /// A tensor that a model needs is not there.
    #[error("there is no tensor `{name}`, which a model of {n_layers} layers has")]
    MissingTensor {
        /// The tensor.
        name: String,
        /// Layers, by the document or else by the tensors' names.
        n_layers: u64,
    },
    /// Tensors that this model has no use for.
    #[error("no part of this model: {}", few(names))]
    UnexpectedTensors {
        /// Their names.
        names: Vec<String>,
    },
    /// A tensor's shape disagrees with the document.
    #[error("tensor `{tensor}`: shape {found:?}, expected {expected:?} by {why}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The shape that it has.
        found: Vec<u64>,
        /// The shape that it should have.
        expected: Vec<u64>,
        /// What the expectation follows from.
        why: String,
    },
    /// A model's weight that is no floating-point number.
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
    /// Whether only the `forward` of a model is at fault: the tensors alone can be converted.
    pub fn is_of_a_model(&self) -> bool {
        match self {
            Self::Document { .. }
            | Self::Missing { .. }
            | Self::Contradiction { .. }
            | Self::Heads { .. }
            | Self::MissingKey { .. }
            | Self::Param { .. }
            | Self::UnknownParam { .. }
            | Self::NoModel { .. }
            | Self::Architecture { .. }
            | Self::Misnamed { .. }
            | Self::NoConfig { .. }
            | Self::Shard { .. }
            | Self::MissingTensor { .. }
            | Self::UnexpectedTensors { .. }
            | Self::Shape { .. }
            | Self::NotFloat { .. } => true,
            Self::Duplicate { .. }
            | Self::Reserved { .. }
            | Self::Newer { .. }
            | Self::Dtype { .. }
            | Self::MixedDtypes { .. }
            | Self::Outside { .. }
            | Self::TooLarge { .. }
            | Self::Pickle(_)
            | Self::Zip(_) => false,
        }
    }

    /// The document that is at fault; the text begins with its name.
    pub fn document(&self) -> Option<&'static str> {
        match self {
            Self::Document { file, .. }
            | Self::Missing { file, there: true, .. }
            | Self::MissingKey { file, .. }
            | Self::UnknownParam { file, .. } => Some(file),
            Self::Param { file, .. } => *file,
            _ => None,
        }
    }
}

/// What shapes do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The number of query heads.
    Heads,
    /// The base of the wavelengths of positions.
    RopeTheta,
    /// By how much long wavelengths are stretched.
    RopeFactor,
    /// The epsilon of the norms.
    NormEps,
}

impl Fact {
    /// The option of the command line that says it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Heads => "--n-heads",
            Self::RopeTheta => "--rope-theta",
            Self::RopeFactor => "--rope-factor",
            Self::NormEps => "--norm-eps",
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

fn untold(file: &str, there: bool, facts: &[Fact]) -> String {
    let keys: Vec<String> = facts.iter().map(|fact| format!("`{}`", fact.key(file))).collect();
    let keys = match keys.as_slice() {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        keys => keys.join(", "),
    };
    if there {
        format!("{file} has no {keys}, which the shapes do not tell")
    } else {
        format!("there is no {file}, and the shapes do not tell {keys}")
    }
}

/// The first few of many names.
pub(crate) fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut out: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push(format!("and {more} more"));
    }
    out.join(", ")
}
