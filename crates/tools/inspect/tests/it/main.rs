//! The integration tests of `inspect`, in one program.

mod packages;
mod values;
