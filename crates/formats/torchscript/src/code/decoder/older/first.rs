//! First version of the text: norms and attention returned the dtype of the weights, and each list of weights was an
//! attribute.

use super::{LegacyText, linear_of_lists, lists_as_attributes};

pub(super) static TEXT: LegacyText = LegacyText {
    forward: FORWARD,
    functions: FUNCTIONS,
    linear: linear_of_lists,
    weights: lists_as_attributes,
};

const FORWARD: &str = r#"  def forward(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
    w = (self.outer{_})[0]
    dev = ops.prim.device(w)
    hd = self.head_dim{_}
    nkv = self.n_kv_heads{_}
    tokens = {ns}.tokens(inputs, self.vocab{_}, dev)
    b = torch.size(tokens, 0)
    s = torch.size(tokens, 1)
    layers = torch.len(self.wq{_})
    past = {ns}.past(inputs, layers, b, nkv, hd)
    pk = w
    pv = w
    has_past = torch.__contains__(inputs, "past_key")
    if has_past:
      pk = torch.to(inputs["past_key"], dev)
      pv = torch.to(inputs["past_value"], dev)
    keep = torch.__or__(torch.__contains__(inputs, "use_cache"), has_past)
    h0 = torch.embedding(w, tokens)
    if torch.__and__(torch.eq(ops.prim.dtype(w), 5), torch.eq(ops.prim.type(dev), "cpu")):
      h = torch.to(h0, 6)
    else:
      h = h0
    pos = torch.to(torch.arange(past, torch.add(past, s), dtype=4, device=dev), 6)
    ang = torch.reshape(torch.outer(pos, (self).freqs(w, )), [s, 1, -1])
    cos = torch.cos_(torch.clone(ang))
    sin = torch.sin_(ang)
    all = {ns}.mask(s, past, 0, h)
    near = {ns}.mask(s, past, self.window{_}, h)
    ks = annotate(List[Tensor], [])
    vs = annotate(List[Tensor], [])
    for i in range(layers):
      x = {ns}.norm(h, (self.attention_norm{_})[i], self.norm_eps{_})
      q = {ns}.rotate(torch.view({linear wq x}, [b, s, -1, hd]), cos, sin)
      k = {ns}.rotate(torch.view({linear wk x}, [b, s, nkv, hd]), cos, sin)
      v = torch.view({linear wv x}, [b, s, nkv, hd])
      if has_past:
        k = torch.cat([torch.to(torch.select(pk, 0, i), ops.prim.dtype(k)), k], self.cat_dim{_})
        v = torch.cat([torch.to(torch.select(pv, 0, i), ops.prim.dtype(v)), v], self.cat_dim{_})
      if keep:
        _ = torch.append(ks, k)
        _ = torch.append(vs, v)
      if torch.eq((self.windowed{_})[i], 1):
        o = {ns}.attention(q, k, v, near)
      else:
        o = {ns}.attention(q, k, v, all)
      h = torch.add_({linear wo o}, h)
      y = {ns}.norm(h, (self.ffn_norm{_})[i], self.norm_eps{_})
      g = torch.mul_(torch.silu({linear w1 y}), {linear w3 y})
      h = torch.add_({linear w2 g}, h)
    if torch.__contains__(inputs, "last_only"):
      h = torch.slice(h, 1, -1)
    z = {ns}.norm(h, (self.outer{_})[1], self.norm_eps{_})
    logits = torch.linear(z, torch.to((self.outer{_})[2], ops.prim.dtype(z)))
    out = annotate(Dict[str, Tensor], {"logits": torch.to(logits, 6)})
    if keep:
      torch._set_item(out, "present_key", torch.to(torch.stack(ks), 6))
      torch._set_item(out, "present_value", torch.to(torch.stack(vs), 6))
    return out
  def freqs(self: Self,
    like: Tensor) -> Tensor:
    hd = self.head_dim{_}
    r = torch.to(torch.arange(0, hd, 2, dtype=4, device=ops.prim.device(like)), 6)
    f = torch.reciprocal_(torch.pow(self.rope_theta{_}, torch.div_(r, hd)))
    if self.rope_scaled{_}:
      span = torch.sub(self.rope_high{_}, self.rope_low{_})
      w = torch.mul_(torch.reciprocal(f), 6.2831853071795862)
      s = torch.mul_(torch.reciprocal_(w), self.rope_old{_})
      s1 = torch.clamp_(torch.div_(torch.sub_(s, self.rope_low{_}), span), 0., 1.)
      u = torch.div_(torch.mul_(torch.add_(torch.neg(s1), 1), f), self.rope_factor{_})
      out = torch.add_(u, torch.mul_(s1, f))
    else:
      out = f
    return out
"#;

const FUNCTIONS: &str = r#"def tokens(inputs: Dict[str, Tensor],
    vocab: int,
    device: Device) -> Tensor:
  names = torch.keys(inputs)
  for i in range(torch.len(names)):
    if torch.__not__(torch.__contains__(["tokens", "last_only", "use_cache", "past_key", "past_value"], names[i])):
      ops.prim.RaiseException(torch.format("there is no input {}; the inputs are tokens and, if wanted, last_only, use_cache, past_key and past_value", names[i]))
  if torch.__not__(torch.__contains__(inputs, "tokens")):
    ops.prim.RaiseException("the input tokens is missing")
  t0 = inputs["tokens"]
  if torch.__or__(torch.is_floating_point(t0), torch.is_complex(t0)):
    ops.prim.RaiseException("tokens holds no integers, expected token ids as int64")
  t1 = torch.to(t0, device, 4)
  if torch.eq(torch.dim(t1), 1):
    t = torch.unsqueeze(t1, 0)
  else:
    t = t1
  if torch.ne(torch.dim(t), 2):
    ops.prim.RaiseException(torch.format("tokens has {} dimensions, expected 2: batch and seq", torch.dim(t)))
  if torch.eq(torch.numel(t), 0):
    ops.prim.RaiseException(torch.format("tokens has the shape {}, expected at least one token", torch.size(t)))
  low = int(torch.min(t))
  high = int(torch.max(t))
  if torch.__or__(torch.lt(low, 0), torch.ge(high, vocab)):
    ops.prim.RaiseException(torch.format("tokens holds ids from {} to {}, expected 0 to {}", low, high, torch.sub(vocab, 1)))
  return t
def past(inputs: Dict[str, Tensor],
    layers: int,
    batch: int,
    heads: int,
    head_dim: int) -> int:
  has_key = torch.__contains__(inputs, "past_key")
  has_value = torch.__contains__(inputs, "past_value")
  if torch.ne(has_key, has_value):
    ops.prim.RaiseException("one of past_key and past_value is missing: they come together")
  n = 0
  if torch.__and__(has_key, has_value):
    key = torch.size(inputs["past_key"])
    value = torch.size(inputs["past_value"])
    if torch.eq(torch.len(key), 5):
      n = key[2]
    expected = [layers, batch, n, heads, head_dim]
    if torch.__or__(torch.ne(key, expected), torch.ne(value, expected)):
      ops.prim.RaiseException(torch.format("past_key has the shape {} and past_value {}, expected [{}, {}, past, {}, {}] of both", key, value, layers, batch, heads, head_dim))
  return n
def mask(s: int,
    past: int,
    window: int,
    like: Tensor) -> Optional[Tensor]:
  t = torch.add(past, s)
  r = annotate(Optional[Tensor], None)
  if torch.__and__(torch.gt(window, 0), torch.gt(t, window)):
    m = torch.full([s, t], -inf, dtype=6, device=ops.prim.device(like))
    n = torch.add_(torch.triu(m, torch.add(past, 1)), torch.tril(m, torch.sub(past, window)))
    r = torch.to(n, ops.prim.dtype(like))
  else:
    if torch.gt(s, 1):
      m = torch.full([s, t], -inf, dtype=6, device=ops.prim.device(like))
      r = torch.to(torch.triu(m, torch.add(past, 1)), ops.prim.dtype(like))
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
  p = torch.to(torch.softmax(torch.to(scores, 6), -1), ops.prim.dtype(q))
  o = torch.view(torch.matmul(p, torch.transpose(v, 1, 2)), [b, nkv, -1, s, hd])
  return torch.reshape(torch.permute(o, [0, 3, 1, 2, 4]), [b, s, -1])
def norm(x: Tensor,
    weight: Tensor,
    eps: float) -> Tensor:
  d = ops.prim.dtype(x)
  y = torch.to(x, 6, False, True)
  v = torch.mean(torch.square(y), [-1], True)
  z = torch.mul_(y, torch.rsqrt_(torch.add_(v, eps)))
  return torch.mul_(torch.to(z, d), torch.to(weight, d))
def rotate(x: Tensor,
    cos: Tensor,
    sin: Tensor) -> Tensor:
  y = torch.reshape(torch.to(x, 6), [torch.size(x, 0), torch.size(x, 1), torch.size(x, 2), {split}])
  a = torch.select(y, {dim}, 0)
  b = torch.select(y, {dim}, 1)
  re = torch.sub_(torch.mul(a, cos), torch.mul(b, sin))
  im = torch.add_(torch.mul(a, sin), torch.mul(b, cos))
  return torch.to(torch.flatten(torch.stack([re, im], {dim}), 3), ops.prim.dtype(x))
"#;
