"""What all codes have in common: in each channel, code q stands for ``slope * q + offset``."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from methods import fused, kernels
from methods.handles import Code, gate
from methods.packing import Layout, unpack


def channelwise(v: Tensor) -> Tensor:
    return v.view(1, -1, 1, 1)


class Side(NamedTuple):
    """Where a ReLU lets the activation pass: where ``sign * code > threshold``; both of shape (C,)."""

    sign: Tensor
    threshold: Tensor

    def of(self, codes: Tensor) -> Tensor:
        """Above zero where the activation is; overwrites ``codes``."""
        return codes.mul_(channelwise(self.sign)).sub_(channelwise(self.threshold))


@dataclass(frozen=True)
class AffineCode(Code):
    """Codes of ``bits`` for a tensor of maps in ``layout``, packed."""

    bits: int
    layout: Layout

    def codes(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        return unpack(packed, self.bits, self.layout).to(dtype)

    def decoded(self, packed: Tensor, slope: Tensor, offset: Tensor, side: Side | None = None) -> Tensor:
        """``slope * code + offset``, and zero where ``side`` says that a ReLU makes it so."""
        view = fused.view(self.layout, self.bits)
        if view is not None:
            out = self.layout.empty(packed, slope.dtype)
            vectors = map(view.vector, (slope, offset, *(side or (slope, offset))))
            target, gated = view.of(out), side is not None
            fused.run(kernels.decode, view.bytes_of(packed), *vectors, target, bits=self.bits, gate=gated)
            return out
        codes = self.codes(packed, slope.dtype)
        value = torch.addcmul(channelwise(offset), codes, channelwise(slope))
        return value if side is None else gate(value, side.of(codes), out=value)

    def gated(self, grad: Tensor, packed: Tensor, side: Side) -> Tensor:
        """A ReLU's backward."""
        view = fused.view(self.layout, self.bits)
        if view is None:
            return gate(grad, side.of(self.codes(packed, side.sign.dtype)).to(grad.dtype))
        grad = self.layout.dense(grad)
        out = torch.empty_like(grad)
        vectors = map(view.vector, side)
        fused.run(kernels.gate, view.of(grad), view.bytes_of(packed), *vectors, view.of(out), bits=self.bits)
        return out
