//! Why something cannot be inspected, scanned or converted.
//!
//! The texts are whole: they contain their causes, and say what is wrong. The program that prints them adds what can
//! be done about it.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Changed, Damaged, ErrorKind, NotRepresentable, ReadError};
use carton_format::Problems;
use pickle_vm::trace::TraceError;
use tensor::{Dtype, Tensors};

use crate::InvalidOption;
use crate::error_text::{damaged_text, key_list, unsupported, why_weights, with_path, with_tensors_under};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something cannot be inspected, scanned or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The observer stopped the work.
    #[error("stopped")]
    Cancelled,
    /// A path does not name a checkpoint.
    #[error("{0}")]
    Sources(#[source] checkpoint_files::Error),
    /// A file cannot be found or written.
    #[error("{0}")]
    Store(#[source] output::Error),
    /// An option has a value that it cannot have.
    #[error("{0}")]
    Option(InvalidOption),
    /// Something is wrong with one file.
    #[error("{}: {reason}", path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        reason: Box<Error>,
    },
    /// A file cannot be read.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// A file cannot be mapped.
    #[error("{0}")]
    Map(byte_source::Error),
    /// The output cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// The folder for outputs cannot be created.
    #[error("cannot create {}: {reason}", path.display())]
    CreateFolder {
        /// The folder.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// An input cannot be read while the output is written.
    #[error("cannot read the inputs of {}: {reason}", path.display())]
    Read {
        /// The output.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// An input changed while the output was written.
    #[error("{0}")]
    Changed(Changed),
    /// The bytes of a tensor do not have the checksum that the file gives.
    #[error("{}", damaged_text(.0))]
    Damaged(Damaged),
    /// The elements of a tensor cannot be read.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    ReadTensor {
        /// The tensor.
        name: String,
        /// What the system reported.
        reason: io::Error,
    },
    /// A pickle names a global that can run code, and the options do not allow that.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which can run code where Python loads it")]
    Dangerous {
        /// The global.
        global: String,
        /// Where the pickle names it, in bytes from the pickle's start.
        offset: u64,
    },
    /// A pickle names a global that is not known, and the options do not allow that.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which is not known")]
    Unknown {
        /// The global.
        global: String,
        /// Where the pickle names it, in bytes from the pickle's start.
        offset: u64,
    },
    /// Code that would be kept uses an operator or a class that the options do not allow.
    #[error("its code in {record} uses `{operator}`, which {}", if *is_dangerous { "can read or write files" } else { "is not known" })]
    Code {
        /// The record.
        record: String,
        /// The operator or class.
        operator: String,
        /// Whether it can read or write files, or call into Python. It is unknown otherwise.
        is_dangerous: bool,
    },
    /// There is not a single tensor in the checkpoint.
    #[error("it contains no tensors")]
    NoTensors,
    /// No tensor is under the key, or the patterns exclude all of them.
    #[error("no tensor is under `{key}`, or the patterns exclude them all{}", with_tensors_under(under))]
    NothingUnder {
        /// The key.
        key: String,
        /// The first keys of the root that have tensors.
        under: Vec<String>,
    },
    /// The patterns exclude every tensor.
    #[error("the patterns exclude every tensor")]
    NothingLeft,
    /// No name begins with the prefix that is to be removed.
    #[error("no tensor that is kept has a name that begins with `{prefix}`")]
    NoSuchPrefix {
        /// The prefix.
        prefix: String,
    },
    /// A regular expression for names matches none of them.
    #[error("no tensor that is kept has a name that matches `{pattern}`")]
    NothingRenamed {
        /// The expression.
        pattern: String,
    },
    /// A name would be empty.
    #[error("`{}` would have no name", name.escape_debug())]
    EmptyName {
        /// The name that the tensor has.
        name: String,
    },
    /// Two tensors would have the same name.
    #[error(
        "`{}` and `{}` would both be called `{}`",
        first.escape_debug(),
        second.escape_debug(),
        name.escape_debug()
    )]
    SameName {
        /// The name that both would have.
        name: String,
        /// The name that one of them has.
        first: String,
        /// The name that the other one has.
        second: String,
    },
    /// Several keys of the root hold weights.
    #[error("several keys hold weights: {}", key_list(keys))]
    SeveralKeys {
        /// The keys, the number of tensors under each, and their bytes.
        keys: Vec<(String, u64, u64)>,
    },
    /// A tensor cannot have the dtype that it should have.
    #[error("tensor `{}`: {from} cannot be cast to {to}", name.escape_debug())]
    CannotCast {
        /// The tensor.
        name: String,
        /// Its dtype.
        from: Dtype,
        /// The other dtype.
        to: Dtype,
    },
    /// A float has no integer that it could become.
    #[error("{0}")]
    NotRepresentable(NotRepresentable),
    /// A selected tensor has no data.
    #[error("tensor `{name}` has no data: it is {what}")]
    NoData {
        /// The tensor.
        name: String,
        /// What it is instead, with its article.
        what: String,
    },
    /// The tensors cannot become a module.
    #[error("{0}")]
    Module(#[source] Box<torchscript::Error>),
    /// The tensors are not the model that the documents or the options describe.
    #[error("{}", with_path(path, reason))]
    Model {
        /// The checkpoint, or the document that is wrong.
        path: PathBuf,
        /// What the user named for the checkpoint.
        root: PathBuf,
        /// What is wrong.
        reason: Box<decoder::Error>,
    },
    /// The tensors are not a model that has the names that were asked for.
    #[error("{}", with_path(path, reason))]
    Names {
        /// The checkpoint, or the document that is wrong.
        path: PathBuf,
        /// What is wrong.
        reason: Box<decoder::Error>,
    },
    /// The checkpoint becomes weights, and the options require a model.
    #[error("it is not a model that runs: {}", why_weights(why.as_ref()))]
    NotAModel {
        /// Why not; `None` if weights were asked for.
        why: Option<decoder::WhyWeights>,
    },
    /// The checkpoint becomes weights, and only a model can be served.
    #[error("it is not a model that runs, and Triton needs one: {}", why_weights(why.as_ref()))]
    NothingToServe {
        /// Why not; `None` if weights were asked for.
        why: Option<decoder::WhyWeights>,
    },
    /// The input is a TorchScript module that no conversion wrote, and only models are described for Triton.
    #[error(
        "it is a TorchScript module with code of its own, and a configuration for Triton is only written for language models"
    )]
    ScriptToServe,
    /// The checkpoint becomes weights, and only a model has something to test.
    #[error("it is not a model that runs, so there is nothing to test: {}", why_weights(why.as_ref()))]
    NothingToTest {
        /// Why not; `None` if weights were asked for.
        why: Option<decoder::WhyWeights>,
    },
    /// The checkpoint is a TorchScript module that keeps its code, and only decoders have self tests.
    #[error(
        "it is not a model that runs, so there is nothing to test: only decoders have self tests, and it is a TorchScript module"
    )]
    ScriptToTest,
    /// The logits of a self test cannot be computed.
    #[error("cannot compute the logits of the self test: {0}")]
    Logits(Box<forward::Error>),
    /// A carton cannot be read.
    #[error("{0}")]
    ReadCarton(Box<carton_reader::Error>),
    /// A carton returns its tensors, and only a model can be served.
    #[error("its module returns tensors by name, and Triton needs a model that runs")]
    PackedWeights,
    /// The module of a carton is not one that this program writes.
    #[error("its module is not one that conversions write: the record `{}` differs", record.escape_debug())]
    OtherModule {
        /// A record that differs.
        record: String,
    },
    /// An input or output that Triton's PyTorch backend cannot describe.
    #[error("`{}`: Triton's PyTorch backend has no {dtype}", name.escape_debug())]
    TritonPort {
        /// Its name.
        name: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// How a module is called was given, and its code does not run.
    #[error("its code does not run: {why}")]
    NotScript {
        /// Why not.
        why: torchscript::Uncallable,
    },
    /// A tensor that Carton cannot describe.
    #[error("tensor `{}`: Carton has no {dtype}", name.escape_debug())]
    Port {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: tensor::Dtype,
    },
    /// A document does not follow Carton's specification.
    #[error("{}: {}", path.display(), crate::problems(problems.0.len()))]
    Document {
        /// The file that has the problems.
        path: PathBuf,
        /// The problems.
        problems: Problems,
    },
    /// A document of the carton cannot be made.
    #[error("{0}")]
    Format(carton_format::Error),
    /// A TOML file cannot be parsed.
    #[error("{}{place}: {message}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// `:LINE:COLUMN`, or nothing.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// A pickle cannot be traced.
    #[error("{0}")]
    Checkpoint(torch_import::Error),
    /// A pickle cannot be read.
    #[error("{0}")]
    Pickle(pickle_vm::Error),
    /// A listing cannot be rendered.
    #[error("{0}")]
    Listing(pickle_vm::trace::TraceError),
    /// What the caller gave for output cannot be written.
    #[error("cannot write the listing: {0}")]
    Output(#[source] io::Error),
    /// Safetensors cannot hold some of the tensors.
    #[error("safetensors cannot hold {}", unsupported(tensors, *count))]
    NoSafetensors {
        /// The first of them: names, and dtypes or layouts.
        tensors: Vec<(String, String)>,
        /// How many there are.
        count: usize,
    },
    /// Tensors of several parts, in a checkpoint of plain tensors.
    #[error("a checkpoint of plain tensors cannot hold {}", unsupported(tensors, *count))]
    NotPlain {
        /// The first of them: names, and dtypes or layouts.
        tensors: Vec<(String, String)>,
        /// How many there are.
        count: usize,
    },
    /// A checkpoint cannot be laid out.
    #[error("{0}")]
    TorchSave(torch_save::Error),
    /// The folder for safetensors files has one that would stay.
    #[error("{} is not part of this output, and programs might read it instead", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
    },
    /// A safetensors file cannot be laid out.
    #[error("{0}")]
    Safetensors(safetensors_format::Error),
    /// Files of the carton cannot be put together.
    #[error("{0}")]
    Carton(carton_writer::Error),
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Changed(_) => ErrorKind::Changed,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::Sources(reason) => reason.kind(),
            Self::Store(reason) => reason.kind(),
            Self::At { reason, .. } => reason.kind(),
            Self::Map(reason) => reason.kind(),
            Self::Module(reason) => reason.kind(),
            Self::Model { reason, .. } | Self::Names { reason, .. } => reason.kind(),
            Self::Logits(reason) => reason.kind(),
            Self::ReadCarton(reason) => reason.kind(),
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
            Self::Option(_)
            | Self::NothingUnder { .. }
            | Self::NothingLeft
            | Self::NoSuchPrefix { .. }
            | Self::NothingRenamed { .. }
            | Self::EmptyName { .. }
            | Self::SameName { .. }
            | Self::CannotCast { .. }
            | Self::NotRepresentable(_)
            | Self::NotScript { .. } => ErrorKind::Option,
            Self::Dangerous { .. }
            | Self::Unknown { .. }
            | Self::Code { .. }
            | Self::NoTensors
            | Self::SeveralKeys { .. }
            | Self::NoData { .. }
            | Self::NotAModel { .. }
            | Self::NothingToServe { .. }
            | Self::ScriptToServe
            | Self::NothingToTest { .. }
            | Self::ScriptToTest
            | Self::PackedWeights
            | Self::OtherModule { .. }
            | Self::Document { .. }
            | Self::Toml { .. }
            | Self::OtherModel { .. } => ErrorKind::Input,
            Self::TritonPort { .. }
            | Self::Port { .. }
            | Self::NoSafetensors { .. }
            | Self::NotPlain { .. } => ErrorKind::Unsupported,
            Self::Pickle(reason) | Self::Listing(TraceError::Pickle(reason)) => {
                torch_import::pickle_kind(reason)
            }
            Self::Listing(_) => ErrorKind::Io,
        }
    }
}

impl Error {
    /// The error at a file.
    pub fn at(path: &Path) -> impl FnOnce(Self) -> Self {
        move |reason| Self::At { path: path.to_owned(), reason: Box::new(reason) }
    }

    /// The error of a read, which names the file that changed or is damaged, or the tensor that cannot be cast. `other`
    /// is the error where only the system says why.
    pub fn of_read<E: From<Self>>(reason: ReadError, other: impl FnOnce(io::Error) -> E) -> E {
        let error = match reason {
            ReadError::Changed(changed) => Self::Changed(changed),
            ReadError::Damaged(damaged) => Self::Damaged(damaged),
            ReadError::NotRepresentable(number) => Self::NotRepresentable(number),
            ReadError::Cancelled(_) => Self::Cancelled,
            reason => return other(reason.into()),
        };
        error.into()
    }

    /// The error, with the first of `tensors` that a damaged storage is of.
    #[must_use]
    pub(crate) fn with_tensor(self, tensors: &Tensors) -> Self {
        match self {
            Self::Damaged(damaged) if damaged.tensor.is_none() => {
                let first = tensors.iter().find(|(_, tensor)| tensor.storage().reads_record(&damaged));
                Self::Damaged(Damaged { tensor: first.map(|(name, _)| name.clone()), ..damaged })
            }
            error => error,
        }
    }

    /// The error without the file that it is about.
    pub fn reason(&self) -> &Self {
        match self {
            Self::At { reason, .. } => reason.reason(),
            error => error,
        }
    }
}

impl From<checkpoint_files::Error> for Error {
    fn from(error: checkpoint_files::Error) -> Self {
        match error {
            checkpoint_files::Error::Set { reason, .. }
                if matches!(*reason, torch_import::Error::Cancelled(_)) =>
            {
                Self::Cancelled
            }
            error => Self::Sources(error),
        }
    }
}

impl From<output::Error> for Error {
    fn from(error: output::Error) -> Self {
        match error {
            output::Error::Cancelled(_) => Self::Cancelled,
            error => Self::Store(error),
        }
    }
}

impl From<InvalidOption> for Error {
    fn from(error: InvalidOption) -> Self {
        Self::Option(error)
    }
}

impl From<carton_format::Error> for Error {
    fn from(error: carton_format::Error) -> Self {
        Self::Format(error)
    }
}
