//! Text of the method that computes logits from tokens.
//!
//! A line that begins with flags in brackets is part of the text if all of them hold; the file of each kind of block defines its own.
//! `{_}` ends the names of attributes. `{linear LIST X}` is the product of the matrix `i` of LIST with X, plus its bias if
//! there is one; `{linear LIST X N}` uses the matrix N instead. `{norm LIST X}` applies the norm `i` of LIST to X, and
//! `{head norm LIST X}` applies it to queries or keys.

/// Start of the method `infer`, which `forward` calls with checked inputs. The residual stream `h` and everything added to it have the
/// dtype `wide`; operands of matrix products have the dtype `narrow`.
pub(super) const START: &str = r#"  def infer(self: Self,
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
    layers = torch.len(weights["{every}"])
    past = 0
    pk = w
    pv = w
    has_past = torch.__contains__(inputs, "past_key")
    keep = torch.__or__({ns}.is_on(inputs, "use_cache"), has_past)
    wide = 6
    if torch.eq(ops.prim.dtype(w), 7):
      wide = 7
    [not blocks] narrow = ops.prim.dtype(w)
    [blocks] narrow = wide
    if torch.__and__(torch.eq(narrow, 5), torch.eq(ops.prim.type(dev), "cpu")):
      narrow = 6
    if has_past:
      pk = torch.to(inputs["past_key"], dev, wide)
      pv = torch.to(inputs["past_value"], dev, wide)
      past = torch.size(pk, 2)
    [not blocks] h = torch.to(torch.embedding(w, tokens), wide)
    [blocks] h = torch.to({ns}.dequantized(torch.embedding(w, tokens)), wide)
    [embedding scale] h = torch.mul_(h, self.embedding_scale{_})
"#;

/// Angles of all positions, and the masks.
pub(super) const POSITIONS: &str = r"    [not listed] pos = torch.to(torch.arange(past, torch.add(past, s), dtype=4, device=dev), wide)
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
";

/// Start of the loop over layers: what attention reads.
pub(super) const LAYERS: &str = r"    ks = annotate(List[Tensor], [])
    vs = annotate(List[Tensor], [])
    for i in range(layers):
      [ropes] r = (self.rope_of{_})[i]
      [ropes] cos = torch.select(cosines, 2, r)
      [ropes] sin = torch.select(sines, 2, r)
      [adds to norms] h = {norm attention_norm h}
      [norm before, not adds to norms] x = torch.to({norm attention_norm h}, narrow)
      [adds to norms] x = torch.to(h, narrow)
      [not norm before] x = torch.to(h, narrow)
      [own norm] y = torch.to({norm ffn_norm h}, narrow)
";

/// Rotated queries and keys.
pub(super) const QUERIES: &str = r"      [not fused heads] q = torch.to({linear wq x}, wide)
      [not fused heads] k = torch.to({linear wk x}, wide)
      [projection norm] q = {head norm q_norm q}
      [projection norm] k = {head norm k_norm k}
      [qkv limit] q = torch.clamp_(q, torch.neg(self.qkv_limit{_}), self.qkv_limit{_})
      [qkv limit] k = torch.clamp_(k, torch.neg(self.qkv_limit{_}), self.qkv_limit{_})
      [not fused heads] q = torch.view(q, [b, s, -1, hd])
      [not fused heads] k = torch.view(k, [b, s, nkv, hd])
      [head norm, not late] q = {head norm q_norm q}
      [head norm, not late] k = {head norm k_norm k}
      [not length] q = {ns}.rotate(q, cos, sin)
      [not length] k = {ns}.rotate(k, cos, sin)
      [length] q = {ns}.rotate(q, torch.slice(cos, 0, past), torch.slice(sin, 0, past))
      [head norm, late] q = {head norm q_norm q}
      [head norm, late] k = {head norm k_norm k}
";

/// Attention of the layer, without its norm.
pub(super) const ATTENDED: &str = r"      [not fused heads] v = torch.view(torch.to({linear wv x}, wide), [b, s, nkv, hd])
      [fused heads] v = torch.select(qkv, 3, -1)
      [qkv limit] v = torch.clamp_(v, torch.neg(self.qkv_limit{_}), self.qkv_limit{_})
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
";

/// Rows after attention, and the feed-forward layer.
pub(super) const REST: &str = r"      [norm after] a = {norm attention_post_norm torch.to(a, wide)}
      [not residual scale] h = torch.add_(h, a)
      [residual scale] h = torch.add_(h, a, alpha=self.residual_scale{_})
      [parallel, not own norm] y = x
      [not parallel, adds to norms] h = {norm ffn_norm h}
      [not parallel, adds to norms] y = torch.to(h, narrow)
      [not parallel, norm before, not adds to norms, not experts] y = torch.to({norm ffn_norm h}, narrow)
      [not parallel, norm before, experts, not beside] z = {norm ffn_norm h}
      [not parallel, not norm before, experts] z = h
      [parallel, experts] z = torch.to(x, wide)
      [not parallel, experts, not beside] y = torch.to(z, narrow)
      [not parallel, not norm before, not experts] y = torch.to(h, narrow)
      [not experts] f = (self).feed_forward(i, y, )
      [experts, not feed forward] f = (self).experts(i, z, y, )
      [experts, feed forward, not beside] if torch.eq((self.has_experts{_})[i], 1):
      [experts, feed forward, not beside]   f = (self).experts((self.place{_})[i], z, y, )
      [experts, feed forward, not beside] else:
      [experts, feed forward, not beside]   f = (self).feed_forward((self.place{_})[i], y, )
";

/// End of the loop.
pub(super) const ADDED: &str = r"      [norm after] f = {norm ffn_post_norm torch.to(f, wide)}
      [not residual scale] h = torch.add_(h, f)
      [residual scale] h = torch.add_(h, f, alpha=self.residual_scale{_})
";

/// The logits, and the keys and values.
pub(super) const LOGITS: &str = r#"    if {ns}.is_on(inputs, "last_only"):
      h = torch.slice(h, 1, -1)
    z = torch.to({norm outer h}, narrow)
    [not half, not logits bias] logits = torch.linear(z, {ns}.weight(outer, 2, z))
    [not half, logits bias] logits = torch.linear(z, {ns}.weight(outer, 2, z), {ns}.weight(weights["output_bias"], 0, z))
    [half, not logits bias] logits = torch.linear(z, (self.__tensors__{_}).weight("outer", 2, z, ))
    [half, logits bias] logits = torch.linear(z, (self.__tensors__{_}).weight("outer", 2, z, ), (self.__tensors__{_}).weight("output_bias", 0, z, ))
    [logits scale] logits = torch.mul_(torch.to(logits, wide), self.logits_scale{_})
    [logits cap] logits = torch.mul_(torch.tanh_(torch.div_(torch.to(logits, wide), self.logits_cap{_})), self.logits_cap{_})
    out = annotate(Dict[str, Tensor], {"logits": torch.to(logits, 6)})
    [not mixed] if keep:
    [not mixed]   torch._set_item(out, "present_key", torch.to(torch.stack(ks), 6))
    [not mixed]   torch._set_item(out, "present_value", torch.to(torch.stack(vs), 6))
"#;

/// End of the method.
pub(super) const RETURN: &str = r"    return out
";
