//! Text of mixtures of experts; `router.rs` has the choice.

use decoder::Experts;

use super::super::flag::{Condition, Flag, TextVariant};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("experts", HAS_EXPERTS),
    Flag::new("beside", |it| it.decoder.block().has_experts_beside_dense()),
    Flag::new("interleaved", |it| of(it).is_some_and(|experts| experts.interleaved)),
    Flag::new("shared", |it| of(it).is_some_and(|experts| experts.shared.is_some())),
    Flag::new("shared gate", |it| {
        of(it).and_then(|experts| experts.shared).is_some_and(|shared| shared.gated)
    }),
];

pub(super) const HAS_EXPERTS: Condition =
    |it| (0..it.decoder.n_layers()).any(|layer| it.decoder.block().has_experts(layer));

pub(super) fn of(variant: TextVariant<'_>) -> Option<&Experts> {
    variant.decoder.block().experts.as_ref()
}

/// Start of the method `experts`, the mixture of experts; `i` counts the layers that have experts. The router reads the rows before they
/// are rounded. Each expert reads the rows that are routed to it, and its results are added up without intermediate
/// rounding.
pub(super) const SCORES: &str = r"  def experts(self: Self,
    i: int,
    z: Tensor,
    y: Tensor) -> Tensor:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    rows = torch.reshape(z, [-1, torch.size(z, -1)])
    scores = {linear router rows}
";

/// Lines of the loop for experts next to a dense layer: the sum of both, each with its norms. The router reads the rows before their
/// norms.
pub(super) const BESIDE: &str = r#"      [beside] y = torch.to({norm ffn_norm h}, narrow)
      [beside] f = torch.to((self).feed_forward(i, y, ), wide)
      [beside] f = {norm dense_post_norm f}
      [beside] z = {ns}.bare_norm(h, self.norm_eps{_})
      [beside] z = torch.mul_(z, torch.to((weights["router_scale"])[i], dev, wide))
      [beside] z = torch.mul_(z, self.router_input{_})
      [beside] y = torch.to({norm experts_norm h}, narrow)
      [beside] e = torch.to((self).experts(i, z, y, ), wide)
      [beside] f = torch.add_(f, {norm experts_post_norm e})
"#;

/// End of the method, after the router's lines have set `share` and `ids`.
pub(super) const RESULTS: &str = r"    y = torch.reshape(y, [-1, torch.size(y, -1)])
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
