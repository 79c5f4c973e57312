class Entry(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  module : Any
  def forward(self: __torch__.torch2carton.Entry,
    inputs: Dict[str, Any]) -> Dict[str, Any]:
    return __torch__.torch2carton.respond(unchecked_cast(__torch__.net.Net, self.module), inputs)
class Wrapper(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  module : __torch__.net.Net
  forward : __torch__.torch2carton.Entry
  def forward(self: __torch__.torch2carton.Wrapper,
    inputs: Any) -> Dict[str, Any]:
    return __torch__.torch2carton.respond(self.module, inputs)
def respond(module: __torch__.net.Net,
    given: Any) -> Dict[str, Any]:
  out = annotate(Dict[str, Any], {})
  texts = annotate(List[str], [])
  inputs = __torch__.torch2carton.tensors(given, texts)
  wrong = __torch__.torch2carton.check(inputs, texts)
  if torch.eq(wrong, ""):
    value = (module).forward(x=__torch__.torch2carton.argument_0(inputs), mode=__torch__.torch2carton.argument_1(inputs), )
    wrong = __torch__.torch2carton.put_1(out, "output", value)
  if torch.ne(wrong, ""):
    torch.clear(out)
    torch._set_item(out, "error", wrong)
  return out
def check(inputs: Dict[str, Tensor],
    texts: List[str]) -> str:
  known = annotate(List[str], [])
  may_be_text = annotate(List[str], [])
  torch.extend(known, __torch__.torch2carton.names_1(inputs, "x"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_1(inputs, "x"))
  torch.extend(known, __torch__.torch2carton.names_2(inputs, "mode"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_2(inputs, "mode"))
  wrong = ""
  names = torch.keys(inputs)
  for i in range(torch.len(names)):
    if torch.__not__(torch.__contains__(known, names[i])):
      wrong = torch.format("there is no input \173}; the inputs are x, mode", names[i])
  for i in range(torch.len(texts)):
    if torch.__not__(torch.__contains__(inputs, texts[i])):
      wrong = torch.format("the input {} is neither a tensor nor a text", texts[i])
    else:
      if torch.__and__(torch.eq(wrong, ""), torch.__not__(torch.__contains__(may_be_text, texts[i]))):
        wrong = torch.format("the input {} is a text, expected a tensor", texts[i])
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, "x")
  if torch.eq(wrong, ""):
    if __torch__.torch2carton.has_2(inputs, "mode"):
      wrong = __torch__.torch2carton.check_2(inputs, "mode")
  return wrong
def argument_0(inputs: Dict[str, Tensor]) -> Tensor:
  return __torch__.torch2carton.take_1(inputs, "x")
def argument_1(inputs: Dict[str, Tensor]) -> str:
  if __torch__.torch2carton.has_2(inputs, "mode"):
    value = __torch__.torch2carton.take_2(inputs, "mode")
  else:
    value = annotate(str, "sum")
  return value
def has_1(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_1(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_1(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_1(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.missing(inputs, name)
  return wrong
def take_1(inputs: Dict[str, Tensor],
    name: str) -> Tensor:
  value = inputs[name]
  return value
def has_2(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_2(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_2(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def check_2(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.bytes(inputs, name)
def take_2(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.text(inputs[name])
def put_1(out: Dict[str, Any],
    name: str,
    value: Tensor) -> str:
  return __torch__.torch2carton.put(out, name, __torch__.torch2carton.export(value))
def join(name: str,
    part: str) -> str:
  if torch.eq(name, ""):
    joined = part
  else:
    joined = torch.format("{}_{}", name, part)
  return joined
def item(name: str,
    number: int) -> str:
  return __torch__.torch2carton.join(name, torch.format("{}", number))
def missing(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = ""
  if torch.__not__(torch.__contains__(inputs, name)):
    wrong = torch.format("the input {} is missing", name)
  return wrong
def one(inputs: Dict[str, Tensor],
    name: str,
    whole: bool) -> str:
  wrong = __torch__.torch2carton.missing(inputs, name)
  if torch.eq(wrong, ""):
    t = inputs[name]
    if torch.ne(torch.numel(t), 1):
      wrong = torch.format("the input {} has the shape {}, expected one number", name, torch.size(t))
    else:
      wrong = __torch__.torch2carton.kind(t, name, whole)
  return wrong
def some(inputs: Dict[str, Tensor],
    name: str,
    whole: bool) -> str:
  wrong = __torch__.torch2carton.missing(inputs, name)
  if torch.eq(wrong, ""):
    t = inputs[name]
    if torch.gt(torch.dim(t), 1):
      wrong = torch.format("the input {} has the shape {}, expected one dimension", name, torch.size(t))
    else:
      wrong = __torch__.torch2carton.kind(t, name, whole)
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
  wrong = __torch__.torch2carton.missing(inputs, name)
  if torch.eq(wrong, ""):
    t = inputs[name]
    if torch.ne(torch.numel(t), 2):
      wrong = torch.format("the input {} has the shape {}, expected two numbers", name, torch.size(t))
    else:
      wrong = __torch__.torch2carton.kind(t, name, False)
  return wrong
def complex(t: Tensor) -> complex:
  flat = torch.reshape(t, [2])
  return torch.Complex(float(torch.item(torch.select(flat, 0, 0))), float(torch.item(torch.select(flat, 0, 1))))
def bytes(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.some(inputs, name, False)
  if torch.eq(wrong, ""):
    if torch.ne(ops.prim.dtype(inputs[name]), 0):
      wrong = torch.format("the input {} is {}, expected a text or its bytes as uint8", name, __torch__.torch2carton.dtype_name(inputs[name]))
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
        torch._set_item(inputs, names[i], __torch__.torch2carton.encode(unchecked_cast(str, value)))
  return inputs
def fits(t: Tensor,
    name: str,
    dtypes: List[int],
    sizes: List[int],
    expected: str) -> str:
  wrong = ""
  if torch.__not__(torch.__contains__(dtypes, ops.prim.dtype(t))):
    wrong = torch.format("the input {} is {}, expected {}", name, __torch__.torch2carton.dtype_name(t), expected)
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
