"""ReLU: keeps no tensor of its own after a norm, whose handle knows the signs; else one handle of its output."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from methods.codec import Codec
from methods.handles import Handle, Rectified, Ticket, attach, handle_of, ticket_of
from methods.rules.kept import Kept


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Handle | None, codec: Codec, inplace: bool, made: list[Handle]
    ) -> Tensor:
        y = x.relu_() if inplace else x.relu()
        if inplace:
            ctx.mark_dirty(x)
        handle = codec.rectified(y) if source is None else Handle(Rectified(source.code), source.tensors)
        if codec.feeds_forward:
            y.copy_(handle.code.value(*handle.tensors))
        made.append(handle)
        ctx.code = handle.code
        ctx.save_for_backward(*handle.tensors)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.code.rectify_grad(grad, *ctx.saved_tensors), None, None, None, None


class _NormedReLU(torch.autograd.Function):
    """A ReLU right after a norm: gives the gradient as it is to the norm, whose backward does both in one pass."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, token: Tensor, ticket: Ticket, inplace: bool) -> Tensor:
        ctx.ticket = ticket
        if not inplace:
            return y.relu()
        ctx.mark_dirty(y)
        return y.relu_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.ticket.put(grad)
        return None, grad.new_zeros(0), None, None


class KeptReLU(Kept, nn.ReLU):
    stock = nn.ReLU

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x):
            return super().forward(x)
        source = handle_of(x, self.codec)
        if source is not None and not source.code.signs_exact:
            source = None
        if source is not None and not self.codec.feeds_forward and (ticket := ticket_of(x)) is not None:
            y = _NormedReLU.apply(x, *ticket, self.inplace)
            attach(y, Handle(Rectified(source.code), source.tensors), self.codec)
            return y
        made: list[Handle] = []
        y = _ReLU.apply(x, source, self.codec, self.inplace, made)
        attach(y, made[0], self.codec)
        return y
