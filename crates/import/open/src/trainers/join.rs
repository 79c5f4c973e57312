//! Joins the parts of one tensor, and names the tensor in errors.

use tensor::{Dtype, Tensor, Tile};

use crate::trainers::{Error, Result};

/// Joins parts that cover a tensor once; a single part that is the whole tensor is returned as it is.
pub(crate) fn join_tiles(name: &str, dtype: Dtype, shape: &[u64], tiles: Vec<Tile>) -> Result<Tensor> {
    if let [Tile { tensor, .. }] = tiles.as_slice()
        && tensor.shape() == shape
        && tensor.dtype() == dtype
    {
        return Ok(tensor.clone());
    }
    Tensor::tiled(dtype, shape, tiles)
        .map_err(|reason| Error::Join { tensor: name.to_owned(), reason: Box::new(reason) })
}
