//! How often a model was called and how long it took: the answers of `GET /v2/models/stats` and `…/M/stats`.
//!
//! Facts: "Statistics Extension" of Triton's protocol.

use serde::Serialize;

/// The statistics of models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// One entry for each version of each model.
    pub model_stats: Vec<ModelStatistics>,
}

/// The statistics of a version of a model since it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStatistics {
    /// The model.
    pub name: String,
    /// The version.
    pub version: String,
    /// When the last inference was made, in milliseconds since 1970; 0 if none was.
    pub last_inference: u64,
    /// The inferences that succeeded; one request of a batch of n counts n times.
    pub inference_count: u64,
    /// How often the model ran.
    pub execution_count: u64,
    /// Where the time of requests went.
    pub inference_stats: InferStatistics,
    /// The same for each size of a batch.
    pub batch_stats: Vec<BatchStatistics>,
}

/// Where the time of requests went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InferStatistics {
    /// Whole requests that succeeded.
    pub success: Duration,
    /// Whole requests that failed.
    pub fail: Duration,
    /// Waiting for the model.
    pub queue: Duration,
    /// Making the model's inputs.
    pub compute_input: Duration,
    /// Running the model.
    pub compute_infer: Duration,
    /// Taking the model's outputs.
    pub compute_output: Duration,
    /// Requests that a cache answered.
    pub cache_hit: Duration,
    /// Requests that a cache could not answer.
    pub cache_miss: Duration,
}

/// Where the time of batches of one size went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchStatistics {
    /// The size.
    pub batch_size: u64,
    /// Making the model's inputs.
    pub compute_input: Duration,
    /// Running the model.
    pub compute_infer: Duration,
    /// Taking the model's outputs.
    pub compute_output: Duration,
}

/// How often something happened, and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duration {
    /// How often.
    pub count: u64,
    /// Nanoseconds in all.
    pub ns: u64,
}
