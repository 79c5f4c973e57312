//! A tensor of the base with the changes that adapters make to it.

use std::sync::Arc;

use tensor::{Dtype, Storage, Tensor, Tile, contiguous_strides};

use crate::low_rank::{FactorCache, LowRankUpdate, Magnitudes, Term, WeightDims};
use crate::{Error, Result};

/// Tensor of the base, and the products that are added to it.
#[derive(Debug)]
pub(crate) struct ChangedTensor {
    name: String,
    tensor: Tensor,
    blocks: Vec<Vec<Term>>,
    dims: WeightDims,
}

impl ChangedTensor {
    pub(crate) fn new(name: &str, tensor: &Tensor) -> Self {
        let dims = WeightDims { rows_per_block: 0, columns: 0 };
        Self { name: name.to_owned(), tensor: tensor.clone(), blocks: Vec::new(), dims }
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Adds a product to a block. All products are summed before the result is rounded.
    pub(crate) fn add(
        &mut self,
        dims: WeightDims,
        block: usize,
        term: Term,
        cache: &FactorCache,
    ) -> Result<()> {
        let is_other = dims.columns != self.dims.columns || dims.rows_per_block != self.dims.rows_per_block;
        if is_other && !self.blocks.is_empty() {
            self.evaluate(None, cache)?;
        }
        self.dims = dims;
        if self.blocks.len() <= block {
            self.blocks.resize_with(block.saturating_add(1), Vec::new);
        }
        if let Some(terms) = self.blocks.get_mut(block) {
            terms.push(term);
        }
        Ok(())
    }

    /// Replaces the whole tensor. Earlier changes have no effect on the result.
    pub(crate) fn replace(&mut self, tensor: Tensor) {
        self.blocks.clear();
        self.tensor = tensor;
    }

    /// Replaces rows of the tensor, after the changes so far.
    ///
    /// # Errors
    /// When the rows do not fit the tensor.
    pub(crate) fn replace_rows(&mut self, rows: &[u64], values: &Tensor, cache: &FactorCache) -> Result<()> {
        self.evaluate(None, cache)?;
        let base = |reason| Error::Base { base: self.name.clone(), reason };
        let shape = self.tensor.shape().to_vec();
        let part = |tensor: &Tensor, start: u64, end: u64| {
            let stride = tensor.stride().first().copied().unwrap_or(0);
            let offset = tensor.storage_offset().saturating_add(start.saturating_mul(stride));
            let mut size = shape.clone();
            if let Some(first) = size.first_mut() {
                *first = end.saturating_sub(start);
            }
            Tensor::new(tensor.dtype(), size, tensor.stride().to_vec(), offset, tensor.storage().clone())
        };
        let tile = |tensor: Tensor, row: u64| {
            let mut start = vec![0; shape.len()];
            if let Some(first) = start.first_mut() {
                *first = row;
            }
            Tile { tensor, start }
        };
        // Of a row that is named twice, the last value counts, as in `index_copy`.
        let mut numbers: Vec<(u64, u64)> = rows.iter().copied().zip(0..).collect();
        numbers.sort_unstable();
        numbers.reverse();
        numbers.dedup_by_key(|(row, _)| *row);
        numbers.reverse();
        let (mut tiles, mut at) = (Vec::new(), 0);
        for (row, number) in numbers {
            if row > at {
                tiles.push(tile(part(&self.tensor, at, row).map_err(base)?, at));
            }
            tiles.push(tile(part(values, number, number.saturating_add(1)).map_err(base)?, row));
            at = row.saturating_add(1);
        }
        let end = shape.first().copied().unwrap_or(0);
        if at < end {
            tiles.push(tile(part(&self.tensor, at, end).map_err(base)?, at));
        }
        self.tensor = Tensor::tiled(self.tensor.dtype(), &shape, tiles).map_err(base)?;
        Ok(())
    }

    /// Turns the products into a computed storage, whose vectors have these `magnitudes`. Returns the computation.
    ///
    /// # Errors
    /// When the dtype has no sums, or the tensor cannot be made contiguous.
    pub(crate) fn evaluate(
        &mut self,
        magnitudes: Option<Magnitudes>,
        cache: &FactorCache,
    ) -> Result<Option<Arc<LowRankUpdate>>> {
        if self.blocks.is_empty() && magnitudes.is_none() {
            return Ok(None);
        }
        let base = |reason| Error::Base { base: self.name.clone(), reason };
        let dtype = self.tensor.dtype();
        check_dtype(&self.name, dtype)?;
        let shape = self.tensor.shape().to_vec();
        let blocks = std::mem::take(&mut self.blocks);
        let update = LowRankUpdate::new(
            (contiguous_storage(&self.tensor).map_err(base)?, dtype),
            self.dims,
            blocks,
            magnitudes,
            cache.clone(),
        );
        let update = Arc::new(update);
        let storage = Storage::computed(Arc::clone(&update) as Arc<dyn tensor::Compute>);
        self.tensor =
            Tensor::new(dtype, shape.clone(), contiguous_strides(&shape), 0, storage).map_err(base)?;
        Ok(Some(update))
    }
}

/// Refuses dtypes that [`LowRankUpdate`] cannot compute.
pub(crate) fn check_dtype(name: &str, dtype: Dtype) -> Result<()> {
    match dtype {
        Dtype::Float64 | Dtype::Float32 | Dtype::BFloat16 | Dtype::Float16 => Ok(()),
        _ => Err(Error::BaseDtype { base: name.to_owned(), dtype }),
    }
}

/// Returns a storage with the elements of a tensor in C order.
fn contiguous_storage(tensor: &Tensor) -> std::result::Result<Storage, tensor::Error> {
    if tensor.is_contiguous()
        && let Some(storage) = tensor.storage().slice(tensor.span())
    {
        return Ok(storage);
    }
    let tile = Tile { tensor: tensor.clone(), start: vec![0; tensor.shape().len()] };
    Ok(Tensor::tiled(tensor.dtype(), tensor.shape(), vec![tile])?.storage().clone())
}
