//! An adapter that was read: its settings, its tensors, and a factor for all of its changes.

use tensor::{Tensor, Tensors, Tile};

use crate::{AdapterConfig, Error, Problem, Result};

/// Adapter that was read, with a factor for all of its products.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(crate) path: String,
    pub(crate) config: AdapterConfig,
    /// Tensors in C order.
    pub(crate) tensors: Tensors,
    pub(crate) weight: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AdapterTensor<'a> {
    pub(crate) position: usize,
    pub(crate) name: &'a str,
    pub(crate) tensor: &'a Tensor,
}

impl Adapter {
    /// Creates an adapter of the text of `adapter_config.json` and its tensors. `path` names it in reports.
    ///
    /// # Errors
    /// When the document is not one of a LoRA adapter or has too many patterns, there are no tensors, or elements of a tensor share
    /// their bytes.
    pub fn new(path: impl Into<String>, config: &str, mut tensors: Tensors, weight: f64) -> Result<Self> {
        if tensors.is_empty() {
            return Err(Problem::Empty.into());
        }
        let config = AdapterConfig::from_json(config)?;
        config.check_comparisons(tensors.len())?;
        for (name, tensor) in tensors.tensors_mut() {
            let invalid = |reason: String| Problem::Factor { tensor: name.to_owned(), reason };
            if tensor.nbytes() > tensor.storage().len() {
                return Err(invalid("its elements share their bytes".to_owned()).into());
            }
            if !tensor.is_contiguous() {
                let tile = Tile { tensor: tensor.clone(), start: vec![0; tensor.shape().len()] };
                let gathered = Tensor::tiled(tensor.dtype(), tensor.shape(), vec![tile]);
                *tensor = gathered.map_err(|reason| invalid(reason.to_string()))?;
            }
        }
        Ok(Self { path: path.into(), config, tensors, weight })
    }

    /// Returns the names of the tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.names()
    }

    pub(crate) fn tensor(&self, position: usize) -> AdapterTensor<'_> {
        let (name, tensor) = self.tensors.get_index(position).expect("the position comes from this list");
        AdapterTensor { position, name, tensor }
    }
}

impl AdapterTensor<'_> {
    /// Returns the first dimension, which is 0 for a scalar.
    pub(crate) fn rows(&self) -> u64 {
        self.tensor.shape().first().copied().unwrap_or(0)
    }

    pub(crate) fn columns(&self) -> u64 {
        self.tensor.shape().iter().skip(1).fold(1, |all, size| all.saturating_mul(*size))
    }

    pub(crate) fn shape_error(&self, expected: impl Into<String>, base: &str, old: &Tensor) -> Error {
        Problem::Shape {
            tensor: self.name.to_owned(),
            found: self.tensor.shape().to_vec(),
            expected: expected.into(),
            base: base.to_owned(),
            base_shape: old.shape().to_vec(),
        }
        .into()
    }

    pub(crate) fn unusable(&self, reason: impl Into<String>) -> Error {
        Problem::Factor { tensor: self.name.to_owned(), reason: reason.into() }.into()
    }
}
