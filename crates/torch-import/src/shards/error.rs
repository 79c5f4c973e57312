//! How files fail to be one checkpoint.

use std::io;

use tensor::Dtype;

/// How files fail to be one checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// There are fewer files than the tensors were split into.
    #[error("{file} is missing: `{tensor}` was split into {of} shards, {found} are here")]
    Missing {
        /// The first file that is not there.
        file: String,
        /// The tensor that tells.
        tensor: String,
        /// How many shards there should be.
        of: u64,
        /// How many there are.
        found: u64,
    },
    /// There are more files than the tensors were split into.
    #[error("{file} is one shard too many: `{tensor}` was split into {of}")]
    Extra {
        /// The first file that should not be there.
        file: String,
        /// The tensor that tells.
        tensor: String,
        /// How many shards there should be.
        of: u64,
    },
    /// One file lacks a tensor that another one has.
    #[error("{file} has no tensor `{}`, which {other} has", tensor.escape_debug())]
    Lacks {
        /// The file without it.
        file: String,
        /// The tensor.
        tensor: String,
        /// The file with it.
        other: String,
    },
    /// Two files have different parts of a tensor.
    #[error(
        "tensor `{}` is {found_dtype} {found:?} in {file}, and {expected_dtype} {expected:?} in {other}",
        tensor.escape_debug()
    )]
    Disagree {
        /// The tensor.
        tensor: String,
        /// One file, and what it has.
        file: String,
        /// Its shape, in elements.
        found: Vec<u64>,
        /// Its dtype.
        found_dtype: Dtype,
        /// Another file, and what that has.
        other: String,
        /// Its shape, in elements.
        expected: Vec<u64>,
        /// Its dtype.
        expected_dtype: Dtype,
    },
    /// Copies of one tensor differ.
    #[error("tensor `{}` is a copy in each shard, and {file} has other values than {other}", tensor.escape_debug())]
    Copies {
        /// The tensor.
        tensor: String,
        /// One file.
        file: String,
        /// The other one.
        other: String,
    },
    /// A shape is none that a split of the model's sizes gives.
    #[error("tensor `{}` is {shape:?} in each of {of} shards: {reason}", tensor.escape_debug())]
    Split {
        /// The tensor.
        tensor: String,
        /// The shape of each part, in elements.
        shape: Vec<u64>,
        /// The number of shards.
        of: u64,
        /// What it should be.
        reason: String,
    },
    /// A tensor of another architecture.
    #[error("tensor `{}` is none of LLaMA's, and nothing says how it was split over {of} shards", tensor.escape_debug())]
    Unknown {
        /// The tensor.
        tensor: String,
        /// The number of shards.
        of: u64,
    },
    /// Two files of a set hold tensors of one name.
    #[error("{first} and {second} both hold a tensor `{}`", tensor.escape_debug())]
    Twice {
        /// The tensor.
        tensor: String,
        /// The first file.
        first: String,
        /// The second one.
        second: String,
    },
    /// An index does not say what the files hold.
    #[error("{index} says that `{}` lies in {}; {found}", tensor.escape_debug(), file.escape_debug())]
    Index {
        /// The index.
        index: String,
        /// The tensor.
        tensor: String,
        /// Where the index has it.
        file: String,
        /// What the files say.
        found: String,
    },
    /// A tensor that the index does not list.
    #[error("{file} holds a tensor `{}`, which {index} does not list", tensor.escape_debug())]
    Unlisted {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The index.
        index: String,
    },
    /// An index or params.json cannot be read.
    #[error("{file}: {reason}")]
    Document {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Parts cannot be joined.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    Join {
        /// The tensor.
        tensor: String,
        /// Why.
        reason: tensor::Error,
    },
    /// Bytes cannot be read.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    Read {
        /// The tensor.
        tensor: String,
        /// What the system said.
        reason: io::Error,
    },
}
