"""What every method ought to compute, written from the formulas: float64, channel by channel, no code of the project.

Chakrabarti & Moseley 2019 (Eq. 9, its quantiser mended) and Barley & Froening 2024. Each operation is an autograd
function whose backward is spelled out; ``Known`` is what the backward pass may know of a tensor.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Channel = Callable[[Tensor], Tensor]


# ---------------------------------------------------------------------------------------------- what is decoded


def norm_bins(gamma: float, beta: float, bits: int) -> tuple[float, float, int]:
    """(lower edge of bin 0, step, number of the bin above the threshold), in standard deviations."""
    n = 2**bits
    never = -math.inf if beta > 0 else math.inf
    threshold = never if gamma == 0 else -beta / gamma
    edge = threshold if math.isinf(threshold) else n / 2 + float(np.rint(threshold / (6 / n)))
    if edge < 1:  # bin 0 is for what lies below the window, the others cover it
        return -3 - 6 / (n - 1), 6 / (n - 1), 1
    if edge > n - 1:  # the last bin is for what lies above
        return -3, 6 / (n - 1), n - 1
    return threshold - edge * (6 / n), 6 / n, int(edge)


def decode_norm(xhat: Tensor, y: Tensor, gamma: float, beta: float, bits: int) -> Tensor:
    """One channel's normalised input as its code has it. The side of the threshold is the forward's own, y > 0."""
    low, step, edge = norm_bins(gamma, beta, bits)
    decoded = torch.empty_like(xhat).flatten()
    for i, (value, output) in enumerate(zip(xhat.flatten().tolist(), y.flatten().tolist(), strict=True)):
        upper = (output > 0) != (gamma < 0)
        first, last = (edge, 2**bits - 1) if upper else (0, edge - 1)
        code = min(max(math.floor((value - low) / step), first), last)
        decoded[i] = low + (code + 0.5) * step
    return decoded.view_as(xhat)


SPREAD = {2: 2.5, 4: 4.0, 8: 12.0}  # a range of so many root mean squares, or standard deviations


def decode_rectified(y: Tensor, bits: int) -> Tensor:
    """One channel of a rectified sum: zero is exact, the other codes divide (0, top]."""
    positive = y[y > 0]
    if positive.numel() == 0:
        return torch.zeros_like(y)
    levels = 2**bits - 1
    top = min(positive.max().item(), SPREAD[bits] * positive.square().mean().sqrt().item())
    code = (y / (top / levels)).floor().clamp(max=levels - 1)
    return torch.where(y > 0, (code + 0.5) * (top / levels), 0.0)


def decode_signed(x: Tensor, bits: int) -> Tensor:
    """One channel of what a convolution reads elsewhere: equal bins between its bounds, or within the spread."""
    reach = SPREAD[bits] * x.std(correction=0).item()
    low, high = max(x.min().item(), x.mean().item() - reach), min(x.max().item(), x.mean().item() + reach)
    if high <= low:
        return torch.full_like(x, low)
    step = (high - low) / 2**bits
    return low + (((x - low) / step).floor().clamp(0, 2**bits - 1) + 0.5) * step


def block_means(x: Tensor, k: int) -> Tensor:
    """Each element is the mean of its k x k block; blocks that the border cuts average what they have."""
    y = torch.empty_like(x)
    for i in range(0, x.shape[2], k):
        for j in range(0, x.shape[3], k):
            block = x[:, :, i : i + k, j : j + k]
            y[:, :, i : i + k, j : j + k] = block.mean((2, 3), keepdim=True)
    return y


def published_means(x: Tensor, k: int) -> Tensor:
    """Whole blocks alone; what they leave uncovered comes back as zeros above and to the left."""
    height, width = x.shape[2] // k * k, x.shape[3] // k * k
    y = torch.zeros_like(x)
    y[:, :, x.shape[2] - height :, x.shape[3] - width :] = block_means(x[:, :, :height, :width], k)
    return y


def by_channel(x: Tensor, decode: Channel) -> Tensor:
    return torch.stack([decode(x[:, c]) for c in range(x.shape[1])], 1)


# ------------------------------------------------------------------------------------------------- operations


class Norm(torch.autograd.Function):
    """Batch norm whose backward reads ``decoded`` for the normalised input."""

    @staticmethod
    def forward(ctx, x, gamma, beta, eps, decode, continues):  # noqa: ANN001, ANN205
        y, ctx.decoded, ctx.scale, ctx.gamma = torch.empty_like(x), torch.empty_like(x), [], gamma
        for c in range(x.shape[1]):
            mean, variance = x[:, c].mean(), x[:, c].var(correction=0)
            xhat = (x[:, c] - mean) / (variance + eps).sqrt()
            y[:, c] = gamma[c] * xhat + beta[c]
            ctx.decoded[:, c] = decode(xhat, y[:, c], gamma[c].item(), beta[c].item())
            ctx.scale.append((variance + eps).sqrt())
        known = torch.empty_like(x)
        for c in range(x.shape[1]):
            known[:, c] = gamma[c] * ctx.decoded[:, c] + beta[c]
        mask = y > 0
        ctx.mark_non_differentiable(known, mask)
        return (known.clone() if continues else y), known, mask

    @staticmethod
    def backward(ctx, grad, *_):  # noqa: ANN001, ANN205
        dx, dgamma, dbeta = torch.empty_like(grad), torch.empty_like(ctx.gamma), torch.empty_like(ctx.gamma)
        for c in range(grad.shape[1]):
            g, xhat = grad[:, c], ctx.decoded[:, c]
            dbeta[c], dgamma[c] = g.sum(), (g * xhat).sum()
            g = ctx.gamma[c] * g
            dx[:, c] = (g - g.mean() - xhat * (g * xhat).mean()) / ctx.scale[c]
        return dx, dgamma, dbeta, None, None, None


class Rectify(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, mask):  # noqa: ANN001, ANN205
        ctx.mask = mask
        return y.clone()

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        return torch.where(ctx.mask, grad, 0.0), None, None


class Convolve(torch.autograd.Function):
    """Convolution whose weight gradient reads ``known`` for its input; one kernel element at a time."""

    @staticmethod
    def forward(ctx, x, known, weight, bias, stride, padding, dilation, groups, continues):  # noqa: ANN001, ANN205
        ctx.known, ctx.weight, ctx.settings = known, weight, (stride, padding, dilation, groups)
        ctx.biased = bias is not None
        return Convolve.apply_kernel(known if continues else x, weight, bias, *ctx.settings)

    @staticmethod
    def taps(shape, weight, settings):  # noqa: ANN001, ANN205
        """((row, column) of the kernel, slices of the padded input that it meets)."""
        stride, padding, dilation, _ = settings
        size = [
            (shape[2 + d] + 2 * padding[d] - dilation[d] * (weight.shape[2 + d] - 1) - 1) // stride[d] + 1
            for d in (0, 1)
        ]
        for r in range(weight.shape[2]):
            for s in range(weight.shape[3]):
                start = (r * dilation[0], s * dilation[1])
                ends = [start[d] + stride[d] * (size[d] - 1) + 1 for d in (0, 1)]
                yield (r, s), [slice(start[d], ends[d], stride[d]) for d in (0, 1)], size

    @staticmethod
    def pad(x, padding):  # noqa: ANN001, ANN205
        padded = x.new_zeros(*x.shape[:2], x.shape[2] + 2 * padding[0], x.shape[3] + 2 * padding[1])
        padded[:, :, padding[0] : padding[0] + x.shape[2], padding[1] : padding[1] + x.shape[3]] = x
        return padded

    @staticmethod
    def apply_kernel(x, weight, bias, stride, padding, dilation, groups):  # noqa: ANN001, ANN205
        padded, y = Convolve.pad(x, padding), None
        inputs, outputs = weight.shape[1], weight.shape[0] // groups
        for (r, s), (rows, columns), size in Convolve.taps(x.shape, weight, (stride, padding, dilation, groups)):
            if y is None:
                y = x.new_zeros(x.shape[0], weight.shape[0], *size)
            for g in range(groups):
                into, out = slice(g * inputs, (g + 1) * inputs), slice(g * outputs, (g + 1) * outputs)
                y[:, out] += torch.einsum("nchw,oc->nohw", padded[:, into, rows, columns], weight[out, :, r, s])
        return y if bias is None else y + bias.view(1, -1, 1, 1)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        stride, padding, dilation, groups = ctx.settings
        shape, weight = ctx.known.shape, ctx.weight
        padded, dweight = Convolve.pad(ctx.known, padding), torch.zeros_like(weight)
        dpadded = torch.zeros_like(padded)
        inputs, outputs = weight.shape[1], weight.shape[0] // groups
        for (r, s), (rows, columns), _ in Convolve.taps(shape, weight, ctx.settings):
            for g in range(groups):
                into, out = slice(g * inputs, (g + 1) * inputs), slice(g * outputs, (g + 1) * outputs)
                dweight[out, :, r, s] = torch.einsum("nchw,nohw->oc", padded[:, into, rows, columns], grad[:, out])
                dpadded[:, into, rows, columns] += torch.einsum("nohw,oc->nchw", grad[:, out], weight[out, :, r, s])
        top, left = padding
        dx = dpadded[:, :, top : top + shape[2], left : left + shape[3]]
        return dx, None, dweight, grad.sum((0, 2, 3)) if ctx.biased else None, None, None, None, None, None


# ------------------------------------------------------------------------------------------------------ a method


@dataclass
class Known:
    """A tensor with what the backward pass knows of it: ``value`` for a weight gradient, ``mask`` for a ReLU."""

    x: Tensor
    value: Tensor | None = None
    mask: Tensor | None = None


@dataclass(frozen=True)
class Reference:
    """``bits`` for approx and naive (None: the norms are exact); ``pool`` decodes what a convolution reads."""

    bits: int | None = None
    continues: bool = False
    pool: Channel | None = None

    def norm(self, a: Known, gamma: Tensor, beta: Tensor, eps: float) -> Known:
        if self.bits is None or not (a.x.requires_grad or gamma.requires_grad):
            return Known(Norm.apply(a.x, gamma, beta, eps, lambda xhat, *_: xhat, False)[0])
        y, known, mask = Norm.apply(a.x, gamma, beta, eps, lambda *v: decode_norm(*v, self.bits), self.continues)
        return Known(y, known, mask)

    def relu(self, a: Known) -> Known:
        mask = a.x > 0 if a.mask is None else a.mask
        y = torch.where(a.x > 0, a.x, 0.0)
        if self.bits is None or not a.x.requires_grad:
            return Known(Rectify.apply(a.x, y, mask))
        if a.mask is None:
            value = by_channel(y.detach(), lambda v: decode_rectified(v, self.bits))
        else:
            value = torch.where(mask, a.value, 0.0)
        return Known(Rectify.apply(a.x, value if self.continues else y, mask), value, mask)

    def conv(self, a: Known, weight: Tensor, bias: Tensor | None, *settings: object) -> Known:
        if self.pool is not None:
            value = self.pool(a.x.detach())
        elif self.bits is None or a.x.is_leaf:  # the network's input is alive anyway
            value = a.x
        else:
            if a.value is None:
                a.value = by_channel(a.x.detach(), lambda v: decode_signed(v, self.bits))
            value = a.value
        return Known(Convolve.apply(a.x, value.detach(), weight, bias, *settings, self.continues))


REFERENCES = {
    "exact": Reference(),
    "lean": Reference(),
    "approx8": Reference(8),
    "approx4": Reference(4),
    "approx2": Reference(2),
    "naive8": Reference(8, continues=True),
    "naive4": Reference(4, continues=True),
    "pool2": Reference(pool=lambda x: block_means(x, 2)),
    "pool4": Reference(pool=lambda x: block_means(x, 4)),
    "pool1-published": Reference(),
    "pool2-published": Reference(pool=lambda x: published_means(x, 2)),
    "pool4-published": Reference(pool=lambda x: published_means(x, 4)),
    "checkpoint": Reference(),
}
