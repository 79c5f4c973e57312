//! The integration tests of `carton-format`, in one program.

mod edges;
mod errors;
mod flips;
mod properties;
mod round_trip;
