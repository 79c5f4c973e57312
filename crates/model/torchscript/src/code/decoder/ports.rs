//! Conversion of a decoder's inputs and outputs to those of a module.

use decoder::Decoder;
use decoder::interface::{DecoderPort, PortDim, PortSizes};

use crate::{Dim, ModulePort};

pub(super) fn ports(decoder: &Decoder) -> (Vec<ModulePort>, Vec<ModulePort>) {
    let sizes = PortSizes::from(decoder);
    let dim = |dim| match dim {
        PortDim::Symbol(symbol) => Dim::Symbol(symbol.to_owned()),
        PortDim::Size(size) => Dim::Size(size),
    };
    let port = |port: DecoderPort| ModulePort {
        name: port.name().to_owned(),
        dtype: port.dtype(),
        shape: port.shape(&sizes).into_iter().map(dim).collect(),
        description: Some(port.description(&sizes)),
        optional: port.is_optional(),
    };
    let all = |ports: Vec<DecoderPort>| ports.into_iter().map(port).collect();
    (all(DecoderPort::inputs(&sizes)), all(DecoderPort::outputs(&sizes)))
}
