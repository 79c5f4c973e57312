//! Determines the entries of the `state_dict()` of a pickled `nn.Module`.
//!
//! Facts: `Module.state_dict` in `torch/nn/modules/module.py`; the `_save_to_state_dict` and `__getstate__` of
//! `torch/ao/nn/quantized`, `torch/ao/nn/sparse/quantized` and their former locations in `torch/nn`;
//! `_save_packed_weight` in `torch/ao/quantization/fx/_lower_to_native_backend.py`; `reduce_graph_module` in
//! `torch/fx/graph_module.py`; `_reconstruct_persistent_obj` in `torch_utils/persistence.py` of NVIDIA's `stylegan3` and `edm`.

use std::borrow::Cow;

use foldhash::{HashSet, HashSetExt};
use pickle_vm::{Heap, Instance, ObjectId};

use crate::dicts::{BuildState, Child, ChildStep, Dicts};
use crate::persistent::module_class;
use crate::{Result, key};

/// Items of the state tuple of a quantized convolution: `_ConvNd.__getstate__`.
const CONV_STATE_ITEMS: [&str; 15] = [
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
    "padding_mode",
    "weight",
    "bias",
    "scale",
    "zero_point",
    "training",
];
const CONV_STATE_DICT_ITEMS: [&str; 4] = ["weight", "bias", "scale", "zero_point"];
/// Items of the state tuple of `LinearPackedParams` in TorchScript archives of PyTorch 1.4.
const PACKED_PARAMS_ITEMS: [&str; 4] = ["_packed_params.0", "_packed_params.1", "training", "dtype"];

/// Attributes that `_save_to_state_dict` adds to the state, by the class's name.
const ADDED_BY_CLASS: &[(&str, &[&str])] = &[
    ("LinearPackedParams", &["dtype", "_packed_params"]),
    ("EmbeddingPackedParams", &["dtype", "_packed_weight"]),
    ("PackedParameter", &["param"]),
    ("QFunctional", &["scale", "zero_point"]),
    ("LSTMCell", &["_packed_weight_ih", "_packed_weight_hh"]),
    ("GRUCell", &["_packed_weight_ih", "_packed_weight_hh"]),
    ("RNNCell", &["_packed_weight_ih", "_packed_weight_hh"]),
];
/// Attributes that a module with packed parameters adds: `Linear`, and the dynamic `Linear` for sparse weights.
const ADDED_WITH_PACKED_PARAMS: &[&str] = &["scale", "zero_point", "_op_type"];
/// Attributes that every class of `torch.ao.nn.quantized.reference` adds.
const ADDED_BY_REFERENCE_CLASSES: &[&str] = &["weight_qscheme", "weight_dtype"];
/// Attribute of a module quantized with FX, followed by a number.
const PACKED_WEIGHT: &str = "_packed_weight";

/// Returns the entries of a module's `state_dict()`: parameters, persistent buffers, the additions of its class, and
/// submodules. `None` if `instance` is not a module.
pub(crate) fn state_dict_children(dicts: &mut Dicts<'_>, instance: &Instance) -> Result<Option<Vec<Child>>> {
    let heap = dicts.heap();
    let class = ModuleClass::read(heap, instance);
    if let Some(children) = class.and_then(|class| tuple_state(heap, instance, class)) {
        return Ok(Some(children));
    }
    let Some(attributes) = attributes(heap, instance) else { return Ok(None) };
    let attribute = |name: &str| find_attribute(heap, &attributes, name);
    let (Some((_, parameters)), Some((_, modules))) = (attribute("_parameters"), attribute("_modules"))
    else {
        return Ok(None);
    };
    // Parameters that are registered but not set are `None`.
    let is_set = |child: &Child| !heap.is_none(child.id);
    let entries = |dicts: &mut Dicts<'_>, dict: ObjectId| -> Result<Vec<Child>> {
        let children = dicts.children(dict)?;
        Ok(children.map(|children| children.iter().filter(is_set).collect()).unwrap_or_default())
    };
    let mut children = entries(dicts, parameters)?;
    if let Some((_, buffers)) = attribute("_buffers") {
        let transient =
            non_persistent_buffers(dicts, attribute("_non_persistent_buffers_set").map(|(_, set)| set))?;
        let is_persistent = |child: &Child| match child.step {
            ChildStep::Key(key) => !transient.contains(key::name_part(heap, key).as_ref()),
            _ => true,
        };
        children.extend(entries(dicts, buffers)?.into_iter().filter(is_persistent));
    }
    let modules = entries(dicts, modules)?;
    children.extend(class_additions(heap, class, &attributes, &modules));
    children.extend(modules);
    Ok(Some(children))
}

/// Returns true if an instance is a pickled `nn.Module` with attributes.
pub(crate) fn is_module(heap: &Heap<'_>, instance: &Instance) -> bool {
    attributes(heap, instance).is_some_and(|attributes| {
        find_attribute(heap, &attributes, "_parameters").is_some()
            && find_attribute(heap, &attributes, "_modules").is_some()
    })
}

/// Attributes of every module; `state_dict()` returns the contents of the first three.
pub(crate) const COMMON_ATTRIBUTES: [&str; 5] =
    ["_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"];

/// Returns all attributes of a module, including those that `state_dict()` does not return. `None` if `instance` is not
/// a module.
pub(crate) fn own_attributes(heap: &Heap<'_>, instance: &Instance) -> Option<Vec<Child>> {
    if let Some(class) = ModuleClass::read(heap, instance)
        && let Some(items) = conv_state(heap, instance, class)
    {
        return Some(name_items(&CONV_STATE_ITEMS, items));
    }
    let attributes = attributes(heap, instance)?;
    let has = |name: &str| find_attribute(heap, &attributes, name).is_some();
    let is_module = has("_parameters") && has("_modules");
    is_module.then(|| attributes.into_iter().map(|(key, id)| Child::new(ChildStep::Key(key), id)).collect())
}

/// The module and the name of a Python class.
#[derive(Clone, Copy)]
struct ModuleClass<'h> {
    module: &'h str,
    name: &'h str,
}

impl<'h> ModuleClass<'h> {
    /// Returns the class of an instance, which NEWOBJ names or `copyreg._reconstructor` takes as an argument.
    fn read(heap: &'h Heap<'_>, instance: &Instance) -> Option<Self> {
        let (module, name) = match heap.global(instance.callable) {
            Some(("copyreg" | "copy_reg", "_reconstructor")) => {
                let class = *heap.items(instance.args)?.first()?;
                heap.global(class).or_else(|| heap.global(module_class(heap, class)?))?
            }
            Some(names) => names,
            None => heap.global(module_class(heap, instance.callable)?)?,
        };
        Some(Self { module, name })
    }

    /// Returns true for a class of PyTorch's quantized modules, or its copy in a TorchScript archive.
    fn is_quantized(self) -> bool {
        let module = self.module.strip_prefix(TORCHSCRIPT_PREFIX).unwrap_or(self.module);
        let mut parts = module.split('.');
        parts.next() == Some("torch") && parts.any(|part| part == "quantized")
    }

    fn is_reference(self) -> bool {
        self.is_quantized() && self.module.split('.').any(|part| part == "reference")
    }

    fn is_scripted(self) -> bool {
        self.module.starts_with(TORCHSCRIPT_PREFIX)
    }
}

/// Prefix of module names in TorchScript archives.
const TORCHSCRIPT_PREFIX: &str = "__torch__.";

/// Returns the children of a quantized module whose state is a tuple.
fn tuple_state(heap: &Heap<'_>, instance: &Instance, class: ModuleClass<'_>) -> Option<Vec<Child>> {
    if let Some(items) = conv_state(heap, instance, class) {
        let mut children = name_items(&CONV_STATE_ITEMS, items);
        // A scripted module has no `state_dict()` entries for the items, so all of them keep their names in the
        // archive.
        if !class.is_scripted() {
            children.retain(
                |child| matches!(child.step, ChildStep::Name(name) if CONV_STATE_DICT_ITEMS.contains(&name)),
            );
            for child in &mut children {
                child.becomes_tensor = true;
            }
        }
        return Some(children);
    }
    let items = quantized_state(heap, instance, class)?;
    (class.name == "LinearPackedParams" && items.len() == PACKED_PARAMS_ITEMS.len())
        .then(|| name_items(&PACKED_PARAMS_ITEMS, items))
}

/// Returns the state of a quantized module if it is a tuple.
fn quantized_state<'h>(
    heap: &'h Heap<'_>,
    instance: &Instance,
    class: ModuleClass<'_>,
) -> Option<&'h [ObjectId]> {
    let items = heap.items(*instance.state().last()?)?;
    (class.is_quantized() && !class.is_reference()).then_some(items)
}

/// Returns the state of a quantized convolution if it is a tuple.
fn conv_state<'h>(heap: &'h Heap<'_>, instance: &Instance, class: ModuleClass<'_>) -> Option<&'h [ObjectId]> {
    let items = quantized_state(heap, instance, class)?;
    (class.name.starts_with("Conv") && items.len() == CONV_STATE_ITEMS.len()).then_some(items)
}

fn name_items(names: &[&'static str], items: &[ObjectId]) -> Vec<Child> {
    names.iter().zip(items).map(|(name, id)| Child::new(ChildStep::Name(name), *id)).collect()
}

/// Returns the attributes of an instance: its state, or the dict from which an FX graph module is created.
fn attributes(heap: &Heap<'_>, instance: &Instance) -> Option<Vec<(ObjectId, ObjectId)>> {
    let dict = match heap.global(instance.callable) {
        Some(("torch.fx.graph_module", name)) if name.starts_with("reduce_") => {
            *heap.items(instance.args)?.iter().find(|arg| heap.entries(**arg).is_some())?
        }
        // A class that travels with its code: the only argument is a dict with the state.
        Some((module, "_reconstruct_persistent_obj")) if module.ends_with("persistence") => {
            let meta = heap.entries(*heap.items(instance.args)?.first()?)?;
            find_attribute(heap, meta, "state")?.1
        }
        _ => *instance.state().last()?,
    };
    match BuildState::read(heap, dict) {
        BuildState::Attributes(dicts) => Some(dicts.into_iter().flatten().copied().collect()),
        BuildState::Other => None,
    }
}

/// Returns the key and the last value of an attribute.
fn find_attribute(
    heap: &Heap<'_>,
    attributes: &[(ObjectId, ObjectId)],
    name: &str,
) -> Option<(ObjectId, ObjectId)> {
    attributes.iter().rev().find(|(key, _)| heap.text(*key).as_deref() == Some(name)).copied()
}

/// Returns the entries that the class of a module adds to its state.
fn class_additions(
    heap: &Heap<'_>,
    class: Option<ModuleClass<'_>>,
    attributes: &[(ObjectId, ObjectId)],
    modules: &[Child],
) -> Vec<Child> {
    let mut children = Vec::new();
    let mut add = |names: &[&'static str]| {
        for name in names {
            let Some((key, id)) = find_attribute(heap, attributes, name) else { continue };
            let step = if *name == "_op_type" { ChildStep::Name("op_type") } else { ChildStep::Key(key) };
            let id = if *name == PACKED_WEIGHT { embedding_weight(heap, id).unwrap_or(id) } else { id };
            children.push(Child { step, id, becomes_tensor: matches!(*name, "scale" | "zero_point") });
        }
    };
    if let Some(class) = class.filter(|class| class.is_quantized()) {
        let of_class = ADDED_BY_CLASS.iter().find(|(name, _)| *name == class.name);
        add(of_class.map(|(_, names)| *names).unwrap_or_default());
        if class.is_reference() {
            add(ADDED_BY_REFERENCE_CLASSES);
        }
    }
    let is_packed = |child: &Child| {
        let class = heap.instance(child.id).and_then(|instance| ModuleClass::read(heap, instance));
        let is_it = class.is_some_and(|class| class.is_quantized() && class.name == "LinearPackedParams");
        is_it
            && matches!(child.step, ChildStep::Key(key) if heap.text(key).as_deref() == Some("_packed_params"))
    };
    if modules.iter().any(is_packed) {
        add(ADDED_WITH_PACKED_PARAMS);
    }
    // A hook of a module quantized with FX adds these entries, in the order of `dir()`.
    let is_object = |id: ObjectId| {
        let names = heap.instance(id).and_then(|instance| heap.global(instance.callable));
        matches!(names, Some(("torch" | "torch._C", "ScriptObject")))
    };
    let has_hook = |(_, hooks): (ObjectId, ObjectId)| {
        let hooks = heap.instance(hooks).map(Instance::items).or_else(|| heap.entries(hooks));
        hooks
            .unwrap_or_default()
            .iter()
            .any(|(_, hook)| heap.global(*hook).is_some_and(|(_, name)| name == "_save_packed_weight"))
    };
    if find_attribute(heap, attributes, "_state_dict_hooks").is_some_and(has_hook) {
        let packed = attributes.iter().filter(|(key, id)| {
            heap.text(*key).is_some_and(|key| key.contains(PACKED_WEIGHT)) && is_object(*id)
        });
        children.extend(packed.map(|(key, id)| Child::new(ChildStep::Key(*key), *id)));
    }
    children
}

/// Returns the weight in the packed parameters of a quantized embedding, whose state is `((1, [weight], [], [bits]),
/// class)`.
fn embedding_weight(heap: &Heap<'_>, packed: ObjectId) -> Option<ObjectId> {
    let state = *heap.instance(packed)?.state().last()?;
    let inner = *heap.items(state)?.first()?;
    let &[_version, tensors, ..] = heap.items(inner)? else { return None };
    heap.items(tensors)?.first().copied()
}

fn non_persistent_buffers<'h>(dicts: &mut Dicts<'h>, set: Option<ObjectId>) -> Result<HashSet<Cow<'h, str>>> {
    let heap = dicts.heap();
    let mut names = HashSet::new();
    for name in set.and_then(|set| set_items(heap, set)).unwrap_or_default() {
        let part = key::name_part(heap, *name);
        dicts.steps.spend(part.len() / 16, heap.offset(*name))?;
        dicts.steps.spend(1, heap.offset(*name))?;
        names.insert(part);
    }
    Ok(names)
}

/// Returns the items of a set, which protocols before 4 write as a call of `set` with a list.
fn set_items<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<&'h [ObjectId]> {
    match heap.instance(id) {
        Some(instance) => heap.items(*heap.items(instance.args)?.first()?),
        None => heap.items(id),
    }
}
