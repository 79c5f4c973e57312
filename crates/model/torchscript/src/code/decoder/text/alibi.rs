//! Text of biases that grow with the position of the key.

use decoder::Alibi;

use super::super::flag::{Condition, Flag};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("early alibi", |it| it.decoder.block().alibi == Some(Alibi::BeforeScale)),
    Flag::new("late alibi", |it| it.decoder.block().alibi == Some(Alibi::AfterScale)),
];

pub(super) const HAS_ALIBI: Condition = |it| it.decoder.block().alibi.is_some();

/// Function `alibi`, which adds the biases to the scores of `s` queries. The fuser does not know `outer`.
pub(super) const FUNCTIONS: &str = r"def alibi(scores: Tensor,
    slopes: List[int],
    s: int) -> Tensor:
  dev = ops.prim.device(scores)
  t = torch.size(scores, -1)
  slope = {ns}.numbers(slopes, dev)
  pos = torch.arange(0, t, dtype=4, device=dev)
  [early alibi] bias = torch.outer(torch.to(slope, 15), torch.to(pos, 15))
  [late alibi] bias = torch.outer(torch.to(slope, 6), torch.to(pos, 6))
  bias = torch.view(torch.to(bias, ops.prim.dtype(scores)), [torch.size(scores, 1), -1, 1, t])
  wide = torch.view(scores, [torch.size(scores, 0), torch.size(scores, 1), -1, s, t])
  return torch.view(torch.add_(wide, bias), torch.size(scores))
";
