//! The integration tests of `open`, in one program.

mod arrays;
mod files;
mod trainers;
