//! What the fuzz targets share: the properties that hold for any bytes, and arbitrary tensors with their elements.

pub mod archive;
pub mod checkpoints;
pub mod input;
pub mod pickles;
pub mod tensors;
