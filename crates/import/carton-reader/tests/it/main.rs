//! The integration tests of `carton-reader`, in one program.

mod errors;
mod flips;
mod in_place;
