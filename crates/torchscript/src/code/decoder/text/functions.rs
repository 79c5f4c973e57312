//! What `infer` calls.

/// `weight` is a matrix of a list in the dtype of what it is multiplied with. If it is float16 that has to be widened, or on
/// another device, the list then holds the result. The tensor that it held is still a parameter of the module, so another
/// call at the same time reads one or the other, and both are equal.
///
/// `mask` hides what comes later and what is `window` or more tokens
/// back; 0 is no window, and `None` hides nothing. `attention` lets each head of keys and values serve its
/// group of queries. `rotate` turns the pairs of numbers that `{split}` lays into the dimension `{dim}`.
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
def attention(q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor]) -> Tensor:
  b = torch.size(q, 0)
  s = torch.size(q, 1)
  hd = torch.size(q, 3)
  t = torch.size(k, 1)
  nkv = torch.size(k, 2)
  g = torch.permute(torch.view(q, [b, s, nkv, -1, hd]), [0, 2, 3, 1, 4])
  q1 = torch.reshape(g, [b, nkv, -1, hd])
  scores = torch.div_(torch.matmul(q1, torch.permute(k, [0, 2, 3, 1])), torch.sqrt(hd))
  if torch.__isnot__(mask, None):
    m = unchecked_cast(Tensor, mask)
    scores = torch.view(torch.add_(torch.view(scores, [b, nkv, -1, s, t]), m), [b, nkv, -1, t])
  p = torch.softmax(scores, -1)
  o = torch.view(torch.matmul(p, torch.transpose(v, 1, 2)), [b, nkv, -1, s, hd])
  return torch.reshape(torch.permute(o, [0, 3, 1, 2, 4]), [b, s, -1])
def norm(x: Tensor,
    weight: Tensor,
    eps: float) -> Tensor:
  d = ops.prim.dtype(x)
  y = torch.to(x, d, False, True)
  v = torch.mean(torch.square(y), [-1], True)
  return torch.mul_(torch.mul_(y, torch.rsqrt_(torch.add_(v, eps))), torch.to(weight, d))
def rotate(x: Tensor,
    cos: Tensor,
    sin: Tensor) -> Tensor:
  y = torch.reshape(x, [torch.size(x, 0), torch.size(x, 1), torch.size(x, 2), {split}])
  a = torch.select(y, {dim}, 0)
  b = torch.select(y, {dim}, 1)
  re = torch.sub_(torch.mul(a, cos), torch.mul(b, sin))
  im = torch.add_(torch.mul(a, sin), torch.mul(b, cos))
  return torch.flatten(torch.stack([re, im], {dim}), 3)
";
