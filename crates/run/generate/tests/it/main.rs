//! The integration tests of `generate`, in one program.

mod hostile;
