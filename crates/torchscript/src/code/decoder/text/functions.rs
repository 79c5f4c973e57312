//! What the methods call. Flags in brackets are as in `forward.rs`.

/// `weight` is a matrix of a list in the dtype of what it is multiplied with. If it is float16 that has to be widened, or on
/// another device, the list then holds the result. The tensor that it held is still an attribute of the module, so another
/// call at the same time reads one or the other, and both are equal.
///
/// `numbers` are in f64, given by their bits: of a list of floats, TorchScript makes float32.
///
/// `mask` hides what comes later and what is `window` or more tokens back; 0 is no window, and `None` hides nothing. `norm`
/// is of the last dimension. `rotate` turns the pairs of numbers that `{split}` lays into the dimension `{dim}`.
pub(super) const FUNCTIONS: &str = r"def weight(list: List[Tensor],
    i: int,
    like: Tensor) -> Tensor:
  w = list[i]
  d = ops.prim.dtype(like)
  half = torch.__and__(torch.eq(ops.prim.dtype(w), 5), torch.ne(d, 5))
  if torch.__or__(half, torch.ne(ops.prim.device(w), ops.prim.device(like))):
    w = torch.to(w, ops.prim.device(like), d)
    _ = torch._set_item(list, i, w)
  return torch.to(w, d)
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
def norm(x: Tensor,
    weight: Tensor,
    [layer norm] bias: Tensor,
    eps: float) -> Tensor:
  d = ops.prim.dtype(x)
  [not layer norm] y = torch.to(x, d, False, True)
  [not layer norm] v = torch.mean(torch.square(y), [-1], True)
  [not layer norm] y = torch.mul_(y, torch.rsqrt_(torch.add_(v, eps)))
  [rms] y = torch.mul_(y, torch.to(weight, d))
  [plus one] y = torch.mul_(y, torch.add_(torch.to(weight, d, False, True), 1))
  [layer norm] y = torch.layer_norm(x, [torch.size(x, -1)], torch.to(weight, d), torch.to(bias, d), eps)
  return y
[layer head norm] def head_norm(x: Tensor,
[layer head norm]     weight: Tensor,
[layer head norm]     eps: float) -> Tensor:
[layer head norm]   y = torch.layer_norm(x, [torch.size(x, -1)], None, None, eps)
[layer head norm]   return torch.mul_(y, torch.to(weight, ops.prim.dtype(x)))
def rotate(x: Tensor,
    cos: Tensor,
    sin: Tensor) -> Tensor:
  [part] out = torch.to(x, ops.prim.dtype(x), False, True)
  [part] x = torch.slice(x, 3, 0, torch.mul(torch.size(cos, -1), 2))
  y = torch.reshape(x, [torch.size(x, 0), torch.size(x, 1), torch.size(x, 2), {split}])
  a = torch.select(y, {dim}, 0)
  b = torch.select(y, {dim}, 1)
  re = torch.sub_(torch.mul(a, cos), torch.mul(b, sin))
  im = torch.add_(torch.mul(a, sin), torch.mul(b, cos))
  [not part] return torch.flatten(torch.stack([re, im], {dim}), 3)
  [part] rotated = torch.flatten(torch.stack([re, im], {dim}), 3)
  [part] _ = torch.copy_(torch.slice(out, 3, 0, torch.size(rotated, 3)), rotated)
  [part] return out
";
