//! Headers that fit the format, and headers that do not.

#![expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod builder;
mod hostile;
mod layout;
