"""The elementwise work of the codes: pure functions of tensors, each of which a compiler fuses into one pass.

A tensor of maps is seen in memory order as equal ``parts``, one for each code in a byte: of channels_last maps as
(rows, C) with per-channel vectors of shape (C,), of contiguous ones as (N, C, columns) with vectors of shape (C, 1).
Codes are floats here, below 256 and so exact: the conversions of a byte are the dearest part of a pass.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Parts = Sequence[Tensor]


def unpacked(packed: Tensor, bits: int, dtype: torch.dtype) -> list[Tensor]:
    """The codes of each part, from bytes of any shape."""
    rest, parts = packed.to(dtype), []
    for _ in range(8 // bits - 1):
        above = torch.floor(rest * 2.0**-bits)
        parts.append(rest - above * 2.0**bits)
        rest = above
    return [*parts, rest]


def packed_bytes(codes: Parts, bits: int) -> Tensor:
    """One byte for the codes of all parts at a place."""
    total = codes[-1]
    for code in reversed(codes[:-1]):
        total = total * 2.0**bits + code
    return total.to(torch.uint8)


def encode_norm(
    x: Parts, y: Parts, scale: Tensor, shift: Tensor, low: Tensor, high: Tensor, low_else: Tensor, high_else: Tensor,
    bits: int,
) -> Tensor:  # fmt: skip
    """Bytes of the codes of a norm's input ``x``, whose output is ``y``.

    ``low`` and ``high`` bound the codes where the output is above zero, ``low_else`` and ``high_else`` the others.
    """
    codes = []
    for part, output in zip(x, y, strict=True):
        above = output > 0
        code = torch.maximum(part * scale + shift, torch.where(above, low, low_else))
        codes.append(torch.minimum(code, torch.where(above, high, high_else)).floor())
    return packed_bytes(codes, bits)


def _gated(grads: Parts, codes: Parts, side: Tensor, threshold: Tensor, gate: bool) -> list[Tensor]:
    """The gradients before a ReLU of what the codes stand for; as they are where there is no ReLU."""
    grads = [grad.to(side.dtype) for grad in grads]
    if not gate:
        return grads
    return [torch.where(code * side > threshold, grad, 0) for grad, code in zip(grads, codes, strict=True)]


def norm_sums(
    grads: Parts, packed: Tensor, step: Tensor, first: Tensor, side: Tensor, threshold: Tensor, bits: int, gate: bool
) -> tuple[Tensor, Tensor]:
    """Per channel: sum of the gradient, and of the gradient times the decoded normalised input."""
    codes = unpacked(packed, bits, side.dtype)
    grads = _gated(grads, codes, side, threshold, gate)
    dims = [dim for dim in range(packed.ndim) if dim != 1]
    total, moment = grads[0], grads[0] * (codes[0] * step + first)
    for grad, code in zip(grads[1:], codes[1:], strict=True):
        total = total + grad
        moment = moment + grad * (code * step + first)
    return total.sum(dims), moment.sum(dims)


def norm_grad(
    grads: Parts, packed: Tensor, weight: Tensor, slope: Tensor, offset: Tensor, side: Tensor, threshold: Tensor,
    out: Parts, bits: int, gate: bool,
) -> None:  # fmt: skip
    """``weight * grad + slope * code + offset``, which is a norm's input gradient with the sums folded in."""
    codes = unpacked(packed, bits, side.dtype)
    for grad, code, target in zip(_gated(grads, codes, side, threshold, gate), codes, out, strict=True):
        target.copy_(grad * weight + (code * slope + offset))


def decode(
    packed: Tensor, slope: Tensor, offset: Tensor, side: Tensor, threshold: Tensor, out: Parts, bits: int, gate: bool
) -> None:
    """``slope * code + offset``, and with ``gate`` zero where a ReLU makes it so."""
    for code, target in zip(unpacked(packed, bits, slope.dtype), out, strict=True):
        value = code * slope + offset
        target.copy_(torch.where(code * side > threshold, value, 0) if gate else value)


def gate(grads: Parts, packed: Tensor, side: Tensor, threshold: Tensor, out: Parts, bits: int) -> None:
    """A ReLU's backward."""
    codes = unpacked(packed, bits, side.dtype)
    for grad, target in zip(_gated(grads, codes, side, threshold, True), out, strict=True):
        target.copy_(grad)


def rectified_range(y: Parts) -> tuple[Tensor, Tensor, Tensor]:
    """Per channel of ``y`` >= 0: maximum, sum of squares, how many are positive."""
    dims = [dim for dim in range(y[0].ndim) if dim != 1]
    parts = [part.to(torch.promote_types(part.dtype, torch.float32)) for part in y]
    maximum, square, count = parts[0], parts[0] * parts[0], (parts[0] > 0).to(parts[0].dtype)
    for part in parts[1:]:
        maximum = torch.maximum(maximum, part)
        square = square + part * part
        count = count + (part > 0).to(part.dtype)
    return maximum.amax(dims), square.sum(dims), count.sum(dims)


def encode_rectified(y: Parts, step: Tensor, bits: int) -> Tensor:
    """Bytes of codes: 0 for zero alone, the others from 1 on, ``step`` apart."""
    codes = [torch.where(part > 0, (part / step).clamp(max=2**bits - 1.5).floor() + 1, 0) for part in y]
    return packed_bytes(codes, bits)
