//! Tests of the public functions.

mod encode;
