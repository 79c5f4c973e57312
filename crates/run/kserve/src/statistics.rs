//! Inference counts and durations per model: the responses to `GET /v2/models/stats` and `…/M/stats`.
//!
//! Facts: "Statistics Extension" of Triton's protocol.

use serde::Serialize;

/// Statistics of all models, or of the requested model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// One entry per version of each model.
    pub model_stats: Vec<ModelStatistics>,
}

/// Statistics of a model version since it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStatistics {
    pub name: String,
    pub version: String,
    /// Time of the last inference in milliseconds since the Unix epoch; 0 if there was none.
    pub last_inference: u64,
    /// Number of successful inferences; a request with a batch of n counts n times.
    pub inference_count: u64,
    /// Number of model executions; a batch counts once.
    pub execution_count: u64,
    /// Durations per stage of a request, over all batch sizes.
    pub inference_stats: InferStatistics,
    /// Durations per stage for each batch size.
    pub batch_stats: Vec<BatchStatistics>,
}

/// Request counts and durations per stage of inference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InferStatistics {
    /// Successful requests, from start to end.
    pub success: StatisticDuration,
    /// Failed requests, from start to end.
    pub fail: StatisticDuration,
    /// Time in the queue of the model.
    pub queue: StatisticDuration,
    /// Preparation of the input tensors.
    pub compute_input: StatisticDuration,
    /// Execution of the model.
    pub compute_infer: StatisticDuration,
    /// Extraction of the output tensors.
    pub compute_output: StatisticDuration,
    /// Requests answered from the response cache.
    pub cache_hit: StatisticDuration,
    /// Requests looked up in the response cache without a hit.
    pub cache_miss: StatisticDuration,
}

/// Execution counts and durations for one batch size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchStatistics {
    pub batch_size: u64,
    /// Preparation of the input tensors.
    pub compute_input: StatisticDuration,
    /// Execution of the model.
    pub compute_infer: StatisticDuration,
    /// Extraction of the output tensors.
    pub compute_output: StatisticDuration,
}

/// Number of occurrences of an event and their total duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatisticDuration {
    pub count: u64,
    /// Total duration in nanoseconds.
    pub ns: u64,
}
