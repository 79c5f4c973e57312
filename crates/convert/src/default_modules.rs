//! The modules that conversions write with default options, with which the code of a carton is compared.

use decoder::Overrides;
use open::Model;
use open::files::ShardPolicy;
use torch_import::Container;
use torchscript::{Module, OnInvalidInput, ScriptOptions, WrapOutcome};

use crate::input::script::convert_script;
use crate::options::model_options::convert_to_module;
use crate::{ArchitectureChoice, ModelOptions};

const USUAL: [OnInvalidInput; 2] = [OnInvalidInput::Return, OnInvalidInput::Raise];

/// Returns the modules that conversions of `model` write with default options: weights, a decoder, and a decoder that keeps unused
/// tensors; with `keeps_code`, those that keep the code of a TorchScript archive, first. Each with returned and with raised errors.
pub fn default_modules(
    model: &Model,
    shards: ShardPolicy,
    keeps_code: bool,
) -> Box<dyn Iterator<Item = Module> + '_> {
    let scripts = model.containers.iter().filter(move |_| keeps_code).flat_map(scripts);
    let usual = [
        (ArchitectureChoice::Weights, false),
        (ArchitectureChoice::Auto, false),
        (ArchitectureChoice::Auto, true),
    ];
    let usual = USUAL.into_iter().flat_map(move |errors| {
        usual.clone().map(|(architecture, keep_extra)| (ModelOptions { architecture, keep_extra }, errors))
    });
    let converted = usual.filter_map(move |(options, errors)| {
        let given = Overrides::default();
        convert_to_module(&options, errors, model, shards, given, model.tensors()).ok()
    });
    Box::new(scripts.chain(converted))
}

/// Returns the modules that keep the code of a container; none if it has no code that runs.
fn scripts(container: &Container) -> impl Iterator<Item = Module> {
    let usual = USUAL.into_iter().filter(|_| container.is_torchscript());
    usual.filter_map(|errors| match convert_script(container, &ScriptOptions::default(), Some(errors)) {
        Ok(WrapOutcome::Module(converted)) => Some(converted),
        _ => None,
    })
}
