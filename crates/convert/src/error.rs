//! Problems of conversions.
//!
//! Each text is complete without the place of the error. The program that prints it adds the remedy.

use std::path::{Path, PathBuf};

use byte_source::{Error, Place, details};
use tensor::Dtype;

/// Reasons for which an input cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// TorchScript code to be kept uses an operator or a class that the options do not allow.
    #[error("its code in {record} uses `{operator}`, which {}", if *is_dangerous { "can read or write files" } else { "is not known" })]
    DisallowedOperator {
        /// Name of the record with the code.
        record: String,
        /// Name of the operator or class.
        operator: String,
        /// True if the operator can read or write files, or call into Python; false if it is unknown.
        is_dangerous: bool,
    },
    /// Views repeat the bytes of their storages, so the output would be many times as large as the input.
    #[error(
        "the output would have {output} bytes, and the input has {input}: more than {factor} times as many"
    )]
    Expansion {
        /// Bytes of the inputs.
        input: u64,
        /// Bytes of the output.
        output: u64,
        /// Maximum factor.
        factor: u64,
    },
    /// A file has only one rank's part of a tensor.
    #[error("`{}` is {what}, not the whole tensor", name.escape_debug())]
    RankPart {
        name: String,
        /// Description of the part, with its article.
        what: String,
    },
    /// The output has no place for quantized weights, and the options do not ask for their numbers.
    #[error("its weights are quantized with {method}: {reason}")]
    QuantizedInput {
        /// Method, in the names of `transformers`.
        method: String,
        /// What the output cannot represent.
        reason: Error,
    },
    /// The tensors do not match the model that the documents or the options describe.
    #[error("{reason}")]
    Model {
        /// Path that the user gave for the checkpoint.
        root: PathBuf,
        reason: Error,
    },
    /// The module would only return its tensors, and the options require a model that runs.
    #[error("it is not a model that runs: {}", no_model_reason_text(why.as_ref()))]
    NotAModel {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
    /// The module would only return its tensors, and the options ask for blocks, which decoders have.
    #[error("it is not a decoder, whose matrices q8_0 is for: {why}")]
    NothingToQuantize { why: decoder::NoModelReason },
    /// The module would only return its tensors, and Triton needs a model that runs.
    #[error("it is not a model that runs, and Triton needs one: {}", no_model_reason_text(why.as_ref()))]
    NothingToServe {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
    /// The input is a TorchScript module whose code is not kept, and Triton needs a model that runs.
    #[error("it is a TorchScript module, and its code cannot be kept: {}", script_reason_text(why.as_ref()))]
    ScriptToServe {
        /// Reason; `None` if the options change tensors.
        why: Option<torchscript::Uncallable>,
    },
    /// The input is a TorchScript module, and a program that reads the output has its own code for each model.
    #[error(
        "it is a TorchScript module, whose code llama.cpp does not run, and no config.json says what model its tensors are"
    )]
    ScriptForLlamaCpp,
    /// Triton takes the number at the end of an output's name for the index of the output.
    #[error("Triton takes the number at the end of the output name `{}` for the index of an output", name.escape_debug())]
    TritonOutputNumber { name: String },
    /// The module would only return its tensors, and self tests need a model that runs.
    #[error("it is not a model that runs, so there is nothing to test: {}", no_model_reason_text(why.as_ref()))]
    NothingToTest {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
    /// The input is a TorchScript module that keeps its code, and self tests need a decoder.
    #[error(
        "only decoders have self tests, and it is a TorchScript module, whose code PyTorch or Carton runs"
    )]
    ScriptToTest,
    /// The logits of a self test cannot be computed.
    #[error("cannot compute the logits of the self test: {0}")]
    Logits(Error),
    /// The module of a carton only returns its tensors, and Triton needs a model that runs.
    #[error("its module returns tensors by name, and Triton needs a model that runs")]
    CartonOfWeights,
    /// The module of a carton was not written by this program.
    #[error("its model is a TorchScript module with its own code, not a decoder{}", differing_code(record))]
    ForeignModule {
        /// Name of a record that differs.
        record: String,
    },
    /// Triton's PyTorch backend has no data type for an input or output.
    #[error("`{}`: Triton's PyTorch backend has no {dtype}", name.escape_debug())]
    TritonPort {
        /// Name of the input or output.
        name: String,
        dtype: Dtype,
    },
    /// Options for calling a module are given, and its code does not run.
    #[error("its code does not run: {why}")]
    NotScript { why: torchscript::Uncallable },
    /// Carton has no data type for a tensor.
    #[error("tensor `{}`: Carton has no {dtype}", name.escape_debug())]
    Port {
        /// Name of the tensor.
        name: String,
        dtype: Dtype,
    },
    /// A TOML file cannot be parsed.
    #[error("{}{place}: {message}", path.display())]
    Toml {
        path: PathBuf,
        /// Position as `:LINE:COLUMN`, or empty.
        place: String,
        /// Message of the parser.
        message: String,
    },
    /// The output's format cannot represent some of the tensors.
    #[error("{format} cannot hold {}", unsupported_tensors_text(tensors, *count))]
    UnsupportedTensors {
        /// Format of the output, as the start of a sentence.
        format: &'static str,
        /// True if `torch.save` can write all of these tensors.
        torch_can: bool,
        /// Names of the first tensors, with their dtypes or layouts.
        tensors: Vec<(String, String)>,
        /// Number of all such tensors.
        count: usize,
    },
    /// The tokenizer of a model for llama.cpp does not encode a text.
    #[error("its pre-tokenizer cannot be named: {reason}")]
    PreTokenizer { reason: String },
    /// A file is not the statement of a conversion.
    #[error("it is not the statement of a conversion: {reason}")]
    Statement { reason: String },
    /// Nothing has the name or the bytes of an input that a statement lists.
    #[error("no file has the SHA-256 {sha256} of the input `{}`", name.escape_debug())]
    StatementInput { name: String, sha256: String },
    /// Another version of the program made the output of a statement.
    #[error("torch2carton {version} made the output, and this is {}", env!("CARGO_PKG_VERSION"))]
    StatementVersion { version: String },
    /// The output folder contains a model file that is not part of the output.
    #[error("{} is not part of this output, and programs might read it instead", path.display())]
    OtherModelInFolder { path: PathBuf },
}

details! {
    Problem => Problem::place {
        Option: Expansion, NotScript;
        Input: DisallowedOperator, RankPart, NotAModel, NothingToQuantize, NothingToServe, ScriptToServe, ScriptForLlamaCpp, TritonOutputNumber, NothingToTest, ScriptToTest,
            CartonOfWeights, ForeignModule, Toml, OtherModelInFolder, Statement, StatementInput;
        Unsupported: StatementVersion, TritonPort, Port, UnsupportedTensors, PreTokenizer;
        [0]: Logits;
        [reason]: QuantizedInput, Model;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::Toml { path, .. } | Self::OtherModelInFolder { path } => Place::file(path),
            Self::Model { reason, .. } | Self::QuantizedInput { reason, .. } => reason.location(),
            Self::Port { name, .. } | Self::RankPart { name, .. } => Place::tensor(name),
            _ => Place::default(),
        }
    }
}

/// Adds the path of its file to an error.
pub(crate) fn at<E: Into<Error>>(path: &Path) -> impl Fn(E) -> Error + '_ {
    move |error| error.into().in_file(path)
}

/// Lists tensors with their dtypes or layouts, such as `a` (complex128), `b` (nested) and 3 more.
pub(crate) fn unsupported_tensors_text(tensors: &[(String, String)], count: usize) -> String {
    let named = tensors.iter().map(|(name, what)| format!("`{}` ({what})", name.escape_debug()));
    let named = named.collect::<Vec<_>>().join(", ");
    match count.saturating_sub(tensors.len()) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Formats the reason for which a module only returns its tensors.
fn no_model_reason_text(why: Option<&decoder::NoModelReason>) -> String {
    why.map_or_else(|| "weights were asked for".to_owned(), ToString::to_string)
}

/// Formats the reason for which the code of a TorchScript module is not kept.
fn script_reason_text(why: Option<&torchscript::Uncallable>) -> String {
    why.map_or_else(|| "the options change its tensors".to_owned(), ToString::to_string)
}

/// Returns a clause about the record that differs, if it is source text. The object of a converted module always differs.
fn differing_code(record: &str) -> String {
    let is_code = record.starts_with("code/");
    if is_code {
        format!(": conversions do not write its record `{}`", record.escape_debug())
    } else {
        String::new()
    }
}
