"""Several small codes in one byte. Code i of one part of the tensor shares a byte with code i of the other parts."""

from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """Shape and strides of a dense tensor, enough to lay a flat run of its elements out again."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, x: Tensor) -> "Layout":
        return cls(tuple(x.shape), tuple(x.stride()))

    def empty(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=dtype, device=like.device)

    def dense(self, x: Tensor) -> Tensor:
        """``x`` in this layout, copied where it has another one."""
        return x if tuple(x.stride()) == self.stride else self.empty(x, x.dtype).copy_(x)


def flat(x: Tensor) -> Tensor:
    """The elements of a dense tensor (no gaps, no overlaps) in memory order, without a copy."""
    return x.as_strided((x.numel(),), (1,))


def pack(codes: Tensor, bits: int) -> Tensor:
    """uint8 codes below ``2**bits`` (any dense shape, bits in 1, 2, 4, 8) as ``ceil(n * bits / 8)`` bytes, 1-D.

    Whole runs are combined, not neighbours: that vectorises, and every element count works.
    """
    codes = flat(codes)
    if bits == 8:
        return codes
    size = -(-codes.numel() * bits // 8)
    packed = codes[:size].clone()
    for part in range(1, 8 // bits):
        run = codes[part * size : (part + 1) * size]
        packed[: run.numel()] |= run << (bits * part)
    return packed


def unpack(packed: Tensor, bits: int, layout: Layout) -> Tensor:
    """The uint8 codes that ``pack`` packed, in ``layout``."""
    codes = layout.empty(packed, torch.uint8)
    run = flat(codes)
    if bits == 8:
        return run.copy_(packed).as_strided(layout.shape, layout.stride)
    size, count, ones = packed.numel(), run.numel(), 2**bits - 1
    for part in range(8 // bits):
        out = run[part * size : (part + 1) * size]
        torch.bitwise_right_shift(packed[: out.numel()], bits * part, out=out)
        out &= ones
        if (part + 1) * size >= count:
            break
    return codes
