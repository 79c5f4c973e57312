//! The integration tests of `output`, in one program.

mod signals;
