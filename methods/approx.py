"""Backprop with approximate activations (Chakrabarti & Moseley 2019), on any net of norms, ReLUs and convolutions."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from methods import normcode, rangecode
from methods.codec import Codec, Normed
from methods.handles import Handle, stored
from methods.rules import NORMS, OPERANDS, POOLS
from methods.swapping import SwappingMethod


@dataclass(frozen=True)
class Quantised(Codec):
    """Codes of ``bits`` (2, 4 or 8) for everything but the network's input, which is alive anyway."""

    bits: int
    feeds_forward: bool = False

    def norm(self, normed: Normed) -> Handle:
        return normcode.encode(*normed[:6], self.bits)

    def rectified(self, y: Tensor) -> Handle:
        return rangecode.encode_rectified(y, self.bits)

    def operand(self, x: Tensor, leaf: bool) -> Handle:
        return stored(x) if leaf else rangecode.encode_signed(x, self.bits)


class Approx(SwappingMethod):
    """Exact forward; the backward pass reads ``bits``-bit codes of the batch norms' inputs."""

    citation = "Chakrabarti & Moseley, Backprop with Approximate Activations, NeurIPS 2019, arXiv 1901.07988"
    exactness: Literal["exact", "approximate"] = "approximate"
    rules = OPERANDS | NORMS | POOLS
    required = (nn.BatchNorm2d, nn.ReLU, nn.Conv2d)

    def __init__(self, bits: int) -> None:
        if bits not in (2, 4, 8):
            raise ValueError(f"bits must be 2, 4 or 8, not {bits}: codes are packed into whole bytes")
        self.name = f"approx{bits}"
        self.codec = Quantised(bits)
