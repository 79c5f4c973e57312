//! Inputs and outputs of a module, for reports.

use carton_format::Dimension;
use serde::Serialize;

/// Input or output of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PortReport {
    pub name: String,
    /// PyTorch's name of the dtype.
    pub dtype: &'static str,
    /// Dimensions: sizes, or symbols for any size.
    pub shape: Vec<Dimension>,
    /// True if the input or output may be omitted.
    pub optional: bool,
}

impl From<torchscript::ModulePort> for PortReport {
    fn from(port: torchscript::ModulePort) -> Self {
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
