//! The integration tests of `inspect`, in one program.

mod check;
mod packages;
mod values;
