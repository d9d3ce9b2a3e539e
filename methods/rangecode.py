"""The code of an activation that is no norm's output: a block's output, or what a convolution reads elsewhere.

Each channel has its own range. A channel without negative values gives code 0 to zero alone, so that the code of a
rectified sum is its ReLU mask as well.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import fused, kernels
from methods.affine import AffineCode, Side, channelwise
from methods.handles import Handle
from methods.packing import Layout, pack

# Range in root mean squares: between the best for half-normal and for exponential tails
SPREAD = {2: 2.5, 4: 4.0, 8: 12.0}


def encode_rectified(y: Tensor, bits: int) -> Handle:
    """Code ``y`` (N, C, H, W) >= 0: 0 for zero alone, the other codes on (0, top], where top is of the channel."""
    levels, layout = 2**bits - 1, Layout.of(y)
    view = fused.view(layout, bits)
    if view is None:
        maximum, count = y.amax(dim=(0, 2, 3)), (y > 0).sum(dim=(0, 2, 3))
        norm = torch.linalg.vector_norm(y, dim=(0, 2, 3))
    else:
        maximum, square, count = fused.run(kernels.rectified_range, view.of(y))
        norm = square.sqrt()
    rms = norm / count.clamp(min=1).to(norm.dtype).sqrt()
    # the squares of a tiny channel may vanish, and its step: neither may divide by zero
    top = torch.where(rms > 0, torch.minimum(maximum, SPREAD[bits] * rms), maximum)
    step = (top / levels).clamp_(min=torch.finfo(y.dtype).tiny)
    if view is not None:
        packed = fused.run(kernels.encode_rectified, view.of(y), view.vector(step), bits=bits).view(-1)
        return Handle(RangeCode(bits, layout, rectified_input=True), (packed, -step / 2, step))
    codes = (y / channelwise(step)).clamp_(max=levels - 0.5).add_(1).to(torch.uint8)
    codes.masked_fill_(y <= 0, 0)
    return Handle(RangeCode(bits, Layout.of(codes), rectified_input=True), (pack(codes, bits), -step / 2, step))


def encode_signed(x: Tensor, bits: int) -> Handle:
    """Code ``x`` (N, C, H, W) on 2**bits bins between the channel's bounds, cut at SPREAD about its mean."""
    deviation, mean = torch.std_mean(x, dim=(0, 2, 3), correction=0)
    low = torch.maximum(x.amin(dim=(0, 2, 3)), mean - SPREAD[bits] * deviation)
    high = torch.minimum(x.amax(dim=(0, 2, 3)), mean + SPREAD[bits] * deviation)
    step = (high - low) / 2**bits
    scale = torch.where(step > 0, 1 / step, 0)
    codes = ((x - channelwise(low)) * channelwise(scale)).clamp_(0, 2**bits - 1).to(torch.uint8)
    return Handle(RangeCode(bits, Layout.of(codes), rectified_input=False), (pack(codes, bits), low + step / 2, step))


@dataclass(frozen=True)
class RangeCode(AffineCode):
    """Reads (packed codes, middle of bin 0, step of the channel)."""

    rectified_input: bool

    @property
    def signs_exact(self) -> bool:  # type: ignore[override]
        return self.rectified_input

    def value(self, *tensors: Tensor) -> Tensor:
        packed, first, step = tensors
        return self.decoded(packed, step, first, self._side(step) if self.rectified_input else None)

    def rectify_grad(self, grad: Tensor, *tensors: Tensor) -> Tensor:
        if not self.rectified_input:
            return super().rectify_grad(grad, *tensors)
        return self.gated(grad, tensors[0], self._side(tensors[2]))

    def _side(self, step: Tensor) -> Side:
        return Side(torch.ones_like(step), torch.full_like(step, 0.5))
