//! The integration tests of `carton-tools`, in one program.

mod changes;
mod code;
mod in_place;
mod tools;
