//! Documents of `tensor_data/`: `index.toml`, and the files of string tensors.
//!
//! Facts: the Carton v1 specification; `inner` on every tensor is a requirement of Carton's own client.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::SerializeMap;
use toml::Table;

use crate::config::{DataType, Parsed};
use crate::fields::{DocumentReader, TakenFields as Fields};
use crate::problem::ProblemKind;
use crate::{Problem, Result};

/// Index of the tensors that self tests and examples refer to. Carton's own client requires the document even if it lists no
/// tensors.
///
/// ```
/// use carton_format::{FileLen, Problem, TensorIndex};
///
/// let text = "[[tensor]]\nname = 'x'\ndtype = 'int16'\nshape = [2, 3]\nfile = 'x.bin'\n";
/// let parsed = TensorIndex::parse(text, &|_| FileLen::Bytes(12))?;
/// assert_eq!(parsed.document.find("x").and_then(|tensor| tensor.numel()), Some(6));
/// assert_eq!(parsed.filled_in.to_string(), "tensor_data/index.toml:1:1: tensor[0].inner is missing");
/// let error = TensorIndex::parse(text, &|_| FileLen::Bytes(11)).expect_err("12 are needed");
/// let Some(Problem::Document(problems)) = error.detail() else { panic!("{error}") };
/// assert!(problems.to_string().ends_with("is `x.bin` with 11 bytes, dtype and shape need 12"));
/// # Ok::<(), carton_format::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TensorIndex {
    /// Tensors in the document's order.
    #[serde(rename = "tensor")]
    pub tensors: Vec<TensorSpec>,
    #[serde(flatten)]
    pub other: Table,
}

/// Entry of a tensor in the index.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorSpec {
    /// A numeric or string tensor stored in a file.
    Array {
        name: String,
        /// Data type of the elements.
        dtype: DataType,
        shape: Vec<u64>,
        /// Name of the file in `tensor_data/`: `.bin` (little-endian, C order), for strings `.toml`.
        file: String,
        other: Table,
    },
    /// A ragged tensor that consists of other tensors.
    Nested {
        name: String,
        /// Names of the inner tensors, none of which is nested.
        inner: Vec<String>,
        other: Table,
    },
}

/// Length of a file of a carton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLen {
    /// A file that does not exist.
    Missing,
    /// A file that is left out of the carton and can be fetched.
    Unknown,
    /// Length of the file in bytes.
    Bytes(u64),
}

const NESTED: &str = "nested";

impl TensorSpec {
    /// Returns the tensor's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Array { name, .. } | Self::Nested { name, .. } => name,
        }
    }

    /// Returns the length in bytes of a numeric tensor's file; `None` for string and nested tensors, or if it does not fit
    /// 64 bits.
    pub fn nbytes(&self) -> Option<u64> {
        let Self::Array { dtype, shape, .. } = self else { return None };
        shape.iter().try_fold(dtype.size()?, |product, size| product.checked_mul(*size))
    }

    /// Returns the number of elements; `None` for nested tensors, or if it does not fit 64 bits.
    pub fn numel(&self) -> Option<u64> {
        let Self::Array { shape, .. } = self else { return None };
        shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))
    }
}

/// Writes an `inner` for every tensor, which Carton's own client requires.
impl Serialize for TensorSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.name())?;
        let other = match self {
            Self::Array { dtype, shape, file, other, .. } => {
                map.serialize_entry("dtype", dtype)?;
                map.serialize_entry("shape", shape)?;
                map.serialize_entry("file", file)?;
                map.serialize_entry("inner", &[(); 0])?;
                other
            }
            Self::Nested { inner, other, .. } => {
                map.serialize_entry("dtype", NESTED)?;
                map.serialize_entry("inner", inner)?;
                other
            }
        };
        other.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

impl TensorIndex {
    /// Path of the document in a carton.
    pub const PATH: &'static str = "tensor_data/index.toml";

    /// Prints the document as TOML.
    ///
    /// # Errors
    /// When TOML cannot express it.
    pub fn to_toml(&self) -> Result<String, Problem> {
        toml::to_string(self)
            .map_err(|error| Problem::Print { document: Self::PATH, reason: error.to_string() })
    }

    /// Returns the tensor with the name `name`.
    pub fn find(&self, name: &str) -> Option<&TensorSpec> {
        self.tensors.iter().find(|tensor| tensor.name() == name)
    }

    /// Parses and checks the document; `len` returns the length of a file of the carton.
    ///
    /// # Errors
    /// All problems of the document, each with its place.
    pub fn parse(text: &str, len: &dyn Fn(&str) -> FileLen) -> Result<Parsed<Self>> {
        let (mut source, root) = DocumentReader::parse(Self::PATH, text).map_err(Problem::Document)?;
        let mut root = source.fields("", root.get_ref());
        let mut index = Self::default();
        let tables = root.take("tensor").map(|field| source.list(&field)).unwrap_or_default();
        let mut paths = Vec::new();
        let mut names: HashMap<String, bool> = HashMap::new();
        for field in tables {
            let Some(table) = source.table(&field) else { continue };
            if let Some(tensor) = read_tensor_spec(&mut source, table) {
                let at = format!("{}.name", field.path);
                let is_nested = matches!(tensor, TensorSpec::Nested { .. });
                if names.insert(tensor.name().to_owned(), is_nested).is_some() {
                    source.add_problem(&at, ProblemKind::Duplicate { name: tensor.name().to_owned() });
                }
                index.tensors.push(tensor);
                paths.push(field.path);
            }
        }
        index.other = source.remaining_fields(root);
        for (tensor, path) in index.tensors.iter().zip(&paths) {
            match tensor {
                TensorSpec::Array { dtype, file, .. } => {
                    let at = format!("{path}.file");
                    match len(&format!("tensor_data/{file}")) {
                        FileLen::Missing => {
                            source.add_problem(&at, ProblemKind::Reference { target: file.clone() });
                        }
                        FileLen::Bytes(found) if dtype.size().is_some() && tensor.nbytes() != Some(found) => {
                            let expected = tensor
                                .nbytes()
                                .map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string());
                            source.add_problem(
                                &at,
                                ProblemKind::FileLength { file: file.clone(), found, expected },
                            );
                        }
                        FileLen::Bytes(_) | FileLen::Unknown => {}
                    }
                }
                TensorSpec::Nested { inner, .. } => {
                    for (number, name) in inner.iter().enumerate() {
                        let at = format!("{path}.inner[{number}]");
                        match names.get(name) {
                            None => source.add_problem(&at, ProblemKind::Reference { target: name.clone() }),
                            Some(true) => source.add_problem(&at, ProblemKind::Nested { name: name.clone() }),
                            Some(false) => {}
                        }
                    }
                }
            }
        }
        let (added, _) = source.finish().map_err(Problem::Document)?;
        Ok(Parsed { document: index, filled_in: added })
    }
}

fn read_tensor_spec<'t>(source: &mut DocumentReader<'t>, mut table: Fields<'_, 't>) -> Option<TensorSpec> {
    let before = source.problem_count();
    let name = table.required_string(source, "name");
    let dtype = table.required_string(source, "dtype");
    let path = table.path.clone();
    let inner = table.take("inner");
    if dtype == NESTED {
        let Some(inner) = inner else {
            source.add_missing(&path, "inner");
            return None;
        };
        let inner = source.strings(&inner);
        let other = source.remaining_fields(table);
        return (source.problem_count() == before).then_some(TensorSpec::Nested { name, inner, other });
    }
    let at = format!("{path}.dtype");
    let known = DataType::from_name(&dtype);
    if known.is_none() && source.has(&at) {
        let expected = format!("one of {}, {NESTED}", DataType::names());
        source.add_problem(&at, ProblemKind::Value { found: dtype, expected });
    }
    match inner {
        None => source.add_filled_in(&path, "inner"),
        Some(inner) => {
            if !source.list(&inner).is_empty() {
                let expected = "an empty list unless dtype is nested".to_owned();
                source.add_problem(&inner.path, ProblemKind::Value { found: "filled".to_owned(), expected });
            }
        }
    }
    let shape = table.take("shape");
    if shape.is_none() {
        source.add_missing(&path, "shape");
    }
    let shape = shape.map(|field| source.list(&field)).unwrap_or_default();
    let shape = shape.iter().filter_map(|item| source.number(item)).collect();
    let file = table.required_string(source, "file");
    let at = format!("{path}.file");
    if let Some(dtype) = known
        && source.has(&at)
    {
        let ending = if dtype == DataType::String { ".toml" } else { ".bin" };
        let plain = !file.contains(['/', '\\']) && file.len() > ending.len();
        if !plain || !file.ends_with(ending) || file == "index.toml" {
            let expected = format!("the name of a {ending} file in tensor_data");
            source.add_problem(&at, ProblemKind::Value { found: file.clone(), expected });
        }
    }
    let other = source.remaining_fields(table);
    let is_right = source.problem_count() == before;
    known.filter(|_| is_right).map(|dtype| TensorSpec::Array { name, dtype, shape, file, other })
}

/// Content of a string tensor's file: the elements in C order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StringTensorFile {
    pub data: Vec<String>,
}

impl StringTensorFile {
    /// Parses the file at `path`, whose tensor has `expected` elements.
    ///
    /// # Errors
    /// All problems of the document, each with its place.
    pub fn parse(path: &str, text: &str, expected: u64) -> Result<Self> {
        let (mut source, root) = DocumentReader::parse(path, text).map_err(Problem::Document)?;
        let mut root = source.fields("", root.get_ref());
        let mut data = Vec::new();
        match root.take("data") {
            Some(field) => {
                data = source.strings(&field);
                let found = data.len() as u64;
                if source.problem_count() == 0 && found != expected {
                    let file = path.rsplit('/').next().unwrap_or(path).to_owned();
                    source.add_problem(&field.path, ProblemKind::Strings { file, found, expected });
                }
            }
            None => source.add_missing("", "data"),
        }
        source.finish().map_err(Problem::Document)?;
        Ok(Self { data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_index_still_has_its_table() {
        assert_eq!(TensorIndex::default().to_toml().ok().as_deref(), Some("tensor = []\n"));
    }

    #[test]
    fn an_index_survives_parsing_and_printing() {
        let text = "note = \"kept\"\n\n[[tensor]]\nname = \"x\"\ndtype = \"float32\"\nshape = [2]\n\
                    file = \"x.bin\"\ninner = []\nunit = \"m\"\n\n[[tensor]]\nname = \"r\"\ndtype = \"nested\"\n\
                    inner = [\"x\", \"x\"]\n";
        let parsed = TensorIndex::parse(text, &|_| FileLen::Bytes(8)).expect("the index is valid");
        assert!(parsed.filled_in.0.is_empty());
        let again = parsed.document.to_toml().expect("TOML holds it");
        assert_eq!(TensorIndex::parse(&again, &|_| FileLen::Bytes(8)).ok(), Some(parsed));
    }
}
