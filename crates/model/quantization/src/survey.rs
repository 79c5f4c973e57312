//! Search for the quantized tensors of a model, which remembers the stored tensors that a scheme uses.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use tensor::{Dtype, Tensor, Tensors};

use crate::config::QuantizationConfig;
use crate::dequantized::{Kernel, Matrices};
use crate::operand::{Operand, Operands};
use crate::quantized_model::{QuantizedModel, QuantizedTensor};
use crate::scales::ScaleGrid;
use crate::{Error, Problem, Result};

/// Suffixes of tensors that describe activations or caches.
const ACTIVATION_SUFFIXES: &[&str] = &[
    ".input_scale",
    ".scale_input",
    ".input_global_scale",
    ".input_zero_point",
    ".input_scale_ub",
    ".output_scale",
    ".output_zero_point",
    ".activation_scale",
    ".activation_zero_point",
];
/// Suffixes of tensors that describe caches of keys and values, whatever is quantized besides.
const CACHE_SUFFIXES: &[&str] = &[
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".k_zero_point",
    ".v_zero_point",
    ".kv_cache_scaling_factor",
    ".kv_scale",
];

#[derive(Debug)]
pub(crate) struct Survey<'t> {
    pub(crate) tensors: &'t Tensors,
    pub(crate) config: QuantizationConfig,
    /// Positions of the tensors that a scheme uses.
    used: HashSet<usize>,
    found: Vec<QuantizedTensor>,
    /// Tensors that are not quantized and come in the place of another one, by its position.
    replaced: HashMap<usize, Vec<(String, Tensor)>>,
}

/// Quantized tensor under construction: its parts are marked as used once it is added.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) stored: Vec<usize>,
    pub(crate) operands: Operands,
    /// Number of tensors that the stored parts are shared by.
    pub(crate) share: u64,
}

/// Result of a scheme for one tensor.
#[derive(Debug)]
pub(crate) struct Recognised {
    pub(crate) scheme: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) library_dtype: Dtype,
    /// Dtype if nothing else names one.
    pub(crate) default_dtype: Dtype,
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) matrices: Matrices,
}

impl<'t> Survey<'t> {
    pub(crate) fn new(tensors: &'t Tensors, config: QuantizationConfig) -> Self {
        Self { tensors, config, used: HashSet::new(), found: Vec::new(), replaced: HashMap::new() }
    }

    /// Returns the names of all tensors that end with `suffix`, without it.
    pub(crate) fn stems(&self, suffix: &str) -> Vec<String> {
        self.tensors.names().filter_map(|name| name.strip_suffix(suffix)).map(str::to_owned).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'t Tensor> {
        self.tensors.get(name)
    }

    /// Returns the companion of a quantized tensor.
    ///
    /// # Errors
    /// [`Problem::MissingCompanion`].
    pub(crate) fn companion(&self, tensor: &str, companion: &str) -> Result<&'t Tensor> {
        Ok(self.get(companion).ok_or_else(|| Problem::MissingCompanion {
            method: self.config.method.clone(),
            tensor: tensor.to_owned(),
            companion: companion.to_owned(),
        })?)
    }

    pub(crate) fn is_used(&self, name: &str) -> bool {
        self.tensors.position(name).is_some_and(|position| self.used.contains(&position))
    }

    /// Adds a stored tensor to the parts of a draft, and returns it as an operand.
    ///
    /// # Errors
    /// When its size overflows.
    pub(crate) fn operand(&self, draft: &mut Draft, name: &str) -> Result<Operand> {
        let tensor = self.companion(&draft.name, name)?;
        draft.stored.extend(self.tensors.position(name));
        draft.operand(name, tensor)
    }

    /// Marks a tensor as used that only describes a quantized one.
    pub(crate) fn mark(&mut self, name: &str) {
        self.used.extend(self.tensors.position(name));
    }

    /// Puts tensors in the place of one that is not quantized.
    pub(crate) fn replace(&mut self, name: &str, tensors: Vec<(String, Tensor)>) {
        self.replaced.extend(self.tensors.position(name).map(|position| (position, tensors)));
    }

    /// Returns an error that a tensor belongs to no quantized tensor.
    pub(crate) fn unused(&self, tensor: &str) -> Error {
        Problem::UnusedCompanion { method: self.config.method.clone(), tensor: tensor.to_owned() }.into()
    }

    pub(crate) fn add(&mut self, draft: Draft, recognised: Recognised) {
        let Draft { name, stored, operands, share } = draft;
        let nbytes = |position: &usize| self.tensors.get_index(*position).map_or(0, |(_, it)| it.nbytes());
        let stored_nbytes = stored.iter().map(nbytes).fold(0, u64::saturating_add);
        let stored_nbytes = stored_nbytes.checked_div(share).unwrap_or(stored_nbytes);
        self.used.extend(&stored);
        let Recognised { scheme, shape, library_dtype, default_dtype, kernel, matrices } = recognised;
        self.found.push(QuantizedTensor {
            name,
            scheme,
            shape,
            library_dtype,
            default_dtype,
            stored_nbytes,
            stored,
            kernel,
            inputs: operands.into_storages(),
            matrices,
        });
    }

    /// Checks that no tensor with one of the `companions` suffixes is left over, and returns the model.
    ///
    /// # Errors
    /// [`Problem::UnusedCompanion`], or [`Problem::NothingQuantized`].
    pub(crate) fn finish(mut self, companions: &[&str]) -> Result<QuantizedModel> {
        let modules: HashSet<&str> = self.found.iter().filter_map(|it| module_of(&it.name)).collect();
        let mut dropped = HashSet::new();
        for (position, name) in self.tensors.names().enumerate() {
            let is_activation = ACTIVATION_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
            let of_quantized = module_of(name).is_some_and(|module| modules.contains(module));
            let is_cache = CACHE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
            if self.used.contains(&position) || is_cache || (is_activation && of_quantized) {
                dropped.insert(position);
            } else if is_activation || companions.iter().any(|suffix| name.ends_with(suffix)) {
                return Err(self.unused(name));
            }
        }
        if self.found.is_empty() {
            return Err(Problem::NothingQuantized { method: self.config.method }.into());
        }
        self.found.sort_by_key(|tensor| tensor.stored.first().copied());
        Ok(QuantizedModel {
            method: self.config.method,
            tensors: self.found,
            dropped,
            replaced: self.replaced,
        })
    }
}

impl Draft {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), stored: Vec::new(), operands: Operands::default(), share: 1 }
    }

    /// Adds a tensor called `name` as an operand, stored or computed.
    ///
    /// # Errors
    /// When its size overflows, or its dtype is one of which no scheme has parts.
    pub(crate) fn operand(&mut self, name: &str, tensor: &Tensor) -> Result<Operand> {
        if matches!(
            tensor.dtype(),
            Dtype::Bool | Dtype::Complex32 | Dtype::BComplex32 | Dtype::Complex64 | Dtype::Complex128
        ) {
            let (found, expected) = (tensor.dtype(), "a dtype of numbers that are not complex".to_owned());
            return Err(Problem::Dtype { tensor: name.to_owned(), found, expected }.into());
        }
        Ok(self.operands.add(tensor).ok_or_else(|| Problem::Shape {
            tensor: name.to_owned(),
            found: tensor.shape().to_vec(),
            expected: "a size that fits 63 bits".to_owned(),
        })?)
    }

    /// Adds a tensor called `name` as scales or zero points: one for each row, each column, or the matrix.
    ///
    /// # Errors
    /// When it has another shape.
    pub(crate) fn factors(
        &mut self,
        (name, tensor): (&str, &Tensor),
        (rows, cols): (u64, u64),
    ) -> Result<ScaleGrid> {
        let size = match tensor.shape() {
            _ if tensor.numel() == 1 => (1, 1),
            [count] | [count, 1] if *count == rows => (rows, 1),
            [1, count] if *count == cols => (1, cols),
            found => {
                let expected = format!("[{rows}, 1] or [1, {cols}]");
                return Err(
                    Problem::Shape { tensor: name.to_owned(), found: found.to_vec(), expected }.into()
                );
            }
        };
        Ok(ScaleGrid::plain(self.operand(name, tensor)?, size))
    }
}

fn module_of(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(module, _)| module)
}
