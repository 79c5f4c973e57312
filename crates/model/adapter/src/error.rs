//! Errors of reading and merging adapters.

use byte_source::details;

/// Error of reading or merging an adapter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The configuration is not JSON, or a field has an unexpected type.
    #[error("adapter_config.json: {0}")]
    Config(serde_json::Error),
    /// The adapter is of another method than LoRA.
    #[error("the adapter is of type {method}, and only LORA can be merged")]
    Method {
        /// `peft_type` of the configuration.
        method: String,
    },
    /// A field of the configuration has an effect that a merge cannot have.
    #[error("adapter_config.json has {field} = {value}: {reason}")]
    Field { field: &'static str, value: String, reason: &'static str },
    /// A pattern of ranks or scales is not a regular expression.
    #[error(
        "adapter_config.json: {field} has the pattern `{pattern}`, which is not a regular expression: {reason}"
    )]
    Pattern { field: &'static str, pattern: String, reason: String },
    /// To compare the patterns with the names of all tensors would take seconds.
    #[error(
        "adapter_config.json: rank_pattern and alpha_pattern have {count} {what} together, more than {limit}, \
         the limit for an adapter with this number of tensors"
    )]
    Patterns { count: usize, what: &'static str, limit: usize },
    /// A tensor of the adapter has no counterpart.
    #[error("`{tensor}` has no {partner} next to it")]
    NoPartner { tensor: String, partner: &'static str },
    /// No tensor of the base belongs to a tensor of the adapter.
    #[error("`{tensor}` changes `{expected}`, which the base does not have")]
    NoBase {
        /// Name in the adapter.
        tensor: String,
        /// Name that the base lacks.
        expected: String,
    },
    /// The parameters of a module that factors change are not known.
    #[error(
        "`{tensor}` changes a parameter of `{module}`, but target_parameters of adapter_config.json names {found} of its parameters for {wrappers} changes"
    )]
    UnknownParameter { tensor: String, module: String, found: usize, wrappers: usize },
    /// A factor has a shape that fits neither the base tensor nor the rank.
    #[error("`{tensor}` has shape {found:?}, expected {expected} for `{base}` of shape {base_shape:?}")]
    Shape { tensor: String, found: Vec<u64>, expected: String, base: String, base_shape: Vec<u64> },
    /// A square weight of experts leaves open which dimension is the input.
    #[error(
        "`{base}` has shape {shape:?}, so the direction of its factors depends on the version of peft, and adapter_config.json has no peft_version"
    )]
    Direction { base: String, shape: Vec<u64> },
    /// A factor cannot be used.
    #[error("`{tensor}` cannot be used: {reason}")]
    Factor { tensor: String, reason: String },
    /// The base tensor has a dtype that cannot be changed.
    #[error("`{base}` has dtype {dtype}, and only float64, float32, bfloat16 and float16 can be merged into")]
    BaseDtype { base: String, dtype: tensor::Dtype },
    /// A token index is outside of the embedding.
    #[error("`{tensor}` is for token {token}, but `{base}` has {rows} rows")]
    Token { tensor: String, token: u64, base: String, rows: u64 },
    /// Numbers of the adapter that no tensor of the base uses.
    #[error("{unused} of {nbytes} bytes of `{tensor}` change nothing in the base")]
    Unused { tensor: String, unused: u64, nbytes: u64 },
    /// The file of the adapter has no tensors.
    #[error("the adapter has no tensors")]
    Empty,
    /// A checkpoint that is summed has tensors that the base does not have.
    #[error("it has `{tensor}`{}, which the base does not have", more_text(*count))]
    NotInBase {
        tensor: String,
        /// Number of all such tensors.
        count: usize,
    },
    /// A checkpoint that is summed lacks a tensor of the base.
    #[error("it has no `{tensor}`, which the base has")]
    NotInFile { tensor: String },
    /// A checkpoint that is summed has no tensor of the base with its shape.
    #[error("it has no tensor in common with the base")]
    NothingInCommon,
    /// A tensor has another shape in a checkpoint that is summed.
    #[error("`{tensor}` has shape {found:?}, and {expected:?} in the base")]
    OtherShape { tensor: String, found: Vec<u64>, expected: Vec<u64> },
    /// A tensor has another dtype in a checkpoint that is summed.
    #[error("`{tensor}` has dtype {found}, and {expected} in the base")]
    OtherDtype { tensor: String, found: tensor::Dtype, expected: tensor::Dtype },
    /// A tensor differs whose elements have no sums, such as codes of quantized weights.
    #[error("`{tensor}` differs from the base, and {dtype} has no sums")]
    NotSummed { tensor: String, dtype: tensor::Dtype },
}

fn more_text(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" and {} more", count.saturating_sub(1)),
    }
}

details! {
    Problem {
        Unsupported: Method, Field, BaseDtype, NotSummed;
        Input: Config, Pattern, Patterns, NoPartner, NoBase, UnknownParameter, Shape, Direction, Factor, Token, Unused,
            Empty, NotInBase, NotInFile, NothingInCommon, OtherShape, OtherDtype;
    }
}
