//! The integration tests of `zip-layout`, in one program.

mod round_trip;
