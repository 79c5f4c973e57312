//! The forward of LLaMA as TorchScript source text.
//!
//! Facts: the text was loaded and run in PyTorch 2.0.1 and 2.15, and its logits were compared with Meta's
//! `llama-models` 0.3.0 and Hugging Face's transformers.
//!
//! The fuser of 2.0.1 compiles chains of element-wise operations anew for each layer and shape, in seconds
//! each, and lets bf16 results differ from call to call. It leaves alone what it does not know: in-place
//! operations (`mul_`, `add_`, `rsqrt_`), `to` with a copy, and `cat` along a dimension that is no constant.
//! So operations are in place wherever their operand belongs to nobody else; keep them so.
//!
//! Numbers as dtypes are `c10::ScalarType`s: 4 int64, 5 f16, 6 f32. There is no f16 matrix product on the
//! CPU in 2.0.1, so f16 weights are widened there, one at a time.

/// Tokens to logits. `past_key`, `past_value`, `use_cache` and `last_only` are optional.
pub(super) const LLAMA: &str = r#"  def freqs(self: Self,
    like: Tensor) -> Tensor:
    hd = self.head_dim
    r = torch.to(torch.arange(0, hd, 2, dtype=4, device=ops.prim.device(like)), 6)
    f = torch.reciprocal_(torch.pow(self.rope_theta, torch.div_(r, hd)))
    if self.rope_scaled:
      span = torch.sub(self.rope_high, self.rope_low)
      w = torch.mul_(torch.reciprocal(f), 6.2831853071795862)
      s = torch.mul_(torch.reciprocal_(w), self.rope_old)
      s1 = torch.clamp_(torch.div_(torch.sub_(s, self.rope_low), span), 0., 1.)
      u = torch.div_(torch.mul_(torch.add_(torch.neg(s1), 1), f), self.rope_factor)
      out = torch.add_(u, torch.mul_(s1, f))
    else:
      out = f
    return out
  def forward(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
    tokens0 = inputs["tokens"]
    w = self.tok_embeddings.weight
    dev = ops.prim.device(w)
    tokens1 = torch.to(tokens0, dev, 4)
    if torch.eq(torch.dim(tokens1), 1):
      tokens = torch.unsqueeze(tokens1, 0)
    else:
      tokens = tokens1
    s = torch.size(tokens, 1)
    h0 = (self.tok_embeddings).forward(tokens, )
    if torch.__and__(torch.eq(ops.prim.dtype(w), 5), torch.eq(ops.prim.type(dev), "cpu")):
      h = torch.to(h0, 6)
    else:
      h = h0
    pk = annotate(Optional[Tensor], None)
    pv = annotate(Optional[Tensor], None)
    past = 0
    if torch.__contains__(inputs, "past_key"):
      pk0 = torch.to(inputs["past_key"], dev)
      past = torch.size(pk0, 2)
      pk = pk0
      pv = torch.to(inputs["past_value"], dev)
    t = torch.add(past, s)
    pos = torch.to(torch.arange(past, t, dtype=4, device=dev), 6)
    ang = torch.reshape(torch.outer(pos, (self).freqs(w, )), [s, 1, -1])
    mask = annotate(Optional[Tensor], None)
    if torch.gt(s, 1):
      mask = torch.triu(torch.full([s, t], -inf, dtype=ops.prim.dtype(h), device=dev), torch.add(past, 1))
    use_cache = torch.__contains__(inputs, "use_cache")
    keep = torch.__or__(use_cache, torch.__contains__(inputs, "past_key"))
    h1, ks, vs, = (self.layers).forward(h, torch.cos_(torch.clone(ang)), torch.sin_(ang), mask, pk, pv, keep, )
    if torch.__contains__(inputs, "last_only"):
      h2 = torch.slice(h1, 1, -1)
    else:
      h2 = h1
    logits = torch.to((self.output).forward((self.norm).forward(h2, ), ), 6)
    out = annotate(Dict[str, Tensor], {"logits": logits})
    if keep:
      torch._set_item(out, "present_key", torch.to(torch.stack(ks), 6))
      torch._set_item(out, "present_value", torch.to(torch.stack(vs), 6))
    return out
"#;

/// What stands before the calls of the layers; the indented lines for each follow it.
pub(super) const LAYERS_BEGIN: &str = r"  def forward(self: Self,
    h: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Optional[Tensor],
    pk: Optional[Tensor],
    pv: Optional[Tensor],
    keep: bool) -> Tuple[Tensor, List[Tensor], List[Tensor]]:
    ks = annotate(List[Tensor], [])
    vs = annotate(List[Tensor], [])
";

/// Attention and feed-forward, each around its residual.
pub(super) const TRANSFORMER_BLOCK: &str = r"  def forward(self: Self,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Optional[Tensor],
    past_k: Optional[Tensor],
    past_v: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
    a, k, v, = (self.attention).forward((self.attention_norm).forward(x, ), cos, sin, mask, past_k, past_v, )
    h = torch.add_(a, x)
    return (torch.add_((self.feed_forward).forward((self.ffn_norm).forward(h, ), ), h), k, v)
";

/// Heads of queries over fewer or as many heads of keys and values. Also returns keys and values.
pub(super) const ATTENTION: &str = r"  def forward(self: Self,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Optional[Tensor],
    past_k: Optional[Tensor],
    past_v: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
    b = torch.size(x, 0)
    s = torch.size(x, 1)
    hd = self.head_dim
    nkv = self.n_kv_heads
    nh = self.n_heads
    q0 = torch.view((self.wq).forward(x, ), [b, s, nh, hd])
    k0 = torch.view((self.wk).forward(x, ), [b, s, nkv, hd])
    v0 = torch.view((self.wv).forward(x, ), [b, s, nkv, hd])
    q = {ns}.rotate(q0, cos, sin)
    k1 = {ns}.rotate(k0, cos, sin)
    if torch.__isnot__(past_k, None):
      pk = unchecked_cast(Tensor, past_k)
      k = torch.cat([torch.to(pk, ops.prim.dtype(k1)), k1], self.cat_dim)
    else:
      k = k1
    if torch.__isnot__(past_v, None):
      pv = unchecked_cast(Tensor, past_v)
      v = torch.cat([torch.to(pv, ops.prim.dtype(v0)), v0], self.cat_dim)
    else:
      v = v0
    t = torch.size(k, 1)
    rep = torch.floordiv(nh, nkv)
    if torch.eq(rep, 1):
      kk = k
      vv = v
    else:
      kk = torch.reshape(torch.expand(torch.unsqueeze(k, 3), [b, t, nkv, rep, hd]), [b, t, nh, hd])
      vv = torch.reshape(torch.expand(torch.unsqueeze(v, 3), [b, t, nkv, rep, hd]), [b, t, nh, hd])
    qt = torch.transpose(q, 1, 2)
    kt = torch.transpose(kk, 1, 2)
    vt = torch.transpose(vv, 1, 2)
    scores0 = torch.div_(torch.matmul(qt, torch.transpose(kt, 2, 3)), torch.sqrt(hd))
    if torch.__isnot__(mask, None):
      m = unchecked_cast(Tensor, mask)
      scores = torch.add_(scores0, m)
    else:
      scores = scores0
    p = torch.to(torch.softmax(torch.to(scores, 6), -1), ops.prim.dtype(qt))
    o = torch.reshape(torch.transpose(torch.matmul(p, vt), 1, 2), [b, s, torch.mul(nh, hd)])
    return ((self.wo).forward(o, ), k, v)
";

/// `w2(silu(w1 x) * w3 x)`.
pub(super) const FEED_FORWARD: &str = r"  def forward(self: Self,
    x: Tensor) -> Tensor:
    g = torch.silu((self.w1).forward(x, ))
    return (self.w2).forward(torch.mul_(g, (self.w3).forward(x, )), )
";

/// In f32, as Meta does; the weight is applied in the input's dtype.
pub(super) const RMS_NORM: &str = r"  def forward(self: Self,
    x: Tensor) -> Tensor:
    d = ops.prim.dtype(x)
    y = torch.to(x, 6, False, True)
    v = torch.mean(torch.square(y), [-1], True)
    z = torch.mul_(y, torch.rsqrt_(torch.add_(v, self.eps)))
    return torch.mul_(torch.to(z, d), torch.to(self.weight, d))
";

/// No bias.
pub(super) const LINEAR: &str = r"  def forward(self: Self,
    x: Tensor) -> Tensor:
    return torch.linear(x, torch.to(self.weight, ops.prim.dtype(x)))
";

/// Rows by token id.
pub(super) const EMBEDDING: &str = r"  def forward(self: Self,
    x: Tensor) -> Tensor:
    return torch.embedding(self.weight, x)
";

/// `rotate` turns pairs of neighbours, as Meta lays them out; `pick` takes one layer's part of a cache.
pub(super) const FUNCTIONS: &str = r"def pick(t: Optional[Tensor],
    i: int) -> Optional[Tensor]:
  if torch.__isnot__(t, None):
    u = unchecked_cast(Tensor, t)
    r = annotate(Optional[Tensor], torch.select(u, 0, i))
  else:
    r = annotate(Optional[Tensor], None)
  return r
def rotate(x: Tensor,
    cos: Tensor,
    sin: Tensor) -> Tensor:
  y = torch.reshape(torch.to(x, 6), [torch.size(x, 0), torch.size(x, 1), torch.size(x, 2), -1, 2])
  a = torch.select(y, -1, 0)
  b = torch.select(y, -1, 1)
  re = torch.sub_(torch.mul(a, cos), torch.mul(b, sin))
  im = torch.add_(torch.mul(a, sin), torch.mul(b, cos))
  return torch.to(torch.flatten(torch.stack([re, im], -1), 3), ops.prim.dtype(x))
";
