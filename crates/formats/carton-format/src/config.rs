//! Data types for `carton.toml`.
//!
//! Facts: the Carton v1 specification, whose field order and names the types follow.

use serde::Serialize;
use toml::Table;

use crate::fields::KeyPositions;
use crate::problem::{DocumentProblem, DocumentProblems, ProblemKind};
use crate::spec::SPEC_VERSION;

/// The `carton.toml` document, with its fields in the specification's order and under its names. In each struct, `other`
/// holds the fields that the specification does not define, unchanged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Specification version, always [`SPEC_VERSION`].
    pub spec_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Summary of at most [`SHORT_DESCRIPTION_MAX`](crate::SHORT_DESCRIPTION_MAX) characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_description: Option<String>,
    /// Markdown of any length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_description: Option<String>,
    /// An SPDX expression or free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// URL of the repository that packs the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// URL of the model's home page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// Supported target triples; empty for any platform.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_platforms: Vec<String>,
    /// Inputs of the model, in order.
    #[serde(rename = "input", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Port>,
    /// Outputs of the model, in order.
    #[serde(rename = "output", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Port>,
    /// Inputs with their expected outputs.
    #[serde(rename = "self_test", skip_serializing_if = "Vec::is_empty")]
    pub self_tests: Vec<SelfTest>,
    /// Sample inputs and outputs for illustration.
    #[serde(rename = "example", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// The runner that executes the model.
    pub runner: Runner,
    #[serde(flatten)]
    pub other: Table,
    /// Positions of the keys in the parsed text.
    #[serde(skip)]
    pub(crate) places: KeyPositions,
}

/// Declaration of an input or output of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// Name that callers use.
    pub name: String,
    /// Data type of the elements.
    pub dtype: DataType,
    pub shape: Shape,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Name that the runner uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_name: Option<String>,
    #[serde(flatten)]
    pub other: Table,
}

/// The eleven element types of the Carton format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataType {
    Float32,
    Float64,
    String,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
}

/// One row per type: the type, the specification's name, bytes per element. Strings have no fixed length.
const DATA_TYPES: &[(DataType, &str, Option<u64>)] = &[
    (DataType::Float32, "float32", Some(4)),
    (DataType::Float64, "float64", Some(8)),
    (DataType::String, "string", None),
    (DataType::Int8, "int8", Some(1)),
    (DataType::Int16, "int16", Some(2)),
    (DataType::Int32, "int32", Some(4)),
    (DataType::Int64, "int64", Some(8)),
    (DataType::UInt8, "uint8", Some(1)),
    (DataType::UInt16, "uint16", Some(2)),
    (DataType::UInt32, "uint32", Some(4)),
    (DataType::UInt64, "uint64", Some(8)),
];

impl DataType {
    /// Returns the type with the specification's name `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        DATA_TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the type's name in the specification.
    pub fn name(self) -> &'static str {
        DATA_TYPES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Returns the number of bytes per element; `None` for strings.
    pub fn size(self) -> Option<u64> {
        DATA_TYPES.iter().find(|row| row.0 == self).and_then(|row| row.2)
    }

    /// Returns all type names, for messages.
    pub(crate) fn names() -> String {
        DATA_TYPES.iter().map(|row| row.1).collect::<Vec<_>>().join(", ")
    }
}

/// Declared shape of an input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Shape {
    /// A symbol for the whole shape: `*` is any shape; any other symbol is the same shape wherever it is used.
    Symbol(String),
    /// One entry per dimension; empty for a scalar.
    Dimensions(Vec<Dimension>),
}

impl Shape {
    /// Returns the shape `*`, which fits any tensor.
    pub fn any() -> Self {
        Self::Symbol(ANY_SYMBOL.to_owned())
    }
}

/// Symbol that may have a different value at each use.
pub(crate) const ANY_SYMBOL: &str = "*";

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dimensions = match self {
            Self::Symbol(symbol) => return f.write_str(symbol),
            Self::Dimensions(dimensions) => dimensions,
        };
        f.write_str("[")?;
        for (index, dimension) in dimensions.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            match dimension {
                Dimension::Symbol(symbol) => f.write_str(symbol)?,
                Dimension::Size(size) => write!(f, "{size}")?,
            }
        }
        f.write_str("]")
    }
}

/// One dimension of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dimension {
    /// A symbol for the same number of elements wherever it is used; `*` is any number each time.
    Symbol(String),
    /// A fixed number of elements.
    Size(u64),
}

/// A self test: inputs with the expected outputs, which are compared like `numpy.allclose`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SelfTest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// References to tensors, such as `@tensor_data/x`, by input name.
    pub inputs: References,
    /// References to the expected tensors, by output name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_out: Option<References>,
    #[serde(flatten)]
    pub other: Table,
}

/// An example: sample inputs and outputs for illustration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Example {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// References to tensors or files, such as `@misc/cat.png`, by input name.
    pub inputs: References,
    /// References to tensors or files, by output name.
    pub sample_out: References,
    #[serde(flatten)]
    pub other: Table,
}

/// Names of inputs or outputs, each with a reference to its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References(pub Vec<(String, String)>);

impl Serialize for References {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, target)| (name, target)))
    }
}

/// The runner that executes the model, with its options.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Runner {
    /// Name of the runner, such as `torchscript`.
    pub runner_name: String,
    /// Semver requirement on the version of the runner's framework.
    pub required_framework_version: String,
    /// Version of the layout that the runner expects in `model/`.
    pub runner_compat_version: u64,
    /// Options for the runner: integers, floats, strings and booleans by name.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub opts: Table,
    #[serde(flatten)]
    pub other: Table,
}

impl Config {
    /// Returns the keys of the fields that the specification does not define, such as `runner.colour`.
    pub fn unknown_fields(&self) -> Vec<String> {
        let mut unknown: Vec<String> = self.other.keys().cloned().collect();
        let mut part = |name: String, other: &Table| {
            unknown.extend(other.keys().map(|key| format!("{name}.{key}")));
        };
        part("runner".to_owned(), &self.runner.other);
        for (array, ports) in [("input", &self.inputs), ("output", &self.outputs)] {
            for port in ports.iter().filter(|port| !port.other.is_empty()) {
                part(format!("{array} {}", port.name), &port.other);
            }
        }
        for test in &self.self_tests {
            part("self_test".to_owned(), &test.other);
        }
        for example in &self.examples {
            part("example".to_owned(), &example.other);
        }
        unknown
    }
}

impl Runner {
    /// Creates a runner without options.
    pub fn new(name: &str, framework: &str, compat: u64) -> Self {
        Self {
            runner_name: name.to_owned(),
            required_framework_version: framework.to_owned(),
            runner_compat_version: compat,
            opts: Table::new(),
            other: Table::new(),
        }
    }
}

impl Port {
    /// Creates an input or output without description and internal name.
    pub fn new(name: &str, dtype: DataType, shape: Shape) -> Self {
        let (description, internal_name) = (None, None);
        Self { name: name.to_owned(), dtype, shape, description, internal_name, other: Table::new() }
    }
}

impl Config {
    /// Path of the document in a carton.
    pub const PATH: &'static str = "carton.toml";

    /// Creates a document with only the runner.
    pub fn new(runner: Runner) -> Self {
        Self {
            spec_version: SPEC_VERSION,
            model_name: None,
            short_description: None,
            model_description: None,
            license: None,
            repository: None,
            homepage: None,
            required_platforms: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            self_tests: Vec::new(),
            examples: Vec::new(),
            runner,
            other: Table::new(),
            places: KeyPositions::new(),
        }
    }

    pub(crate) fn problem(&self, key: String, kind: ProblemKind) -> DocumentProblem {
        DocumentProblem { document: Self::PATH.to_owned(), place: self.places.get(&key).copied(), key, kind }
    }
}

/// A parsed document, and the missing fields that were filled in because Carton's own client requires them.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<T> {
    pub document: T,
    pub filled_in: DocumentProblems,
}
