//! Templates of TorchScript functions that make arguments from input tensors and put results into the output dict: one
//! function of each kind per type.
//!
//! Facts: the texts were compiled by PyTorch 2.0.1 and 2.15. They use no operator whose meaning depends on the archive's
//! format version. In them, `{id}` is the number of a type, `{type}` its annotation, `{inner}` the number of its component
//! type, and `{ns}` the namespace.

use super::support::{EnumValueType, Leaf};

pub(super) const HELPER_FUNCTIONS: &str = r#"def join(name: str,
    part: str) -> str:
  if torch.eq(name, ""):
    joined = part
  else:
    joined = torch.format("{}_{}", name, part)
  return joined
def item(name: str,
    number: int) -> str:
  return {ns}.join(name, torch.format("{}", number))
def missing(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = ""
  if torch.__not__(torch.__contains__(inputs, name)):
    wrong = torch.format("the input {} is missing", name)
  return wrong
def one(inputs: Dict[str, Tensor],
    name: str,
    whole: bool) -> str:
  wrong = {ns}.missing(inputs, name)
  if torch.eq(wrong, ""):
    t = inputs[name]
    if torch.ne(torch.numel(t), 1):
      wrong = torch.format("the input {} has the shape {}, expected one number", name, torch.size(t))
    else:
      wrong = {ns}.kind(t, name, whole)
  return wrong
def some(inputs: Dict[str, Tensor],
    name: str,
    whole: bool) -> str:
  wrong = {ns}.missing(inputs, name)
  if torch.eq(wrong, ""):
    t = inputs[name]
    if torch.gt(torch.dim(t), 1):
      wrong = torch.format("the input {} has the shape {}, expected one dimension", name, torch.size(t))
    else:
      wrong = {ns}.kind(t, name, whole)
  return wrong
def kind(t: Tensor,
    name: str,
    whole: bool) -> str:
  wrong = ""
  if torch.is_complex(t):
    wrong = torch.format("the input {} has complex numbers, expected real ones", name)
  if torch.__and__(whole, torch.is_floating_point(t)):
    wrong = torch.format("the input {} has floating-point numbers, expected integers", name)
  return wrong
def two(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = {ns}.missing(inputs, name)
  if torch.eq(wrong, ""):
    t = inputs[name]
    if torch.ne(torch.numel(t), 2):
      wrong = torch.format("the input {} has the shape {}, expected two numbers", name, torch.size(t))
    else:
      wrong = {ns}.kind(t, name, False)
  return wrong
def complex(t: Tensor) -> complex:
  flat = torch.reshape(t, [2])
  return torch.Complex(float(torch.item(torch.select(flat, 0, 0))), float(torch.item(torch.select(flat, 0, 1))))
def bytes(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = {ns}.some(inputs, name, False)
  if torch.eq(wrong, ""):
    if torch.ne(ops.prim.dtype(inputs[name]), 0):
      wrong = torch.format("the input {} is {}, expected a text or its bytes as uint8", name, {ns}.dtype_name(inputs[name]))
  return wrong
def text(t: Tensor) -> str:
  flat = torch.reshape(t, [-1])
  parts = annotate(List[str], [])
  for i in range(torch.numel(flat)):
    _ = torch.append(parts, torch.chr(int(torch.item(torch.select(flat, 0, i)))))
  return torch.join("", parts)
def widen(t: Tensor) -> Tensor:
  wide = t
  if torch.__and__(torch.eq(ops.prim.dtype(t), 5), torch.eq(ops.prim.type(ops.prim.device(t)), "cpu")):
    wide = torch.detach(torch.to(t, 6))
  return wide
def dtype_name(t: Tensor) -> str:
  names = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool"]
  number = ops.prim.dtype(t)
  name = torch.format("of the dtype number {}", number)
  if torch.lt(number, torch.len(names)):
    name = names[number]
  if torch.eq(number, 15):
    name = "bfloat16"
  return name
def encode(text: str) -> Tensor:
  bytes = annotate(List[int], [])
  for i in range(torch.len(text)):
    _ = torch.append(bytes, torch.ord(text[i]))
  return torch.tensor(bytes, dtype=0)
def tensors(given: Any,
    texts: List[str]) -> Dict[str, Tensor]:
  inputs = annotate(Dict[str, Tensor], {})
  has_tensors = isinstance(given, Dict[str, Tensor])
  if has_tensors:
    inputs = unchecked_cast(Dict[str, Tensor], given)
  has_texts = isinstance(given, Dict[str, Any])
  if has_texts:
    values = unchecked_cast(Dict[str, Any], given)
    names = torch.keys(values)
    for i in range(torch.len(names)):
      value = values[names[i]]
      is_tensor = isinstance(value, Tensor)
      is_text = isinstance(value, str)
      if is_tensor:
        torch._set_item(inputs, names[i], unchecked_cast(Tensor, value))
      else:
        _ = torch.append(texts, names[i])
      if is_text:
        torch._set_item(inputs, names[i], {ns}.encode(unchecked_cast(str, value)))
  return inputs
def fits(t: Tensor,
    name: str,
    dtypes: List[int],
    sizes: List[int],
    expected: str) -> str:
  wrong = ""
  if torch.__not__(torch.__contains__(dtypes, ops.prim.dtype(t))):
    wrong = torch.format("the input {} is {}, expected {}", name, {ns}.dtype_name(t), expected)
  same = torch.eq(torch.dim(t), torch.len(sizes))
  if same:
    for i in range(torch.len(sizes)):
      if torch.__and__(torch.ge(sizes[i], 0), torch.ne(torch.size(t, i), sizes[i])):
        same = False
  if torch.__and__(torch.eq(wrong, ""), torch.__not__(same)):
    wrong = torch.format("the input {} has the shape {}, expected {}", name, torch.size(t), expected)
  return wrong
def put(out: Dict[str, Any],
    name: str,
    value: Any) -> str:
  wrong = ""
  if torch.__contains__(out, name):
    wrong = torch.format("two outputs have the name {}", name)
  else:
    torch._set_item(out, name, value)
  return wrong
def export(t: Tensor) -> Tensor:
  u = torch.detach(t)
  if ops.prim.is_quantized(u):
    v = torch.dequantize(u)
  else:
    if torch.ne(ops.prim.layout(u), 0):
      v = torch.to_dense(u)
    else:
      v = u
  d = ops.prim.dtype(v)
  if torch.is_complex(v):
    if torch.eq(d, 8):
      r = torch.view_as_real(torch.to(v, 9))
    else:
      r = torch.view_as_real(torch.resolve_conj(v))
  else:
    if torch.eq(d, 11):
      r = torch.to(v, 0)
    else:
      if torch.is_floating_point(v):
        if torch.eq(d, 7):
          r = v
        else:
          r = torch.to(v, 6)
      else:
        r = v
  return torch.contiguous(torch.resolve_neg(r))
"#;

/// Function that takes a tensor out of the dict of outputs, for a wrapper that returns tensors.
pub(super) const POSITIONAL_OUTPUT: &str = r#"def output(out: Dict[str, Any],
    name: str,
    scalar: bool) -> Tensor:
  if torch.__not__(torch.__contains__(out, name)):
    ops.prim.RaiseException(torch.format("the module returned no output {}", name))
  value = out[name]
  is_tensor = isinstance(value, Tensor)
  if torch.__not__(is_tensor):
    ops.prim.RaiseException(torch.format("the output {} is not a tensor", name))
  t = unchecked_cast(Tensor, value)
  if scalar:
    t = torch.reshape(t, [1])
  return t
"#;

/// Header of a function that reads inputs: for `has`, `names`, `texts`, `check` or `take`.
const INPUT_FUNCTION_HEADER: &str =
    "def {what}_{id}(inputs: Dict[str, Tensor],\n    name: str) -> {result}:\n";
/// Header of a function that puts a result into the dict of outputs.
const PUT_FUNCTION_HEADER: &str =
    "def put_{id}(out: Dict[str, Any],\n    name: str,\n    value: {type}) -> str:\n";

pub(super) fn input_function(what: &str, result: &str, body: &str) -> String {
    INPUT_FUNCTION_HEADER.replace("{what}", what).replace("{result}", result) + body
}

pub(super) fn put_function(body: &str) -> String {
    PUT_FUNCTION_HEADER.to_owned() + body
}

pub(super) const HAS_LEAF: &str = "  return torch.__contains__(inputs, name)\n";
pub(super) const NAMES_LEAF: &str = "  return [name]\n";
/// Body of `texts`, the names of inputs that can be texts, for an input that cannot.
pub(super) const NO_TEXTS: &str = "  return annotate(List[str], [])\n";

pub(super) fn leaf_input_bodies(leaf: Leaf) -> (&'static str, &'static str) {
    const ONE: &str = "  return {ns}.one(inputs, name, False)\n";
    const WHOLE: &str = "  return {ns}.one(inputs, name, True)\n";
    const SOME: &str = "  return {ns}.some(inputs, name, False)\n";
    const INTEGERS: &str = "  return {ns}.some(inputs, name, True)\n";
    match leaf {
        Leaf::Int => (WHOLE, "  return int(torch.item(inputs[name]))\n"),
        Leaf::Float => (ONE, "  return float(torch.item(inputs[name]))\n"),
        Leaf::Bool => (WHOLE, "  return bool(torch.item(inputs[name]))\n"),
        Leaf::Number => (ONE, "  return torch.item(inputs[name])\n"),
        Leaf::Ints => (INTEGERS, LIST_OF_INTS),
        Leaf::Floats => (SOME, LIST_OF_FLOATS),
        Leaf::Bools => (INTEGERS, LIST_OF_BOOLS),
        Leaf::Complex => ("  return {ns}.two(inputs, name)\n", "  return {ns}.complex(inputs[name])\n"),
        Leaf::Str => ("  return {ns}.bytes(inputs, name)\n", "  return {ns}.text(inputs[name])\n"),
        // These types have bodies of their own, or cannot be arguments.
        Leaf::Tensor | Leaf::Enum(_) | Leaf::Strs | Leaf::None => ("", ""),
    }
}

const LIST_OF_INTS: &str = r"  value = annotate(List[int], [])
  flat = torch.reshape(inputs[name], [-1])
  for i in range(torch.numel(flat)):
    _ = torch.append(value, int(torch.item(torch.select(flat, 0, i))))
  return value
";
const LIST_OF_FLOATS: &str = r"  value = annotate(List[float], [])
  flat = torch.reshape(inputs[name], [-1])
  for i in range(torch.numel(flat)):
    _ = torch.append(value, float(torch.item(torch.select(flat, 0, i))))
  return value
";
const LIST_OF_BOOLS: &str = r"  value = annotate(List[bool], [])
  flat = torch.reshape(inputs[name], [-1])
  for i in range(torch.numel(flat)):
    _ = torch.append(value, bool(torch.item(torch.select(flat, 0, i))))
  return value
";

pub(super) const HAS_OPTIONAL: &str = "  return {ns}.has_{inner}(inputs, name)\n";
pub(super) const NAMES_OPTIONAL: &str = "  return {ns}.names_{inner}(inputs, name)\n";
pub(super) const CHECK_OPTIONAL: &str = r#"  wrong = ""
  if {ns}.has_{inner}(inputs, name):
    wrong = {ns}.check_{inner}(inputs, name)
  return wrong
"#;
pub(super) const TAKE_OPTIONAL: &str = r"  value = annotate({type}, None)
  if {ns}.has_{inner}(inputs, name):
    value = {ns}.take_{inner}(inputs, name)
  return value
";

/// Body of `take` for an optional union, which returns early: a constant cannot be annotated as a union.
pub(super) const TAKE_OPTIONAL_UNION: &str = r"  if {ns}.has_{inner}(inputs, name):
    return {ns}.take_{inner}(inputs, name)
  else:
    return None
";
pub(super) const CHECK_UNION: &str = "  return {ns}.check_{inner}(inputs, name)\n";
pub(super) const TAKE_UNION: &str = "  return {ns}.take_{inner}(inputs, name)\n";

pub(super) const HAS_LIST: &str = "  return {ns}.has_{inner}(inputs, {ns}.item(name, 0))\n";
pub(super) const NAMES_LIST: &str = r"  names = annotate(List[str], [])
  i = 0
  while {ns}.has_{inner}(inputs, {ns}.item(name, i)):
    torch.extend(names, {ns}.names_{inner}(inputs, {ns}.item(name, i)))
    i = torch.add(i, 1)
  return names
";
pub(super) const CHECK_LIST: &str = r"  wrong = {ns}.check_{inner}(inputs, {ns}.item(name, 0))
  i = 1
  while {ns}.has_{inner}(inputs, {ns}.item(name, i)):
    if torch.eq(wrong, _EMPTY_):
      wrong = {ns}.check_{inner}(inputs, {ns}.item(name, i))
    i = torch.add(i, 1)
  return wrong
";
pub(super) const TAKE_LIST: &str = r"  value = annotate({type}, [])
  i = 0
  while {ns}.has_{inner}(inputs, {ns}.item(name, i)):
    _ = torch.append(value, {ns}.take_{inner}(inputs, {ns}.item(name, i)))
    i = torch.add(i, 1)
  return value
";

pub(super) const HAS_DICT: &str = "  return torch.gt(torch.len({ns}.names_{id}(inputs, name)), 0)\n";
pub(super) const NAMES_DICT: &str = r"  start = {ns}.join(name, _EMPTY_)
  all = torch.keys(inputs)
  names = annotate(List[str], [])
  for i in range(torch.len(all)):
    if torch.startswith(all[i], start):
      _ = torch.append(names, all[i])
  return names
";
pub(super) const CHECK_DICT: &str = r"  wrong = _EMPTY_
  names = {ns}.names_{id}(inputs, name)
  for i in range(torch.len(names)):
    if torch.eq(wrong, _EMPTY_):
      wrong = {ns}.check_{inner}(inputs, names[i])
  return wrong
";
pub(super) const TAKE_DICT: &str = r"  value = annotate({type}, {})
  start = torch.len({ns}.join(name, _EMPTY_))
  names = {ns}.names_{id}(inputs, name)
  for i in range(torch.len(names)):
    torch._set_item(value, torch.slice(names[i], start), {ns}.take_{inner}(inputs, names[i]))
  return value
";

pub(super) fn leaf_put_body(leaf: Leaf) -> &'static str {
    match leaf {
        Leaf::Tensor => "  return {ns}.put(out, name, {ns}.export(value))\n",
        Leaf::Int | Leaf::Ints => "  return {ns}.put(out, name, torch.tensor(value, dtype=4))\n",
        // `torch.tensor` would round a float to the default dtype first.
        Leaf::Float => "  return {ns}.put(out, name, torch.scalar_tensor(value, dtype=7))\n",
        Leaf::Floats => PUT_FLOATS,
        Leaf::Bool | Leaf::Bools => "  return {ns}.put(out, name, torch.tensor(value, dtype=0))\n",
        Leaf::Complex => "  return {ns}.put(out, name, {ns}.export(torch.scalar_tensor(value, dtype=10)))\n",
        Leaf::Enum(EnumValueType::Int) => {
            "  return {ns}.put(out, name, torch.tensor((value).value, dtype=4))\n"
        }
        Leaf::Enum(EnumValueType::Float) => {
            "  return {ns}.put(out, name, torch.scalar_tensor((value).value, dtype=7))\n"
        }
        Leaf::Enum(EnumValueType::Str) => "  return {ns}.put(out, name, (value).value)\n",
        Leaf::Str | Leaf::Strs => "  return {ns}.put(out, name, value)\n",
        Leaf::None | Leaf::Number => "  return \"\"\n",
    }
}

const PUT_FLOATS: &str = r"  t = torch.zeros([torch.len(value)], dtype=7)
  for i in range(torch.len(value)):
    _ = torch.fill_(torch.select(t, 0, i), value[i])
  return {ns}.put(out, name, t)
";

pub(super) const PUT_OPTIONAL: &str = r"  wrong = _EMPTY_
  if torch.__isnot__(value, None):
    wrong = {ns}.put_{inner}(out, name, unchecked_cast({inner type}, value))
  return wrong
";
pub(super) const PUT_LIST: &str = r"  wrong = _EMPTY_
  for i in range(torch.len(value)):
    if torch.eq(wrong, _EMPTY_):
      wrong = {ns}.put_{inner}(out, {ns}.item(name, i), value[i])
  return wrong
";
pub(super) const PUT_DICT: &str = r#"  wrong = _EMPTY_
  keys = torch.keys(value)
  for i in range(torch.len(keys)):
    if torch.eq(wrong, _EMPTY_):
      wrong = {ns}.put_{inner}(out, {ns}.join(name, torch.format("{}", keys[i])), value[keys[i]])
  return wrong
"#;
