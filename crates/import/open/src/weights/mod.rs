//! Chooses which part of a checkpoint are its weights, by the names, the keys and the sizes of its items.

pub(crate) mod find;
pub(crate) mod key_totals;
pub(crate) mod leaf;
pub(crate) mod optimizers;
pub(crate) mod wrapper_names;
