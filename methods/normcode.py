"""The code of a batch norm's input: one small integer an element that serves ReLU, convolution and batch norm.

After Chakrabarti & Moseley 2019, Eq. 9: the normalised input is quantised uniformly within 3 standard deviations, on
bins one edge of which lies where the norm's output crosses zero, so that the code knows the ReLU mask. Different here:
gamma may have any sign or be zero, the side of the edge is taken from the forward's own output, and an edge outside the
window leaves the grid where the values are and costs it one bin.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from methods.handles import Code, Handle, gate
from methods.packing import Layout, pack, unpack

SIGMAS = 3.0


class Grid(NamedTuple):
    """Bins of each channel, in standard deviations of the normalised input; each field has shape (1, C, 1, 1)."""

    origin: Tensor  # lower edge of bin 0
    step: Tensor
    edge: Tensor  # number of the bin whose lower edge is the threshold: 1 .. bins - 1
    threshold: Tensor  # where the norm's output crosses zero; infinite where gamma is 0


def channelwise(v: Tensor) -> Tensor:
    return v.view(1, -1, 1, 1)


def grid(gamma: Tensor, beta: Tensor, bits: int) -> Grid:
    """The bins for every channel; ``gamma`` and ``beta`` have shape (C,)."""
    # in half precision the edges themselves would be off
    gamma, beta = (v.to(torch.promote_types(v.dtype, torch.float32)) for v in (gamma, beta))
    bins = 2**bits
    never = torch.where(beta > 0, -torch.inf, torch.inf).to(gamma)
    threshold = torch.where(gamma == 0, never, -beta / gamma)
    wide, narrow = 2 * SIGMAS / bins, 2 * SIGMAS / (bins - 1)
    edge = bins / 2 + torch.round(threshold / wide)
    below, above = edge < 1, edge > bins - 1
    step = torch.where(below | above, gamma.new_tensor(narrow), gamma.new_tensor(wide))
    # outside the window the grid covers it with all bins but one, which is for the other sign
    origin = torch.where(below, -SIGMAS - narrow, torch.where(above, -SIGMAS, threshold - edge * wide))
    edge = edge.clamp(1, bins - 1)
    return Grid(*(channelwise(v) for v in (origin, step, edge, threshold)))


def encode(x: Tensor, y: Tensor, mean: Tensor, invstd: Tensor, gamma: Tensor, beta: Tensor, bits: int) -> Handle:
    """Code ``x`` (N, C, H, W), whose norm is ``y``. ``mean``, ``invstd``, ``gamma`` and ``beta`` have shape (C,)."""
    bins = grid(gamma, beta, bits)
    scale = channelwise(invstd) / bins.step
    shift = -channelwise(mean) * scale - bins.origin / bins.step
    codes = torch.addcmul(shift, x, scale).clamp_(0, 2**bits - 1).to(torch.uint8)
    edge = bins.edge.to(torch.uint8)
    # 255 above the threshold, 0 below it: bytes, as torch.where is slow on the CPU
    upper = ((y > 0).view(torch.uint8) ^ channelwise(gamma < 0).view(torch.uint8)).neg_()
    codes = torch.maximum(codes, upper & edge)
    codes = torch.minimum(codes, upper.bitwise_or_(edge - 1), out=codes)
    # the grid is kept, 12 bytes a channel: every reader would make it again from gamma and beta
    kept = (pack(codes, bits), torch.stack([v.flatten() for v in bins[:3]]), gamma, beta, invstd)
    return Handle(NormCode(bits, Layout.of(codes)), kept)


@dataclass(frozen=True)
class NormCode(Code):
    """Reads (packed codes, grid, gamma, beta, 1 / standard deviation). A code stands for the middle of its bin."""

    bits: int
    layout: Layout
    signs_exact = True

    def _codes(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        return unpack(packed, self.bits, self.layout).to(dtype)

    def _side(self, codes: Tensor, bins: Tensor, gamma: Tensor) -> Tensor:
        """Above zero where the norm's output is; overwrites ``codes``."""
        sign = 1 - 2 * (gamma < 0).to(codes.dtype)
        return codes.mul_(channelwise(sign)).add_(channelwise((0.5 - bins[2]) * sign))

    def _value(self, codes: Tensor, bins: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        origin, step, _ = bins
        first = torch.addcmul(beta, origin + step / 2, gamma)
        return torch.addcmul(channelwise(first), codes, channelwise(step * gamma))

    def normalised(self, packed: Tensor, bins: Tensor, gamma: Tensor, beta: Tensor, invstd: Tensor) -> Tensor:
        """The decoded normalised input."""
        origin, step, _ = bins
        return torch.addcmul(channelwise(origin + step / 2), self._codes(packed, bins.dtype), channelwise(step))

    def value(self, *tensors: Tensor) -> Tensor:
        packed, bins, gamma, beta, _ = tensors
        return self._value(self._codes(packed, bins.dtype), bins, gamma, beta)

    def rectified(self, *tensors: Tensor) -> Tensor:
        packed, bins, gamma, beta, _ = tensors
        codes = self._codes(packed, bins.dtype)
        value = self._value(codes, bins, gamma, beta)
        return gate(value, self._side(codes, bins, gamma), out=value)

    def rectify_grad(self, grad: Tensor, *tensors: Tensor) -> Tensor:
        packed, bins, gamma, _, _ = tensors
        return gate(grad, self._side(self._codes(packed, bins.dtype), bins, gamma).to(grad.dtype))

    def norm_backward(self, grad: Tensor, tensors: tuple[Tensor, ...], mask: list[bool]) -> tuple[Tensor | None, ...]:
        """Gradients of (input, gamma, beta): exact but for the normalised input, which is decoded."""
        packed, (origin, step, _), gamma, _, invstd = tensors
        # the stock operator on the codes themselves: (code - mean) * step is the decoded normalised input
        mean, weight = -0.5 - origin / step, gamma * invstd / step
        return torch.ops.aten.native_batch_norm_backward(
            grad.to(step.dtype), self._codes(packed, step.dtype), weight, None, None, mean, step, True, 0.0, mask
        )
