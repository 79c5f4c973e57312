//! Reasons for which a configuration says nothing about a model's tensors, or these have no other layout.

/// A configuration that does not say which tensors a model has, or tensors that have no other layout.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("it is no JSON object: {0}")]
    Json(serde_json::Error),
    #[error("it has no `model_type`, which says what tensors a model needs")]
    NoModelType,
    /// The configuration of a model of `diffusers`.
    #[error("it is of a `{class}` of diffusers, whose tensors are not known")]
    OfDiffusers { class: String },
    #[error("it has the model type `{model_type}`, which is not one of those that are known: {known}")]
    UnknownModelType {
        model_type: String,
        /// Types that are known, with commas.
        known: String,
    },
    #[error("it names the class `{class}`, whose tensors are not known")]
    UnknownClass { class: String },
    #[error("its value of `{key}` is missing or makes no model")]
    Value { key: String },
    #[error("a model of type `{model_type}` has no text part that is a class of its own")]
    NoTextPart { model_type: String },
    /// Tensors that are one in another layout are not all there.
    #[error("there is no tensor `{}`, which another layout of the model stacks with others", name.escape_debug())]
    MissingPart { name: String },
    /// In memory, all experts of a layer are one tensor, and the scales and codes of each expert have no names there.
    #[error(
        "experts that are quantized with {method} have no other layout: their scales and codes have no names in memory"
    )]
    QuantizedExperts { method: &'static str },
    /// A tensor that is several in another layout has another shape than the model's.
    #[error("`{}` has the shape {shape:?}, which does not divide into the tensors of the model", name.escape_debug())]
    Stack { name: String, shape: Vec<u64> },
}

/// Result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
