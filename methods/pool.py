"""Backpropagation with compressed activations (Barley & Froening, 2024): convolutions keep average-pooled inputs."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.codec import Codec, Normed
from methods.handles import Code, Handle, gate
from methods.packing import Layout, pack, unpack
from methods.rules import OPERANDS
from methods.swapping import SwappingMethod


@dataclass(frozen=True)
class Pooled(Code):
    """Reads (block means): every element is the mean of its k x k block."""

    k: int
    height: int
    width: int

    def value(self, *tensors: Tensor) -> Tensor:
        (means,) = tensors
        size = (means.shape[2] * self.k, means.shape[3] * self.k)
        return F.interpolate(means, size=size, mode="nearest")[:, :, : self.height, : self.width]


@dataclass(frozen=True)
class SignMask(Code):
    """Reads (one bit an element): where the activation is above zero, and nothing else."""

    layout: Layout
    readable = False
    signs_exact = True

    def value(self, *tensors: Tensor) -> Tensor:
        raise TypeError("a sign mask does not know the values")

    def rectify_grad(self, grad: Tensor, *tensors: Tensor) -> Tensor:
        return gate(grad, unpack(tensors[0], 1, self.layout).to(grad.dtype))


@dataclass(frozen=True)
class BlockMeans(Codec):
    """Means of k x k blocks for convolutions, sign bits for ReLUs.

    Blocks that the border cuts off average what they have. The published code drops the rows and columns that k does
    not divide, and moves the others by the remainder.
    """

    k: int

    def norm(self, normed: Normed) -> Handle:
        raise TypeError("batch norms stay stock under pooling")

    def rectified(self, y: Tensor) -> Handle:
        signs = (y > 0).to(torch.uint8)
        return Handle(SignMask(Layout.of(signs)), (pack(signs, 1),))

    def operand(self, x: Tensor, leaf: bool) -> Handle:
        means = F.avg_pool2d(x, self.k, ceil_mode=True, count_include_pad=False)
        return Handle(Pooled(self.k, *x.shape[2:]), (means,))


class Pool(SwappingMethod):
    """Exact forward and exact input gradients; weight gradients of convolutions read k x k block means."""

    citation = "Barley & Froening, Backpropagation with Compressed Activations, 2024, arXiv 2409.11902"
    exactness: Literal["exact", "approximate"] = "approximate"
    rules = OPERANDS
    required = (nn.Conv2d, nn.ReLU)

    def __init__(self, k: int) -> None:
        if k < 2:
            raise ValueError(f"the block size k must be 2 or more, not {k}: blocks of one element compress nothing")
        self.name = f"pool{k}"
        self.codec = BlockMeans(k)
