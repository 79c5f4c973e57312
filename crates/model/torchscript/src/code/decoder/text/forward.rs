//! Text of the methods that compute logits from tokens.
//!
//! A line that begins with flags in brackets is part of the text if all of them hold; `flag.rs` defines when each holds.
//! `{_}` ends the names of attributes. `{linear LIST X}` is the product of the matrix `i` of LIST with X, plus its bias if
//! there is one; `{linear LIST X N}` uses the matrix N instead. `{norm LIST X}` applies the norm `i` of LIST to X, and
//! `{head norm LIST X}` applies it to queries or keys.

/// Method `infer`, which `forward` calls with checked inputs. The residual stream `h` and everything added to it have the
/// dtype `wide`; operands of matrix products have the dtype `narrow`.
pub(super) const INFER: &str = r#"  def infer(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    outer = weights["outer"]
    w = outer[0]
    dev = ops.prim.device(w)
    hd = self.head_dim{_}
    nkv = self.n_kv_heads{_}
    tokens = torch.to(inputs["tokens"], dev, 4)
    if torch.eq(torch.dim(tokens), 1):
      tokens = torch.unsqueeze(tokens, 0)
    b = torch.size(tokens, 0)
    s = torch.size(tokens, 1)
    layers = torch.len(weights["wq"])
    past = 0
    pk = w
    pv = w
    has_past = torch.__contains__(inputs, "past_key")
    keep = torch.__or__({ns}.is_on(inputs, "use_cache"), has_past)
    wide = 6
    if torch.eq(ops.prim.dtype(w), 7):
      wide = 7
    narrow = ops.prim.dtype(w)
    if torch.__and__(torch.eq(narrow, 5), torch.eq(ops.prim.type(dev), "cpu")):
      narrow = 6
    if has_past:
      pk = torch.to(inputs["past_key"], dev, wide)
      pv = torch.to(inputs["past_value"], dev, wide)
      past = torch.size(pk, 2)
    h = torch.to(torch.embedding(w, tokens), wide)
    [embedding scale] h = torch.mul_(h, self.embedding_scale{_})
    [not listed] pos = torch.to(torch.arange(past, torch.add(past, s), dtype=4, device=dev), wide)
    [listed, not length] pos = torch.to(torch.arange(past, torch.add(past, s), dtype=4, device=dev), 7)
    [length] pos = torch.to(torch.arange(0, torch.add(past, s), dtype=4, device=dev), 7)
    [not ropes] ang = torch.reshape(torch.outer(pos, (self).freqs(pos, )), [torch.numel(pos), 1, -1])
    [ropes] ang = torch.reshape(torch.outer(pos, (self).freqs(pos, )), [torch.numel(pos), 1, self.ropes{_}, -1])
    cos = torch.cos_(torch.clone(ang))
    sin = torch.sin_(ang)
    [magnitudes] size = torch.unsqueeze({ns}.numbers(self.magnitudes{_}, dev), -1)
    [magnitudes] cos = torch.mul_(cos, size)
    [magnitudes] sin = torch.mul_(sin, size)
    [listed] cos = torch.to(cos, wide)
    [listed] sin = torch.to(sin, wide)
    [ropes] cosines = cos
    [ropes] sines = sin
    [not every window] all = {ns}.mask(s, past, 0, h)
    [some window] near = {ns}.mask(s, past, self.window{_}, h)
    ks = annotate(List[Tensor], [])
    vs = annotate(List[Tensor], [])
    for i in range(layers):
      [ropes] r = (self.rope_of{_})[i]
      [ropes] cos = torch.select(cosines, 2, r)
      [ropes] sin = torch.select(sines, 2, r)
      [norm before] x = torch.to({norm attention_norm h}, narrow)
      [not norm before] x = torch.to(h, narrow)
      q = torch.to({linear wq x}, wide)
      k = torch.to({linear wk x}, wide)
      [projection norm] q = {head norm q_norm q}
      [projection norm] k = {head norm k_norm k}
      q = torch.view(q, [b, s, -1, hd])
      k = torch.view(k, [b, s, nkv, hd])
      [head norm] q = {head norm q_norm q}
      [head norm] k = {head norm k_norm k}
      [not length] q = {ns}.rotate(q, cos, sin)
      [not length] k = {ns}.rotate(k, cos, sin)
      [length] q = {ns}.rotate(q, torch.slice(cos, 0, past), torch.slice(sin, 0, past))
      v = torch.view(torch.to({linear wv x}, wide), [b, s, nkv, hd])
      if has_past:
        k = torch.cat([torch.select(pk, 0, i), k], self.cat_dim{_})
        v = torch.cat([torch.select(pv, 0, i), v], self.cat_dim{_})
      if keep:
        _ = torch.append(ks, k)
        _ = torch.append(vs, v)
      [length] k = {ns}.rotate(k, cos, sin)
      [not some window] mask = all
      [some window, every window] mask = near
      [some window, not every window] mask = all
      [some window, not every window] if torch.eq((self.windowed{_})[i], 1):
      [some window, not every window]   mask = near
      o = torch.to((self).attention(i, q, k, v, mask, ), narrow)
      a = {linear wo o}
      [norm after] a = {norm attention_post_norm torch.to(a, wide)}
      [not residual scale] h = torch.add_(h, a)
      [residual scale] h = torch.add_(h, a, alpha=self.residual_scale{_})
      [parallel] y = x
      [not parallel, norm before, not experts] y = torch.to({norm ffn_norm h}, narrow)
      [not parallel, norm before, experts] z = {norm ffn_norm h}
      [not parallel, not norm before, experts] z = h
      [parallel, experts] z = torch.to(x, wide)
      [not parallel, experts] y = torch.to(z, narrow)
      [not parallel, not norm before, not experts] y = torch.to(h, narrow)
      [not experts] f = (self).feed_forward(i, y, )
      [experts, not feed forward] f = (self).experts(i, z, y, )
      [experts, feed forward] if torch.eq((self.has_experts{_})[i], 1):
      [experts, feed forward]   f = (self).experts((self.place{_})[i], z, y, )
      [experts, feed forward] else:
      [experts, feed forward]   f = (self).feed_forward((self.place{_})[i], y, )
      [norm after] f = {norm ffn_post_norm torch.to(f, wide)}
      [not residual scale] h = torch.add_(h, f)
      [residual scale] h = torch.add_(h, f, alpha=self.residual_scale{_})
    if {ns}.is_on(inputs, "last_only"):
      h = torch.slice(h, 1, -1)
    z = torch.to({norm outer h}, narrow)
    [not half] logits = torch.linear(z, {ns}.weight(outer, 2, z))
    [half] logits = torch.linear(z, (self.__tensors__{_}).weight("outer", 2, z, ))
    [logits scale] logits = torch.mul_(torch.to(logits, wide), self.logits_scale{_})
    [logits cap] logits = torch.mul_(torch.tanh_(torch.div_(torch.to(logits, wide), self.logits_cap{_})), self.logits_cap{_})
    out = annotate(Dict[str, Tensor], {"logits": torch.to(logits, 6)})
    if keep:
      torch._set_item(out, "present_key", torch.to(torch.stack(ks), 6))
      torch._set_item(out, "present_value", torch.to(torch.stack(vs), 6))
    return out
"#;

/// Method `freqs`, which returns the rotary frequencies of all embeddings, one after the other. A single plain or llama3
/// embedding is computed as in Meta's code; other frequencies are listed, and used in f64.
pub(super) const FREQUENCIES: &str = r"  def freqs(self: Self,
    like: Tensor) -> Tensor:
    [not listed] r = torch.to(torch.arange(0, self.rotated{_}, 2, dtype=4, device=ops.prim.device(like)), ops.prim.dtype(like))
    [not listed] f = torch.reciprocal_(torch.pow(self.rope_theta{_}, torch.div_(r, self.rotated{_})))
    [llama3] span = torch.sub(self.rope_high{_}, self.rope_low{_})
    [llama3] w = torch.mul_(torch.reciprocal(f), 6.2831853071795862)
    [llama3] s = torch.mul_(torch.reciprocal_(w), self.rope_old{_})
    [llama3] s1 = torch.clamp_(torch.div_(torch.sub_(s, self.rope_low{_}), span), 0., 1.)
    [llama3] u = torch.div_(torch.mul_(torch.add_(torch.neg(s1), 1), f), self.rope_factor{_})
    [llama3] f = torch.add_(u, torch.mul_(s1, f))
    [listed] f = {ns}.numbers(self.frequencies{_}, ops.prim.device(like))
    [length] t = torch.size(like, 0)
    [longrope] is_long = torch.logical_not_(torch.ge({ns}.numbers(self.limits{_}, ops.prim.device(like)), t))
    [longrope] f = torch.where(is_long, {ns}.numbers(self.long_frequencies{_}, ops.prim.device(like)), f)
    [dynamic] g = torch.mul_({ns}.numbers(self.growth{_}, ops.prim.device(like)), t)
    [dynamic] g = torch.clamp_min_(torch.add_(g, {ns}.numbers(self.start{_}, ops.prim.device(like))), 1)
    [dynamic] f = torch.mul_(torch.pow(g, {ns}.numbers(self.exponents{_}, ops.prim.device(like))), f)
    return f
";

/// Method `attention`, grouped-query attention: each key-value head serves its group of query heads.
pub(super) const ATTENTION: &str = r#"  def attention(self: Self,
    i: int,
    q: Tensor,
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
    scores = torch.matmul(q1, torch.permute(k, [0, 2, 3, 1]))
    [not score scale] scores = torch.div_(scores, torch.sqrt(hd))
    [score scale] scores = torch.mul_(scores, self.score_scale{_})
    [score cap] scores = torch.mul_(torch.tanh_(torch.div_(scores, self.score_cap{_})), self.score_cap{_})
    if torch.__isnot__(mask, None):
      m = unchecked_cast(Tensor, mask)
      scores = torch.view(torch.add_(torch.view(scores, [b, nkv, -1, s, t]), m), [b, nkv, -1, t])
    [not sinks] p = torch.softmax(scores, -1)
    [sinks, not half] weights = self.__tensors__{_}
    [sinks, half] weights = (self.__tensors__{_}).narrow
    [sinks] sink = torch.to((weights["sinks"])[i], ops.prim.device(scores), ops.prim.dtype(scores))
    [sinks] more = torch.expand(torch.view(sink, [1, nkv, -1, 1, 1]), [b, -1, -1, s, 1])
    [sinks] last = torch.add(self.cat_dim{_}, 2)
    [sinks] p = torch.softmax(torch.cat([scores, torch.reshape(more, [b, nkv, -1, 1])], last), -1)
    [sinks] p = torch.slice(p, 3, 0, t)
    o = torch.view(torch.matmul(p, torch.transpose(v, 1, 2)), [b, nkv, -1, s, hd])
    return torch.reshape(torch.permute(o, [0, 3, 1, 2, 4]), [b, s, -1])
"#;

/// Method `feed_forward`, the dense gated feed-forward layer.
pub(super) const FEED_FORWARD: &str = r"  def feed_forward(self: Self,
    i: int,
    y: Tensor) -> Tensor:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    g = (self).gated({linear w1 y}, {linear w3 y}, )
    return {linear w2 g}
";

/// Method `gated`, which multiplies the activation of `gate` with `up`. Both inputs are new tensors, so they are changed in
/// place.
pub(super) const GATED: &str = r#"  def gated(self: Self,
    gate: Tensor,
    up: Tensor) -> Tensor:
    [silu] g = torch.silu(gate)
    [gelu] g = torch.gelu(gate)
    [gelu tanh] g = torch.gelu(gate, approximate="tanh")
    [clamped] gate = torch.clamp_(gate, None, self.limit{_})
    [clamped] g = torch.mul_(torch.sigmoid_(torch.mul(gate, self.alpha{_})), gate)
    [clamped] up = torch.add_(torch.clamp_(up, torch.neg(self.limit{_}), self.limit{_}), 1)
    return torch.mul_(g, up)
"#;

/// Method `experts`, the mixture of experts; `i` counts the layers that have experts. The router reads the rows before they
/// are rounded. Each expert reads the rows that are routed to it, and its results are added up without intermediate
/// rounding.
pub(super) const EXPERTS: &str = r"  def experts(self: Self,
    i: int,
    z: Tensor,
    y: Tensor) -> Tensor:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    rows = torch.reshape(z, [-1, torch.size(z, -1)])
    scores = {linear router rows}
    [softmax before] share, ids, = torch.topk(torch.softmax(scores, -1), self.per_token{_})
    [softmax after] best, ids, = torch.topk(scores, self.per_token{_})
    [softmax after] share = torch.softmax(best, -1)
    [renormalised] share = torch.div_(share, torch.sum(share, [-1], True))
    y = torch.reshape(y, [-1, torch.size(y, -1)])
    out = torch.zeros_like(rows)
    found, _, _1, = torch._unique2(ids)
    for j in range(torch.numel(found)):
      expert = int(torch.select(found, 0, j))
      chosen = torch.eq(ids, expert)
      at = torch.select(torch.nonzero(chosen), 1, 0)
      x = torch.index_select(y, 0, at)
      e = torch.add(torch.mul(i, self.n_experts{_}), expert)
      [not interleaved] g = (self).gated({linear expert_w1 x e}, {linear expert_w3 x e}, )
      [interleaved] both = {linear expert_w13 x e}
      [interleaved] g = (self).gated(torch.slice(both, 1, 0, None, 2), torch.slice(both, 1, 1, None, 2), )
      shares = torch.unsqueeze(torch.masked_select(share, chosen), 1)
      out = torch.index_add_(out, 0, at, torch.mul_(torch.to({linear expert_w2 g e}, ops.prim.dtype(out)), shares))
    [shared] g = (self).gated({linear shared_w1 y}, {linear shared_w3 y}, )
    [shared] common = torch.to({linear shared_w2 g}, ops.prim.dtype(out))
    [shared gate] common = torch.mul_(common, torch.sigmoid_(torch.to({linear shared_gate y}, ops.prim.dtype(out))))
    [shared] out = torch.add_(out, common)
    return torch.reshape(out, torch.size(z))
";
