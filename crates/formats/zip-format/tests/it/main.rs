//! The integration tests of `zip-format`, in one program.

mod errors;
mod made;
mod round_trip;
