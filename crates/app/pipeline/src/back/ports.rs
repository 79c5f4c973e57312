//! The inputs and outputs of a module in a report.

use carton_format::Dimension;
use serde::Serialize;

/// An input or output of the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Its dtype.
    pub dtype: &'static str,
    /// Its dimensions: numbers, or symbols for any size.
    pub shape: Vec<Dimension>,
    /// Whether it may be omitted.
    pub optional: bool,
}

impl From<torchscript::Port> for PortReport {
    fn from(port: torchscript::Port) -> Self {
        let dimension = |dim: torchscript::Dim| match dim {
            torchscript::Dim::Symbol(symbol) => Dimension::Symbol(symbol),
            torchscript::Dim::Size(size) => Dimension::Size(size),
        };
        Self {
            name: port.name,
            dtype: port.dtype.name(),
            shape: port.shape.into_iter().map(dimension).collect(),
            optional: port.optional,
        }
    }
}
