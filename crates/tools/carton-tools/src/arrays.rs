//! Turns NumPy arrays into tensors of `tensor_data/`.

use std::sync::Arc;

use byte_source::{Blob, MappedFile, OwnedBlob, Source};
use carton_format::{Carton, DataType, StringTensorFile, TOML_MAX, TensorIndex, TensorSpec};
use tensor::Gathered;

use crate::error::at;
use crate::npy::{self, NpyArray};
use crate::{ArrayFile, Error, Result, TensorError};

pub(crate) enum TensorFile {
    Numbers(Gathered),
    Strings(OwnedBlob),
}

impl TensorFile {
    pub(crate) fn blob(&self) -> &dyn Blob {
        match self {
            Self::Numbers(gathered) => gathered,
            Self::Strings(text) => text,
        }
    }
}

/// Reads the named `.npy` files; returns the arrays by name, and the mapped files.
#[expect(clippy::type_complexity, reason = "two lists of the same length")]
pub(crate) fn read_arrays(given: &[ArrayFile]) -> Result<(Vec<(String, NpyArray)>, Vec<Arc<dyn Source>>)> {
    for (index, ArrayFile { name, .. }) in given.iter().enumerate() {
        if name.is_empty() {
            return Err(in_tensor(name)(TensorError::NoName));
        }
        if given.iter().take(index).any(|other| other.name == *name) {
            return Err(in_tensor(name)(TensorError::DuplicateName));
        }
    }
    let mut arrays: Vec<(String, NpyArray)> = Vec::with_capacity(given.len());
    let mut maps = Vec::with_capacity(given.len());
    for ArrayFile { name, path } in given {
        let file: Arc<dyn Source> = Arc::new(MappedFile::open(path)?);
        let array = npy::read_npy(&file).map_err(at(path))?;
        arrays.push((name.clone(), array));
        maps.push(file);
    }
    Ok((arrays, maps))
}

/// Returns the tensor index with the arrays added, and their files by path in the carton.
pub(crate) fn add_arrays(
    carton: &Carton,
    index: &TensorIndex,
    arrays: Vec<(String, NpyArray)>,
) -> Result<(TensorIndex, Vec<(String, TensorFile)>)> {
    let mut index = index.clone();
    let mut files = Vec::with_capacity(arrays.len());
    let mut number = 0_usize;
    for (name, array) in arrays {
        if index.find(&name).is_some() {
            return Err(in_tensor(&name)(TensorError::NameInIndex));
        }
        let extension = if matches!(array, NpyArray::Strings { .. }) { "toml" } else { "bin" };
        let file = loop {
            let file = format!("tensor_{number}.{extension}");
            number = number.saturating_add(1);
            if !carton.has_file(&format!("tensor_data/{file}")) {
                break file;
            }
        };
        let (dtype, shape, content) = array_file(array).map_err(in_tensor(&name))?;
        files.push((format!("tensor_data/{file}"), content));
        index.tensors.push(TensorSpec::Array { name, dtype, shape, file, other: toml::Table::new() });
    }
    Ok((index, files))
}

fn in_tensor(name: &str) -> impl Fn(TensorError) -> Error + '_ {
    move |problem| Error::from(problem).in_tensor(name)
}

fn array_file(array: NpyArray) -> Result<(DataType, Vec<u64>, TensorFile), TensorError> {
    match array {
        NpyArray::Numbers(tensor) => {
            let dtype = DataType::from_name(tensor.dtype().name());
            let dtype = dtype.ok_or(TensorError::Dtype(tensor.dtype()))?;
            Ok((dtype, tensor.shape().to_vec(), TensorFile::Numbers(tensor.gathered())))
        }
        NpyArray::Strings { shape, data } => {
            let text = toml::to_string(&StringTensorFile { data });
            let text = text.map_err(|error| TensorError::Print(error.to_string()))?;
            let found = text.len();
            if found as u64 > TOML_MAX {
                return Err(TensorError::TooLong { found, limit: TOML_MAX });
            }
            Ok((DataType::String, shape, TensorFile::Strings(OwnedBlob(text.into_bytes()))))
        }
    }
}
