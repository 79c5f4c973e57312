//! Names of a wrapped module's inputs and outputs, and their known dtypes and shapes.

use std::collections::BTreeMap;

use crate::script_text::{ScriptType, ScriptTypeId, ScriptTypes, Signature};
use tensor::Dtype;

use super::support::{EnumValueType, Leaf, TypeSupport, non_none_type};
use super::{DeclaredInput, DeclaredOutput, ScriptOptions, Uncallable};
use crate::{Dim, ERROR_OUTPUT, ModuleNote, ModulePort, Problem, Result};

/// Maximum number of inputs or outputs that are listed by name: of one argument and of all arguments.
const LISTED_MAX: usize = 1000;
const ALL_LISTED_MAX: usize = 10_000;

/// Mapping from named inputs to the arguments of the original `forward`, and from its result to named outputs.
#[derive(Debug)]
pub(super) struct CallPlan {
    /// Arguments passed to the original `forward`.
    pub(super) passed: Vec<PassedArgument>,
    pub(super) naming: OutputNaming,
    /// Inputs whose names are known from the signature.
    pub(super) known: Vec<NamedLeaf>,
    pub(super) outputs: Vec<NamedLeaf>,
    /// Dtypes and shapes of inputs, as the user declared them.
    pub(super) declared: Vec<DeclaredInput>,
    /// Dtypes and shapes of outputs, as the user declared them.
    pub(super) declared_outputs: Vec<DeclaredOutput>,
    /// Names of arguments that keep their defaults.
    fixed: Vec<String>,
}

#[derive(Debug)]
pub(super) struct PassedArgument {
    pub(super) argument: String,
    /// Prefix of the names of its inputs; empty if all inputs belong to this argument.
    pub(super) name: String,
    pub(super) kind: ScriptTypeId,
    pub(super) default: Option<String>,
    /// True if the argument is made of inputs; otherwise `None` is passed.
    pub(super) is_from_inputs: bool,
}

#[derive(Debug)]
pub(super) enum OutputNaming {
    /// Base name, to which the names of components are joined with `_`.
    Base(String),
    Items(Vec<String>),
    /// Names of the first items of the returned list.
    List(Vec<String>),
}

/// Input or output of a module, or a list or dict of inputs or outputs.
#[derive(Clone, Debug)]
pub(super) struct NamedLeaf {
    /// Name of the tensor, or the common prefix of the names in a list or dict.
    pub(super) name: String,
    leaf: Leaf,
    pub(super) optional: bool,
    /// True for the items of a list or a dict.
    pub(super) is_collection: bool,
}

impl CallPlan {
    /// Plans the call of a method with this signature, or returns the reason why it cannot be called.
    pub(super) fn new(
        signature: &Signature,
        options: &ScriptOptions,
    ) -> Result<std::result::Result<Self, Uncallable>> {
        let types = &signature.types;
        let support = TypeSupport::new(types);
        if !support.supports_result(signature.returns) {
            let kind = types.annotation_text(signature.returns).to_owned();
            return Ok(Err(Uncallable::Returns { kind }));
        }
        let (mut passed, mut fixed) = (Vec::new(), Vec::new());
        for argument in &signature.arguments {
            let is_taken = support.supports_argument(argument.kind);
            let is_none = |id: &ScriptTypeId| *types.kind(*id) == ScriptType::None;
            let is_optional = match types.kind(argument.kind) {
                ScriptType::Optional(_) | ScriptType::None => true,
                ScriptType::Union(members) => members.iter().any(is_none),
                _ => false,
            };
            if !is_taken {
                fixed.push(argument.name.clone());
                if argument.default.is_some() {
                    continue;
                }
                if !is_optional {
                    let kind = types.annotation_text(argument.kind).to_owned();
                    return Ok(Err(Uncallable::Argument { name: argument.name.clone(), kind }));
                }
            }
            passed.push(PassedArgument {
                argument: argument.name.clone(),
                name: argument.name.clone(),
                kind: argument.kind,
                default: argument.default.clone(),
                is_from_inputs: is_taken,
            });
        }
        let mut taken = passed.iter_mut().filter(|passed| passed.is_from_inputs);
        if let (Some(only), None) = (taken.next(), taken.next())
            && is_dict(types, only.kind)
        {
            only.name.clear();
        }
        let (mut known, mut ends) = (Vec::new(), Vec::new());
        for passed in passed.iter().filter(|passed| passed.is_from_inputs) {
            list_leaves(
                types,
                Leaf::from_argument,
                passed.kind,
                &passed.name,
                passed.default.is_some(),
                &mut known,
            );
            ends.push((known.len(), passed.argument.as_str()));
        }
        if let Some((first, second)) = conflicting_arguments(&known, &ends) {
            return Ok(Err(Uncallable::AmbiguousInput {
                first: first.to_owned(),
                second: second.to_owned(),
            }));
        }
        for declared in &options.inputs {
            check_declared(declared, &known)?;
        }
        let naming = choose_output_names(types, signature.returns, &options.output_names)?;
        let mut outputs = Vec::new();
        match &naming {
            OutputNaming::Base(base) => {
                list_leaves(types, Leaf::from_result, signature.returns, base, false, &mut outputs);
            }
            OutputNaming::Items(names) => {
                for (name, kind) in names.iter().zip(types.component_types(signature.returns)) {
                    list_leaves(types, Leaf::from_result, kind, name, false, &mut outputs);
                }
            }
            // Items without a name of their own are called `output_0` and so on.
            OutputNaming::List(_) => outputs.push(NamedLeaf::collection(String::new())),
        }
        for declared in &options.outputs {
            check_declared_output(declared, &outputs)?;
        }
        let (declared, declared_outputs) = (options.inputs.clone(), options.outputs.clone());
        Ok(Ok(Self { passed, naming, known, outputs, declared, declared_outputs, fixed }))
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = ModuleNote> {
        let names = self.undeclared_inputs();
        let unlisted = (!names.is_empty()).then_some(ModuleNote::UnlistedInputs { names });
        let fixed = self.fixed_arguments_note();
        let error = self.outputs.iter().any(|named| !named.is_collection && named.name == ERROR_OUTPUT);
        let names = vec![ERROR_OUTPUT.to_owned()];
        let error = error.then_some(ModuleNote::ErrorOutput { names });
        let texts = self.outputs.iter().any(|named| named.leaf == Leaf::Strs && !named.is_collection);
        unlisted.into_iter().chain(fixed).chain(error).chain(texts.then_some(ModuleNote::TextListOutput))
    }

    /// Returns a note about arguments that keep their defaults.
    pub(super) fn fixed_arguments_note(&self) -> Option<ModuleNote> {
        (!self.fixed.is_empty()).then(|| ModuleNote::FixedArguments { names: self.fixed.clone() })
    }

    /// Returns true if the outputs are the keys of a dict, so that the code chooses their names.
    pub(super) fn has_keys_as_outputs(&self) -> bool {
        let is_list = matches!(self.naming, OutputNaming::List(_));
        !is_list && self.outputs.iter().any(|named| named.is_collection && named.name.is_empty())
    }

    pub(super) fn undeclared_inputs(&self) -> Vec<String> {
        let is_declared =
            |named: &&NamedLeaf| !self.declared.iter().any(|declared| declared.name == named.name);
        let unknown = self.known.iter().filter(|named| named.leaf == Leaf::Tensor && !named.is_collection);
        unknown.filter(is_declared).map(|named| named.name.clone()).collect()
    }

    pub(super) fn ports(&self) -> (Vec<ModulePort>, Vec<ModulePort>) {
        let mut inputs = Vec::new();
        for named in &self.known {
            let declared = self.declared.iter().find(|declared| declared.name == named.name);
            match declared {
                Some(declared) => inputs.push(declared_port(declared, named.optional)),
                None if !named.is_collection => inputs.extend(named.port(input_leaf_port)),
                None => {}
            }
        }
        // Items of a list or a dict become ports only if they are declared.
        let is_listed =
            |declared: &&DeclaredInput| self.known.iter().any(|named| named.name == declared.name);
        let items = self.declared.iter().filter(|declared| !is_listed(declared));
        inputs.extend(items.map(|declared| declared_port(declared, true)));
        let mut outputs = Vec::new();
        for named in self.outputs.iter().filter(|named| !named.is_collection) {
            let declared = self.declared_outputs.iter().find(|declared| declared.name == named.name);
            let known = || named.port(leaf_port);
            outputs.extend(declared.map(|declared| output_port(declared, named.optional)).or_else(known));
        }
        let is_listed = |declared: &&DeclaredOutput| {
            self.outputs.iter().any(|named| !named.is_collection && named.name == declared.name)
        };
        let items = self.declared_outputs.iter().filter(|declared| !is_listed(declared));
        outputs.extend(items.map(|declared| output_port(declared, true)));
        (inputs, outputs)
    }
}

/// Returns true if a type is a dict, or an optional dict.
fn is_dict(types: &ScriptTypes, id: ScriptTypeId) -> bool {
    match types.kind(id) {
        ScriptType::Optional(inner) => matches!(types.kind(*inner), ScriptType::Dict(..)),
        kind => matches!(kind, ScriptType::Dict(..)),
    }
}

pub(super) fn join_names(name: &str, part: &str) -> String {
    if name.is_empty() { part.to_owned() } else { format!("{name}_{part}") }
}

/// Appends to `found` the inputs or outputs of a value of type `kind`, in order.
fn list_leaves(
    types: &ScriptTypes,
    leaf: fn(&ScriptTypes, ScriptTypeId) -> Option<Leaf>,
    kind: ScriptTypeId,
    name: &str,
    optional: bool,
    found: &mut Vec<NamedLeaf>,
) {
    let mut open = vec![(kind, name.to_owned(), optional)];
    // Nested named tuples can have any number of fields.
    for _ in 0..LISTED_MAX {
        if found.len() >= ALL_LISTED_MAX {
            return;
        }
        let Some((kind, name, optional)) = open.pop() else { return };
        if let Some(leaf) = leaf(types, kind) {
            found.push(NamedLeaf { name, leaf, optional, is_collection: false });
            continue;
        }
        match types.kind(kind) {
            ScriptType::Optional(_) | ScriptType::Union(_) => {
                if let Some((inner, is_optional)) = non_none_type(types, kind) {
                    open.push((inner, name, optional || is_optional));
                }
            }
            ScriptType::List(_) | ScriptType::Dict(..) => {
                let start = if name.is_empty() { name } else { format!("{name}_") };
                found.push(NamedLeaf { name: start, leaf: Leaf::Tensor, optional, is_collection: true });
            }
            ScriptType::Tuple(items) => {
                let items = items.iter().enumerate().rev();
                open.extend(items.map(|(i, item)| (*item, join_names(&name, &i.to_string()), optional)));
            }
            ScriptType::NamedTuple(fields) => {
                let fields = fields.iter().rev();
                open.extend(fields.map(|field| (field.kind, join_names(&name, &field.name), optional)));
            }
            _ => {}
        }
    }
}

/// Returns two arguments to which one input name could belong. `ends` has the end index in `known` of each argument's
/// inputs.
fn conflicting_arguments<'a>(known: &[NamedLeaf], ends: &[(usize, &'a str)]) -> Option<(&'a str, &'a str)> {
    let mut by_name: BTreeMap<&str, &'a str> = BTreeMap::new();
    let mut several = Vec::new();
    let mut start = 0;
    for (end, argument) in ends {
        for named in known.get(start..*end).unwrap_or_default() {
            if let Some(other) = by_name.insert(&named.name, argument).filter(|other| other != argument) {
                return Some((other, argument));
            }
            if named.is_collection {
                several.push((named.name.as_str(), *argument));
            }
        }
        start = *end;
    }
    several.into_iter().find_map(|(start, argument)| {
        let mut those = by_name.range(start..).take_while(|(name, _)| name.starts_with(start));
        those.find(|(_, other)| **other != argument).map(|(_, other)| (argument, *other))
    })
}

/// Chooses the names of the outputs: those that the user gave, or those of the return type.
fn choose_output_names(types: &ScriptTypes, returns: ScriptTypeId, names: &[String]) -> Result<OutputNaming> {
    let kind = types.kind(returns);
    let inner = match kind {
        ScriptType::Optional(inner) => types.kind(*inner),
        kind => kind,
    };
    let has_names = match inner {
        ScriptType::NamedTuple(_) => true,
        ScriptType::Dict(key, _) => *types.kind(*key) == ScriptType::Str,
        _ => false,
    };
    if names.is_empty() {
        return Ok(OutputNaming::Base(if has_names { String::new() } else { "output".to_owned() }));
    }
    if let Some(twice) = names.iter().enumerate().find(|(i, name)| names.iter().take(*i).any(|n| n == *name))
    {
        return Err(Problem::DuplicateOutputName { name: twice.1.clone() }.into());
    }
    let wrong = |expected| Err(Problem::OutputNameCount { expected, found: names.len() }.into());
    match kind {
        ScriptType::Tuple(_) | ScriptType::NamedTuple(_) => {
            let expected = types.component_types(returns).len();
            if expected == names.len() { Ok(OutputNaming::Items(names.to_vec())) } else { wrong(expected) }
        }
        ScriptType::List(_) if Leaf::from_result(types, returns).is_none() => {
            Ok(OutputNaming::List(names.to_vec()))
        }
        _ if has_names => wrong(0),
        _ => match names {
            [name] => Ok(OutputNaming::Base(name.clone())),
            _ => wrong(1),
        },
    }
}

fn check_declared(declared: &DeclaredInput, known: &[NamedLeaf]) -> Result<()> {
    let is_it = |named: &NamedLeaf| {
        named.name == declared.name || (named.is_collection && declared.name.starts_with(&named.name))
    };
    if !known.iter().any(is_it) {
        let mut names: Vec<String> = known.iter().map(NamedLeaf::name_for_messages).collect();
        names.truncate(LISTED_MAX);
        return Err(Problem::UnknownInputName { name: declared.name.clone(), known: names }.into());
    }
    if carton_dtype(declared.dtype).is_none() {
        return Err(Problem::InputDtype { name: declared.name.clone(), dtype: declared.dtype }.into());
    }
    Ok(())
}

fn check_declared_output(declared: &DeclaredOutput, outputs: &[NamedLeaf]) -> Result<()> {
    let is_it = |named: &NamedLeaf| {
        let is_item = named.is_collection && declared.name.starts_with(&named.name);
        is_item || (named.is_tensor() && named.name == declared.name)
    };
    if !outputs.iter().any(is_it) {
        let tensors = outputs.iter().filter(|named| named.leaf == Leaf::Tensor);
        let mut known: Vec<String> = tensors.map(NamedLeaf::name_for_messages).collect();
        known.truncate(LISTED_MAX);
        return Err(Problem::UnknownOutputName { name: declared.name.clone(), known }.into());
    }
    if crate::output_dtype(declared.dtype).is_none() {
        return Err(Problem::OutputDtype { name: declared.name.clone(), dtype: declared.dtype }.into());
    }
    Ok(())
}

impl NamedLeaf {
    /// Creates a list or dict of tensors whose names begin with `name`.
    fn collection(name: String) -> Self {
        Self { name, leaf: Leaf::Tensor, optional: false, is_collection: true }
    }

    /// Returns true if the value is one tensor, whose dtype and shape only a declaration can give.
    pub(super) fn is_tensor(&self) -> bool {
        self.leaf == Leaf::Tensor && !self.is_collection
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.leaf, Leaf::Str | Leaf::Strs | Leaf::Enum(EnumValueType::Str))
    }

    /// Returns the input or output, if the type of the leaf determines its dtype and shape.
    fn port(&self, of_leaf: LeafPortFn) -> Option<ModulePort> {
        let (dtype, shape, description) = of_leaf(self.leaf, &self.name)?;
        let default = self.optional.then_some("the module has a default");
        let description = description.or(default).map(str::to_owned);
        Some(ModulePort { name: self.name.clone(), dtype, shape, description, optional: self.optional })
    }

    /// Returns the name for messages; a prefix is shown with an example index.
    pub(super) fn name_for_messages(&self) -> String {
        match (self.is_collection, self.name.is_empty()) {
            (false, _) => self.name.clone(),
            (true, true) => "any name".to_owned(),
            (true, false) => format!("{}0 and so on", self.name),
        }
    }
}

/// Returns the dtype that Carton passes for a dtype that the module expects, and the `c10::ScalarType` numbers of both. The
/// numbers differ where the module casts or reinterprets the input.
pub(super) fn carton_dtype(dtype: Dtype) -> Option<(Dtype, u8, u8)> {
    Some(match dtype {
        Dtype::UInt8 => (dtype, 0, 0),
        Dtype::Int8 => (dtype, 1, 1),
        Dtype::Int16 => (dtype, 2, 2),
        Dtype::Int32 => (dtype, 3, 3),
        Dtype::Int64 => (dtype, 4, 4),
        Dtype::Float16 => (Dtype::Float32, 6, 5),
        Dtype::Float32 => (dtype, 6, 6),
        Dtype::Float64 => (dtype, 7, 7),
        Dtype::Bool => (Dtype::UInt8, 0, 11),
        Dtype::BFloat16 => (Dtype::Float32, 6, 15),
        Dtype::Complex64 => (Dtype::Float32, 6, 9),
        Dtype::Complex128 => (Dtype::Float64, 7, 10),
        _ => return None,
    })
}

/// Returns the shape of the tensor that Carton passes: complex numbers get a last dimension of 2.
pub(super) fn carton_shape(declared: &DeclaredInput) -> Vec<Dim> {
    let two = is_complex(declared.dtype).then_some(Dim::Size(2));
    declared.shape.iter().cloned().chain(two).collect()
}

pub(super) fn is_complex(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Complex64 | Dtype::Complex128)
}

fn declared_port(declared: &DeclaredInput, optional: bool) -> ModulePort {
    let dtype = carton_dtype(declared.dtype).map_or(declared.dtype, |(carried, ..)| carried);
    let description = (dtype != declared.dtype).then(|| format!("{} in the module", declared.dtype));
    ModulePort { name: declared.name.clone(), dtype, shape: carton_shape(declared), description, optional }
}

fn output_port(declared: &DeclaredOutput, optional: bool) -> ModulePort {
    let (dtype, has_pairs) = crate::output_dtype(declared.dtype).unwrap_or((declared.dtype, false));
    let description = (dtype != declared.dtype).then(|| format!("{} in the module", declared.dtype));
    let two = has_pairs.then_some(Dim::Size(2));
    let shape = declared.shape.iter().cloned().chain(two).collect();
    ModulePort { name: declared.name.clone(), dtype, shape, description, optional }
}

/// Function that returns the dtype, the shape and the description of a leaf, if its type determines them.
type LeafPortFn = fn(Leaf, &str) -> Option<(Dtype, Vec<Dim>, Option<&'static str>)>;

fn input_leaf_port(leaf: Leaf, name: &str) -> Option<(Dtype, Vec<Dim>, Option<&'static str>)> {
    match leaf {
        Leaf::Str | Leaf::Enum(EnumValueType::Str) => {
            let len = Dim::Symbol(format!("{name}_len"));
            Some((Dtype::UInt8, vec![len], Some("a text, or its bytes in UTF-8")))
        }
        _ => leaf_port(leaf, name),
    }
}

/// Returns the dtype, shape and description of an output, or of an input that is not a text.
fn leaf_port(leaf: Leaf, name: &str) -> Option<(Dtype, Vec<Dim>, Option<&'static str>)> {
    let list = || vec![Dim::Symbol(format!("{name}_len"))];
    Some(match leaf {
        Leaf::Int => (Dtype::Int64, Vec::new(), None),
        Leaf::Float => (Dtype::Float64, Vec::new(), None),
        Leaf::Bool => (Dtype::UInt8, Vec::new(), Some("1 for true, 0 for false")),
        Leaf::Complex => (Dtype::Float64, vec![Dim::Size(2)], Some("the real and the imaginary part")),
        Leaf::Enum(EnumValueType::Int) => (Dtype::Int64, Vec::new(), Some("a value of an enumeration")),
        Leaf::Enum(EnumValueType::Float) => (Dtype::Float64, Vec::new(), Some("a value of an enumeration")),
        Leaf::Ints => (Dtype::Int64, list(), None),
        Leaf::Floats => (Dtype::Float64, list(), None),
        Leaf::Bools => (Dtype::UInt8, list(), Some("1 for true, 0 for false")),
        Leaf::Tensor
        | Leaf::Number
        | Leaf::Str
        | Leaf::Strs
        | Leaf::None
        | Leaf::Enum(EnumValueType::Str) => {
            return None;
        }
    })
}
