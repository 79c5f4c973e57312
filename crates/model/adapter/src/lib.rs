//! Adapters as peft saves them, merged into the tensors of their base model, and sums of checkpoints.
//!
//! [`Adapter::new`] reads an `adapter_config.json` and the tensors next to it. [`merge`] finds the base tensor that each
//! adapter tensor changes, and returns the base with computed storages: `W + scale · B · A` is evaluated in double
//! precision and rounded once, a window at a time, whenever it is read. Every adapter tensor is used completely, or
//! [`merge`] fails and names it. [`sum`] computes weighted sums of whole checkpoints in the same way.
//!
//! Facts: `peft/tuners/lora/layer.py`, `peft/tuners/lora/variants.py`, `peft/tuners/tuners_utils.py` and
//! `peft/utils/save_and_load.py` of peft 0.21.

#![expect(
    clippy::inline_always,
    reason = "loops are compiled for the vectors of the processor only if all of them is inlined"
)]

mod adapter;
mod adapter_merge;
mod adapter_name;
mod base_changes;
mod base_names;
mod change;
mod checkpoint_sum;
mod config;
mod error;
mod expert_merge;
mod experts;
mod factor_cache;
mod float_parts;
mod gram;
mod half_sums;
mod low_rank;
mod magnitudes;
mod matrix;
mod merge;
mod merge_state;
mod module_patterns;
mod numbers;
mod panels;
mod product;
mod report;
mod round;
mod sum_report;
mod term;
mod used_bytes;
mod vectors;
mod weighted_sum;

pub use adapter::Adapter;
pub use adapter_name::factor_form;
pub use byte_source::{Error, Result};
pub use checkpoint_sum::{SumRule, Summand, sum};
pub use config::AdapterConfig;
pub use error::Problem;
pub use merge::{MergeReports, merge};
pub use report::{AdapterReport, MergeKind, MergedTensor};
pub use sum_report::{SumReport, SummedFile};
