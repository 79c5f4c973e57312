//! Text of norms.

use decoder::{HeadNormScope, NormKind, NormPlace};

use super::super::flag::Flag;
use super::mixed_heads::IS_MIXED;
use super::router::IS_SCALED;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("norm before", |it| it.decoder.block().norms != NormPlace::After),
    Flag::new("adds to norms", |it| it.decoder.block().adds_to_norms),
    Flag::new("norm after", |it| it.decoder.block().norms != NormPlace::Before),
    Flag::new("rms", |it| it.decoder.block().norm == NormKind::Rms),
    Flag::new("plus one", |it| it.decoder.block().norm == NormKind::RmsPlusOne),
    Flag::new("centred", |it| it.decoder.block().norm.is_centred()),
    LAYER_NORM,
    Flag::new("no bias", |it| it.decoder.block().norm == NormKind::LayerWithoutBias),
    Flag::new("head norm", |it| {
        it.decoder.block().head_norm.is_some_and(|scope| scope != HeadNormScope::Projection)
    }),
    Flag::new("projection norm", |it| it.decoder.block().head_norm == Some(HeadNormScope::Projection)),
    Flag::new("late", |it| it.decoder.block().head_norm_last),
    LAYER_HEAD_NORM,
    HEAD_NORM_BIAS,
    Flag::new("bare norm", |it| IS_SCALED(it) || IS_MIXED(it)),
];

/// Norms have biases.
pub(super) const LAYER_NORM: Flag = Flag::new("layer norm", |it| it.decoder.block().norm == NormKind::Layer);

/// Norms of queries and keys subtract the mean.
pub(super) const LAYER_HEAD_NORM: Flag = Flag::new("layer head norm", |it| {
    let block = it.decoder.block();
    block.norm.is_centred() && block.head_norm.is_some() && !it.decoder.biases().head_norm
});

/// Norms of queries and keys have biases, as all others.
pub(super) const HEAD_NORM_BIAS: Flag = Flag::new("head bias", |it| it.decoder.biases().head_norm);

/// `norm` is over the last dimension. `head_norm` is that of queries and keys if the mean is subtracted, without a bias.
/// `bare_norm` has no weight.
pub(super) const FUNCTIONS: &str = r"def norm(x: Tensor,
    weight: Tensor,
    [layer norm] bias: Tensor,
    eps: float) -> Tensor:
  d = ops.prim.dtype(x)
  [not centred] y = torch.to(x, d, False, True)
  [not centred] v = torch.mean(torch.square(y), [-1], True)
  [not centred] y = torch.mul_(y, torch.rsqrt_(torch.add_(v, eps)))
  [rms] y = torch.mul_(y, torch.to(weight, d))
  [plus one] y = torch.mul_(y, torch.add_(torch.to(weight, d, False, True), 1))
  [layer norm] y = torch.layer_norm(x, [torch.size(x, -1)], torch.to(weight, d), torch.to(bias, d), eps)
  [no bias] y = torch.mul_(torch.layer_norm(x, [torch.size(x, -1)], None, None, eps), torch.to(weight, d))
  return y
[bare norm] def bare_norm(x: Tensor,
[bare norm]     eps: float) -> Tensor:
[bare norm]   y = torch.to(x, ops.prim.dtype(x), False, True)
[bare norm]   v = torch.mean(torch.square(y), [-1], True)
[bare norm]   return torch.mul_(y, torch.rsqrt_(torch.add_(v, eps)))
[layer head norm] def head_norm(x: Tensor,
[layer head norm]     weight: Tensor,
[layer head norm]     eps: float) -> Tensor:
[layer head norm]   y = torch.layer_norm(x, [torch.size(x, -1)], None, None, eps)
[layer head norm]   return torch.mul_(y, torch.to(weight, ops.prim.dtype(x)))
";
