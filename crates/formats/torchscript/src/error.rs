//! Why tensors cannot become a TorchScript archive.

use byte_source::ErrorKind;
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
    /// A record of an archive cannot be read, or is damaged.
    #[error("{}: {reason}", record.escape_debug())]
    Record {
        /// Its name.
        record: String,
        /// Why.
        #[source]
        reason: byte_source::ReadError,
    },
    /// A record that is read as a whole is too large for that.
    #[error("{} has {len} bytes, which is more than code or a pickle can have here", record.escape_debug())]
    LargeRecord {
        /// Its name.
        record: String,
        /// Its bytes.
        len: u64,
    },
    /// An archive without source text.
    #[error(
        "the archive has bytecode for mobile devices and no source text, which is needed to run it elsewhere"
    )]
    MobileOnly,
    /// A module that should be kept as it is does not take and return dicts.
    #[error("the forward of {} does not take a Dict[str, Tensor] and return a dict, as Carton calls it", class.escape_debug())]
    NotDicts {
        /// Its class.
        class: String,
    },
    /// A name is given for a module that is kept as it is.
    #[error("`{}` cannot be given for a module that is kept as it is", name.escape_debug())]
    KeptAsIs {
        /// The name.
        name: String,
    },
    /// There is no input of a name.
    #[error("there is no input `{}`; the inputs are {}", name.escape_debug(), known.join(", ").escape_debug())]
    NoInput {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A dtype that no input of a carton has or becomes.
    #[error("input `{}`: {dtype} cannot be made of what Carton passes", name.escape_debug())]
    InputDtype {
        /// The input.
        name: String,
        /// The dtype.
        dtype: Dtype,
    },
    /// Two outputs are given the same name.
    #[error("two outputs are called `{}`", name.escape_debug())]
    OutputTwice {
        /// The name.
        name: String,
    },
    /// Names are given for another number of outputs.
    #[error("{found} names for {expected} outputs: the forward returns others, or gives them names itself")]
    OutputNames {
        /// How many outputs can be named.
        expected: usize,
        /// How many names there are.
        found: usize,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Duplicate { .. } => ErrorKind::Input,
            Self::Reserved { .. }
            | Self::Newer { .. }
            | Self::Dtype { .. }
            | Self::MixedDtypes { .. }
            | Self::Outside { .. }
            | Self::TooLarge { .. }
            | Self::TooMany { .. }
            | Self::Pickle(_)
            | Self::LargeRecord { .. }
            | Self::MobileOnly => ErrorKind::Unsupported,
            Self::Zip(reason) => reason.into(),
            Self::Decoder(reason) => reason.kind(),
            Self::Record { reason, .. } => reason.kind(),
            Self::NotDicts { .. }
            | Self::KeptAsIs { .. }
            | Self::NoInput { .. }
            | Self::InputDtype { .. }
            | Self::OutputTwice { .. }
            | Self::OutputNames { .. } => ErrorKind::Option,
        }
    }
}
