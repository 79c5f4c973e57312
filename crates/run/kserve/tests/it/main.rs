//! Tests of the protocol through the public interface, as one program.

#![expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod documents;
mod models;
mod properties;
mod request;
mod response;
mod wrong_json;
mod wrong_tensors;
