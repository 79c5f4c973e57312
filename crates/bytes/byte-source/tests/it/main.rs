//! The integration tests of `byte-source`, in one program.

mod source;
mod stores;
