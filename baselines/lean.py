"""The exact method of Chakrabarti & Moseley 2019: one full-precision tensor for each norm, ReLU and convolution.

Their code keeps the norm's output and divides by gamma to find the normalised input. Here the norm's input is kept,
which costs the same, has no division, and gives the very output again when the norm is run on it once more.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from methods.approx import Approx
from methods.codec import Codec, Normed
from methods.handles import Code, Handle, stored
from methods.swapping import SwappingMethod


@dataclass(frozen=True)
class NormInput(Code):
    """Reads (norm's input, gamma, beta, mean, 1 / standard deviation)."""

    eps: float
    signs_exact = True

    def value(self, *tensors: Tensor) -> Tensor:
        x, gamma, beta, *_ = tensors
        return torch._batch_norm_impl_index(
            x, gamma, beta, None, None, True, 0.0, self.eps, torch.backends.cudnn.enabled
        )[0]

    def norm_backward(self, grad: Tensor, tensors: tuple[Tensor, ...], mask: list[bool]) -> tuple[Tensor | None, ...]:
        """Gradients of (input, gamma, beta)."""
        x, gamma, _, mean, invstd = tensors
        return torch.ops.aten.native_batch_norm_backward(
            grad, x, gamma, None, None, mean, invstd, True, self.eps, mask
        )


@dataclass(frozen=True)
class Whole(Codec):
    """Every activation that backward needs, once, in full precision."""

    def norm(self, normed: Normed) -> Handle:
        kept = (normed.x, normed.gamma, normed.beta, normed.mean, normed.invstd)
        return Handle(NormInput(normed.eps), kept)

    def rectified(self, y: Tensor) -> Handle:
        return stored(y)

    def operand(self, x: Tensor, leaf: bool) -> Handle:
        return stored(x)


class Lean(SwappingMethod):
    """Exact gradients with half of stock autograd's activations."""

    name = "lean"
    citation = Approx.citation
    exactness: Literal["exact", "approximate"] = "exact"
    rules = Approx.rules
    required = Approx.required
    codec = Whole()
