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
    /// A dtype that libtorch 2.0.1, Carton's, does not load, or not without a quantizer.
    #[error("tensor `{}`: {dtype} cannot be written for PyTorch 2.0, which Carton runs", tensor.escape_debug())]
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
    /// `params.json` is no JSON, or a value in it has another type than it should.
    #[error("params.json: {0}")]
    Params(serde_json::Error),
    /// `params.json` lacks what cannot be told from the shapes.
    #[error("params.json has no `{key}`, which the shapes do not tell")]
    MissingParam {
        /// The key.
        key: &'static str,
    },
    /// A value in `params.json` that no LLaMA has.
    #[error("params.json: `{key}` is {found}, expected {expected}")]
    Param {
        /// The key.
        key: String,
        /// The value, as JSON prints it.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A key in `params.json` that makes another model of it than this LLaMA.
    #[error("params.json: `{}` changes the result, and this LLaMA does not know it", key.escape_debug())]
    UnknownParam {
        /// The key.
        key: String,
    },
    /// A tensor that a LLaMA needs is not there.
    #[error("there is no tensor `{name}`, which a LLaMA of {n_layers} layers has")]
    MissingTensor {
        /// The tensor.
        name: String,
        /// Layers, by `params.json` or else by the tensors' names.
        n_layers: u64,
    },
    /// Tensors that this LLaMA has no use for.
    #[error("no part of this LLaMA: {}", few(names))]
    UnexpectedTensors {
        /// Their names.
        names: Vec<String>,
    },
    /// A tensor's shape disagrees with `params.json`.
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
    /// A LLaMA's weight that is no floating-point number.
    #[error(
        "tensor `{tensor}`: {dtype}, expected float32, float16, bfloat16 or float64 in a LLaMA that runs"
    )]
    NotFloat {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
}

/// The first few of many names.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut out: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push(format!("and {more} more"));
    }
    out.join(", ")
}
