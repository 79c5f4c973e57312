//! `carton.toml` as types.
//!
//! Facts: the Carton v1 specification, whose order and names the fields have.

use serde::Serialize;
use toml::Table;

use crate::fields::Places;
use crate::problem::{Kind, Problem, Problems};
use crate::spec::SPEC_VERSION;

/// The whole document, with its fields in the specification's order and under its names. In each part, `other`
/// has the fields that the specification does not define, unchanged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Always [`SPEC_VERSION`].
    pub spec_version: u64,
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// At most [`SHORT_DESCRIPTION_MAX`](crate::SHORT_DESCRIPTION_MAX) characters.
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
    /// Target triples; empty means any platform.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_platforms: Vec<String>,
    /// What the model takes, in order.
    #[serde(rename = "input", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Port>,
    /// What it returns, in order.
    #[serde(rename = "output", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Port>,
    /// Inputs with their expected outputs.
    #[serde(rename = "self_test", skip_serializing_if = "Vec::is_empty")]
    pub self_tests: Vec<SelfTest>,
    /// Inputs and outputs as an illustration.
    #[serde(rename = "example", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// The runner that executes the model.
    pub runner: Runner,
    /// Unknown fields and tables.
    #[serde(flatten)]
    pub other: Table,
    /// The places of the keys in the text that this was parsed from.
    #[serde(skip)]
    pub(crate) places: Places,
}

/// An input or an output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// The name that callers use.
    pub name: String,
    /// The type of its elements.
    pub dtype: DataType,
    /// Its shape, in elements.
    pub shape: Shape,
    /// What it means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What the runner calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_name: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub other: Table,
}

/// The eleven element types of Carton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the specification's own")]
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

/// One row per type: the type, the specification's name, bytes per element; strings have no fixed length.
const TYPES: &[(DataType, &str, Option<u64>)] = &[
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
    /// The type that the specification calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The specification's name.
    pub fn name(self) -> &'static str {
        TYPES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Bytes per element; `None` for strings.
    pub fn size(self) -> Option<u64> {
        TYPES.iter().find(|row| row.0 == self).and_then(|row| row.2)
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        TYPES.iter().map(|row| row.1).collect::<Vec<_>>().join(", ")
    }
}

/// A shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Shape {
    /// `*` is any shape; any other symbol is the same shape wherever it is used.
    Symbol(String),
    /// One entry per dimension; empty for a scalar.
    Dimensions(Vec<Dimension>),
}

impl Shape {
    /// Any shape at all.
    pub fn any() -> Self {
        Self::Symbol(ANY.to_owned())
    }
}

/// The symbol that can have a different value each time.
pub(crate) const ANY: &str = "*";

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

/// One dimension of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dimension {
    /// The same number of elements wherever the symbol appears; `*` is any number each time.
    Symbol(String),
    /// A fixed number of elements.
    Size(u64),
}

/// Inputs with the expected outputs, which are compared as by numpy's `allclose`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SelfTest {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// References to tensors, such as `@tensor_data/x`, by input.
    pub inputs: References,
    /// The same by output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_out: Option<References>,
    /// Unknown fields.
    #[serde(flatten)]
    pub other: Table,
}

/// Inputs and outputs as an illustration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Example {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// References to tensors or files, such as `@misc/cat.png`, by input.
    pub inputs: References,
    /// The same by output.
    pub sample_out: References,
    /// Unknown fields.
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

/// The runner that a model needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Runner {
    /// Its name, such as `torchscript`.
    pub runner_name: String,
    /// A semver requirement on its framework.
    pub required_framework_version: String,
    /// The version of what the runner expects in `model/`.
    pub runner_compat_version: u64,
    /// Options for the runner: integers, floats, strings and booleans by name.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub opts: Table,
    /// Unknown fields.
    #[serde(flatten)]
    pub other: Table,
}

impl Config {
    /// The fields that the specification does not define, by their keys, such as `runner.colour`.
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
    /// A runner without options.
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
    /// An input or output without description and internal name.
    pub fn new(name: &str, dtype: DataType, shape: Shape) -> Self {
        let (description, internal_name) = (None, None);
        Self { name: name.to_owned(), dtype, shape, description, internal_name, other: Table::new() }
    }
}

impl Config {
    /// Its path in a carton.
    pub const PATH: &'static str = "carton.toml";

    /// A document that has only the model's runner.
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
            places: Places::new(),
        }
    }

    pub(crate) fn problem(&self, key: String, kind: Kind) -> Problem {
        Problem { document: Self::PATH.to_owned(), place: self.places.get(&key).copied(), key, kind }
    }
}

/// A parsed document, and the fields that were missing and filled in because Carton's own client requires them.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<T> {
    /// The document.
    pub document: T,
    /// The fields that were filled in.
    pub added: Problems,
}
