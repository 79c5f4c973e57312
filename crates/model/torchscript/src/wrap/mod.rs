//! Wrapper module around the module of a TorchScript archive, so that Carton can call it.
//!
//! Carton's runner passes a dict of tensors by name and takes a dict. The archive keeps its records unchanged, and gets a
//! wrapper class in a namespace of its own, whose only attribute is the original object. Its `forward` checks the inputs,
//! calls the original `forward` with keyword arguments, and puts the result into a dict.
//!
//! Facts: `torch.jit.load` in 2.0.1 and 2.15, and archives that 1.13, 2.0.1 and 2.15 wrote; the conformance tests compare
//! the outputs.

mod declared;
mod float16;
mod functions;
mod leaves;
mod object;
mod positional;
mod support;
mod template_text;
#[cfg(test)]
mod tests;
mod text;

use crate::script_text::{ScriptSources, ScriptType, ScriptTypeId, Signature, UnsupportedOperators};
use byte_source::{Blob, OwnedBlob};
use serde::{Deserialize, Serialize};
use tensor::{Dtype, Storage};

use crate::archive::ScriptArchive;
use crate::{
    Dim, ERROR_OUTPUT, Module, ModuleCode, ModuleNote, ModuleOutputs, ModulePort, OnInvalidInput,
    OutputPorts, Problem, Result,
};
use object::RootObject;

/// Records of the pickled object and of the archive format version.
const DATA: &str = "data.pkl";
const VERSION: &str = "version";
/// Records that a mobile runtime reads instead of the code; with them it would call the original module.
const MOBILE_RECORDS: &[&str] = &["bytecode.pkl", "mobile_debug_handles.pkl", "callstack_debug_map.pkl"];
const MOBILE_FOLDER: &str = "bytecode/";
/// Highest archive format version that PyTorch 2.0.1 loads.
const VERSION_MAX: u64 = 10;
/// Size limits in bytes of records that are read as a whole: of the pickle, and of all code.
const PICKLE_MAX: u64 = 1 << 30;
const CODE_MAX: u64 = 256 << 20;

/// Source text of a key that equals the name of the output for error messages.
const ERROR_LITERAL: &str = "\"error\"";

/// Returns true if the wrapped archive keeps a record of the original. `record` is its name below the root folder.
pub fn is_kept_record(record: &str) -> bool {
    record != DATA && !MOBILE_RECORDS.contains(&record) && !record.starts_with(MOBILE_FOLDER)
}

/// Options for wrapping a TorchScript module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct ScriptOptions {
    /// The dtype and shape of an input of a TorchScript module, such as `image=float32[batch,3,224,224]`; repeatable
    #[serde(rename = "input")]
    #[cfg_attr(feature = "cli", arg(long = "input", value_name = "NAME=DTYPE[SHAPE]"))]
    pub inputs: Vec<DeclaredInput>,
    /// The dtype and shape of an output of a TorchScript module, such as `scores=float32[batch,1000]`, which --to triton
    /// needs; repeatable
    #[serde(rename = "output_type")]
    #[cfg_attr(feature = "cli", arg(long = "output-type", value_name = "NAME=DTYPE[SHAPE]"))]
    pub outputs: Vec<DeclaredOutput>,
    /// The names of what a TorchScript module returns, such as `boxes,scores` [default: those of a named tuple or a dict,
    /// else output, or that with numbers]
    #[serde(deserialize_with = "declared::names")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME,...", value_delimiter = ','))]
    pub output_names: Vec<String>,
    /// Keep a TorchScript module as it is, because it takes and returns a dict
    #[serde(rename = "no_wrap")]
    #[cfg_attr(feature = "cli", arg(long = "no-wrap", conflicts_with_all = ["inputs", "outputs", "output_names"]))]
    pub keep_unchanged: bool,
}

/// Dtype and shape of an input, as the user declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredInput {
    pub name: String,
    /// Dtype that the original `forward` expects.
    pub dtype: Dtype,
    pub shape: Vec<Dim>,
}

/// Dtype and shape of an output, as the user declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredOutput {
    pub name: String,
    /// Dtype that the original `forward` returns.
    pub dtype: Dtype,
    pub shape: Vec<Dim>,
}

/// Result of wrapping a TorchScript archive.
#[derive(Debug)]
pub enum WrapOutcome {
    /// Module that Carton can call.
    Module(Module),
    /// Reason why the module cannot be called with named tensors.
    Uncallable(Uncallable),
}

/// Reason why a module cannot be called with named tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Uncallable {
    /// The signature cannot be read from the source text.
    Source(crate::script_text::Error),
    /// The root of the archive is not an object of a class.
    NoObject,
    /// Hooks run before or after `forward`, and would not be called.
    Hooks { names: Vec<String> },
    /// The storages are big-endian, which PyTorch 2.0.1 ignores when it loads them.
    BigEndian,
    /// An argument has a type that cannot be made of tensors.
    Argument { name: String, kind: String },
    /// Two arguments would have an input of the same name.
    AmbiguousInput { first: String, second: String },
    /// The return type cannot be converted to tensors or texts.
    Returns { kind: String },
}

impl std::fmt::Display for Uncallable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::NoObject => f.write_str("there is no object with methods in the archive"),
            Self::Hooks { names } => {
                let names = names.join("`, `");
                write!(f, "its hooks `{}` would not be called", names.escape_debug())
            }
            Self::BigEndian => f.write_str("the numbers in the archive are big-endian"),
            Self::Argument { name, kind } => {
                write!(
                    f,
                    "the argument `{name}` of its forward has the type {}, which tensors cannot express",
                    kind.escape_debug()
                )
            }
            Self::AmbiguousInput { first, second } => {
                write!(
                    f,
                    "the arguments `{first}` and `{second}` of its forward would have inputs of the same name"
                )
            }
            Self::Returns { kind } => {
                write!(f, "its forward returns {}, which tensors cannot express", kind.escape_debug())
            }
        }
    }
}

/// Wraps the module of a TorchScript archive into one that Carton can call. `records` are all records of the archive, by
/// their names below its root folder; `whole` is the archive itself.
///
/// # Errors
/// Returns an error if an option does not fit the module, a record is damaged or too large, or the archive has code for
/// mobile devices only.
pub fn wrap_script(
    records: Vec<(String, Storage)>,
    whole: &Storage,
    options: &ScriptOptions,
    errors: OnInvalidInput,
) -> Result<WrapOutcome> {
    wrap(records, whole, options, Some(errors))
}

/// Wraps the module of a TorchScript archive into one whose `forward` takes and returns tensors, as Triton's PyTorch backend
/// calls it. A wrapper that [`wrap_script`] made is taken off first. The inputs are those that the code requires and those that the options declare; the others keep their defaults.
/// Invalid inputs raise an exception.
///
/// # Errors
/// Those of [`wrap_script`], or when the dtype and shape of an input or output are neither in the code nor declared.
pub fn wrap_positional_script(
    records: Vec<(String, Storage)>,
    whole: &Storage,
    options: &ScriptOptions,
) -> Result<WrapOutcome> {
    let original = unwrap_script(&records)?;
    wrap(original.unwrap_or(records), whole, options, None)
}

/// Returns the records of the original archive if `records` are those of a wrapper that [`wrap_script`] made; `None`
/// otherwise. Records for mobile devices, which no wrapper keeps, are missing.
///
/// # Errors
/// When `data.pkl` is damaged or too large.
pub fn unwrap_script(records: &[(String, Storage)]) -> Result<Option<Vec<(String, Storage)>>> {
    let Some((name, storage)) = records.iter().find(|(name, _)| name == DATA) else { return Ok(None) };
    let pickle = read_record(name, storage, PICKLE_MAX)?;
    let Some(root) = RootObject::read(&pickle)?.filter(RootObject::is_wrapper) else { return Ok(None) };
    let Some(inner) = object::wrapped_pickle(&root.module, &pickle)? else { return Ok(None) };
    let code = code_record(&root.module);
    let kept = records.iter().filter(|(name, _)| *name != code && name != DATA).cloned();
    Ok(Some(std::iter::once((DATA.to_owned(), Storage::owned(inner))).chain(kept).collect()))
}

/// Wraps the module for Carton, with `errors` as its reaction to invalid inputs, or with positional inputs.
fn wrap(
    records: Vec<(String, Storage)>,
    whole: &Storage,
    options: &ScriptOptions,
    errors: Option<OnInvalidInput>,
) -> Result<WrapOutcome> {
    let find = |name: &str| records.iter().find(|(record, _)| record == name);
    let mut sources = ScriptSources::default();
    let mut left = CODE_MAX;
    for (name, storage) in records.iter().filter(|(name, _)| crate::script_text::is_code(name)) {
        let code = read_record(name, storage, left)?;
        left = left.saturating_sub(code.len() as u64);
        if let Err(error) = sources.add(name, &code) {
            return Ok(WrapOutcome::Uncallable(Uncallable::Source(error)));
        }
    }
    if let Some((_, order)) = find("byteorder")
        && read_record("byteorder", order, PICKLE_MAX)? != b"little"
    {
        return Ok(WrapOutcome::Uncallable(Uncallable::BigEndian));
    }
    let pickle = match find(DATA) {
        Some((name, storage)) => read_record(name, storage, PICKLE_MAX)?,
        None => return Ok(WrapOutcome::Uncallable(Uncallable::NoObject)),
    };
    let Some(root) = RootObject::read(&pickle)? else {
        return Ok(WrapOutcome::Uncallable(Uncallable::NoObject));
    };
    if let Some(operator) = crate::script_text::unloadable_operator(sources.texts()) {
        return Err(Problem::UnloadableOperator { operator }.into());
    }
    let signature = match sources.signature(&root.module, &root.class, "forward") {
        Ok(signature) => signature,
        Err(crate::script_text::Error::NoClass { .. })
            if MOBILE_RECORDS.iter().any(|name| find(name).is_some()) && sources.texts().next().is_none() =>
        {
            return Err(Problem::MobileOnly.into());
        }
        Err(error) => return Ok(WrapOutcome::Uncallable(Uncallable::Source(error))),
    };
    let hooks = sources.hooks(&root.module, &root.class);
    if !hooks.is_empty() {
        let names = hooks.into_iter().map(str::to_owned).collect();
        return Ok(WrapOutcome::Uncallable(Uncallable::Hooks { names }));
    }
    let version = read_optional(find(VERSION))?;
    let found = crate::script_text::unsupported_operators(sources.texts());
    let has_float16_code = found.has_float16;
    let mut notes = compatibility_notes(found, &version);
    if options.keep_unchanged || (errors.is_some() && root.is_ours() && takes_and_returns_dicts(&signature)) {
        if !takes_and_returns_dicts(&signature) {
            return Err(Problem::NoDictForward { class: root.qualified() }.into());
        }
        reject_options(options)?;
        let archive = ScriptArchive::unchanged_file(records, whole.clone());
        return Ok(WrapOutcome::Module(wrapped_module(archive, &signature, (Vec::new(), Vec::new()), notes)));
    }
    let plan = match leaves::CallPlan::new(&signature, options)? {
        Ok(plan) => plan,
        Err(uncallable) => return Ok(WrapOutcome::Uncallable(uncallable)),
    };
    let namespace = free_namespace(&sources);
    let Some(errors) = errors else {
        // Triton has a newer PyTorch than Carton.
        let notes =
            notes.into_iter().filter(|note| !note.is_newer()).chain(plan.fixed_arguments_note()).collect();
        let call = positional::PositionalCall::new(&plan)?;
        let code = text::positional(&signature, &plan, &call, &namespace, &root.qualified());
        let archive =
            wrapped_archive(records, &namespace, code, root.wrapper_pickle(&namespace, &pickle, None)?)?;
        return Ok(WrapOutcome::Module(wrapped_module(archive, &signature, call.into_ports(), notes)));
    };
    let constants = read_optional(find("constants.pkl"))?;
    let has_float16 = float16::has_float16(&pickle);
    // Code that makes float16 tensors of its own would multiply them with widened ones.
    let can_widen = has_float16 && !has_float16_code && !float16::has_float16(&constants);
    let widening = match pickle_vm::load(&pickle) {
        Ok(loaded) if can_widen => float16::widening_statements(&loaded),
        _ => None,
    };
    if widening.is_none() && (has_float16 || has_float16_code || float16::has_float16(&constants)) {
        notes.push(ModuleNote::Float16Code);
    }
    notes.extend(plan.notes());
    if plan.has_keys_as_outputs() && sources.texts().any(|text| text.contains(ERROR_LITERAL)) {
        notes.push(ModuleNote::ErrorOutput { names: vec![ERROR_OUTPUT.to_owned()] });
    }
    if float16::has_bfloat16(&pickle) || float16::has_bfloat16(&constants) {
        let names = plan.undeclared_inputs();
        notes.extend((!names.is_empty()).then_some(ModuleNote::BFloat16Inputs { names }));
    }
    let module = text::WrappedClass {
        namespace: &namespace,
        original: &root.qualified(),
        widening: widening.as_deref(),
    };
    let code = text::module(&signature, &plan, errors, &module);
    let entry = object::EntryObject { has_setstate: widening.is_some() };
    let data = root.wrapper_pickle(&namespace, &pickle, Some(entry))?;
    let archive = wrapped_archive(records, &namespace, code, data)?;
    Ok(WrapOutcome::Module(wrapped_module(archive, &signature, plan.ports(), notes)))
}

/// Returns the archive of the wrapper: its code and its pickle before the records that are kept.
fn wrapped_archive(
    records: Vec<(String, Storage)>,
    namespace: &str,
    code: String,
    data: Vec<u8>,
) -> Result<ScriptArchive> {
    let head =
        vec![(code_record(namespace), OwnedBlob(code.into_bytes())), (DATA.to_owned(), OwnedBlob(data))];
    let kept = records.into_iter().filter(|(name, _)| is_kept_record(name)).collect();
    ScriptArchive::with_kept_records(head, kept)
}

fn code_record(namespace: &str) -> String {
    format!("code/{}.py", namespace.replace('.', "/"))
}

fn wrapped_module(
    archive: ScriptArchive,
    signature: &Signature,
    (inputs, outputs): (Vec<ModulePort>, Vec<ModulePort>),
    notes: Vec<ModuleNote>,
) -> Module {
    let outputs = ModuleOutputs(OutputPorts::Ports(outputs));
    Module { archive, inputs, outputs, notes, code: ModuleCode::Script { signature: signature.to_string() } }
}

fn reject_options(options: &ScriptOptions) -> Result<()> {
    let declared = options.inputs.first().map(|declared| declared.name.clone());
    let returned = options.outputs.first().map(|declared| declared.name.clone());
    match declared.or(returned).or_else(|| options.output_names.first().cloned()) {
        Some(name) => Err(Problem::OptionForKeptModule { name }.into()),
        None => Ok(()),
    }
}

fn read_record(name: &str, storage: &Storage, max: u64) -> Result<Vec<u8>> {
    if storage.len() > max {
        return Err(Problem::LargeRecord { record: name.to_owned(), len: storage.len() }.into());
    }
    let mut bytes: Vec<u8> = Vec::new();
    storage.write_to(&mut bytes).map_err(|error| error.in_record(name))?;
    Ok(bytes)
}

/// Reads a record that an archive may lack; returns no bytes for one that it lacks.
fn read_optional(found: Option<&(String, Storage)>) -> Result<Vec<u8>> {
    found
        .map(|(name, storage)| read_record(name, storage, PICKLE_MAX))
        .transpose()
        .map(Option::unwrap_or_default)
}

/// Returns notes about the archive version and the operators that PyTorch 2.0.1 does not know.
fn compatibility_notes(found: UnsupportedOperators, version: &[u8]) -> Vec<ModuleNote> {
    let version = std::str::from_utf8(version).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let mut notes = Vec::new();
    if let Some(version) = version.filter(|version| *version > VERSION_MAX) {
        notes.push(ModuleNote::NewerArchive { version });
    }
    if !found.newer.is_empty() {
        notes.push(ModuleNote::NewerOperators { names: found.newer.into_iter().collect() });
    }
    if !found.newer_dtypes.is_empty() {
        notes.push(ModuleNote::NewerDtypes { numbers: found.newer_dtypes.into_iter().collect() });
    }
    if !found.third_party.is_empty() {
        notes.push(ModuleNote::OtherOperators { names: found.third_party.into_iter().collect() });
    }
    notes
}

/// Returns a namespace in which the archive has no code.
fn free_namespace(sources: &ScriptSources) -> String {
    let names = (1_u32..).map(|number| format!("{}_{number}", crate::module_tree::NAMESPACE));
    let mut names = std::iter::once(crate::module_tree::NAMESPACE.to_owned()).chain(names);
    names.find(|name| !sources.defines_name(name)).unwrap_or_default()
}

/// Returns true if a method takes a `Dict[str, Tensor]`, or anything, and returns a dict, as Carton calls it.
fn takes_and_returns_dicts(signature: &Signature) -> bool {
    let types = &signature.types;
    let is_dict = |id: ScriptTypeId, values: &[&str]| match types.kind(id) {
        ScriptType::Dict(key, value) => {
            *types.kind(*key) == ScriptType::Str && values.contains(&types.annotation_text(*value))
        }
        _ => false,
    };
    let [argument] = signature.arguments.as_slice() else { return false };
    // The type `Any` takes texts too.
    let takes_any = types.annotation_text(argument.kind) == "Any";
    (takes_any || is_dict(argument.kind, &["Tensor"])) && is_dict(signature.returns, &["Tensor", "Any"])
}
