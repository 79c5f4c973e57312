class Wrapper(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  module : __torch__.net.Net
  def forward(self: __torch__.torch2carton.Wrapper,
    inputs: Dict[str, Tensor]) -> Dict[str, Any]:
    out = annotate(Dict[str, Any], {})
    wrong = __torch__.torch2carton.check(inputs)
    if torch.eq(wrong, ""):
      value = (self.module).forward(x=__torch__.torch2carton.argument_0(inputs), )
      wrong = __torch__.torch2carton.put_1(out, "output", value)
    if torch.ne(wrong, ""):
      torch.clear(out)
      torch._set_item(out, "error", wrong)
    return out
def check(inputs: Dict[str, Tensor]) -> str:
  known = annotate(List[str], [])
  torch.extend(known, __torch__.torch2carton.names_1(inputs, "x"))
  wrong = ""
  names = torch.keys(inputs)
  for i in range(torch.len(names)):
    if torch.__not__(torch.__contains__(known, names[i])):
      wrong = torch.format("there is no input \173}; the only one is x", names[i])
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, "x")
  return wrong
def argument_0(inputs: Dict[str, Tensor]) -> Tensor:
  return __torch__.torch2carton.take_1(inputs, "x")
def has_1(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_1(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def check_1(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.missing(inputs, name)
  return wrong
def take_1(inputs: Dict[str, Tensor],
    name: str) -> Tensor:
  value = inputs[name]
  return value
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
    wrong = torch.format("the input {} holds complex numbers", name)
  if torch.__and__(whole, torch.is_floating_point(t)):
    wrong = torch.format("the input {} holds floating-point numbers, expected integers", name)
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
      wrong = torch.format("the input {} has another dtype than uint8, expected the bytes of a text", name)
  return wrong
def text(t: Tensor) -> str:
  flat = torch.reshape(t, [-1])
  parts = annotate(List[str], [])
  for i in range(torch.numel(flat)):
    _ = torch.append(parts, torch.chr(int(torch.item(torch.select(flat, 0, i)))))
  return torch.join("", parts)
def fits(t: Tensor,
    name: str,
    dtypes: List[int],
    sizes: List[int],
    expected: str) -> str:
  wrong = ""
  if torch.__not__(torch.__contains__(dtypes, ops.prim.dtype(t))):
    wrong = torch.format("the input {} has another dtype than {}", name, expected)
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
