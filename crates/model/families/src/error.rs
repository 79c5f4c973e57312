//! Reasons for which a configuration says nothing about a model's tensors.

/// A configuration that does not say which tensors a model has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("it is no JSON object: {0}")]
    Json(serde_json::Error),
    #[error("it has no `model_type`, which says what tensors a model needs")]
    NoModelType,
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
}

/// Result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
