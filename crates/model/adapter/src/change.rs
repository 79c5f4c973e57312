//! A tensor of the base with the changes that adapters make to it.

use std::sync::Arc;

use tensor::{Dtype, Storage, Tensor, Tile, contiguous_strides};

use crate::factor_cache::FactorCache;
use crate::low_rank::{LowRankUpdate, WeightDims};
use crate::magnitudes::Magnitudes;
use crate::term::Term;
use crate::{Error, Problem, Result};

/// Tensor of the base, and the products that are added to it.
#[derive(Debug)]
pub(crate) struct ChangedTensor {
    name: String,
    /// Dtype of the tensor in the base, which the result has.
    dtype: Dtype,
    /// The tensor with the earlier changes, in double precision if there are any.
    tensor: Tensor,
    blocks: Vec<Vec<Term>>,
    dims: WeightDims,
    magnitudes: Option<Magnitudes>,
}

impl ChangedTensor {
    pub(crate) fn new(name: &str, tensor: &Tensor) -> Self {
        let dims = WeightDims { rows_per_block: 0, columns: 0 };
        let (tensor, blocks) = (tensor.clone(), Vec::new());
        Self { name: name.to_owned(), dtype: tensor.dtype(), tensor, blocks, dims, magnitudes: None }
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Adds a product to a block. All products are summed before the result is rounded.
    ///
    /// # Errors
    /// When the earlier changes cannot be computed.
    pub(crate) fn add(
        &mut self,
        dims: WeightDims,
        block: usize,
        term: Term,
        cache: &FactorCache,
    ) -> Result<()> {
        if self.magnitudes.is_some() || (dims != self.dims && !self.blocks.is_empty()) {
            self.evaluate(Dtype::Float64, cache)?;
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

    pub(crate) fn set_magnitudes(&mut self, magnitudes: Magnitudes) {
        self.magnitudes = Some(magnitudes);
    }

    /// Computes the products so far before others are added, which are rescaled with the result.
    ///
    /// # Errors
    /// When they cannot be computed.
    pub(crate) fn finish_products(&mut self, cache: &FactorCache) -> Result<()> {
        if self.blocks.is_empty() && self.magnitudes.is_none() {
            return Ok(());
        }
        self.evaluate(Dtype::Float64, cache)
    }

    /// Replaces the whole tensor. Earlier changes have no effect on the result.
    pub(crate) fn replace(&mut self, tensor: Tensor) {
        self.blocks.clear();
        self.magnitudes = None;
        self.tensor = tensor;
    }

    /// Replaces rows of the tensor, after the changes so far.
    ///
    /// # Errors
    /// When the rows do not fit the tensor.
    pub(crate) fn replace_rows(&mut self, rows: &[u64], values: &Tensor, cache: &FactorCache) -> Result<()> {
        self.finish_products(cache)?;
        let dtype = self.tensor.dtype();
        let values =
            values.cast(dtype).ok_or_else(|| Problem::BaseDtype { base: self.name.clone(), dtype })?;
        let base = |error: tensor::Error| Error::from(error).in_tensor(&self.name);
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
            tiles.push(tile(part(&values, number, number.saturating_add(1)).map_err(base)?, row));
            at = row.saturating_add(1);
        }
        let end = shape.first().copied().unwrap_or(0);
        if at < end {
            tiles.push(tile(part(&self.tensor, at, end).map_err(base)?, at));
        }
        self.tensor = Tensor::tiled(self.tensor.dtype(), &shape, tiles).map_err(base)?;
        Ok(())
    }

    /// Turns the changes into a computed storage of a dtype.
    ///
    /// # Errors
    /// When the dtype has no sums, or the tensor cannot be made contiguous.
    fn evaluate(&mut self, dtype: Dtype, cache: &FactorCache) -> Result<()> {
        let base = |error: tensor::Error| Error::from(error).in_tensor(&self.name);
        check_dtype(&self.name, self.tensor.dtype())?;
        let shape = self.tensor.shape().to_vec();
        let (blocks, magnitudes) = (std::mem::take(&mut self.blocks), self.magnitudes.take());
        let storage = contiguous_storage(&self.tensor).map_err(base)?;
        let dtypes = (storage, self.tensor.dtype(), dtype);
        let update = LowRankUpdate::new(dtypes, self.dims, blocks, magnitudes, cache.clone());
        let storage = Storage::computed(Arc::new(update));
        self.tensor =
            Tensor::new(dtype, shape.clone(), contiguous_strides(&shape), 0, storage).map_err(base)?;
        Ok(())
    }

    /// Returns the tensor with all changes, in the dtype that it has in the base.
    ///
    /// # Errors
    /// When the dtype has no sums, or the tensor cannot be made contiguous.
    pub(crate) fn finish(mut self, cache: &FactorCache) -> Result<Tensor> {
        if !self.blocks.is_empty() || self.magnitudes.is_some() || self.tensor.dtype() != self.dtype {
            self.evaluate(self.dtype, cache)?;
        }
        Ok(self.tensor)
    }
}

pub(crate) fn check_dtype(name: &str, dtype: Dtype) -> Result<()> {
    match dtype {
        Dtype::Float64 | Dtype::Float32 | Dtype::BFloat16 | Dtype::Float16 => Ok(()),
        _ => Err(Problem::BaseDtype { base: name.to_owned(), dtype }.into()),
    }
}

pub(crate) fn contiguous_storage(tensor: &Tensor) -> std::result::Result<Storage, tensor::Error> {
    if tensor.is_contiguous() && tensor.span() == (0..tensor.storage().len()) {
        return Ok(tensor.storage().clone());
    }
    if tensor.is_contiguous()
        && let Some(storage) = tensor.storage().slice(tensor.span())
    {
        return Ok(storage);
    }
    let tile = Tile { tensor: tensor.clone(), start: vec![0; tensor.shape().len()] };
    Ok(Tensor::tiled(tensor.dtype(), tensor.shape(), vec![tile])?.storage().clone())
}
