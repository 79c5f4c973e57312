//! What a person at a terminal meets: advice, signals, words that a shell takes.

pub(crate) mod advice;
pub(crate) mod shell;
pub(crate) mod signals;
