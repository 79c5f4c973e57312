//! Text of gated `DeltaNet`, and of attention with gates next to it. Both are methods, because a layer has one of them.

use decoder::DeltaNet;

use super::super::flag::{Condition, Flag, TextVariant};
use super::named_values::{NamedValues, ints_attribute, size_attribute};
use crate::Result;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("delta", HAS_DELTA_NET),
    Flag::new("delta fused", |it| of(it).is_some_and(|delta_net| delta_net.fused)),
];

pub(super) const HAS_DELTA_NET: Condition = |it| of(it).is_some();

fn of(variant: TextVariant<'_>) -> Option<&DeltaNet> {
    variant.decoder.block().delta_net.as_ref()
}

/// Returns the sizes that the methods read, and the place of each layer among those of its kind.
pub(super) fn attributes(delta_net: &DeltaNet) -> Result<NamedValues> {
    let mut next = [0_i64; 2];
    let place = |is_delta: &bool| {
        let next = if *is_delta { &mut next[1] } else { &mut next[0] };
        let place = *next;
        *next = place.saturating_add(1);
        place
    };
    let places = delta_net.layers.iter().map(place).collect();
    let sizes = delta_net.sizes();
    Ok(vec![
        ints_attribute("delta", delta_net.layers.iter().map(|is_delta| i64::from(*is_delta)).collect()),
        ints_attribute("mixer", places),
        size_attribute("delta_layers", sizes.layers)?,
        size_attribute("delta_channels", sizes.channels)?,
        size_attribute("delta_taps", sizes.taps)?,
        size_attribute("delta_keys", delta_net.key_heads)?,
        size_attribute("delta_heads", sizes.heads)?,
        size_attribute("delta_key_dim", sizes.key_dim)?,
        size_attribute("delta_value_dim", sizes.value_dim)?,
    ])
}

/// Lines of `infer` before its loop: the states of the preceding tokens.
pub(super) const STATES: &str = r#"    cs = annotate(List[Tensor], [])
    ss = annotate(List[Tensor], [])
    pc = w
    ps = w
    if has_past:
      pc = torch.to(inputs["past_conv"], dev, wide)
      ps = torch.to(inputs["past_state"], dev, wide)
"#;

/// Lines of the loop: the result of the layer.
pub(super) const MIXED: &str = r"      m = (self.mixer{_})[i]
      before = annotate(List[Tensor], [])
      if torch.eq((self.delta{_})[i], 1):
        if has_past:
          before = [torch.select(pc, 0, m), torch.select(ps, 0, m)]
        a = (self).delta_net(m, x, before, cs, ss, )
      else:
        if has_past:
          before = [torch.select(pk, 0, m), torch.select(pv, 0, m)]
        a = (self).attend(m, x, cos, sin, all, before, ks, vs, )
";

/// Lines of `infer` that return the states.
pub(super) const PRESENT: &str = r#"    if keep:
      torch._set_item(out, "present_conv", torch.to(torch.stack(cs), 6))
      torch._set_item(out, "present_state", torch.to(torch.stack(ss), 6))
"#;

/// Method `attend`, attention whose result has a gate, and method `delta_net`. The latter computes 64 tokens at once: what
/// they change in the state depends on each other, which is a triangular system. The fuser does not know
/// `view` and `reshape`.
pub(super) const METHODS: &str = r#"  def attend(self: Self,
    i: int,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Optional[Tensor],
    before: List[Tensor],
    ks: List[Tensor],
    vs: List[Tensor]) -> Tensor:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    wide = ops.prim.dtype(cos)
    b = torch.size(x, 0)
    s = torch.size(x, 1)
    hd = self.head_dim{_}
    both = torch.view(torch.to({linear wq x}, wide), [b, s, -1, torch.mul(hd, 2)])
    q = torch.slice(both, 3, 0, hd)
    gate = torch.reshape(torch.slice(both, 3, hd), [b, s, -1])
    k = torch.view(torch.to({linear wk x}, wide), [b, s, self.n_kv_heads{_}, hd])
    v = torch.view(torch.to({linear wv x}, wide), [b, s, self.n_kv_heads{_}, hd])
    q = {ns}.rotate({head norm q_norm q}, cos, sin)
    k = {ns}.rotate({head norm k_norm k}, cos, sin)
    if torch.gt(torch.len(before), 0):
      k = torch.cat([before[0], k], self.cat_dim{_})
      v = torch.cat([before[1], v], self.cat_dim{_})
    _ = torch.append(ks, k)
    _0 = torch.append(vs, v)
    o = torch.mul_((self).attention(i, q, k, v, mask, ), torch.sigmoid(gate))
    o = torch.to(o, ops.prim.dtype(x))
    return {linear wo o}
  def delta_net(self: Self,
    i: int,
    x: Tensor,
    before: List[Tensor],
    cs: List[Tensor],
    ss: List[Tensor]) -> Tensor:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    dev = ops.prim.device(x)
    wide = 6
    if torch.eq(ops.prim.dtype(x), 7):
      wide = 7
    b = torch.size(x, 0)
    s = torch.size(x, 1)
    n = self.delta_heads{_}
    dk = self.delta_key_dim{_}
    dv = self.delta_value_dim{_}
    keys = torch.mul(self.delta_keys{_}, dk)
    group = torch.floordiv(n, self.delta_keys{_})
    [not delta fused] qkv = torch.to({linear delta_qkv x}, wide)
    [not delta fused] z = torch.view(torch.to({linear delta_z x}, wide), [b, s, n, dv])
    [not delta fused] beta = torch.to({linear delta_b x}, wide)
    [not delta fused] a = torch.to({linear delta_a x}, wide)
    [delta fused] parts = torch.view(torch.to({linear delta_qkvz x}, wide), [b, s, self.delta_keys{_}, -1])
    [delta fused] q = torch.reshape(torch.slice(parts, 3, 0, dk), [b, s, -1])
    [delta fused] k = torch.reshape(torch.slice(parts, 3, dk, torch.mul(dk, 2)), [b, s, -1])
    [delta fused] end = torch.add(torch.mul(dk, 2), torch.mul(group, dv))
    [delta fused] v = torch.reshape(torch.slice(parts, 3, torch.mul(dk, 2), end), [b, s, -1])
    [delta fused] qkv = torch.cat([q, k, v], torch.add(self.cat_dim{_}, 1))
    [delta fused] z = torch.reshape(torch.slice(parts, 3, end), [b, s, n, dv])
    [delta fused] parts = torch.view(torch.to({linear delta_ba x}, wide), [b, s, self.delta_keys{_}, -1])
    [delta fused] beta = torch.reshape(torch.slice(parts, 3, 0, group), [b, s, n])
    [delta fused] a = torch.reshape(torch.slice(parts, 3, group), [b, s, n])
    c = self.delta_channels{_}
    taps = self.delta_taps{_}
    qkv = torch.transpose(qkv, 1, 2)
    if torch.gt(torch.len(before), 0):
      state = before[1]
      qkv = torch.cat([before[0], qkv], torch.add(self.cat_dim{_}, 1))
    else:
      state = torch.zeros([b, n, dk, dv], dtype=wide, device=dev)
      qkv = torch.cat([torch.zeros([b, c, taps], dtype=wide, device=dev), qkv], torch.add(self.cat_dim{_}, 1))
    _ = torch.append(cs, torch.slice(qkv, 2, s))
    kernel = torch.to((weights["delta_conv"])[i], dev, wide)
    gate = torch.conv1d(qkv, kernel, None, [1], [0], [1], c)
"#;

/// Rest of the method, after the activation.
pub(super) const RECURRENCE: &str = r#"    q = torch.view(torch.slice(g, 1, 0, keys), [b, -1, dk, s])
    k = torch.view(torch.slice(g, 1, keys, torch.mul(keys, 2)), [b, -1, dk, s])
    v = torch.transpose(torch.view(torch.slice(g, 1, torch.mul(keys, 2)), [b, n, dv, s]), 2, 3)
    q = torch.transpose(torch.repeat_interleave({ns}.unit(q), group, 1), 2, 3)
    k = torch.transpose(torch.repeat_interleave({ns}.unit(k), group, 1), 2, 3)
    q = torch.div_(q, torch.sqrt(dk))
    beta = torch.unsqueeze(torch.transpose(torch.sigmoid(beta), 1, 2), -1)
    a = torch.softplus(torch.add_(a, torch.to((weights["delta_bias"])[i], dev, wide)))
    fall = torch.neg_(torch.exp(torch.to((weights["delta_log"])[i], dev, wide)))
    fall = torch.transpose(torch.mul_(a, fall), 1, 2)
    outs = annotate(List[Tensor], [])
    for j in range(torch.floordiv(torch.add(s, 63), 64)):
      start = torch.mul(j, 64)
      end = torch.add(start, 64)
      qj = torch.slice(q, 2, start, end)
      kj = torch.slice(k, 2, start, end)
      bj = torch.slice(beta, 2, start, end)
      far = torch.cumsum(torch.slice(fall, 2, start, end), 2)
      t = torch.size(far, 2)
      later = torch.triu(torch.full([t, t], -inf, dtype=wide, device=dev), 1)
      decay = torch.exp_(torch.add_(torch.sub(torch.reshape(far, [b, n, t, 1]), torch.reshape(far, [b, n, 1, t])), later))
      seen = torch.reshape(torch.exp(far), [b, n, t, 1])
      kb = torch.mul(kj, bj)
      own = torch.mul_(torch.matmul(kb, torch.transpose(kj, 2, 3)), decay)
      known = torch.matmul(torch.mul_(kb, seen), state)
      wanted = torch.sub_(torch.mul(torch.slice(v, 2, start, end), bj), known)
      new = torch.linalg_solve_triangular(own, wanted, upper=False, left=True, unitriangular=True)
      mixed = torch.mul_(torch.matmul(qj, torch.transpose(kj, 2, 3)), decay)
      o = torch.add_(torch.matmul(torch.mul(qj, seen), state), torch.matmul(mixed, new))
      last = torch.slice(far, 2, -1)
      left = torch.reshape(torch.exp_(torch.sub(last, far)), [b, n, t, 1])
      state = torch.mul(state, torch.view(torch.exp(last), [b, n, 1, 1]))
      state = torch.add_(state, torch.matmul(torch.transpose(torch.mul(kj, left), 2, 3), new))
      _0 = torch.append(outs, o)
    _1 = torch.append(ss, state)
    y = torch.transpose(torch.cat(outs, torch.add(self.cat_dim{_}, 1)), 1, 2)
    size = torch.mean(torch.square(y), [-1], True)
    y = torch.mul_(torch.mul(y, torch.rsqrt_(torch.add_(size, self.norm_eps{_}))), torch.to((weights["delta_norm"])[i], dev, wide))
    y = torch.reshape(torch.mul_(y, torch.silu(z)), [b, s, -1])
    y = torch.to(y, ops.prim.dtype(x))
    return {linear delta_out y}
"#;

/// `unit` divides the vectors of the dimension 2 by their lengths. `wrong_states` returns an error message for states that
/// come without keys or have other shapes.
pub(super) const FUNCTIONS: &str = r#"def unit(x: Tensor) -> Tensor:
  return torch.mul(x, torch.rsqrt_(torch.add_(torch.sum(torch.square(x), [2], True), 1e-6)))
def wrong_states(inputs: Dict[str, Tensor],
    conv: List[int],
    state: List[int]) -> str:
  wrong = ""
  has_past = torch.__contains__(inputs, "past_key")
  has_conv = torch.__contains__(inputs, "past_conv")
  has_state = torch.__contains__(inputs, "past_state")
  if torch.__or__(torch.ne(has_conv, has_past), torch.ne(has_state, has_past)):
    wrong = "past_key, past_value, past_conv and past_state come together, and some are missing"
  if torch.__and__(torch.eq(wrong, ""), has_past):
    batch = torch.size(inputs["past_key"], 1)
    conv = torch.add([conv[0], batch], torch.slice(conv, 1))
    state = torch.add([state[0], batch], torch.slice(state, 1))
    found = torch.size(inputs["past_conv"])
    also = torch.size(inputs["past_state"])
    if torch.__or__(torch.ne(found, conv), torch.ne(also, state)):
      wrong = torch.format("past_conv has the shape {} and past_state {}, expected {} and {}", found, also, conv, state)
  return wrong
"#;
