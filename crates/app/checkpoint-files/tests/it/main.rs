//! The integration tests of `checkpoint-files`, in one program.

mod folders;
