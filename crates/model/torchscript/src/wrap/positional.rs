//! Inputs and outputs of a wrapper whose `forward` takes and returns tensors, as Triton's PyTorch backend calls it.
//!
//! Facts: `src/pt/model_instance_state.cc` in `triton-inference-server/pytorch_backend`: each argument of `forward` is a tensor
//! that every request has, under the name of the argument; the result is a tensor or a tuple of tensors. Triton's
//! `config.pbtxt` cannot describe a tensor without dimensions, so such a tensor has one dimension of size 1 there.

use std::fmt::Write;

use super::leaves::{CallPlan, NamedLeaf};
use super::object::{WRAPPED_ATTRIBUTE, WRAPPER_CLASS};
use super::template_text::template_literal;
use crate::source_names::is_identifier;
use crate::{Dim, ModulePort, Problem, Result};

#[derive(Debug)]
pub(super) struct PositionalCall {
    pub(super) inputs: Vec<PositionalPort>,
    pub(super) outputs: Vec<PositionalPort>,
}

#[derive(Debug)]
pub(super) struct PositionalPort {
    pub(super) port: ModulePort,
    /// True if the tensor of the original module has no dimensions.
    pub(super) is_scalar: bool,
}

impl PositionalCall {
    /// Selects the inputs that the module requires or the user declared, and all outputs.
    ///
    /// # Errors
    /// When an input or output has no known dtype and shape, or the backend cannot pass or take it.
    pub(super) fn new(plan: &CallPlan) -> Result<Self> {
        let is_declared = |name: &str| plan.declared.iter().any(|declared| declared.name == name);
        let starts = |prefix: &str| plan.declared.iter().any(|declared| declared.name.starts_with(prefix));
        let is_missing = |named: &&NamedLeaf| {
            let is_missing_tensor = named.is_tensor() && !is_declared(&named.name);
            is_missing_tensor || (named.is_collection && !starts(&named.name))
        };
        let required = plan.known.iter().filter(|named| !named.optional);
        let names: Vec<String> = required.filter(is_missing).map(NamedLeaf::name_for_messages).collect();
        let (inputs, outputs) = plan.ports();
        let has_type = |named: &&NamedLeaf| outputs.iter().any(|port| port.name == named.name);
        let untyped = plan.outputs.iter().filter(|named| named.is_tensor() && !has_type(named));
        let mut untyped: Vec<String> = untyped.map(|named| named.name.clone()).collect();
        if untyped.is_empty() && outputs.is_empty() {
            untyped.extend(plan.outputs.iter().map(NamedLeaf::name_for_messages));
        }
        if !names.is_empty() {
            return Err(Problem::UntypedInputs { names, outputs: untyped }.into());
        }
        if let Some(text) = plan.outputs.iter().find(|named| named.is_text()) {
            return Err(Problem::TextOutput { name: text.name.clone() }.into());
        }
        let inputs: Vec<ModulePort> =
            inputs.into_iter().filter(|port| !port.optional || is_declared(&port.name)).collect();
        if let Some(port) = inputs.iter().find(|port| !is_identifier(&port.name) || port.name == "self") {
            return Err(Problem::NotAnArgument { name: port.name.clone() }.into());
        }
        if !untyped.is_empty() || outputs.is_empty() {
            return Err(Problem::UntypedOutputs { names: untyped }.into());
        }
        let ports = |ports: Vec<ModulePort>| ports.into_iter().map(PositionalPort::new).collect();
        Ok(Self { inputs: ports(inputs), outputs: ports(outputs) })
    }

    pub(super) fn write_class(&self, out: &mut String, original: &str) -> std::fmt::Result {
        write!(
            out,
            "class {WRAPPER_CLASS}(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  {WRAPPED_ATTRIBUTE} : {original}\n  \
             def forward(self: {{ns}}.{WRAPPER_CLASS}"
        )?;
        for input in &self.inputs {
            write!(out, ",\n    {}: Tensor", input.port.name)?;
        }
        let returned: Vec<&str> = self.outputs.iter().map(|_| "Tensor").collect();
        match returned.as_slice() {
            [only] => writeln!(out, ") -> {only}:")?,
            several => writeln!(out, ") -> Tuple[{}]:", several.join(", "))?,
        }
        // A name that no argument has.
        let dict = (0_u32..).map(|number| format!("given_{number}"));
        let mut free = dict.filter(|name| self.inputs.iter().all(|input| input.port.name != *name));
        let (given, out_name) = (free.next().unwrap_or_default(), free.next().unwrap_or_default());
        writeln!(out, "    {given} = annotate(Dict[str, Tensor], {{}})")?;
        for input in &self.inputs {
            let name = &input.port.name;
            let value = if input.is_scalar {
                format!("torch.reshape({name}, annotate(List[int], []))")
            } else {
                name.clone()
            };
            writeln!(out, "    torch._set_item({given}, {}, {value})", template_literal(name))?;
        }
        writeln!(out, "    {out_name} = {{ns}}.respond(self.{WRAPPED_ATTRIBUTE}, {given})")?;
        let returned = self.outputs.iter().map(|output| {
            format!(
                "{{ns}}.output({out_name}, {}, {})",
                template_literal(&output.port.name),
                literal(output.is_scalar)
            )
        });
        let returned: Vec<String> = returned.collect();
        match returned.as_slice() {
            [only] => writeln!(out, "    return {only}"),
            several => writeln!(out, "    return ({})", several.join(", ")),
        }
    }

    pub(super) fn into_ports(self) -> (Vec<ModulePort>, Vec<ModulePort>) {
        let ports = |ports: Vec<PositionalPort>| ports.into_iter().map(|port| port.port).collect();
        (ports(self.inputs), ports(self.outputs))
    }
}

impl PositionalPort {
    fn new(mut port: ModulePort) -> Self {
        let is_scalar = port.shape.is_empty();
        if is_scalar {
            port.shape.push(Dim::Size(1));
        }
        // Each request has all inputs, and the backend takes all outputs.
        port.optional = false;
        Self { port, is_scalar }
    }
}

fn literal(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}
