//! Errors in the values of options of conversions.
//!
//! The texts do not mention command-line flags, because a caller may not have any.

use std::path::PathBuf;

use byte_source::{details, format_bytes};

use tensor::Dtype;

use crate::ForeignKind;

/// Reasons for which the value of an option is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// An option for opening the input or for changing its tensors has an invalid value.
    #[error(transparent)]
    Open(#[from] open::InvalidOption),
    /// The list of inputs is empty.
    #[error("no input was given")]
    NoInput,
    /// An option is given that only other outputs have.
    #[error("`{name}` is an option of {}, and the output is {to}", outputs.join(" and "))]
    OtherOutput {
        name: String,
        to: &'static str,
        /// Outputs that have the option.
        outputs: Vec<&'static str>,
    },
    /// Options for calling a module are given, and there is no module whose code is kept.
    #[error("there is no TorchScript module whose code is kept, so nothing is called")]
    NoScript {
        /// Change of the tensors, for which the code of a TorchScript module is not kept; `None` for an input without code.
        change: Option<ModelChange>,
    },
    /// The name of a model is empty.
    #[error("the name of a model cannot be empty")]
    EmptyName,
    /// The name of a model for Triton cannot be used as the name of a folder.
    #[error("`{}` cannot be the name of a model for Triton, because it cannot be the name of a folder", name.escape_debug())]
    TritonName { name: String },
    /// The short description is longer than Carton allows.
    #[error("{0}")]
    ShortDescription(String),
    /// Two files to keep have the same name.
    #[error("two files are called {name}")]
    MiscTwice { name: String },
    /// A file to keep does not exist.
    #[error("the file {} does not exist", path.display())]
    MiscMissing { path: PathBuf },
    /// The folder for outputs exists and is not a folder.
    #[error("{} is not a folder", path.display())]
    NotAFolder { path: PathBuf },
    /// The output is one file, and the tensors need several of the maximum size.
    #[error(
        "{} is the name of one file, and the tensors fill {count} of at most {}",
        path.display(),
        format_bytes(*size)
    )]
    ShardsInFile {
        path: PathBuf,
        /// Number of files.
        count: usize,
        /// Maximum size of the tensors in a file, in bytes.
        size: u64,
    },
    /// The folder for a model repository is the folder of one model.
    #[error("{} is the folder of a model, because it has a config.pbtxt, and not a repository of models", path.display())]
    NotARepository { path: PathBuf },
    /// The extension of the output belongs to a format that this crate does not write.
    #[error("{} cannot be written: {}", path.display(), foreign_text(*kind))]
    ForeignOutput { path: PathBuf, kind: ForeignKind },
    /// The extension of the output is almost that of a format.
    #[error("no output has the extension of {}; is .{extension} meant?", path.display())]
    SimilarExtension { path: PathBuf, extension: &'static str },
    /// The name of the output does not say what becomes of the folder of a model.
    #[error("{} does not say what it becomes, and the input is the folder of a model", path.display())]
    NoKind { path: PathBuf },
    /// The options would change a model that is already converted.
    #[error("a model that is already converted is used as it is")]
    AlreadyConverted { change: ModelChange },
    /// Two inputs would be converted into the same output.
    #[error("{} and {} would both become {}", first.display(), second.display(), output.display())]
    SameOutput { output: PathBuf, first: PathBuf, second: PathBuf },
    /// The same input is given twice.
    #[error("{} is given twice", path.display())]
    SameInput { path: PathBuf },
    /// An adapter or a checkpoint to sum is given twice, or is the input.
    #[error("{} is given twice", path.display())]
    GivenTwice { path: PathBuf },
    /// The name of a file to keep is not UTF-8.
    #[error("the name of {} is not UTF-8", path.display())]
    MiscName { path: PathBuf },
    /// The weight of an adapter or of a summed checkpoint is infinite or not a number.
    #[error("the weight of {} is {weight}, expected a finite number", path.display())]
    Weight { path: PathBuf, weight: String },
    /// A GGUF file of a model is not written in this dtype.
    #[error(
        "a GGUF file of a model has float32, float16, bfloat16, q8_0, q4_0, q4_1, q5_0 or q5_1, and not {dtype}"
    )]
    NoGgufType { dtype: Dtype },
    /// The architecture is not supported.
    #[error("the architecture `{name}` is not supported")]
    Architecture { name: String },
}

details! {
    InvalidOption {
        Option: NoInput, OtherOutput, NoScript, EmptyName, TritonName, ShortDescription, MiscTwice, MiscMissing, NotAFolder, ShardsInFile, NotARepository, ForeignOutput, SimilarExtension, NoKind, AlreadyConverted, SameOutput, SameInput, GivenTwice, MiscName, Weight, NoGgufType, Architecture;
        [0]: Open;
    }
}

#[cfg(feature = "cli")]
impl InvalidOption {
    /// Returns the text with options as they are written on a command line, such as `--max-shard-size`.
    pub fn with_flags(&self) -> String {
        match self {
            Self::Open(option) => option.with_flags(),
            Self::OtherOutput { name, to, outputs } => {
                format!(
                    "{} is an option of {}, and the output is {to}",
                    open::flag(name),
                    outputs.join(" and ")
                )
            }
            option => option.to_string(),
        }
    }
}

/// Change to the tensors of a checkpoint that options ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelChange {
    /// Selection of the tensors.
    Selection,
    /// Names of the tensors.
    Renames,
    /// Checkpoints to sum.
    Sum,
    /// Adapters to merge.
    Merge,
    /// Numbers of quantized weights.
    Dequantize,
    /// Dtypes of the tensors.
    Casts,
    /// Architecture or hyperparameters of the model.
    Model,
}

fn foreign_text(kind: ForeignKind) -> &'static str {
    match kind {
        ForeignKind::Onnx => "ONNX graphs are exported from a model's code",
        ForeignKind::Graph => "programs with a graph are exported from a model's code",
        ForeignKind::NumPy => "arrays of NumPy are not an output",
        ForeignKind::Hdf5 => "HDF5 files are not an output",
        ForeignKind::Pickle => "a pickle alone is not an output",
    }
}
