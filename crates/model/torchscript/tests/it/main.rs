//! The integration tests of `torchscript`, in one program.

#[path = "../../../../model/decoder/tests/it/fixtures/mod.rs"]
mod fixtures;
mod recognise;
