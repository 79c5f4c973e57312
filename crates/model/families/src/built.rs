//! A model before its layouts are made.

use crate::rule::Scoped;
use crate::tree::{TensorPattern, Tie};

/// A model in memory, and how its names differ in files.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) entries: Vec<TensorPattern>,
    pub(crate) ties: Vec<Tie>,
    /// For each difference the rules of each form, of which the first is what `save_pretrained` writes.
    pub(crate) choices: Vec<Vec<Vec<Scoped>>>,
}
