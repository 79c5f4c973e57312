//! The integration tests of `pickle-vm`, in one program.

mod common;
mod cpython;
mod edges;
mod hostile;
mod listings;
mod memory;
mod writer;
