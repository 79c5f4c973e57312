//! Second version of the text: like the third, but it made both attention masks whether or not a layer used them.

use super::{LegacyText, linear_of_dict, lists_in_dict, third};

pub(super) static TEXT: LegacyText = LegacyText {
    forward: FORWARD,
    functions: third::TEXT.functions,
    linear: linear_of_dict,
    weights: lists_in_dict,
};

const FORWARD: &str = r#"  def forward(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
    weights = self.__tensors__{_}
    outer = weights["outer"]
    w = outer[0]
    dev = ops.prim.device(w)
    hd = self.head_dim{_}
    nkv = self.n_kv_heads{_}
    tokens = {ns}.tokens(inputs, self.vocab{_}, dev)
    b = torch.size(tokens, 0)
    s = torch.size(tokens, 1)
    layers = torch.len(weights["wq"])
    past = {ns}.past(inputs, layers, b, nkv, hd)
    pk = w
    pv = w
    has_past = torch.__contains__(inputs, "past_key")
    keep = torch.__or__(torch.__contains__(inputs, "use_cache"), has_past)
    wide = 6
    if torch.eq(ops.prim.dtype(w), 7):
      wide = 7
    narrow = ops.prim.dtype(w)
    if torch.__and__(torch.eq(narrow, 5), torch.eq(ops.prim.type(dev), "cpu")):
      narrow = 6
    if has_past:
      pk = torch.to(inputs["past_key"], dev, wide)
      pv = torch.to(inputs["past_value"], dev, wide)
    h = torch.to(torch.embedding(w, tokens), wide)
    pos = torch.to(torch.arange(past, torch.add(past, s), dtype=4, device=dev), wide)
    ang = torch.reshape(torch.outer(pos, (self).freqs(pos, )), [s, 1, -1])
    cos = torch.cos_(torch.clone(ang))
    sin = torch.sin_(ang)
    all = {ns}.mask(s, past, 0, h)
    near = {ns}.mask(s, past, self.window{_}, h)
    ks = annotate(List[Tensor], [])
    vs = annotate(List[Tensor], [])
    for i in range(layers):
      x = torch.to({ns}.norm(h, (weights["attention_norm"])[i], self.norm_eps{_}), narrow)
      q = {ns}.rotate(torch.view(torch.to({linear wq x}, wide), [b, s, -1, hd]), cos, sin)
      k = {ns}.rotate(torch.view(torch.to({linear wk x}, wide), [b, s, nkv, hd]), cos, sin)
      v = torch.view(torch.to({linear wv x}, wide), [b, s, nkv, hd])
      if has_past:
        k = torch.cat([torch.select(pk, 0, i), k], self.cat_dim{_})
        v = torch.cat([torch.select(pv, 0, i), v], self.cat_dim{_})
      if keep:
        _ = torch.append(ks, k)
        _ = torch.append(vs, v)
      if torch.eq((self.windowed{_})[i], 1):
        o0 = {ns}.attention(q, k, v, near)
      else:
        o0 = {ns}.attention(q, k, v, all)
      o = torch.to(o0, narrow)
      h = torch.add_(h, {linear wo o})
      y = torch.to({ns}.norm(h, (weights["ffn_norm"])[i], self.norm_eps{_}), narrow)
      g = torch.mul_(torch.silu({linear w1 y}), {linear w3 y})
      h = torch.add_(h, {linear w2 g})
    if torch.__contains__(inputs, "last_only"):
      h = torch.slice(h, 1, -1)
    z = torch.to({ns}.norm(h, outer[1], self.norm_eps{_}), narrow)
    logits = torch.linear(z, torch.to(outer[2], narrow))
    out = annotate(Dict[str, Tensor], {"logits": torch.to(logits, 6)})
    if keep:
      torch._set_item(out, "present_key", torch.to(torch.stack(ks), 6))
      torch._set_item(out, "present_value", torch.to(torch.stack(vs), 6))
    return out
  def freqs(self: Self,
    like: Tensor) -> Tensor:
    hd = self.head_dim{_}
    r = torch.to(torch.arange(0, hd, 2, dtype=4, device=ops.prim.device(like)), ops.prim.dtype(like))
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
