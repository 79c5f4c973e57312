//! What only a command line has: the names of its flags.

pub(crate) mod flags;
