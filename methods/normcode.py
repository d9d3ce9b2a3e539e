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

from methods import fused, kernels
from methods.affine import AffineCode, Side, channelwise
from methods.handles import Handle
from methods.packing import Layout, pack

SIGMAS = 3.0


class Grid(NamedTuple):
    """Bins of each channel, in standard deviations of the normalised input; each field has shape (C,)."""

    origin: Tensor  # lower edge of bin 0
    step: Tensor
    edge: Tensor  # number of the bin whose lower edge is the threshold: 1 .. bins - 1
    threshold: Tensor  # where the norm's output crosses zero; infinite where gamma is 0


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
    return Grid(origin, step, edge, threshold)


def encode(x: Tensor, y: Tensor, mean: Tensor, invstd: Tensor, gamma: Tensor, beta: Tensor, bits: int) -> Handle:
    """Code ``x`` (N, C, H, W), whose norm is ``y``. ``mean``, ``invstd``, ``gamma`` and ``beta`` have shape (C,)."""
    bins = grid(gamma, beta, bits)
    scale = invstd / bins.step
    shift = -mean * scale - bins.origin / bins.step
    layout = Layout.of(x)
    view = fused.view(layout, bits) if Layout.of(y) == layout else None
    if view is None:
        codes = _plain_codes(x, y, scale, shift, bins.edge, gamma < 0, bits)
        packed, layout = pack(codes, bits), Layout.of(codes)
    else:
        vectors = map(view.vector, (scale, shift, *_bounds(bins.edge, gamma < 0, bits)))
        packed = fused.run(kernels.encode_norm, view.of(x), view.of(y), *vectors, bits=bits).view(-1)
    # the grid is kept, 12 bytes a channel: every reader would make it again from gamma and beta
    return Handle(NormCode(bits, layout), (packed, torch.stack(bins[:3]), gamma, beta, invstd))


def _bounds(edge: Tensor, turned: Tensor, bits: int) -> tuple[Tensor, ...]:
    """Lowest and highest code where the norm's output is above zero, and the same where it is not."""
    upper, lower = (edge, torch.full_like(edge, 2**bits - 1)), (torch.zeros_like(edge), edge - 1)
    pairs = [torch.where(turned, b, a) for a, b in zip(upper, lower, strict=True)]
    return *pairs, *(torch.where(turned, a, b) for a, b in zip(upper, lower, strict=True))


def _plain_codes(
    x: Tensor, y: Tensor, scale: Tensor, shift: Tensor, edge: Tensor, turned: Tensor, bits: int
) -> Tensor:
    codes = torch.addcmul(channelwise(shift), x, channelwise(scale)).clamp_(0, 2**bits - 1).to(torch.uint8)
    edge = channelwise(edge.to(torch.uint8))
    # 255 above the threshold, 0 below it: bytes, as torch.where is slow on the CPU
    upper = ((y > 0).view(torch.uint8) ^ channelwise(turned).view(torch.uint8)).neg_()
    codes = torch.maximum(codes, upper & edge)
    return torch.minimum(codes, upper.bitwise_or_(edge - 1), out=codes)


@dataclass(frozen=True)
class NormCode(AffineCode):
    """Reads (packed codes, grid, gamma, beta, 1 / standard deviation). A code stands for the middle of its bin."""

    signs_exact = True

    def _side(self, bins: Tensor, gamma: Tensor) -> Side:
        sign = 1 - 2 * (gamma < 0).to(bins.dtype)
        return Side(sign, (bins[2] - 0.5) * sign)

    def normalised(self, packed: Tensor, bins: Tensor, gamma: Tensor, beta: Tensor, invstd: Tensor) -> Tensor:
        """The decoded normalised input."""
        origin, step, _ = bins
        return self.decoded(packed, step, origin + step / 2)

    def value(self, *tensors: Tensor) -> Tensor:
        return self._output(tensors, rectify=False)

    def rectified(self, *tensors: Tensor) -> Tensor:
        return self._output(tensors, rectify=True)

    def _output(self, tensors: tuple[Tensor, ...], rectify: bool) -> Tensor:
        packed, bins, gamma, beta, _ = tensors
        origin, step, _ = bins
        offset = torch.addcmul(beta, origin + step / 2, gamma)
        return self.decoded(packed, step * gamma, offset, self._side(bins, gamma) if rectify else None)

    def rectify_grad(self, grad: Tensor, *tensors: Tensor) -> Tensor:
        packed, bins, gamma, _, _ = tensors
        return self.gated(grad, packed, self._side(bins, gamma))

    @property
    def gates(self) -> bool:  # type: ignore[override]
        return fused.view(self.layout, self.bits) is not None

    def norm_backward(self, grad: Tensor, tensors: tuple[Tensor, ...], mask: list[bool]) -> tuple[Tensor | None, ...]:
        """Gradients of (input, gamma, beta): exact but for the normalised input, which is decoded."""
        if self.gates:
            return self.gated_norm_backward(grad, tensors, mask, gate=False)
        packed, (origin, step, _), gamma, _, invstd = tensors
        # the stock operator on the codes themselves: (code - mean) * step is the decoded normalised input
        mean, weight = -0.5 - origin / step, gamma * invstd / step
        return torch.ops.aten.native_batch_norm_backward(
            grad.to(step.dtype), self.codes(packed, step.dtype), weight, None, None, mean, step, True, 0.0, mask
        )

    def gated_norm_backward(
        self, grad: Tensor, tensors: tuple[Tensor, ...], mask: list[bool], gate: bool = True
    ) -> tuple[Tensor | None, ...]:
        """As ``norm_backward``, compiled; with ``gate`` from the gradient behind a ReLU that follows the norm."""
        view, grad = fused.view(self.layout, self.bits), self.layout.dense(grad)
        assert view is not None
        packed, bins, gamma, _, invstd = tensors
        origin, step, _ = bins
        first, grads, codes = origin + step / 2, view.of(grad), view.bytes_of(packed)
        side = [view.vector(v) for v in self._side(bins, gamma)]
        vectors = map(view.vector, (step, first))
        total, moment = fused.run(kernels.norm_sums, grads, codes, *vectors, *side, bits=self.bits, gate=gate)
        if not mask[0]:
            return None, moment, total
        weight = gamma * invstd
        mean = weight / (grad.numel() / gamma.numel())
        vectors = map(view.vector, (weight, -mean * step * moment, -mean * (total + first * moment)))
        out = torch.empty_like(grad)
        fused.run(kernels.norm_grad, grads, codes, *vectors, *side, view.of(out), bits=self.bits, gate=gate)
        return out, moment, total
