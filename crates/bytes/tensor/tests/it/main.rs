//! The integration tests of `tensor`, in one program.

mod files;
