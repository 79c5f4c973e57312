//! Text of attention.

use super::super::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("some window", |it| {
        (0..it.decoder.n_layers()).any(|layer| it.decoder.windows().window_of(layer).is_some())
    }),
    Flag::new("every window", |it| {
        (0..it.decoder.n_layers()).all(|layer| it.decoder.windows().window_of(layer).is_some())
    }),
    Flag::new("qkv limit", |it| it.decoder.block().qkv_limit.is_some()),
    Flag::new("score scale", |it| it.decoder.block().scores.scale.is_some()),
    Flag::new("score cap", |it| it.decoder.block().scores.soft_cap.is_some()),
    Flag::new("sinks", |it| it.decoder.block().scores.sinks),
];

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
    [early alibi] scores = {ns}.alibi(scores, self.slopes{_}, s)
    [not score scale] scores = torch.div_(scores, torch.sqrt(hd))
    [score scale] scores = torch.mul_(scores, self.score_scale{_})
    [score cap] scores = torch.mul_(torch.tanh_(torch.div_(scores, self.score_cap{_})), self.score_cap{_})
    [late alibi] scores = {ns}.alibi(scores, self.slopes{_}, s)
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
