//! Text of rotary embeddings.

use super::super::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("ropes", |it| it.positions.rope_count() > 1),
    Flag::new("listed", |it| it.positions.has_listed_frequencies()),
    Flag::new("llama3", |it| it.positions.llama3().is_some()),
    Flag::new("magnitudes", |it| it.positions.has_magnitudes()),
    Flag::new("length", |it| it.positions.has_length_dependent_rope()),
    Flag::new("longrope", |it| it.positions.has_long_rope()),
    Flag::new("dynamic", |it| it.positions.has_dynamic()),
    Flag::new("part", |it| it.decoder.rotated() < it.decoder.head_dim()),
];

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

/// `rotate` rotates the pairs of numbers that the shape `{split}` puts into the dimension `{dim}`.
pub(super) const FUNCTIONS: &str = r"def rotate(x: Tensor,
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
