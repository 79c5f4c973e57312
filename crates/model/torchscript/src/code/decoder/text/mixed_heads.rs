//! Text of attention whose layers have heads of two sizes, and may use keys and values of earlier layers.

use decoder::{Decoder, MixedHeads};

use super::super::flag::{Condition, Flag};
use super::named_values::{NamedValues, ints_attribute, size_attribute};
use crate::Result;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("mixed", IS_MIXED),
    Flag::new("near", HAS_NEAR),
    Flag::new("own values", |it| it.decoder.block().mixed_heads.is_some_and(|mixed| mixed.keys_are_values)),
];

pub(super) const IS_MIXED: Condition = |it| it.decoder.block().mixed_heads.is_some();

/// Layers with a window have keys and values of their own sizes.
pub(super) const HAS_NEAR: Condition = |it| it.decoder.cache_layers().1.is_some();

/// Returns the sizes of both kinds of layers, and for each layer the size of a head, the place of its keys and values among those of
/// all layers with such, the number of its heads of keys if it is one of these, and else 0, and its place among the matrices of
/// values, or -1.
pub(super) fn attributes(decoder: &Decoder, mixed: MixedHeads) -> Result<NamedValues> {
    let all = || 0..decoder.n_layers();
    let number = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    let (far, near) = decoder.cache_layers();
    // Layers with keys and values of their own come first, so that their place is their number.
    let own_heads = |layer| if decoder.shares_keys(layer) { 0 } else { decoder.n_kv_heads_of(layer) };
    let (mut next_value, mut next) = (0, [0; 2]);
    let value = |layer: u64| {
        let has_none = decoder.has_keys_as_values(layer) || decoder.shares_keys(layer);
        if has_none { -1 } else { take_next(&mut next_value) }
    };
    let place = |layer: u64| {
        let [with, without] = &mut next;
        take_next(if decoder.windows().window_of(layer).is_some() { with } else { without })
    };
    let values = all().map(value).collect();
    let mut own = vec![
        size_attribute("wide_layers", far.layers)?,
        size_attribute("wide_kv_heads", mixed.kv_heads)?,
        size_attribute("wide_head_dim", mixed.head_dim)?,
        ints_attribute("head_dims", all().map(|layer| number(decoder.head_dim_of(layer))).collect()),
        ints_attribute("keys_of", decoder.key_layers().into_iter().map(number).collect()),
        ints_attribute("own_heads", all().map(|layer| number(own_heads(layer))).collect()),
        ints_attribute("values_of", values),
        ints_attribute("cached", all().map(place).collect()),
    ];
    if let Some(near) = near {
        own.push(size_attribute("near_layers", near.layers)?);
    }
    Ok(own)
}

fn take_next(next: &mut i64) -> i64 {
    let place = *next;
    *next = place.saturating_add(1);
    place
}

/// Lines of `infer` before its loop: the keys and values of the preceding tokens in layers with a window.
pub(super) const PAST: &str = r#"    [near] near_k = w
    [near] near_v = w
    [near] if has_past:
    [near]   near_k = torch.to(inputs["past_window_key"], dev, wide)
    [near]   near_v = torch.to(inputs["past_window_value"], dev, wide)
"#;

/// Lines of the loop: the result of attention.
pub(super) const ATTENDED: &str = r"      hd = (self.head_dims{_})[i]
      cos = torch.slice(cos, 2, 0, torch.floordiv(hd, 2))
      sin = torch.slice(sin, 2, 0, torch.floordiv(hd, 2))
      q = torch.view(torch.to({linear wq x}, wide), [b, s, -1, hd])
      q = {ns}.rotate({norm q_norm q}, cos, sin)
      nkv = (self.own_heads{_})[i]
      if torch.gt(nkv, 0):
        k = torch.view(torch.to({linear wk x}, wide), [b, s, nkv, hd])
        [own values] j = (self.values_of{_})[i]
        [own values] if torch.ge(j, 0):
        [own values]   v = torch.view(torch.to({linear wv x j}, wide), [b, s, nkv, hd])
        [own values] else:
        [own values]   v = k
        [not own values] v = torch.view(torch.to({linear wv x}, wide), [b, s, nkv, hd])
        v = {ns}.bare_norm(v, self.norm_eps{_})
        k = {ns}.rotate({norm k_norm k}, cos, sin)
        if has_past:
          c = (self.cached{_})[i]
          [not near] before_k = torch.select(pk, 0, c)
          [not near] before_v = torch.select(pv, 0, c)
          [near] if torch.eq((self.windowed{_})[i], 1):
          [near]   before_k = torch.select(near_k, 0, c)
          [near]   before_v = torch.select(near_v, 0, c)
          [near] else:
          [near]   before_k = torch.select(pk, 0, c)
          [near]   before_v = torch.select(pv, 0, c)
          k = torch.cat([before_k, k], self.cat_dim{_})
          v = torch.cat([before_v, v], self.cat_dim{_})
        _ = torch.append(ks, k)
        _ = torch.append(vs, v)
      [not some window] mask = all
      [some window] mask = all
      [some window] if torch.eq((self.windowed{_})[i], 1):
      [some window]   mask = near
      at = (self.keys_of{_})[i]
      o = torch.to((self).attention(i, q, ks[at], vs[at], mask, ), narrow)
      a = {linear wo o}
";

/// Lines of `infer` that return keys and values.
pub(super) const PRESENT: &str = r#"    if keep:
      [near] near_ks = annotate(List[Tensor], [])
      [near] near_vs = annotate(List[Tensor], [])
      [near] far_ks = annotate(List[Tensor], [])
      [near] far_vs = annotate(List[Tensor], [])
      [near] for i in range(torch.len(ks)):
      [near]   if torch.eq((self.windowed{_})[i], 1):
      [near]     _ = torch.append(near_ks, ks[i])
      [near]     _ = torch.append(near_vs, vs[i])
      [near]   else:
      [near]     _ = torch.append(far_ks, ks[i])
      [near]     _ = torch.append(far_vs, vs[i])
      [near] torch._set_item(out, "present_key", torch.to(torch.stack(far_ks), 6))
      [near] torch._set_item(out, "present_value", torch.to(torch.stack(far_vs), 6))
      [near] torch._set_item(out, "present_window_key", torch.to(torch.stack(near_ks), 6))
      [near] torch._set_item(out, "present_window_value", torch.to(torch.stack(near_vs), 6))
      [not near] torch._set_item(out, "present_key", torch.to(torch.stack(ks), 6))
      [not near] torch._set_item(out, "present_value", torch.to(torch.stack(vs), 6))
"#;

/// `wrong_window` returns an error message for keys and values of layers with a window that have another shape than `expected`, in
/// which batch and length are still missing.
pub(super) const FUNCTIONS: &str = r#"def wrong_window(inputs: Dict[str, Tensor],
    expected: List[int]) -> str:
  wrong = ""
  has_past = torch.__contains__(inputs, "past_key")
  has_key = torch.__contains__(inputs, "past_window_key")
  has_value = torch.__contains__(inputs, "past_window_value")
  if torch.__or__(torch.ne(has_key, has_past), torch.ne(has_value, has_past)):
    wrong = "past_key, past_value, past_window_key and past_window_value come together, and some are missing"
  if torch.__and__(torch.eq(wrong, ""), has_past):
    past = torch.slice(torch.size(inputs["past_key"]), 1, 3)
    wanted = torch.add(torch.add([expected[0]], past), torch.slice(expected, 3))
    key = torch.size(inputs["past_window_key"])
    value = torch.size(inputs["past_window_value"])
    if torch.__or__(torch.ne(key, wanted), torch.ne(value, wanted)):
      wrong = torch.format("past_window_key has the shape {} and past_window_value {}, expected {} of both", key, value, wanted)
  return wrong
"#;
