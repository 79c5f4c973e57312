//! Joins the parts of one tensor, and names the tensor in errors.

use tensor::{Dtype, Tensor, Tile};

use crate::trainers::{Problem, Result};

/// Joins parts that cover a tensor once; a single part that is the whole tensor is returned as it is.
pub(crate) fn join_tiles(name: &str, dtype: Dtype, shape: &[u64], tiles: Vec<Tile>) -> Result<Tensor> {
    if let [Tile { tensor, .. }] = tiles.as_slice()
        && tensor.shape() == shape
        && tensor.dtype() == dtype
    {
        return Ok(tensor.clone());
    }
    let failed = |reason| Problem::Join { tensor: name.to_owned(), reason: Box::new(reason) };
    Ok(Tensor::tiled(dtype, shape, tiles).map_err(failed)?)
}
