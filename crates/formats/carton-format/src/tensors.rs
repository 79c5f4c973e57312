//! Reader of the tensors of `tensor_data/`.
//!
//! Facts: the Carton v1 specification.

use std::io::Read;

use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use crate::{Carton, DataType, Problem, Result, StringTensorFile, TensorSpec};

/// Contents of a tensor of `tensor_data/`.
#[derive(Debug)]
pub enum TensorData {
    /// A numeric tensor in C order.
    Numbers(Tensor),
    /// A string tensor in C order.
    Strings {
        shape: Vec<u64>,
        /// The strings, in C order.
        data: Vec<String>,
    },
    /// Names of the inner tensors of a ragged tensor.
    Nested(Vec<String>),
}

impl Carton {
    /// Reads and checks the tensor `name` of `tensor_data/`.
    ///
    /// # Errors
    /// When the tensor does not exist, or its file is damaged.
    pub fn tensor(&self, name: &str) -> Result<TensorData> {
        let index = self.tensor_index()?.document;
        let spec = index.find(name).ok_or_else(|| Problem::NoTensor { name: name.to_owned() })?;
        self.tensor_data(spec)
    }

    /// Reads and checks the elements of `spec`.
    ///
    /// # Errors
    /// When the tensor's file is damaged.
    pub fn tensor_data(&self, spec: &TensorSpec) -> Result<TensorData> {
        let (dtype, shape, file) = match spec {
            TensorSpec::Nested { inner, .. } => return Ok(TensorData::Nested(inner.clone())),
            TensorSpec::Array { dtype, shape, file, .. } => (*dtype, shape, file),
        };
        let path = format!("tensor_data/{file}");
        if dtype == DataType::String {
            let expected = spec.numel().unwrap_or(u64::MAX);
            let data = StringTensorFile::parse(&path, &self.text(&path)?, expected)?.data;
            return Ok(TensorData::Strings { shape: shape.clone(), data });
        }
        let mut bytes = Vec::new();
        self.read(&path)?.read_to_end(&mut bytes).map_err(|error| self.reader_error(&path, error))?;
        let found = bytes.len() as u64;
        let dtype = Dtype::from_name(dtype.name()).unwrap_or(Dtype::UInt8);
        // The index was compared with the length of the file, so the products fit.
        let stride = contiguous_strides(shape);
        let tensor = Tensor::new(dtype, shape.clone(), stride, 0, Storage::owned(bytes));
        let tensor = tensor.map_err(|_| Problem::Length {
            path,
            found,
            is_at_least: false,
            expected: spec.nbytes().unwrap_or(u64::MAX),
        })?;
        Ok(TensorData::Numbers(tensor))
    }
}
