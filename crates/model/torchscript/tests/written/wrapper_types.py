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
    value = (module).forward(t=__torch__.torch2carton.argument_0(inputs), b=__torch__.torch2carton.argument_1(inputs), h=__torch__.torch2carton.argument_2(inputs), z=__torch__.torch2carton.argument_3(inputs), i=__torch__.torch2carton.argument_4(inputs), f=__torch__.torch2carton.argument_5(inputs), k=__torch__.torch2carton.argument_6(inputs), c=__torch__.torch2carton.argument_7(inputs), n=__torch__.torch2carton.argument_8(inputs), s=__torch__.torch2carton.argument_9(inputs), e=__torch__.torch2carton.argument_10(inputs), g=__torch__.torch2carton.argument_11(inputs), il=__torch__.torch2carton.argument_12(inputs), fl=__torch__.torch2carton.argument_13(inputs), bl=__torch__.torch2carton.argument_14(inputs), tl=__torch__.torch2carton.argument_15(inputs), sl=__torch__.torch2carton.argument_16(inputs), d=__torch__.torch2carton.argument_17(inputs), o=__torch__.torch2carton.argument_18(inputs), p=__torch__.torch2carton.argument_19(inputs), )
    wrong = __torch__.torch2carton.put_18(out, "output", value)
  if torch.ne(wrong, ""):
    torch.clear(out)
    torch._set_item(out, "error", wrong)
  return out
def check(inputs: Dict[str, Tensor],
    texts: List[str]) -> str:
  known = annotate(List[str], [])
  may_be_text = annotate(List[str], [])
  torch.extend(known, __torch__.torch2carton.names_1(inputs, "t"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_1(inputs, "t"))
  torch.extend(known, __torch__.torch2carton.names_1(inputs, "b"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_1(inputs, "b"))
  torch.extend(known, __torch__.torch2carton.names_1(inputs, "h"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_1(inputs, "h"))
  torch.extend(known, __torch__.torch2carton.names_1(inputs, "z"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_1(inputs, "z"))
  torch.extend(known, __torch__.torch2carton.names_2(inputs, "i"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_2(inputs, "i"))
  torch.extend(known, __torch__.torch2carton.names_3(inputs, "f"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_3(inputs, "f"))
  torch.extend(known, __torch__.torch2carton.names_4(inputs, "k"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_4(inputs, "k"))
  torch.extend(known, __torch__.torch2carton.names_5(inputs, "c"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_5(inputs, "c"))
  torch.extend(known, __torch__.torch2carton.names_6(inputs, "n"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_6(inputs, "n"))
  torch.extend(known, __torch__.torch2carton.names_7(inputs, "s"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_7(inputs, "s"))
  torch.extend(known, __torch__.torch2carton.names_8(inputs, "e"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_8(inputs, "e"))
  torch.extend(known, __torch__.torch2carton.names_9(inputs, "g"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_9(inputs, "g"))
  torch.extend(known, __torch__.torch2carton.names_10(inputs, "il"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_10(inputs, "il"))
  torch.extend(known, __torch__.torch2carton.names_11(inputs, "fl"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_11(inputs, "fl"))
  torch.extend(known, __torch__.torch2carton.names_12(inputs, "bl"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_12(inputs, "bl"))
  torch.extend(known, __torch__.torch2carton.names_13(inputs, "tl"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_13(inputs, "tl"))
  torch.extend(known, __torch__.torch2carton.names_14(inputs, "sl"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_14(inputs, "sl"))
  torch.extend(known, __torch__.torch2carton.names_15(inputs, "d"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_15(inputs, "d"))
  torch.extend(known, __torch__.torch2carton.names_16(inputs, "o"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_16(inputs, "o"))
  torch.extend(known, __torch__.torch2carton.names_17(inputs, "p"))
  torch.extend(may_be_text, __torch__.torch2carton.texts_17(inputs, "p"))
  wrong = ""
  names = torch.keys(inputs)
  for i in range(torch.len(names)):
    if torch.__not__(torch.__contains__(known, names[i])):
      wrong = torch.format("there is no input \173}; the inputs are t, b, h, z, i, f, k, c, n, s, e, g, il, fl, bl, tl_0 and so on, sl_0 and so on, d_0 and so on, o, p_0, p_1", names[i])
  for i in range(torch.len(texts)):
    if torch.__not__(torch.__contains__(inputs, texts[i])):
      wrong = torch.format("the input {} is neither a tensor nor a text", texts[i])
    else:
      if torch.__and__(torch.eq(wrong, ""), torch.__not__(torch.__contains__(may_be_text, texts[i]))):
        wrong = torch.format("the input {} is a text, expected a tensor", texts[i])
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, "t")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, "b")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, "h")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, "z")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_2(inputs, "i")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_3(inputs, "f")
  if torch.eq(wrong, ""):
    if __torch__.torch2carton.has_4(inputs, "k"):
      wrong = __torch__.torch2carton.check_4(inputs, "k")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_5(inputs, "c")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_6(inputs, "n")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_7(inputs, "s")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_8(inputs, "e")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_9(inputs, "g")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_10(inputs, "il")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_11(inputs, "fl")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_12(inputs, "bl")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_13(inputs, "tl")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_14(inputs, "sl")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_15(inputs, "d")
  if torch.eq(wrong, ""):
    if __torch__.torch2carton.has_16(inputs, "o"):
      wrong = __torch__.torch2carton.check_16(inputs, "o")
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_17(inputs, "p")
  return wrong
def argument_0(inputs: Dict[str, Tensor]) -> Tensor:
  return __torch__.torch2carton.take_1(inputs, "t")
def argument_1(inputs: Dict[str, Tensor]) -> Tensor:
  return __torch__.torch2carton.take_1(inputs, "b")
def argument_2(inputs: Dict[str, Tensor]) -> Tensor:
  return __torch__.torch2carton.take_1(inputs, "h")
def argument_3(inputs: Dict[str, Tensor]) -> Tensor:
  return __torch__.torch2carton.take_1(inputs, "z")
def argument_4(inputs: Dict[str, Tensor]) -> int:
  return __torch__.torch2carton.take_2(inputs, "i")
def argument_5(inputs: Dict[str, Tensor]) -> float:
  return __torch__.torch2carton.take_3(inputs, "f")
def argument_6(inputs: Dict[str, Tensor]) -> bool:
  if __torch__.torch2carton.has_4(inputs, "k"):
    value = __torch__.torch2carton.take_4(inputs, "k")
  else:
    value = annotate(bool, True)
  return value
def argument_7(inputs: Dict[str, Tensor]) -> complex:
  return __torch__.torch2carton.take_5(inputs, "c")
def argument_8(inputs: Dict[str, Tensor]) -> number:
  return __torch__.torch2carton.take_6(inputs, "n")
def argument_9(inputs: Dict[str, Tensor]) -> str:
  return __torch__.torch2carton.take_7(inputs, "s")
def argument_10(inputs: Dict[str, Tensor]) -> __torch__.net.E:
  return __torch__.torch2carton.take_8(inputs, "e")
def argument_11(inputs: Dict[str, Tensor]) -> __torch__.net.G:
  return __torch__.torch2carton.take_9(inputs, "g")
def argument_12(inputs: Dict[str, Tensor]) -> List[int]:
  return __torch__.torch2carton.take_10(inputs, "il")
def argument_13(inputs: Dict[str, Tensor]) -> List[float]:
  return __torch__.torch2carton.take_11(inputs, "fl")
def argument_14(inputs: Dict[str, Tensor]) -> List[bool]:
  return __torch__.torch2carton.take_12(inputs, "bl")
def argument_15(inputs: Dict[str, Tensor]) -> List[Tensor]:
  return __torch__.torch2carton.take_13(inputs, "tl")
def argument_16(inputs: Dict[str, Tensor]) -> List[str]:
  return __torch__.torch2carton.take_14(inputs, "sl")
def argument_17(inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
  return __torch__.torch2carton.take_15(inputs, "d")
def argument_18(inputs: Dict[str, Tensor]) -> Optional[Tensor]:
  if __torch__.torch2carton.has_16(inputs, "o"):
    value = __torch__.torch2carton.take_16(inputs, "o")
  else:
    value = annotate(Optional[Tensor], None)
  return value
def argument_19(inputs: Dict[str, Tensor]) -> Tuple[Tensor, int]:
  return __torch__.torch2carton.take_17(inputs, "p")
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
  if torch.__and__(torch.eq(name, "t"), torch.eq(wrong, "")):
    wrong = __torch__.torch2carton.fits(inputs[name], name, [6, 6], annotate(List[int], [-1, 3]), "float32[n, 3]")
  if torch.__and__(torch.eq(name, "b"), torch.eq(wrong, "")):
    wrong = __torch__.torch2carton.fits(inputs[name], name, [0, 11], annotate(List[int], [-1, 3]), "uint8[n, 3]")
  if torch.__and__(torch.eq(name, "h"), torch.eq(wrong, "")):
    wrong = __torch__.torch2carton.fits(inputs[name], name, [6, 5], annotate(List[int], [-1, 3]), "float32[n, 3]")
  if torch.__and__(torch.eq(name, "z"), torch.eq(wrong, "")):
    wrong = __torch__.torch2carton.fits(inputs[name], name, [6, 6], annotate(List[int], [-1, 3, 2]), "float32[n, 3, 2]")
  if torch.__and__(torch.eq(name, "tl_1"), torch.eq(wrong, "")):
    wrong = __torch__.torch2carton.fits(inputs[name], name, [4, 4], annotate(List[int], [-1, 3]), "int64[n, 3]")
  return wrong
def take_1(inputs: Dict[str, Tensor],
    name: str) -> Tensor:
  value = inputs[name]
  if torch.eq(name, "b"):
    value = torch.to(value, 11)
  if torch.eq(name, "h"):
    value = torch.to(value, 5)
  if torch.eq(name, "z"):
    value = torch.view_as_complex(torch.contiguous(value))
  return value
def has_2(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_2(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_2(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_2(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.one(inputs, name, True)
def take_2(inputs: Dict[str, Tensor],
    name: str) -> int:
  return int(torch.item(inputs[name]))
def has_3(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_3(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_3(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_3(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.one(inputs, name, False)
def take_3(inputs: Dict[str, Tensor],
    name: str) -> float:
  return float(torch.item(inputs[name]))
def has_4(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_4(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_4(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_4(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.one(inputs, name, True)
def take_4(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return bool(torch.item(inputs[name]))
def has_5(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_5(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_5(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_5(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.two(inputs, name)
def take_5(inputs: Dict[str, Tensor],
    name: str) -> complex:
  return __torch__.torch2carton.complex(inputs[name])
def has_6(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_6(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_6(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_6(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.one(inputs, name, False)
def take_6(inputs: Dict[str, Tensor],
    name: str) -> number:
  return torch.item(inputs[name])
def has_7(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_7(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_7(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def check_7(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.bytes(inputs, name)
def take_7(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.text(inputs[name])
def has_8(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_8(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_8(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_8(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.one(inputs, name, True)
  if torch.eq(wrong, ""):
    given = int(torch.item(inputs[name]))
    if torch.__not__(torch.__contains__([1, 2], given)):
      wrong = torch.format("the input {} is {}, expected one of {}", name, given, "1, 2")
  return wrong
def take_8(inputs: Dict[str, Tensor],
    name: str) -> __torch__.net.E:
  given = int(torch.item(inputs[name]))
  value = __torch__.net.E.ONE
  if torch.eq(given, 2):
    value = __torch__.net.E.TWO
  return value
def has_9(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_9(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_9(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def check_9(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.bytes(inputs, name)
  if torch.eq(wrong, ""):
    given = __torch__.torch2carton.text(inputs[name])
    if torch.__not__(torch.__contains__(["a", "b", "c"], given)):
      wrong = torch.format("the input {} is {}, expected one of {}", name, given, "\"a\", \"b\", \"c\"")
  return wrong
def take_9(inputs: Dict[str, Tensor],
    name: str) -> __torch__.net.G:
  given = __torch__.torch2carton.text(inputs[name])
  value = __torch__.net.G.A
  if torch.eq(given, "b"):
    value = __torch__.net.G.B
  if torch.eq(given, "c"):
    value = __torch__.net.G.C
  return value
def has_10(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_10(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_10(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_10(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.some(inputs, name, True)
def take_10(inputs: Dict[str, Tensor],
    name: str) -> List[int]:
  value = annotate(List[int], [])
  flat = torch.reshape(inputs[name], [-1])
  for i in range(torch.numel(flat)):
    _ = torch.append(value, int(torch.item(torch.select(flat, 0, i))))
  return value
def has_11(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_11(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_11(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_11(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.some(inputs, name, False)
def take_11(inputs: Dict[str, Tensor],
    name: str) -> List[float]:
  value = annotate(List[float], [])
  flat = torch.reshape(inputs[name], [-1])
  for i in range(torch.numel(flat)):
    _ = torch.append(value, float(torch.item(torch.select(flat, 0, i))))
  return value
def has_12(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.__contains__(inputs, name)
def names_12(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return [name]
def texts_12(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_12(inputs: Dict[str, Tensor],
    name: str) -> str:
  return __torch__.torch2carton.some(inputs, name, True)
def take_12(inputs: Dict[str, Tensor],
    name: str) -> List[bool]:
  value = annotate(List[bool], [])
  flat = torch.reshape(inputs[name], [-1])
  for i in range(torch.numel(flat)):
    _ = torch.append(value, bool(torch.item(torch.select(flat, 0, i))))
  return value
def has_13(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return __torch__.torch2carton.has_1(inputs, __torch__.torch2carton.item(name, 0))
def names_13(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  names = annotate(List[str], [])
  i = 0
  while __torch__.torch2carton.has_1(inputs, __torch__.torch2carton.item(name, i)):
    torch.extend(names, __torch__.torch2carton.names_1(inputs, __torch__.torch2carton.item(name, i)))
    i = torch.add(i, 1)
  return names
def texts_13(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  names = annotate(List[str], [])
  i = 0
  while __torch__.torch2carton.has_1(inputs, __torch__.torch2carton.item(name, i)):
    torch.extend(names, __torch__.torch2carton.texts_1(inputs, __torch__.torch2carton.item(name, i)))
    i = torch.add(i, 1)
  return names
def check_13(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.check_1(inputs, __torch__.torch2carton.item(name, 0))
  i = 1
  while __torch__.torch2carton.has_1(inputs, __torch__.torch2carton.item(name, i)):
    if torch.eq(wrong, ""):
      wrong = __torch__.torch2carton.check_1(inputs, __torch__.torch2carton.item(name, i))
    i = torch.add(i, 1)
  return wrong
def take_13(inputs: Dict[str, Tensor],
    name: str) -> List[Tensor]:
  value = annotate(List[Tensor], [])
  i = 0
  while __torch__.torch2carton.has_1(inputs, __torch__.torch2carton.item(name, i)):
    _ = torch.append(value, __torch__.torch2carton.take_1(inputs, __torch__.torch2carton.item(name, i)))
    i = torch.add(i, 1)
  return value
def has_14(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return __torch__.torch2carton.has_7(inputs, __torch__.torch2carton.item(name, 0))
def names_14(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  names = annotate(List[str], [])
  i = 0
  while __torch__.torch2carton.has_7(inputs, __torch__.torch2carton.item(name, i)):
    torch.extend(names, __torch__.torch2carton.names_7(inputs, __torch__.torch2carton.item(name, i)))
    i = torch.add(i, 1)
  return names
def texts_14(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  names = annotate(List[str], [])
  i = 0
  while __torch__.torch2carton.has_7(inputs, __torch__.torch2carton.item(name, i)):
    torch.extend(names, __torch__.torch2carton.texts_7(inputs, __torch__.torch2carton.item(name, i)))
    i = torch.add(i, 1)
  return names
def check_14(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = __torch__.torch2carton.check_7(inputs, __torch__.torch2carton.item(name, 0))
  i = 1
  while __torch__.torch2carton.has_7(inputs, __torch__.torch2carton.item(name, i)):
    if torch.eq(wrong, ""):
      wrong = __torch__.torch2carton.check_7(inputs, __torch__.torch2carton.item(name, i))
    i = torch.add(i, 1)
  return wrong
def take_14(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  value = annotate(List[str], [])
  i = 0
  while __torch__.torch2carton.has_7(inputs, __torch__.torch2carton.item(name, i)):
    _ = torch.append(value, __torch__.torch2carton.take_7(inputs, __torch__.torch2carton.item(name, i)))
    i = torch.add(i, 1)
  return value
def has_15(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return torch.gt(torch.len(__torch__.torch2carton.names_15(inputs, name)), 0)
def names_15(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  start = __torch__.torch2carton.join(name, "")
  all = torch.keys(inputs)
  names = annotate(List[str], [])
  for i in range(torch.len(all)):
    if torch.startswith(all[i], start):
      _ = torch.append(names, all[i])
  return names
def texts_15(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return annotate(List[str], [])
def check_15(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = ""
  names = __torch__.torch2carton.names_15(inputs, name)
  for i in range(torch.len(names)):
    if torch.eq(wrong, ""):
      wrong = __torch__.torch2carton.check_1(inputs, names[i])
  return wrong
def take_15(inputs: Dict[str, Tensor],
    name: str) -> Dict[str, Tensor]:
  value = annotate(Dict[str, Tensor], {})
  start = torch.len(__torch__.torch2carton.join(name, ""))
  names = __torch__.torch2carton.names_15(inputs, name)
  for i in range(torch.len(names)):
    torch._set_item(value, torch.slice(names[i], start), __torch__.torch2carton.take_1(inputs, names[i]))
  return value
def has_16(inputs: Dict[str, Tensor],
    name: str) -> bool:
  return __torch__.torch2carton.has_1(inputs, name)
def names_16(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return __torch__.torch2carton.names_1(inputs, name)
def texts_16(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  return __torch__.torch2carton.texts_1(inputs, name)
def check_16(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = ""
  if __torch__.torch2carton.has_1(inputs, name):
    wrong = __torch__.torch2carton.check_1(inputs, name)
  return wrong
def take_16(inputs: Dict[str, Tensor],
    name: str) -> Optional[Tensor]:
  value = annotate(Optional[Tensor], None)
  if __torch__.torch2carton.has_1(inputs, name):
    value = __torch__.torch2carton.take_1(inputs, name)
  return value
def has_17(inputs: Dict[str, Tensor],
    name: str) -> bool:
  has = False
  if __torch__.torch2carton.has_1(inputs, __torch__.torch2carton.join(name, "0")):
    has = True
  if __torch__.torch2carton.has_2(inputs, __torch__.torch2carton.join(name, "1")):
    has = True
  return has
def names_17(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  names = annotate(List[str], [])
  torch.extend(names, __torch__.torch2carton.names_1(inputs, __torch__.torch2carton.join(name, "0")))
  torch.extend(names, __torch__.torch2carton.names_2(inputs, __torch__.torch2carton.join(name, "1")))
  return names
def texts_17(inputs: Dict[str, Tensor],
    name: str) -> List[str]:
  names = annotate(List[str], [])
  torch.extend(names, __torch__.torch2carton.texts_1(inputs, __torch__.torch2carton.join(name, "0")))
  torch.extend(names, __torch__.torch2carton.texts_2(inputs, __torch__.torch2carton.join(name, "1")))
  return names
def check_17(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = ""
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_1(inputs, __torch__.torch2carton.join(name, "0"))
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.check_2(inputs, __torch__.torch2carton.join(name, "1"))
  return wrong
def take_17(inputs: Dict[str, Tensor],
    name: str) -> Tuple[Tensor, int]:
  return (__torch__.torch2carton.take_1(inputs, __torch__.torch2carton.join(name, "0")), __torch__.torch2carton.take_2(inputs, __torch__.torch2carton.join(name, "1")),)
def put_1(out: Dict[str, Any],
    name: str,
    value: Tensor) -> str:
  return __torch__.torch2carton.put(out, name, __torch__.torch2carton.export(value))
def put_2(out: Dict[str, Any],
    name: str,
    value: int) -> str:
  return __torch__.torch2carton.put(out, name, torch.tensor(value, dtype=4))
def put_3(out: Dict[str, Any],
    name: str,
    value: float) -> str:
  return __torch__.torch2carton.put(out, name, torch.scalar_tensor(value, dtype=7))
def put_4(out: Dict[str, Any],
    name: str,
    value: bool) -> str:
  return __torch__.torch2carton.put(out, name, torch.tensor(value, dtype=0))
def put_5(out: Dict[str, Any],
    name: str,
    value: complex) -> str:
  return __torch__.torch2carton.put(out, name, __torch__.torch2carton.export(torch.scalar_tensor(value, dtype=10)))
def put_7(out: Dict[str, Any],
    name: str,
    value: str) -> str:
  return __torch__.torch2carton.put(out, name, value)
def put_8(out: Dict[str, Any],
    name: str,
    value: __torch__.net.E) -> str:
  return __torch__.torch2carton.put(out, name, torch.tensor((value).value, dtype=4))
def put_10(out: Dict[str, Any],
    name: str,
    value: List[int]) -> str:
  return __torch__.torch2carton.put(out, name, torch.tensor(value, dtype=4))
def put_11(out: Dict[str, Any],
    name: str,
    value: List[float]) -> str:
  t = torch.zeros([torch.len(value)], dtype=7)
  for i in range(torch.len(value)):
    _ = torch.fill_(torch.select(t, 0, i), value[i])
  return __torch__.torch2carton.put(out, name, t)
def put_12(out: Dict[str, Any],
    name: str,
    value: List[bool]) -> str:
  return __torch__.torch2carton.put(out, name, torch.tensor(value, dtype=0))
def put_13(out: Dict[str, Any],
    name: str,
    value: List[Tensor]) -> str:
  wrong = ""
  for i in range(torch.len(value)):
    if torch.eq(wrong, ""):
      wrong = __torch__.torch2carton.put_1(out, __torch__.torch2carton.item(name, i), value[i])
  return wrong
def put_14(out: Dict[str, Any],
    name: str,
    value: List[str]) -> str:
  return __torch__.torch2carton.put(out, name, value)
def put_15(out: Dict[str, Any],
    name: str,
    value: Dict[str, Tensor]) -> str:
  wrong = ""
  keys = torch.keys(value)
  for i in range(torch.len(keys)):
    if torch.eq(wrong, ""):
      wrong = __torch__.torch2carton.put_1(out, __torch__.torch2carton.join(name, torch.format("{}", keys[i])), value[keys[i]])
  return wrong
def put_16(out: Dict[str, Any],
    name: str,
    value: Optional[Tensor]) -> str:
  wrong = ""
  if torch.__isnot__(value, None):
    wrong = __torch__.torch2carton.put_1(out, name, unchecked_cast(Tensor, value))
  return wrong
def put_18(out: Dict[str, Any],
    name: str,
    value: Tuple[Tensor, int, float, bool, complex, str, __torch__.net.E, List[int], List[float], List[bool], List[str], List[Tensor], Dict[str, Tensor], Optional[Tensor]]) -> str:
  wrong = ""
  v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, = value
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_1(out, __torch__.torch2carton.join(name, "0"), v0)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_2(out, __torch__.torch2carton.join(name, "1"), v1)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_3(out, __torch__.torch2carton.join(name, "2"), v2)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_4(out, __torch__.torch2carton.join(name, "3"), v3)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_5(out, __torch__.torch2carton.join(name, "4"), v4)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_7(out, __torch__.torch2carton.join(name, "5"), v5)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_8(out, __torch__.torch2carton.join(name, "6"), v6)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_10(out, __torch__.torch2carton.join(name, "7"), v7)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_11(out, __torch__.torch2carton.join(name, "8"), v8)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_12(out, __torch__.torch2carton.join(name, "9"), v9)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_14(out, __torch__.torch2carton.join(name, "10"), v10)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_13(out, __torch__.torch2carton.join(name, "11"), v11)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_15(out, __torch__.torch2carton.join(name, "12"), v12)
  if torch.eq(wrong, ""):
    wrong = __torch__.torch2carton.put_16(out, __torch__.torch2carton.join(name, "13"), v13)
  return wrong
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
# input t float32 [Symbol("n"), Size(3)] None false
# input b uint8 [Symbol("n"), Size(3)] Some("bool in the module") false
# input h float32 [Symbol("n"), Size(3)] Some("float16 in the module") false
# input z float32 [Symbol("n"), Size(3), Size(2)] Some("complex64 in the module") false
# input i int64 [] None false
# input f float64 [] None false
# input k uint8 [] Some("1 for true, 0 for false") true
# input c float64 [Size(2)] Some("the real and the imaginary part") false
# input s uint8 [Symbol("s_len")] Some("a text, or its bytes in UTF-8") false
# input e int64 [] Some("a value of an enumeration") false
# input g uint8 [Symbol("g_len")] Some("a text, or its bytes in UTF-8") false
# input il int64 [Symbol("il_len")] None false
# input fl float64 [Symbol("fl_len")] None false
# input bl uint8 [Symbol("bl_len")] Some("1 for true, 0 for false") false
# input p_1 int64 [] None false
# input tl_1 int64 [Symbol("n"), Size(3)] None true
# output output_1 int64 [] None false
# output output_2 float64 [] None false
# output output_3 uint8 [] Some("1 for true, 0 for false") false
# output output_4 float64 [Size(2)] Some("the real and the imaginary part") false
# output output_6 int64 [] Some("a value of an enumeration") false
# output output_7 int64 [Symbol("output_7_len")] None false
# output output_8 float64 [Symbol("output_8_len")] None false
# output output_9 uint8 [Symbol("output_9_len")] Some("1 for true, 0 for false") false
