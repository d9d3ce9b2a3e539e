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

from methods.handles import Code, Handle
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
    bins = 2**bits
    never = torch.where(beta > 0, -torch.inf, torch.inf).to(gamma)
    threshold = torch.where(gamma == 0, never, -beta / gamma)
    wide, narrow = 2 * SIGMAS / bins, 2 * SIGMAS / (bins - 1)
    edge = bins / 2 + torch.round(threshold / wide)
    below, above = edge < 1, edge > bins - 1
    step = torch.where(below | above, narrow, wide).to(gamma)
    # outside the window the grid covers it with all bins but one, which is for the other sign
    origin = torch.where(below, -SIGMAS - narrow, torch.where(above, -SIGMAS, threshold - edge * wide))
    edge = edge.clamp(1, bins - 1)
    return Grid(*(channelwise(v) for v in (origin.to(gamma), step, edge, threshold)))


def encode(x: Tensor, y: Tensor, mean: Tensor, invstd: Tensor, gamma: Tensor, beta: Tensor, bits: int) -> Handle:
    """Code ``x`` (N, C, H, W), whose norm is ``y``. ``mean``, ``invstd``, ``gamma`` and ``beta`` have shape (C,)."""
    bins = grid(gamma, beta, bits)
    scale = channelwise(invstd) / bins.step
    shift = -channelwise(mean) * scale - bins.origin / bins.step
    edge = bins.edge.to(torch.uint8)
    codes = torch.addcmul(shift, x, scale).clamp_(0, 2**bits - 1).to(torch.uint8)
    upper = (y > 0) != channelwise(gamma < 0)
    codes = torch.where(upper, codes.maximum(edge), codes.minimum(edge - 1))
    code = NormCode(bits, Layout.of(codes))
    return Handle(code, (pack(codes, bits), gamma, beta, invstd))


@dataclass(frozen=True)
class NormCode(Code):
    """Reads (packed codes, gamma, beta, 1 / standard deviation)."""

    bits: int
    layout: Layout
    signs_exact = True

    def _upper(self, codes: Tensor, bins: Grid) -> Tensor:
        return codes >= bins.edge.to(torch.uint8)

    def _decode(self, packed: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        """(normalised input, where it is above the threshold): the middle of the bin, on the right side of the edge."""
        bins = grid(gamma, beta, self.bits)
        codes = unpack(packed, self.bits, self.layout)
        upper = self._upper(codes, bins)
        half = bins.step / 2
        middle = torch.addcmul(bins.origin + half, codes.to(gamma.dtype), bins.step)
        above, below = middle.maximum(bins.threshold + half), middle.minimum(bins.threshold - half)
        return torch.where(upper, above, below), upper

    def normalised(self, packed: Tensor, gamma: Tensor, beta: Tensor, invstd: Tensor) -> Tensor:
        return self._decode(packed, gamma, beta)[0]

    def value(self, *tensors: Tensor) -> Tensor:
        packed, gamma, beta, _ = tensors
        normalised, _ = self._decode(packed, gamma, beta)
        return torch.addcmul(channelwise(beta), normalised, channelwise(gamma))

    def positive(self, *tensors: Tensor) -> Tensor:
        packed, gamma, beta, _ = tensors
        codes = unpack(packed, self.bits, self.layout)
        return self._upper(codes, grid(gamma, beta, self.bits)) != channelwise(gamma < 0)

    def norm_backward(self, grad: Tensor, tensors: tuple[Tensor, ...], mask: list[bool]) -> tuple[Tensor | None, ...]:
        """Gradients of (input, gamma, beta): exact but for the normalised input, which is decoded."""
        _, gamma, _, invstd = tensors
        zero, one = torch.zeros_like(invstd), torch.ones_like(invstd)
        normalised = self.normalised(*tensors)
        return torch.ops.aten.native_batch_norm_backward(
            grad, normalised, gamma * invstd, None, None, zero, one, True, 0.0, mask
        )
