//! Errors of inspecting, scanning, tracing and converting checkpoints.
//!
//! Each text is complete: it contains the text of its cause, and describes the problem. The program that prints it adds the
//! remedy.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{ErrorKind, FileChanged, NotRepresentable, ReadError, RecordDamaged};
use carton_format::{Carton, MODEL_PT, Problems};
use pickle_vm::trace::TraceError;
use tensor::{Dtype, Tensors};

use crate::error_text::{
    damaged_text, key_list, no_model_reason_text, script_reason_text, unsupported_tensors_text, with_path,
    with_similar, with_tensors_under,
};
use crate::{AdapterOverview, InvalidOption};

/// Result type with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons for which a checkpoint cannot be inspected, scanned, traced or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The observer stopped the work.
    #[error("stopped")]
    Cancelled,
    /// A path does not name a checkpoint.
    #[error("{0}")]
    InputFiles(#[source] checkpoint_files::Error),
    /// A file cannot be found or written.
    #[error("{0}")]
    OutputFile(#[source] output::Error),
    /// An option has an invalid value.
    #[error("{0}")]
    Option(InvalidOption),
    /// Error in a file, with the path of the file.
    #[error("{}: {reason}", path.display())]
    AtPath {
        path: PathBuf,
        #[source]
        reason: Box<Error>,
    },
    /// A file cannot be read.
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: io::Error },
    /// A file cannot be mapped.
    #[error("{0}")]
    Map(byte_source::Error),
    /// The output cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: io::Error },
    /// The folder for outputs cannot be created.
    #[error("cannot create {}: {reason}", path.display())]
    CreateFolder { path: PathBuf, reason: io::Error },
    /// An input cannot be read while the output is written.
    #[error("cannot read the inputs of {}: {reason}", path.display())]
    Read {
        /// Output whose inputs were read.
        path: PathBuf,
        reason: io::Error,
    },
    /// A path that should be merged has no adapter.
    #[error(
        "{}: no adapter_config.json with adapter_model.safetensors or adapter_model.bin was found; expected the folder that \
         save_pretrained of peft writes",
        path.display()
    )]
    NoAdapter { path: PathBuf },
    /// The input is an adapter, which has no weights of its base.
    #[error(
        "{}: this is an adapter{}, and not a model",
        path.display(),
        overview.base.as_ref().map_or_else(String::new, |base| format!(" for {base}"))
    )]
    AdapterAlone { path: PathBuf, overview: Box<AdapterOverview> },
    /// An adapter cannot be merged, or a checkpoint cannot be summed.
    #[error("{0}")]
    Adapter(#[source] Box<adapter::FileError>),
    /// An input changed while the output was written.
    #[error("{0}")]
    Changed(FileChanged),
    /// The checksum of a tensor's bytes differs from the one stored in the file.
    #[error("{}", damaged_text(.0))]
    Damaged(RecordDamaged),
    /// The elements of a tensor cannot be read.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    ReadTensor {
        /// Name of the tensor.
        name: String,
        reason: io::Error,
    },
    /// A pickle names a global that can run code, and the options do not allow such globals.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which can run code where Python loads it")]
    DangerousGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
    },
    /// A pickle names an unknown global, and the options do not allow such globals.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which is not known")]
    UnknownGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
    },
    /// A pickle uses a global of the standard library, torch or numpy in a way that nobody has judged, and the options do
    /// not allow that.
    #[error(
        "its pickle names `{global}` at offset 0x{offset:x}, which {use_text}: nobody has judged what that runs"
    )]
    UnreviewedGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
        /// Use that was not judged, as the end of a sentence about the global.
        use_text: &'static str,
    },
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
    /// The checkpoint contains no tensors.
    #[error("it contains no tensors")]
    NoTensors,
    /// The patterns match neither a tensor nor a value.
    #[error("the patterns select none of its tensors and values")]
    NoNameMatches,
    /// No tensor or value has a requested name.
    #[error("it has no tensor or value named `{}`{}", name.escape_debug(), with_similar(similar.as_deref()))]
    NoSuchName {
        name: String,
        /// Most similar name of a tensor or value.
        similar: Option<String>,
    },
    /// A tensor cannot be shown or written as an array.
    #[error("tensor `{}` {reason}", name.escape_debug())]
    Array {
        name: String,
        #[source]
        reason: crate::ArrayError,
    },
    /// No tensor is under the key, or the patterns exclude all of them.
    #[error("no tensor is under `{key}`, or the patterns exclude them all{}", with_tensors_under(under))]
    NoTensorsUnderKey {
        key: String,
        /// First keys of the root dict that contain tensors.
        under: Vec<String>,
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
    /// Views repeat the bytes of their storages, so hashing them would read many times the input.
    #[error(
        "the tensors have {nbytes} bytes, because views repeat bytes: more than {allowed}, the limit for this input"
    )]
    DigestExpansion {
        /// Bytes of the tensors.
        nbytes: u64,
        /// Largest number of bytes.
        allowed: u64,
    },
    /// The patterns exclude every tensor.
    #[error("the patterns exclude every tensor")]
    AllTensorsExcluded,
    /// No name of a selected tensor begins with the prefix to remove.
    #[error("no tensor that is kept has a name that begins with `{prefix}`")]
    NoSuchPrefix { prefix: String },
    /// A regular expression matches none of the tensor names.
    #[error("no tensor that is kept has a name that matches `{pattern}`")]
    NothingRenamed { pattern: String },
    /// A renamed tensor would have an empty name.
    #[error("`{}` would have no name", name.escape_debug())]
    EmptyName {
        /// Name of the tensor before renaming.
        name: String,
    },
    /// Two renamed tensors would have the same name.
    #[error(
        "`{}` and `{}` would both be called `{}`",
        first.escape_debug(),
        second.escape_debug(),
        name.escape_debug()
    )]
    SameName {
        /// Common name after renaming.
        name: String,
        /// Name of the first tensor before renaming.
        first: String,
        /// Name of the second tensor before renaming.
        second: String,
    },
    /// Several keys of the root dict contain weights.
    #[error("several keys hold weights: {}", key_list(keys))]
    SeveralKeys {
        /// Name, number of tensors, and number of tensor bytes of each key.
        keys: Vec<(String, u64, u64)>,
    },
    /// The dtype of a tensor cannot be cast to the requested one.
    #[error("tensor `{}`: {from} cannot be cast to {to}", name.escape_debug())]
    CannotCast {
        /// Name of the tensor.
        name: String,
        from: Dtype,
        to: Dtype,
    },
    /// An element has no representation in the new dtype, such as a float outside the range of an integer.
    #[error("{0}")]
    NotRepresentable(NotRepresentable),
    /// A selected tensor has no data.
    #[error("tensor `{name}` has no data: it is {what}")]
    NoData {
        /// Name of the tensor.
        name: String,
        /// Kind of the tensor with its article.
        what: String,
    },
    /// The numbers of quantized weights cannot be computed.
    #[error("{0}")]
    Quantization(#[source] quantization::Error),
    /// The output has no place for quantized weights, and the options do not ask for their numbers.
    #[error("its weights are quantized with {method}: {reason}")]
    QuantizedInput {
        /// Method, in the names of `transformers`.
        method: String,
        /// What the output cannot represent.
        reason: Box<Error>,
    },
    /// The tensors cannot be converted into a module.
    #[error("{0}")]
    Module(#[source] Box<torchscript::Error>),
    /// The tensors do not match the model that the documents or the options describe.
    #[error("{}", with_path(path, reason))]
    Model {
        /// Path of the checkpoint, or of the wrong document.
        path: PathBuf,
        /// Path that the user gave for the checkpoint.
        root: PathBuf,
        reason: Box<decoder::Error>,
    },
    /// The tensors cannot be translated into the requested layout.
    #[error("{}", with_path(path, reason))]
    LayoutTranslation {
        /// Path of the checkpoint, or of the wrong document.
        path: PathBuf,
        reason: Box<decoder::Error>,
    },
    /// The module would only return its tensors, and the options require a model that runs.
    #[error("it is not a model that runs: {}", no_model_reason_text(why.as_ref()))]
    NotAModel {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
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
    Logits(Box<forward::Error>),
    /// A carton cannot be read.
    #[error("{0}")]
    ReadCarton(Box<carton_format::Error>),
    /// The model in a carton cannot be read.
    #[error("`{}`: {reason}", path.escape_debug())]
    CartonModel {
        /// Path of the model in the carton.
        path: String,
        reason: Box<torch_import::Error>,
    },
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
        dtype: tensor::Dtype,
    },
    /// A document violates Carton's specification.
    #[error("{}: {}", path.display(), problems.count_text())]
    Document {
        /// File that contains the problems.
        path: PathBuf,
        problems: Problems,
    },
    /// A document of the carton cannot be written.
    #[error("{0}")]
    Format(carton_format::Error),
    /// A TOML file cannot be parsed.
    #[error("{}{place}: {message}", path.display())]
    Toml {
        path: PathBuf,
        /// Position as `:LINE:COLUMN`, or empty.
        place: String,
        /// Message of the parser.
        message: String,
    },
    /// A checkpoint cannot be parsed.
    #[error("{0}")]
    Checkpoint(torch_import::Error),
    /// A pickle cannot be parsed.
    #[error("{0}")]
    Pickle(pickle_vm::Error),
    /// A listing cannot be rendered.
    #[error("{0}")]
    Listing(pickle_vm::trace::TraceError),
    /// The caller's writer returned an error.
    #[error("cannot write the listing: {0}")]
    Output(#[source] io::Error),
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
    /// A PyTorch checkpoint cannot be laid out.
    #[error("{0}")]
    TorchSave(torch_save::Error),
    /// The output folder contains a model file that is not part of the output.
    #[error("{} is not part of this output, and programs might read it instead", path.display())]
    OtherModelInFolder { path: PathBuf },
    /// A safetensors file cannot be laid out.
    #[error("{0}")]
    Safetensors(safetensors_format::Error),
    /// The files do not form a valid carton.
    #[error("{0}")]
    Carton(carton_writer::Error),
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

impl Error {
    /// Converts errors of the reader while it reads the carton at `path`.
    pub(crate) fn from_carton(path: &Path) -> impl Fn(carton_format::Error) -> Self + '_ {
        use carton_format::Error as Reader;
        move |error| match error {
            Reader::Changed(changed) => Self::Changed(changed),
            Reader::Cancelled(_) => Self::Cancelled,
            Reader::Document(problems) => Self::Document { path: path.to_owned(), problems },
            // These name the file.
            error @ (Reader::Map(_) | Reader::Io { .. }) => Self::ReadCarton(Box::new(error)),
            error => Self::at(path)(Self::ReadCarton(Box::new(error))),
        }
    }

    /// Converts an error of reading the model in a carton.
    pub(crate) fn carton_model(carton: &Carton, reason: torch_import::Error) -> Self {
        let reason = Self::CartonModel { path: MODEL_PT.to_owned(), reason: Box::new(reason) };
        Self::at(carton.path())(reason)
    }

    /// Returns the category of the error, by which a caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Changed(_) => ErrorKind::Changed,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::InputFiles(reason) => reason.kind(),
            Self::OutputFile(reason) => reason.kind(),
            Self::AtPath { reason, .. } | Self::QuantizedInput { reason, .. } => reason.kind(),
            Self::Map(reason) => reason.kind(),
            Self::Quantization(reason) => reason.kind(),
            Self::Module(reason) => reason.kind(),
            Self::Model { reason, .. } | Self::LayoutTranslation { reason, .. } => reason.kind(),
            Self::Logits(reason) => reason.kind(),
            Self::ReadCarton(reason) => reason.kind(),
            Self::CartonModel { reason, .. } => reason.kind(),
            Self::Format(reason) => reason.kind(),
            Self::Checkpoint(reason) => reason.kind(),
            Self::TorchSave(reason) => reason.kind(),
            Self::Safetensors(reason) => reason.kind(),
            Self::Carton(reason) => reason.kind(),
            Self::Io { reason, .. }
            | Self::Write { reason, .. }
            | Self::CreateFolder { reason, .. }
            | Self::Read { reason, .. }
            | Self::ReadTensor { reason, .. }
            | Self::Output(reason) => reason.into(),
            Self::Adapter(error) => error.reason.kind(),
            Self::Option(_)
            | Self::NoTensorsUnderKey { .. }
            | Self::NoNameMatches
            | Self::NoSuchName { .. }
            | Self::AllTensorsExcluded
            | Self::Expansion { .. }
            | Self::DigestExpansion { .. }
            | Self::NoSuchPrefix { .. }
            | Self::NothingRenamed { .. }
            | Self::EmptyName { .. }
            | Self::SameName { .. }
            | Self::CannotCast { .. }
            | Self::NotRepresentable(_)
            | Self::NotScript { .. } => ErrorKind::Option,
            Self::DangerousGlobal { .. }
            | Self::UnknownGlobal { .. }
            | Self::UnreviewedGlobal { .. }
            | Self::DisallowedOperator { .. }
            | Self::NoTensors
            | Self::NoAdapter { .. }
            | Self::AdapterAlone { .. }
            | Self::SeveralKeys { .. }
            | Self::NoData { .. }
            | Self::NotAModel { .. }
            | Self::NothingToServe { .. }
            | Self::ScriptToServe { .. }
            | Self::TritonOutputNumber { .. }
            | Self::NothingToTest { .. }
            | Self::ScriptToTest
            | Self::CartonOfWeights
            | Self::ForeignModule { .. }
            | Self::Document { .. }
            | Self::Toml { .. }
            | Self::OtherModelInFolder { .. } => ErrorKind::Input,
            Self::TritonPort { .. } | Self::Port { .. } | Self::UnsupportedTensors { .. } => {
                ErrorKind::Unsupported
            }
            Self::Pickle(reason) | Self::Listing(TraceError::Pickle(reason)) => {
                torch_import::pickle_kind(reason)
            }
            Self::Listing(_) => ErrorKind::Io,
            Self::Array { reason, .. } => match reason {
                crate::ArrayError::Read(reason) => reason.kind(),
                crate::ArrayError::Write(reason) => reason.into(),
                _ => ErrorKind::Unsupported,
            },
        }
    }
}

impl Error {
    /// Returns a function that wraps an error with the path of its file.
    pub fn at(path: &Path) -> impl FnOnce(Self) -> Self {
        move |reason| Self::AtPath { path: path.to_owned(), reason: Box::new(reason) }
    }

    /// Converts a read error. A changed or damaged file, an element that cannot be cast, and a cancellation become errors of
    /// this type; `other` converts the remaining I/O errors.
    pub fn from_read_error<E: From<Self>>(reason: ReadError, other: impl FnOnce(io::Error) -> E) -> E {
        let error = match reason {
            ReadError::Changed(changed) => Self::Changed(changed),
            ReadError::Damaged(damaged) => Self::Damaged(damaged),
            ReadError::NotRepresentable(number) => Self::NotRepresentable(number),
            ReadError::Cancelled(_) => Self::Cancelled,
            reason => return other(reason.into()),
        };
        error.into()
    }

    /// Converts an error of reading the elements of the tensor `name` of the input at `path`.
    pub fn unread_tensor(path: &Path, name: &str, reason: ReadError) -> Self {
        Self::from_read_error(reason.with_tensor(name), |reason| {
            Self::at(path)(Self::ReadTensor { name: name.to_owned(), reason })
        })
    }

    /// Converts an error of reading the input at `path`.
    pub fn unread_input(path: &Path, reason: ReadError) -> Self {
        Self::from_read_error(reason, |reason| Self::Io { path: path.to_owned(), reason })
    }

    /// Adds the name of the first tensor that reads the damaged record, if the error is about damage and names no tensor
    /// yet.
    #[must_use]
    pub fn with_tensor(self, tensors: &Tensors) -> Self {
        match self {
            Self::Damaged(damaged) if damaged.tensor.is_none() => {
                let first = tensors.iter().find(|(_, tensor)| tensor.storage().reads_record(&damaged));
                Self::Damaged(RecordDamaged { tensor: first.map(|(name, _)| name.clone()), ..damaged })
            }
            error => error,
        }
    }

    /// Returns the error without the paths that wrap it.
    pub fn reason(&self) -> &Self {
        match self {
            Self::AtPath { reason, .. } => reason.reason(),
            error => error,
        }
    }
}
