//! Text of dense feed-forward layers and their activations.

use decoder::{Activation, FeedForwardKind};

use super::super::flag::{Condition, Flag};

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("silu", |it| it.decoder.block().activation == Activation::Silu),
    Flag::new("gelu", |it| it.decoder.block().activation == Activation::Gelu),
    Flag::new("gelu tanh", |it| it.decoder.block().activation == Activation::GeluTanh),
    Flag::new("relu", |it| it.decoder.block().activation == Activation::Relu),
    Flag::new("relu squared", |it| it.decoder.block().activation == Activation::ReluSquared),
    Flag::new("clamped", |it| matches!(it.decoder.block().activation, Activation::ClampedSwiglu { .. })),
    Flag::new("xielu", |it| it.decoder.block().activation == Activation::Xielu),
    Flag::new("plain", IS_PLAIN),
    Flag::new("feed forward", HAS_DENSE_LAYERS),
    Flag::new("parallel", |it| it.decoder.block().parallel),
    Flag::new("own norm", |it| it.decoder.block().parallel && it.decoder.block().parallel_norms),
];

pub(super) const HAS_DENSE_LAYERS: Condition =
    |it| (0..it.decoder.n_layers()).any(|layer| it.decoder.block().has_dense(layer));

pub(super) const IS_PLAIN: Condition = |it| it.decoder.block().feed_forward == FeedForwardKind::Plain;

pub(super) const IS_GATED: Condition = |it| it.decoder.block().feed_forward == FeedForwardKind::Gated;

/// Method `feed_forward`, the dense feed-forward layer.
pub(super) const FEED_FORWARD: &str = r"  def feed_forward(self: Self,
    i: int,
    y: Tensor) -> Tensor:
    [not half] weights = self.__tensors__{_}
    [half] weights = (self.__tensors__{_}).narrow
    [not plain] g = (self).gated({linear w1 y}, {linear w3 y}, )
    [plain] g = (self).activated(i, {linear w3 y}, )
    return {linear w2 g}
";

/// Method `gated`, which multiplies the activation of `gate` with `up`. Both inputs are new tensors, so they are changed in
/// place.
pub(super) const GATED: &str = r"  def gated(self: Self,
    gate: Tensor,
    up: Tensor) -> Tensor:
";

/// End of `gated`.
pub(super) const TIMES_UP: &str = r"    return torch.mul_(g, up)
";

/// Method `activated`, the activation of a layer without a gate. Its input is a new tensor.
pub(super) const ACTIVATED: &str = r"  def activated(self: Self,
    i: int,
    gate: Tensor) -> Tensor:
";

/// Lines of both methods.
pub(super) const ACTIVATION: &str = r#"    [silu] g = torch.silu(gate)
    [gelu] g = torch.gelu(gate)
    [gelu tanh] g = torch.gelu(gate, approximate="tanh")
    [relu] g = torch.relu(gate)
    [relu squared] g = torch.square(torch.relu(gate))
    [clamped] gate = torch.clamp_(gate, None, self.limit{_})
    [clamped] g = torch.mul_(torch.sigmoid_(torch.mul(gate, self.alpha{_})), gate)
    [clamped] up = torch.add_(torch.clamp_(up, torch.neg(self.limit{_}), self.limit{_}), 1)
"#;

/// Lines of `activated` for xIELU, whose numbers are weights of the layer. The fuser knows a comparison before a choice, and not its
/// negation.
pub(super) const XIELU: &str = r#"    [xielu, not half] weights = self.__tensors__{_}
    [xielu, half] weights = (self.__tensors__{_}).narrow
    [xielu] wide = 6
    [xielu] if torch.eq(ops.prim.dtype(gate), 7):
    [xielu]   wide = 7
    [xielu] dev = ops.prim.device(gate)
    [xielu] x = torch.to(gate, wide)
    [xielu] p = torch.softplus(torch.to((weights["xielu_positive"])[i], dev, wide))
    [xielu] beta = torch.to((weights["xielu_beta"])[i], dev, wide)
    [xielu] n = torch.add_(torch.softplus(torch.to((weights["xielu_negative"])[i], dev, wide)), beta)
    [xielu] eps = torch.to((weights["xielu_eps"])[i], dev, wide)
    [xielu] high = torch.mul_(torch.square(x), p)
    [xielu] low = torch.mul_(torch.sub_(torch.expm1_(torch.minimum(x, eps)), x), n)
    [xielu] g = torch.where(torch.logical_not(torch.gt(x, 0)), low, high)
    [xielu] g = torch.to(torch.add_(g, torch.mul(x, beta)), ops.prim.dtype(gate))
"#;

/// End of `activated`.
pub(super) const RETURN: &str = r"    return g
";
