//! The integration tests of `carton-writer`, in one program.

mod errors;
