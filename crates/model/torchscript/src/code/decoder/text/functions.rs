//! Functions that the methods call. Flags in brackets are as in `infer.rs`.

/// `weight` returns a tensor of a list, in the dtype and on the device of its operand `like`. `dequantized` returns the numbers of blocks of
/// `Q8_0`, which are bytes: a float16 scale and 32 signed codes each.
///
/// `numbers` returns an f64 tensor from integers that hold the bits: from a list of floats, TorchScript would make float32.
///
/// `mask` hides tokens that come later, or are `window` or more tokens back; `window` 0 means no window, and a result of
/// `None` hides nothing.
pub(super) const FUNCTIONS: &str = r"[not half] def weight(list: List[Tensor],
[not half]     i: int,
[not half]     like: Tensor) -> Tensor:
[not half, not blocks]   return torch.to(list[i], ops.prim.device(like), ops.prim.dtype(like))
[blocks]   w = torch.to(list[i], ops.prim.device(like))
[blocks]   return torch.to({ns}.dequantized(w), ops.prim.dtype(like))
[blocks] def dequantized(w: Tensor) -> Tensor:
[blocks]   r = w
[blocks]   if torch.eq(ops.prim.dtype(w), 0):
[blocks]     blocks = torch.unflatten(w, -1, [-1, 34])
[blocks]     scale = torch.to(torch.view_copy(torch.slice(blocks, -1, 0, 2), dtype=5), 6, False, True)
[blocks]     codes = torch.to(torch.view_copy(torch.slice(blocks, -1, 2), dtype=1), 6, False, True)
[blocks]     r = torch.flatten(torch.mul_(codes, scale), -2)
[blocks]   return r
[listed] def numbers(bits: List[int],
[listed]     device: Device) -> Tensor:
[listed]   return torch.view_copy(torch.tensor(bits, dtype=4, device=device), dtype=7)
def mask(s: int,
    past: int,
    window: int,
    like: Tensor) -> Optional[Tensor]:
  t = torch.add(past, s)
  r = annotate(Optional[Tensor], None)
  near = torch.__and__(torch.gt(window, 0), torch.gt(t, window))
  if torch.__or__(near, torch.gt(s, 1)):
    m = torch.full([s, t], -inf, dtype=ops.prim.dtype(like), device=ops.prim.device(like))
    if near:
      r = torch.add_(torch.triu(m, torch.add(past, 1)), torch.tril(m, torch.sub(past, window)))
    else:
      r = torch.triu(m, torch.add(past, 1))
  return r
";

/// Class of the weight lists of a model with float16 weights. PyTorch calls `__setstate__` when it loads the module, before
/// any call: it allocates a float32 buffer for each float16 tensor on a CPU, which takes no memory until it is written. The
/// first call that needs a buffer fills it. Concurrent calls may fill the same buffer, but all write the same numbers, and
/// each reads numbers that it wrote itself or that another call has finished writing. Buffers are never replaced, so no call
/// can free a buffer that another call reads.
pub(super) const HALF: &str = r#"class Half(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  narrow : Dict[str, List[Tensor]]
  wide : Dict[str, List[Tensor]]
  ready : Dict[str, Tensor]
  def __getstate__(self: {ns}.Half) -> Dict[str, List[Tensor]]:
    return self.narrow
  def __setstate__(self: {ns}.Half,
    state: Dict[str, List[Tensor]]) -> NoneType:
    wide = annotate(Dict[str, List[Tensor]], {})
    ready = annotate(Dict[str, Tensor], {})
    names = torch.keys(state)
    for n in range(torch.len(names)):
      list = state[names[n]]
      places = annotate(List[Tensor], [])
      for i in range(torch.len(list)):
        w = list[i]
        place = w
        if torch.__and__(torch.eq(ops.prim.dtype(w), 5), torch.eq(ops.prim.type(ops.prim.device(w)), "cpu")):
          place = torch.empty(torch.size(w), dtype=6)
        _ = torch.append(places, place)
      torch._set_item(wide, names[n], places)
      torch._set_item(ready, names[n], torch.zeros([torch.len(list)], dtype=0))
    self.training = False
    self.narrow = state
    self.wide = wide
    self.ready = ready
    return None
  def weight(self: {ns}.Half,
    name: str,
    i: int,
    like: Tensor) -> Tensor:
    w = (self.narrow[name])[i]
    place = (self.wide[name])[i]
    d = ops.prim.dtype(like)
    if torch.__and__(torch.eq(ops.prim.dtype(w), 5), torch.__and__(torch.eq(ops.prim.dtype(place), d), torch.eq(ops.prim.device(w), ops.prim.device(like)))):
      ready = torch.select(self.ready[name], 0, i)
      if torch.eq(int(ready), 0):
        _ = torch.copy_(place, w)
        _0 = torch.fill_(ready, 1)
      w = place
    return torch.to(w, ops.prim.device(like), d)
"#;
