//! Forward pass of a decoder on the CPU, over weights that stay in the file they are mapped from.
//!
//! [`ForwardModel`] runs the decoder that the crate `decoder` describes, with the same results as the TorchScript module that
//! `torchscript` writes for it: tokens and a [`KvCache`] of keys and values in, logits out.
//!
//! Weights are never converted up front: a product widens them as it reads them. Sums, norms, positions and attention
//! are f32, or f64 if the embeddings are. Unlike in PyTorch, a weight is not rounded to the dtype of its factor, so
//! logits of bfloat16 models are nearer to the exact ones. No result depends on the number of threads.
//!
//! Sizes that come from files are checked before they are multiplied: `decoder` refuses a size of 0 and heads that do not
//! divide each other, [`ForwardModel::new`] compares the shape of each weight, so that no size exceeds the memory that is mapped,
//! and `memory.rs` multiplies them with the number of tokens. An overflow elsewhere is a bug, and a panic in tests.
//!
//! `kernel/` has the matrix products, `block.rs` a layer, `attention.rs` the attention over the KV cache of `cache.rs`,
//! and `experts.rs` a mixture of experts.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: floating-point numbers do not overflow, and sizes are those of memory"
)]

mod activation;
mod alibi;
mod attention;
mod block;
mod cache;
mod delta_net;
mod delta_weights;
mod dims;
mod error;
mod experts;
mod feed_forward;
mod kernel;
mod layer_input_weights;
mod layer_inputs;
mod learned_positions;
mod linear;
mod memory;
mod mixed_heads;
mod mixed_weights;
mod model;
mod norm;
mod number;
mod pass;
mod positions;
mod projections;
mod query_scale;
mod router;
mod sequence_part;
mod sharing;
mod states;
mod step;
mod vector;
mod weights;
mod xielu;

#[cfg(test)]
#[path = "kernel/tests.rs"]
mod tests;

pub use byte_source::{Error, Result};
pub use cache::KvCache;
pub use error::Problem;
pub use model::{ForwardModel, ForwardOptions};
pub use pass::{ForwardPass, LogitPositions};
