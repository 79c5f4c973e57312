//! What the program says to a person, apart from what the library crates report.

pub(crate) mod advice;
pub(crate) mod flags;
pub(crate) mod shell;
pub(crate) mod signals;
