"""ReLU: keeps no tensor of its own after a norm, whose handle knows the signs; else one handle of its output."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from methods.codec import Codec
from methods.handles import Handle, Rectified, attach, handle_of
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


class KeptReLU(Kept, nn.ReLU):
    stock = nn.ReLU

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x):
            return super().forward(x)
        source = handle_of(x, self.codec)
        if source is not None and not source.code.signs_exact:
            source = None
        made: list[Handle] = []
        y = _ReLU.apply(x, source, self.codec, self.inplace, made)
        attach(y, made[0], self.codec)
        return y
