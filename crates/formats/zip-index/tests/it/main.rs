//! The integration tests of `zip-index`, in one program.

mod errors;
mod made;
