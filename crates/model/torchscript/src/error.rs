//! Errors of making TorchScript archives.

use byte_source::details;
use tensor::Dtype;

/// Reason why tensors, or an archive, cannot become a TorchScript module for Carton.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Name that two tensors have.
    #[error("two tensors have the name `{}`", name.escape_debug())]
    Duplicate { name: String },
    /// Tensor name that TorchScript or PyTorch's modules reserve.
    #[error("tensor `{}`: TorchScript or PyTorch's modules reserve this name", name.escape_debug())]
    Reserved { name: String },
    /// Tensor of a dtype that Carton's libtorch, 2.0.1, does not load.
    #[error("tensor `{}`: PyTorch 2.0, which Carton runs, cannot load {dtype}", tensor.escape_debug())]
    NewerDtype { tensor: String, dtype: Dtype },
    /// Tensor of a dtype that Carton's outputs cannot have, and that has no conversion to such a dtype.
    #[error("tensor `{}`: {dtype} cannot be a Carton output and has no conversion", tensor.escape_debug())]
    Dtype { tensor: String, dtype: Dtype },
    /// Tensors of different dtypes that share a storage.
    #[error(
        "tensors `{}` ({first_dtype}) and `{}` ({second_dtype}) share a storage, but a TorchScript storage has one dtype",
        first.escape_debug(), second.escape_debug()
    )]
    MixedDtypes {
        /// Name of the first tensor over the storage.
        first: String,
        first_dtype: Dtype,
        /// Name of a later tensor over the storage.
        second: String,
        second_dtype: Dtype,
    },
    /// Tensor without elements that starts after the end of its storage, which newer PyTorch rejects.
    #[error("tensor `{}`: starts at element {offset} of its storage, which has {numel}", tensor.escape_debug())]
    OffsetOutsideStorage {
        tensor: String,
        /// Storage offset, in elements.
        offset: u64,
        /// Number of elements in the storage.
        numel: u64,
    },
    /// Size, stride or offset that TorchScript's signed 64-bit integers cannot express.
    #[error("tensor `{}`: {number} is larger than 2^63", tensor.escape_debug())]
    TooLarge { tensor: String, number: u64 },
    /// More tensors than a 32-bit number can count.
    #[error("{tensors} tensors are too many for one archive")]
    TooMany { tensors: usize },
    /// Error of reading or writing a pickle, `data.pkl`.
    #[error("data.pkl: {0}")]
    Pickle(#[from] pickle_vm::Error),
    /// Record that exceeds the size limit of records which are read as a whole.
    #[error("{} has {len} bytes, which is more than code or a pickle can have here", record.escape_debug())]
    LargeRecord {
        record: String,
        /// Length of the record in bytes.
        len: u64,
    },
    /// Archive with bytecode for mobile devices only, without source text.
    #[error(
        "the archive has bytecode for mobile devices and no source text, which is needed to run it elsewhere"
    )]
    MobileOnly,
    /// Archive whose code PyTorch cannot load, because `torch.jit.optimize_for_inference` left out values of constants.
    #[error(
        "the code calls `{operator}`, which stands for a constant whose value is not in the file: no version of PyTorch \
         loads what `torch.jit.optimize_for_inference` made"
    )]
    UnloadableOperator { operator: &'static str },
    /// Module to be kept unchanged whose `forward` does not take and return dicts.
    #[error("the forward of {} does not take a Dict[str, Tensor] and return a dict, as Carton calls it", class.escape_debug())]
    NoDictForward {
        /// Qualified name of the root class.
        class: String,
    },
    /// Input or output name that was specified for a module which is kept unchanged.
    #[error("`{}` cannot be given for a module that is kept as it is", name.escape_debug())]
    OptionForKeptModule { name: String },
    /// Declared input that the module does not have.
    #[error("there is no input `{}`; the inputs are {}", name.escape_debug(), known.join(", ").escape_debug())]
    UnknownInputName {
        name: String,
        /// Names of the inputs that the module has.
        known: Vec<String>,
    },
    /// Declared input of a dtype that Carton cannot pass and the module cannot cast to.
    #[error("input `{}`: {dtype} cannot be made of what Carton passes", name.escape_debug())]
    InputDtype { name: String, dtype: Dtype },
    /// Declared output that the module does not have, or whose dtype the code says.
    #[error("there is no tensor `{}` among the outputs, which are {}", name.escape_debug(), list_of(known))]
    UnknownOutputName {
        name: String,
        /// Names of the tensors that the module returns.
        known: Vec<String>,
    },
    /// Declared output of a dtype that the module cannot return.
    #[error("output `{}`: a module cannot return {dtype}", name.escape_debug())]
    OutputDtype { name: String, dtype: Dtype },
    /// Inputs of unknown dtypes and shapes, which Triton needs.
    #[error(
        "the code does not say the dtype and shape of the {} {}, which Triton needs",
        plural(names, "input"),
        list_of(names)
    )]
    UntypedInputs {
        names: Vec<String>,
        /// Names of the outputs of unknown dtypes and shapes, which come next.
        outputs: Vec<String>,
    },
    /// Outputs of unknown dtypes and shapes, which Triton needs.
    #[error(
        "the code does not say the dtype and shape of the {} {}, which Triton needs",
        plural(names, "output"),
        list_of(names)
    )]
    UntypedOutputs { names: Vec<String> },
    /// Output that is a text, which Triton's PyTorch backend does not take from a module with other outputs.
    #[error("the output `{}` is a text, and a module for Triton returns tensors", name.escape_debug())]
    TextOutput { name: String },
    /// Input whose name cannot be that of an argument.
    #[error("the input `{}` has a name that an argument of a module for Triton cannot have", name.escape_debug())]
    NotAnArgument { name: String },
    /// Output name that was specified twice.
    #[error("two outputs are called `{}`", name.escape_debug())]
    DuplicateOutputName { name: String },
    /// Output names whose number differs from the number of outputs that can be named.
    #[error("{found} names for {expected} outputs: the forward returns others, or gives them names itself")]
    OutputNameCount {
        /// Number of outputs that can be named.
        expected: usize,
        /// Number of names that were specified.
        found: usize,
    },
}

details! {
    Problem {
        Input: Duplicate;
        Unsupported: Reserved, NewerDtype, Dtype, MixedDtypes, OffsetOutsideStorage, TooLarge, TooMany, Pickle,
            LargeRecord, UnloadableOperator, TextOutput, MobileOnly;
        Option: NoDictForward, OptionForKeptModule, UnknownInputName, InputDtype, UnknownOutputName, OutputDtype,
            UntypedInputs, UntypedOutputs, NotAnArgument, DuplicateOutputName, OutputNameCount;
    }
}

/// Returns the word for one or several things.
fn plural(names: &[String], word: &str) -> String {
    if names.len() == 1 { word.to_owned() } else { format!("{word}s") }
}

fn list_of(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    format!("`{}`", names.join("`, `").escape_debug())
}
