"""TorchScript modules that the newest torch writes, for what their operators take: 2.0.1 loads some of them and not others.

Each takes one tensor of four rows and three columns.
"""

import torch
import torch.nn.functional as F
from torch import nn


class NewOperator(nn.Module):
    def forward(self, x):
        return torch.rms_norm(x, [3])


class AllOverTwoDimensions(nn.Module):
    def forward(self, x):
        return torch.all(x, [0, 1])


class AllOverOneDimension(nn.Module):
    def forward(self, x):
        return torch.all(x, 0, True)


class FractionalCorrection(nn.Module):
    def forward(self, x):
        return torch.std(x, [0], correction=1.5)


class WholeCorrection(nn.Module):
    def forward(self, x):
        return torch.std(x, [0], correction=1)


class MaskedGradient(nn.Module):
    def forward(self, x):
        return x.to_sparse().to_dense(masked_grad=False)


class DefaultGradient(nn.Module):
    def forward(self, x):
        return x.to_sparse().to_dense()


class PaddedLeft(nn.Module):
    def forward(self, x):
        return torch.nn.utils.rnn.pad_sequence([x, x[:1]], True, 0.0, "left")


class Scaled(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, scale=0.5)


class Grouped(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, enable_gqa=True)


class Causal(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


class AlignedToWindow(nn.Module):
    """2.0.1 takes as many arguments: one of another type is in the place of a bool that the function takes."""

    def forward(self, x):
        return torch.stft(x.reshape(-1), 4, center=False, return_complex=True, align_to_window=False).abs()


class NormsInADtype(nn.Module):
    def forward(self, x):
        return torch._foreach_norm([x, x], 2, dtype=torch.float64)


class OtherFilter(nn.Module):
    def forward(self, x):
        return F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic", antialias=True)


class Tensors(nn.Module):
    def forward(self, x):
        return torch.linspace(x[0, 0], x[0, 1], 5), torch.clamp(x, min=x), torch.where(x > 0, x, 0.5), torch.bucketize(x, x[0])


class Reductions(nn.Module):
    def forward(self, x):
        return torch.sum(x, None), torch.amax(x), torch.var_mean(x, dim=[0]), torch.quantile(x, 0.5), torch.max(x, 0), torch.norm(x, dim=1)


class Shapes(nn.Module):
    def forward(self, x):
        return (torch.split(x, [1, 3]), torch.unflatten(x, 0, [2, 2]), torch.slice_scatter(x, x[:1], 0, 0, 1), F.pad(x, [1, 1], "reflect"),
                torch.roll(x, 1), torch.meshgrid(x[0], x[0]), torch.topk(x, 1), torch.einsum("ij,kj->ik", x, x))


class Losses(nn.Module):
    def forward(self, x):
        classes = torch.zeros(x.size(0), dtype=torch.int64)
        return F.cross_entropy(x, classes, label_smoothing=0.1), F.gelu(x, approximate="tanh"), F.embedding_bag(classes[None], x, mode="sum")


class Made(nn.Module):
    def forward(self, x):
        return torch.full_like(x, 2), torch.randint(3, (2,)), torch.normal(x, 1.0), torch.kaiser_window(3), x.to(torch.float64, non_blocking=True)


KINDS = {thing.__name__: thing for thing in list(globals().values()) if isinstance(thing, type) and thing.__module__ == __name__}
