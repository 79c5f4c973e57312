//! What is wrong with the value of an option.
//!
//! The texts name no flags: a caller may not have any.

use std::path::PathBuf;

use tensor::Dtype;

use crate::{CastFrom, ForeignKind};

/// What is wrong with the value of an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// No input was given.
    #[error("no input was given")]
    NoInput,
    /// How a module is called was given, and there is none whose code is kept.
    #[error("there is no TorchScript module whose code is kept, so nothing is called")]
    NoScript,
    /// A model's name is empty.
    #[error("the name of a model cannot be empty")]
    EmptyName,
    /// The name of a model for Triton is the name of a folder.
    #[error("`{}` cannot be the name of a model for Triton, because it cannot be the name of a folder", name.escape_debug())]
    TritonName {
        /// The name.
        name: String,
    },
    /// The short description is too long for Carton.
    #[error("{0}")]
    ShortDescription(String),
    /// A pattern for names cannot be parsed.
    #[error("`{pattern}` is not a pattern: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A regular expression for names cannot be parsed.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Regex {
        /// The expression.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A replacement in names uses a group that its expression does not have.
    #[error("the replacement for `{pattern}` uses a group `{group}` that it does not have")]
    NoGroup {
        /// The expression.
        pattern: String,
        /// The group, a number or a name.
        group: String,
    },
    /// A file to keep has the name of another one.
    #[error("two files are called {name}")]
    MiscTwice {
        /// The name.
        name: String,
    },
    /// A file to keep does not exist.
    #[error("the file {} does not exist", path.display())]
    MiscMissing {
        /// Its path.
        path: PathBuf,
    },
    /// The folder for outputs is something else.
    #[error("{} is not a folder", path.display())]
    NotAFolder {
        /// Its path.
        path: PathBuf,
    },
    /// The folder for models is the folder of one of them.
    #[error("{} is the folder of a model, because it has a config.pbtxt, and not a repository of models", path.display())]
    NotARepository {
        /// Its path.
        path: PathBuf,
    },
    /// The extension of the output is that of a format which this crate does not write.
    #[error("{} cannot be written: {}", path.display(), foreign_text(*kind))]
    ForeignOutput {
        /// The output.
        path: PathBuf,
        /// The format.
        kind: ForeignKind,
    },
    /// The model of a carton cannot be changed any more.
    #[error("a model that is already converted is used as it is")]
    AlreadyConverted {
        /// What the options would change.
        change: Change,
    },
    /// Two inputs would be converted into the same file.
    #[error("{} and {} would both become {}", first.display(), second.display(), output.display())]
    SameOutput {
        /// The file.
        output: PathBuf,
        /// One input.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// The name of a file to keep is not UTF-8.
    #[error("the name of {} is not UTF-8", path.display())]
    MiscName {
        /// Its path.
        path: PathBuf,
    },
    /// Numbers of a dtype cannot become those of another.
    #[error("{from} cannot be cast to {to}")]
    CannotCast {
        /// The dtype.
        from: Dtype,
        /// The other dtype.
        to: Dtype,
    },
    /// Every float should become something else.
    #[error("{dtype} is not a floating-point dtype that tensors can be cast to")]
    NotFloatingPoint {
        /// The dtype.
        dtype: Dtype,
    },
    /// Two casts are about the same tensors.
    #[error("{from} is given twice")]
    CastTwice {
        /// Which tensors.
        from: CastFrom,
    },
    /// An architecture that has no forward here.
    #[error("the architecture `{name}` is not supported")]
    Architecture {
        /// Its name.
        name: String,
    },
}

/// A change that options make to the tensors of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The selection of tensors.
    Selection,
    /// Their names.
    Names,
    /// The model that the tensors are.
    Model,
}

fn foreign_text(kind: ForeignKind) -> &'static str {
    match kind {
        ForeignKind::Gguf => "GGUF files are made by llama.cpp",
        ForeignKind::Onnx => "ONNX graphs are exported from a model's code",
    }
}
