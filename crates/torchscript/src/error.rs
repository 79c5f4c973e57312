//! Why tensors cannot become a TorchScript archive.

use tensor::Dtype;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why tensors cannot become a TorchScript archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tensors have the same name.
    #[error("two tensors have the name `{}`", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A name that a tensor of a TorchScript module cannot have.
    #[error("tensor `{}`: TorchScript or PyTorch's modules reserve this name", name.escape_debug())]
    Reserved {
        /// The name.
        name: String,
    },
    /// A dtype that Carton's libtorch, 2.0.1, does not load.
    #[error("tensor `{}`: PyTorch 2.0, which Carton runs, cannot load {dtype}", tensor.escape_debug())]
    Newer {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// A dtype that a carton's outputs cannot have, without a conversion to one that they can.
    #[error("tensor `{}`: {dtype} cannot be a Carton output and has no conversion", tensor.escape_debug())]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// Tensors of different dtypes share their bytes.
    #[error(
        "tensors `{}` ({first_dtype}) and `{}` ({second_dtype}) share a storage, but a TorchScript storage has one dtype",
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
    /// A tensor without elements that starts after the end of its storage, which newer PyTorch rejects.
    #[error("tensor `{}`: starts at element {offset} of its storage, which has {numel}", tensor.escape_debug())]
    Outside {
        /// The tensor.
        tensor: String,
        /// Its storage offset, in elements.
        offset: u64,
        /// The number of elements in the storage.
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
    /// More tensors than 32 bits count.
    #[error("{tensors} tensors are too many for one archive")]
    TooMany {
        /// How many there are.
        tensors: usize,
    },
    /// `data.pkl` cannot be written.
    #[error("data.pkl: {0}")]
    Pickle(#[from] pickle_vm::Error),
    /// The archive cannot be laid out.
    #[error("model.pt: {0}")]
    Zip(#[from] std::io::Error),
    /// The tensors are not the model that they should be, or its documents are wrong.
    #[error(transparent)]
    Decoder(#[from] decoder::Error),
}
