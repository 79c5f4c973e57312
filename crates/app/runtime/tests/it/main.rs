//! The integration tests of `runtime`, in one program.

mod versions;
