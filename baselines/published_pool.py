"""What the public code of Barley & Froening 2024 does, for the claim's own baseline.

Stock ReLU, whose kept output the pooled copy does not replace; blocks that k does not divide dropped at the bottom and
right, and zeros put back at the top and left; every convolution pools for itself; a full copy at k = 1.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from methods.base import NotApplicable
from methods.codec import Codec, Normed
from methods.handles import Code, Handle
from methods.pool import Pool
from methods.rules import Rules
from methods.rules.convolution import KeptConv2d
from methods.swapping import SwappingMethod


@dataclass(frozen=True)
class MisalignedMeans(Code):
    """Reads (block means): each repeated k x k, the remainder as zeros above and to the left."""

    k: int
    height: int
    width: int

    def value(self, *tensors: Tensor) -> Tensor:
        repeated = tensors[0].repeat_interleave(self.k, dim=2).repeat_interleave(self.k, dim=3)
        return F.pad(repeated, (self.width - repeated.shape[3], 0, self.height - repeated.shape[2], 0))


@dataclass(frozen=True)
class PublishedMeans(Codec):
    k: int
    shared = False

    def norm(self, normed: Normed) -> Handle:
        raise TypeError("batch norms stay stock under pooling")

    def rectified(self, y: Tensor) -> Handle:
        raise TypeError("ReLUs stay stock in the published code")

    def operand(self, x: Tensor, leaf: bool) -> Handle:
        if min(x.shape[2:]) < self.k:
            raise NotApplicable(
                f"the published pooling finds no {self.k} x {self.k} block in a map of {x.shape[2]} x {x.shape[3]}; "
                f"use larger images, or 'pool{self.k}', which averages what there is"
            )
        return Handle(MisalignedMeans(self.k, *x.shape[2:]), (F.avg_pool2d(x, self.k),))


class PublishedPool(SwappingMethod):
    citation = Pool.citation
    exactness: Literal["exact", "approximate"] = "approximate"
    rules: ClassVar[Rules] = {nn.Conv2d: KeptConv2d}
    required = (nn.Conv2d,)

    def __init__(self, k: int) -> None:
        self.name = f"pool{k}-published"
        self.codec = PublishedMeans(k)
        if k == 1:
            self.exactness = "exact"
