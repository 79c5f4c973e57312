//! `carton.toml`.

use serde::Serialize;

use crate::Error;

/// The version of the specification that these types follow.
pub const SPEC_VERSION: u64 = 1;
/// Characters of a short description, at most.
pub const SHORT_DESCRIPTION_MAX: usize = 100;

/// The whole document, its fields in the specification's order and words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Always [`SPEC_VERSION`].
    pub spec_version: u64,
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// At most [`SHORT_DESCRIPTION_MAX`] characters.
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
    /// What the model takes, in order.
    #[serde(rename = "input", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Port>,
    /// What it returns, in order.
    #[serde(rename = "output", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Port>,
    /// Who runs it.
    pub runner: Runner,
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

/// A shape: one entry a dimension; none for a scalar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<Dimension>);

/// One dimension of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dimension {
    /// The same number of elements wherever the symbol appears; `*` is any number each time.
    Symbol(String),
    /// A fixed number of elements.
    Size(u64),
}

/// The runner that a model needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Runner {
    /// Its name, such as `torchscript`.
    pub runner_name: String,
    /// A semver requirement on its framework.
    pub required_framework_version: String,
    /// The version of what the runner expects in `model/`.
    pub runner_compat_version: u64,
}

impl Config {
    /// The document as TOML.
    ///
    /// # Errors
    /// When the short description is too long, or a number is past what TOML holds (63 bits).
    pub fn to_toml(&self) -> Result<String, Error> {
        let found = self.short_description.as_ref().map_or(0, |text| text.chars().count());
        if found > SHORT_DESCRIPTION_MAX {
            return Err(Error::ShortDescription { found });
        }
        toml::to_string(self)
            .map_err(|error| Error::Print { document: "carton.toml", reason: error.to_string() })
    }
}
