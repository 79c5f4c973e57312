//! Source text of the wrapper class, which holds the original module, and of the functions that it calls.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::script_text::{EnumMember, ScriptType, ScriptTypeId, ScriptTypes, Signature};
use tensor::Dtype;

use super::functions;
use super::leaves::{CallPlan, OutputNaming, PassedArgument, carton_dtype, carton_shape, is_complex};
use super::object::{ENTRY_ATTRIBUTE, ENTRY_CLASS, WRAPPED_ATTRIBUTE, WRAPPER_CLASS};
use super::positional::PositionalCall;
use super::support::{EnumValueType, Leaf, argument_components, non_none_type, result_components};
use super::template_text::{escape_placeholders, template_literal};
use crate::{DeclaredInput, Dim, OnInvalidInput};

/// Class of the original module, and how the wrapper holds it.
pub(super) struct WrappedClass<'w> {
    /// Namespace of the wrapper's code.
    pub(super) namespace: &'w str,
    /// Qualified name of the original module's class.
    pub(super) original: &'w str,
    /// Statements that widen the float16 tensors of the original module, if it has any.
    pub(super) widening: Option<&'w str>,
}

pub(super) fn module(
    signature: &Signature,
    plan: &CallPlan,
    errors: OnInvalidInput,
    wrapped: &WrappedClass<'_>,
) -> String {
    let mut out = String::new();
    write_classes(&mut out, wrapped).expect("memory takes any text");
    write_functions(&mut out, signature, plan, errors, wrapped);
    out.replace("_EMPTY_", "\"\"").replace("{ns}", wrapped.namespace)
}

pub(super) fn positional(
    signature: &Signature,
    plan: &CallPlan,
    call: &PositionalCall,
    namespace: &str,
    original: &str,
) -> String {
    let wrapped = WrappedClass { namespace, original, widening: None };
    let mut out = String::new();
    call.write_class(&mut out, original).expect("memory takes any text");
    write_functions(&mut out, signature, plan, OnInvalidInput::Raise, &wrapped);
    out.push_str(functions::POSITIONAL_OUTPUT);
    out.replace("_EMPTY_", "\"\"").replace("{ns}", namespace)
}

/// Writes the functions of a wrapper: the call of the original module, and all that it needs.
fn write_functions(
    out: &mut String,
    signature: &Signature,
    plan: &CallPlan,
    errors: OnInvalidInput,
    wrapped: &WrappedClass<'_>,
) {
    let types = &signature.types;
    write_respond(out, signature, plan, errors, wrapped).expect("memory takes any text");
    write_check(out, plan).expect("memory takes any text");
    let taken = plan.passed.iter().filter(|passed| passed.is_from_inputs);
    for (number, passed) in plan.passed.iter().enumerate() {
        write_argument(out, types, number, passed).expect("memory takes any text");
    }
    for id in reachable_types(|id| argument_components(types, id), taken.map(|passed| passed.kind)) {
        let text = input_functions(types, id, &plan.declared, wrapped.widening.is_some())
            .expect("memory takes any text");
        out.push_str(&fill_placeholders(&text, types, id));
    }
    for id in reachable_types(|id| result_components(types, id), std::iter::once(signature.returns)) {
        let text = result_function(types, id).expect("memory takes any text");
        out.push_str(&fill_placeholders(&text, types, id));
    }
    out.push_str(functions::HELPER_FUNCTIONS);
}

/// Returns the `roots` and all types that they consist of, as given by `parts`.
fn reachable_types(
    parts: impl Fn(ScriptTypeId) -> Vec<ScriptTypeId>,
    roots: impl Iterator<Item = ScriptTypeId>,
) -> BTreeSet<ScriptTypeId> {
    let mut open: Vec<ScriptTypeId> = roots.collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(parts(id));
        }
    }
    found
}

/// Fills in the placeholders of a function's text for one type.
fn fill_placeholders(text: &str, types: &ScriptTypes, id: ScriptTypeId) -> String {
    let inner = match types.kind(id) {
        ScriptType::List(inner) | ScriptType::Dict(_, inner) => Some(*inner),
        _ => non_none_type(types, id).map(|(inner, _)| inner),
    };
    let mut text =
        text.replace("{id}", &id.number().to_string()).replace("{type}", types.annotation_text(id));
    if let Some(inner) = inner {
        text = text
            .replace("{inner type}", types.annotation_text(inner))
            .replace("{inner}", &inner.number().to_string());
    }
    text
}

fn write_classes(out: &mut String, wrapped: &WrappedClass<'_>) -> std::fmt::Result {
    let original = wrapped.original;
    write!(
        out,
        "class {ENTRY_CLASS}(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  {WRAPPED_ATTRIBUTE} : Any\n  \
         def forward(self: {{ns}}.{ENTRY_CLASS},\n    inputs: Dict[str, Any]) -> Dict[str, Any]:\n    \
         return {{ns}}.respond(unchecked_cast({original}, self.{WRAPPED_ATTRIBUTE}), inputs)\n"
    )?;
    if let Some(statements) = wrapped.widening {
        write!(
            out,
            "  def __getstate__(self: {{ns}}.{ENTRY_CLASS}) -> {original}:\n    \
             return unchecked_cast({original}, self.{WRAPPED_ATTRIBUTE})\n  \
             def __setstate__(self: {{ns}}.{ENTRY_CLASS},\n    state: {original}) -> NoneType:\n    \
             self.training = False\n    self.{WRAPPED_ATTRIBUTE} = state\n{}    return None\n",
            statements.replace("{widen}", "{ns}.widen")
        )?;
    }
    write!(
        out,
        "class {WRAPPER_CLASS}(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  {WRAPPED_ATTRIBUTE} : {original}\n  \
         {ENTRY_ATTRIBUTE} : {{ns}}.{ENTRY_CLASS}\n  \
         def forward(self: {{ns}}.{WRAPPER_CLASS},\n    inputs: Any) -> Dict[str, Any]:\n    \
         return {{ns}}.respond(self.{WRAPPED_ATTRIBUTE}, inputs)\n"
    )
}

fn write_respond(
    out: &mut String,
    signature: &Signature,
    plan: &CallPlan,
    errors: OnInvalidInput,
    wrapped: &WrappedClass<'_>,
) -> std::fmt::Result {
    let original = wrapped.original;
    write!(
        out,
        "def respond(module: {original},\n    given: Any) -> Dict[str, Any]:\n  \
         out = annotate(Dict[str, Any], {{}})\n  texts = annotate(List[str], [])\n  inputs = {{ns}}.tensors(given, texts)\n  \
         wrong = {{ns}}.check(inputs, texts)\n  if torch.eq(wrong, \"\"):\n    value = (module).forward("
    )?;
    for (number, passed) in plan.passed.iter().enumerate() {
        write!(out, "{}={{ns}}.argument_{number}(inputs), ", passed.argument)?;
    }
    writeln!(out, ")")?;
    let returns = signature.returns;
    match &plan.naming {
        OutputNaming::Base(name) => {
            writeln!(
                out,
                "    wrong = {{ns}}.put_{}(out, {}, value)",
                returns.number(),
                template_literal(name)
            )?;
        }
        OutputNaming::Items(names) => {
            for (number, _) in names.iter().enumerate() {
                write!(out, "{}v{number}, ", if number == 0 { "    " } else { "" })?;
            }
            writeln!(out, "= value")?;
            for (number, (name, kind)) in
                names.iter().zip(signature.types.component_types(returns)).enumerate()
            {
                let put = format!(
                    "wrong = {{ns}}.put_{}(out, {}, v{number})",
                    kind.number(),
                    template_literal(name)
                );
                writeln!(out, "    if torch.eq(wrong, \"\"):\n      {put}")?;
            }
        }
        OutputNaming::List(names) => {
            let inner = signature.types.component_types(returns).first().map_or(0, |inner| inner.number());
            let names: Vec<String> = names.iter().map(|name| template_literal(name)).collect();
            write!(
                out,
                "    names = [{}]\n    for i in range(torch.len(value)):\n      \
                 name = {{ns}}.item(\"output\", i)\n      if torch.lt(i, torch.len(names)):\n        \
                 name = names[i]\n      if torch.eq(wrong, \"\"):\n        \
                 wrong = {{ns}}.put_{inner}(out, name, value[i])\n",
                names.join(", ")
            )?;
        }
    }
    out.push_str("  if torch.ne(wrong, \"\"):\n");
    out.push_str(match errors {
        OnInvalidInput::Raise => "    ops.prim.RaiseException(wrong)\n",
        OnInvalidInput::Return => "    torch.clear(out)\n    torch._set_item(out, \"error\", wrong)\n",
    });
    out.push_str("  return out\n");
    Ok(())
}

/// Writes the function `check`, which returns an error message about the inputs, or an empty string.
fn write_check(out: &mut String, plan: &CallPlan) -> std::fmt::Result {
    out.push_str(
        "def check(inputs: Dict[str, Tensor],\n    texts: List[str]) -> str:\n  known = annotate(List[str], [])\n  \
         may_be_text = annotate(List[str], [])\n",
    );
    let taken: Vec<&PassedArgument> = plan.passed.iter().filter(|passed| passed.is_from_inputs).collect();
    for passed in &taken {
        let (kind, name) = (passed.kind.number(), template_literal(&passed.name));
        writeln!(out, "  torch.extend(known, {{ns}}.names_{kind}(inputs, {name}))")?;
        writeln!(out, "  torch.extend(may_be_text, {{ns}}.texts_{kind}(inputs, {name}))")?;
    }
    let names: Vec<String> = plan.known.iter().map(super::leaves::NamedLeaf::name_for_messages).collect();
    let message = match names.as_slice() {
        [] => "there is no input {}; the module takes none".to_owned(),
        [name] => format!("there is no input {{}}; the only one is {name}"),
        names => format!("there is no input {{}}; the inputs are {}", names.join(", ")),
    };
    write!(
        out,
        "  wrong = \"\"\n  names = torch.keys(inputs)\n  for i in range(torch.len(names)):\n    \
         if torch.__not__(torch.__contains__(known, names[i])):\n      wrong = torch.format({}, names[i])\n  \
         for i in range(torch.len(texts)):\n    \
         if torch.__not__(torch.__contains__(inputs, texts[i])):\n      \
         wrong = torch.format(\"the input {{}} is neither a tensor nor a text\", texts[i])\n    \
         else:\n      \
         if torch.__and__(torch.eq(wrong, \"\"), torch.__not__(torch.__contains__(may_be_text, texts[i]))):\n        \
         wrong = torch.format(\"the input {{}} is a text, expected a tensor\", texts[i])\n",
        template_literal(&message)
    )?;
    for passed in taken {
        let (kind, name) = (passed.kind.number(), template_literal(&passed.name));
        let mut indent = "    ";
        writeln!(out, "  if torch.eq(wrong, \"\"):")?;
        if passed.default.is_some() {
            writeln!(out, "    if {{ns}}.has_{kind}(inputs, {name}):")?;
            indent = "      ";
        }
        writeln!(out, "{indent}wrong = {{ns}}.check_{kind}(inputs, {name})")?;
    }
    out.push_str("  return wrong\n");
    Ok(())
}

fn write_argument(
    out: &mut String,
    types: &ScriptTypes,
    number: usize,
    passed: &PassedArgument,
) -> std::fmt::Result {
    let (kind, name, text) =
        (passed.kind.number(), template_literal(&passed.name), types.annotation_text(passed.kind));
    writeln!(out, "def argument_{number}(inputs: Dict[str, Tensor]) -> {text}:")?;
    match &passed.default {
        _ if !passed.is_from_inputs => writeln!(out, "  return None"),
        None => writeln!(out, "  return {{ns}}.take_{kind}(inputs, {name})"),
        Some(default) if matches!(types.kind(passed.kind), ScriptType::Union(_)) => write!(
            out,
            "  if {{ns}}.has_{kind}(inputs, {name}):\n    return {{ns}}.take_{kind}(inputs, {name})\n  else:\n    \
             return {default}\n"
        ),
        Some(default) => write!(
            out,
            "  if {{ns}}.has_{kind}(inputs, {name}):\n    value = {{ns}}.take_{kind}(inputs, {name})\n  else:\n    \
             value = annotate({text}, {default})\n  return value\n"
        ),
    }
}

fn input_functions(
    types: &ScriptTypes,
    id: ScriptTypeId,
    declared: &[DeclaredInput],
    widens: bool,
) -> Result<String, std::fmt::Error> {
    use functions as f;
    let is_text = matches!(Leaf::from_argument(types, id), Some(Leaf::Str | Leaf::Enum(EnumValueType::Str)));
    let all = |has: &str, names: &str, check: &str, take: &str| {
        // The functions of a type's components have the same name in the text of both functions.
        let texts = match names {
            f::NAMES_LEAF if is_text => names.to_owned(),
            f::NAMES_LEAF | f::NAMES_DICT => f::NO_TEXTS.to_owned(),
            names => names.replace("{ns}.names_", "{ns}.texts_"),
        };
        [
            f::input_function("has", "bool", has),
            f::input_function("names", "List[str]", names),
            f::input_function("texts", "List[str]", &texts),
            f::input_function("check", "str", check),
            f::input_function("take", "{type}", take),
        ]
        .concat()
    };
    Ok(match (Leaf::from_argument(types, id), types.kind(id)) {
        (Some(Leaf::Enum(value)), ScriptType::Enum(members)) => {
            let (check, take) = enum_bodies(members, value)?;
            all(f::HAS_LEAF, f::NAMES_LEAF, &check, &take)
        }
        (Some(Leaf::Tensor), _) => {
            let (check, take) = tensor_bodies(declared, widens)?;
            all(f::HAS_LEAF, f::NAMES_LEAF, &check, &take)
        }
        (Some(leaf), _) => {
            let (check, take) = f::leaf_input_bodies(leaf);
            all(f::HAS_LEAF, f::NAMES_LEAF, check, take)
        }
        (None, kind @ (ScriptType::Optional(_) | ScriptType::Union(_))) => {
            let is_optional = non_none_type(types, id).is_none_or(|(_, is_optional)| is_optional);
            let (check, take) = match (kind, is_optional) {
                (ScriptType::Union(_), true) => (f::CHECK_OPTIONAL, f::TAKE_OPTIONAL_UNION),
                (ScriptType::Union(_), false) => (f::CHECK_UNION, f::TAKE_UNION),
                _ => (f::CHECK_OPTIONAL, f::TAKE_OPTIONAL),
            };
            all(f::HAS_OPTIONAL, f::NAMES_OPTIONAL, check, take)
        }
        (None, ScriptType::List(_)) => all(f::HAS_LIST, f::NAMES_LIST, f::CHECK_LIST, f::TAKE_LIST),
        (None, ScriptType::Dict(..)) => all(f::HAS_DICT, f::NAMES_DICT, f::CHECK_DICT, f::TAKE_DICT),
        (None, _) => {
            let [has, names, check, take] = tuple_bodies(types, id)?;
            all(&has, &names, &check, &take)
        }
    })
}

fn tuple_items(types: &ScriptTypes, id: ScriptTypeId) -> Vec<(String, ScriptTypeId)> {
    match types.kind(id) {
        ScriptType::NamedTuple(fields) => {
            fields.iter().map(|field| (field.name.clone(), field.kind)).collect()
        }
        _ => {
            types.component_types(id).into_iter().enumerate().map(|(i, kind)| (i.to_string(), kind)).collect()
        }
    }
}

/// Returns the bodies of the functions `has`, `names`, `check` and `take` for a tuple.
fn tuple_bodies(types: &ScriptTypes, id: ScriptTypeId) -> Result<[String; 4], std::fmt::Error> {
    let mut has = "  has = False\n".to_owned();
    let mut names = "  names = annotate(List[str], [])\n".to_owned();
    let mut check = "  wrong = \"\"\n".to_owned();
    let mut items = Vec::new();
    for (part, kind) in tuple_items(types, id) {
        let (inner, of) =
            (kind.number(), format!("(inputs, {{ns}}.join(name, {}))", template_literal(&part)));
        write!(has, "  if {{ns}}.has_{inner}{of}:\n    has = True\n")?;
        writeln!(names, "  torch.extend(names, {{ns}}.names_{inner}{of})")?;
        write!(check, "  if torch.eq(wrong, \"\"):\n    wrong = {{ns}}.check_{inner}{of}\n")?;
        items.push(format!("{{ns}}.take_{inner}{of}"));
    }
    let class = if matches!(types.kind(id), ScriptType::NamedTuple(_)) { "{type}" } else { "" };
    let comma = if class.is_empty() { "," } else { "" };
    let take = format!("  return {class}({}{comma})\n", items.join(", "));
    Ok([has + "  return has\n", names + "  return names\n", check + "  return wrong\n", take])
}

fn enum_bodies(members: &[EnumMember], value: EnumValueType) -> Result<(String, String), std::fmt::Error> {
    let (check, take) = functions::leaf_input_bodies(match value {
        EnumValueType::Int => Leaf::Int,
        EnumValueType::Float => Leaf::Float,
        EnumValueType::Str => Leaf::Str,
    });
    let given = take.replace("  return ", "").replace('\n', "");
    let shown: Vec<&str> = members.iter().map(|member| member.value.as_str()).collect();
    let values: Vec<String> = members.iter().map(|member| escape_placeholders(&member.value)).collect();
    let check = check.replace("  return ", "  wrong = ")
        + &format!(
            "  if torch.eq(wrong, \"\"):\n    given = {given}\n    if torch.__not__(torch.__contains__([{}], given)):\n      \
             wrong = torch.format(\"the input {{}} is {{}}, expected one of {{}}\", name, given, {})\n  return wrong\n",
            values.join(", "),
            template_literal(&shown.join(", "))
        );
    let mut take = format!("  given = {given}\n");
    for (number, member) in members.iter().enumerate() {
        let chosen = format!("{{type}}.{}", member.name);
        match number {
            0 => writeln!(take, "  value = {chosen}")?,
            _ => write!(
                take,
                "  if torch.eq(given, {}):\n    value = {chosen}\n",
                escape_placeholders(&member.value)
            )?,
        }
    }
    Ok((check, take + "  return value\n"))
}

/// Returns the bodies of `check` and `take` for a tensor: declared inputs are checked by name, and cast. If the module
/// `widens` its weights, float16 inputs are widened too.
fn tensor_bodies(declared: &[DeclaredInput], widens: bool) -> Result<(String, String), std::fmt::Error> {
    let mut check = "  wrong = {ns}.missing(inputs, name)\n".to_owned();
    let mut take = "  value = inputs[name]\n".to_owned();
    for declared in declared {
        let Some((dtype, passed, expected)) = carton_dtype(declared.dtype) else { continue };
        let (name, shape) = (template_literal(&declared.name), carton_shape(declared));
        let sizes = shape.iter().map(|dim| match dim {
            Dim::Size(size) => size.to_string(),
            Dim::Symbol(_) => "-1".to_owned(),
        });
        let sizes: Vec<String> = sizes.collect();
        let dims = shape.iter().map(|dim| match dim {
            Dim::Size(size) => size.to_string(),
            Dim::Symbol(symbol) => symbol.clone(),
        });
        let is_complex = is_complex(declared.dtype);
        // The dtype that Carton can pass, which need not be that of the module.
        let text = format!("{dtype}[{}]", dims.collect::<Vec<_>>().join(", "));
        let allowed = if is_complex { passed } else { expected };
        write!(
            check,
            "  if torch.__and__(torch.eq(name, {name}), torch.eq(wrong, \"\")):\n    \
             wrong = {{ns}}.fits(inputs[name], name, [{passed}, {allowed}], annotate(List[int], [{}]), {})\n",
            sizes.join(", "),
            template_literal(&text)
        )?;
        if is_complex {
            let pairs = "torch.view_as_complex(torch.contiguous(value))";
            write!(take, "  if torch.eq(name, {name}):\n    value = {pairs}\n")?;
        } else if passed != expected && !(widens && declared.dtype == Dtype::Float16) {
            write!(take, "  if torch.eq(name, {name}):\n    value = torch.to(value, {expected})\n")?;
        }
    }
    take.push_str(if widens { "  return {ns}.widen(value)\n" } else { "  return value\n" });
    Ok((check + "  return wrong\n", take))
}

fn result_function(types: &ScriptTypes, id: ScriptTypeId) -> Result<String, std::fmt::Error> {
    let body = match (Leaf::from_result(types, id), types.kind(id)) {
        (None, ScriptType::Union(members)) => {
            let mut body = "  wrong = \"\"\n".to_owned();
            // With the `isinstance` call itself as the condition, the type of `value` would change in the statements after
            // it.
            for member in members {
                let (number, text) = (member.number(), types.annotation_text(*member));
                write!(
                    body,
                    "  is_{number} = isinstance(value, {text})\n  if is_{number}:\n    \
                     wrong = {{ns}}.put_{number}(out, name, unchecked_cast({text}, value))\n"
                )?;
            }
            body + "  return wrong\n"
        }
        (Some(leaf), _) => functions::leaf_put_body(leaf).to_owned(),
        (None, ScriptType::Optional(_)) => functions::PUT_OPTIONAL.to_owned(),
        (None, ScriptType::List(_)) => functions::PUT_LIST.to_owned(),
        (None, ScriptType::Dict(..)) => functions::PUT_DICT.to_owned(),
        (None, _) => {
            let parts = tuple_items(types, id);
            let mut body = "  wrong = \"\"\n".to_owned();
            for number in 0..parts.len() {
                write!(body, "{}v{number}, ", if number == 0 { "  " } else { "" })?;
            }
            if !parts.is_empty() {
                body.push_str("= value\n");
            }
            for (number, (part, kind)) in parts.iter().enumerate() {
                write!(
                    body,
                    "  if torch.eq(wrong, \"\"):\n    wrong = {{ns}}.put_{}(out, {{ns}}.join(name, {}), v{number})\n",
                    kind.number(),
                    template_literal(part)
                )?;
            }
            body + "  return wrong\n"
        }
    };
    Ok(functions::put_function(&body))
}
