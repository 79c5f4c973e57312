//! Quantized tensors of a model, and the list of tensors in which each is computed from its parts.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet};
use tensor::{Dtype, Storage, Tensor, TensorEntry, Tensors, contiguous_strides};

use crate::dequantized::{Dequantized, Kernel, Matrices};
use crate::{Problem, Result};

/// Quantized tensors of a model.
#[derive(Debug)]
#[non_exhaustive]
pub struct QuantizedModel {
    /// Method that quantized the weights, in the names of `transformers`.
    pub method: String,
    /// Quantized tensors in the order of the checkpoint.
    pub tensors: Vec<QuantizedTensor>,
    /// Positions of stored tensors that describe activations or caches, and have no meaning without quantization.
    pub(crate) dropped: HashSet<usize>,
    /// Tensors that are not quantized and come in the place of a stored one, by its position.
    pub(crate) replaced: HashMap<usize, Vec<(String, Tensor)>>,
}

/// Tensor whose numbers are computed from codes, scales and zero points.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuantizedTensor {
    /// Name of the tensor of numbers.
    pub name: String,
    /// Description of the scheme, such as `FP8, blocks of 128 × 128`.
    pub scheme: String,
    pub shape: Vec<u64>,
    /// Dtype in which the method's library returns the numbers.
    pub library_dtype: Dtype,
    /// Dtype of the numbers if neither the configuration nor the caller names one.
    pub default_dtype: Dtype,
    /// Bytes of all stored parts.
    pub stored_nbytes: u64,
    /// Positions of the stored parts in the list; the first one has the codes.
    pub stored: Vec<usize>,
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) inputs: Vec<Storage>,
    pub(crate) matrices: Matrices,
}

impl QuantizedTensor {
    /// Returns the number of elements.
    pub fn numel(&self) -> u64 {
        self.matrices.elements
    }

    /// Returns the stored bits for each element, scales and zero points included.
    #[expect(clippy::cast_precision_loss, reason = "it is shown with a digit after the point")]
    pub fn bits(&self) -> f64 {
        self.stored_nbytes as f64 * 8.0 / self.numel().max(1) as f64
    }

    /// Returns the numbers as a tensor of `dtype`, computed whenever they are read: rounded to the dtype of the method's
    /// library, then cast.
    ///
    /// # Errors
    /// When the size does not fit 63 bits.
    pub fn tensor(&self, dtype: Dtype) -> Result<Tensor> {
        let overflow = || Problem::Shape {
            tensor: self.name.clone(),
            found: self.shape.clone(),
            expected: "a size that fits 63 bits".to_owned(),
        };
        let (kernel, inputs) = (Arc::clone(&self.kernel), self.inputs.clone());
        let dtypes = (self.library_dtype, dtype);
        let compute = Dequantized::new(kernel, inputs, self.matrices, dtypes).ok_or_else(overflow)?;
        let strides = contiguous_strides(&self.shape);
        let storage = Storage::computed(Arc::new(compute));
        Ok(Tensor::new(dtype, self.shape.clone(), strides, 0, storage).map_err(|_| overflow())?)
    }
}

impl QuantizedModel {
    /// Returns the tensors of the model with computed numbers in place of codes, and for each the position of the stored
    /// tensor that it has the place of. `dtype` chooses the dtype of the numbers.
    ///
    /// # Errors
    /// When two tensors would have the same name, or a size does not fit 63 bits.
    pub fn dequantize(
        &self,
        tensors: &Tensors,
        dtype: impl Fn(&QuantizedTensor) -> Dtype,
    ) -> Result<(Tensors, Vec<usize>)> {
        let mut first_parts: HashMap<usize, Vec<&QuantizedTensor>> =
            HashMap::with_capacity(self.tensors.len());
        let mut used = self.dropped.clone();
        for tensor in &self.tensors {
            if let Some(first) = tensor.stored.first() {
                first_parts.entry(*first).or_default().push(tensor);
            }
            used.extend(&tensor.stored);
        }
        let mut dequantized = Tensors::with_capacity(tensors.len());
        let mut origins = Vec::with_capacity(tensors.len());
        let mut position = 0_usize;
        for entry in tensors.entries() {
            let (compound, parts) = match entry {
                TensorEntry::Quantized(compound, parts) | TensorEntry::Compound(compound, parts) => {
                    (Some((compound, parts)), parts.len())
                }
                _ => (None, 1),
            };
            let places = position..position.saturating_add(parts);
            let quantized = places.clone().filter_map(|place| Some((place, first_parts.get(&place)?)));
            for (place, quantized) in
                quantized.flat_map(|(place, all)| all.iter().map(move |it| (place, *it)))
            {
                dequantized.push(quantized.name.clone(), quantized.tensor(dtype(quantized))?);
                origins.push(place);
            }
            if let Some(replaced) = self.replaced.get(&position) {
                dequantized.extend(replaced.iter().cloned());
                origins.extend(replaced.iter().map(|_| position));
            } else if !places.clone().any(|place| used.contains(&place)) {
                match (compound, tensors.get_index(position)) {
                    (Some((compound, parts)), _) => {
                        let kind = (compound.kind.clone(), compound.dtype, compound.shape.clone());
                        dequantized.push_compound(compound.name.clone(), kind, parts.iter().cloned());
                    }
                    (None, Some((name, tensor))) => dequantized.push(name.to_owned(), tensor.clone()),
                    (None, None) => {}
                }
                origins.extend(places.clone());
            }
            position = places.end;
        }
        match dequantized.duplicate_name() {
            Some(name) => Err(Problem::SameName { name: name.to_owned() }.into()),
            None => Ok((dequantized, origins)),
        }
    }
}
