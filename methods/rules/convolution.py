"""Convolution: keeps the handle of its input; the input's gradient is exact, the weight's reads the handle."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from methods.codec import operand_handle
from methods.handles import Handle
from methods.rules.kept import Kept


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        handle: Handle | None,
        feeds_forward: bool,
        geometry: tuple[Any, ...],
    ) -> Tensor:
        ctx.code, kept = handle if handle is not None else (None, ())
        ctx.save_for_backward(weight, *kept)
        ctx.geometry, ctx.shape, ctx.biased = geometry, x.shape, bias is not None
        if handle is not None and feeds_forward:
            x = handle.code.value(*handle.tensors).to(x.dtype)
        return F.conv2d(x, weight, bias, *geometry)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, *kept = ctx.saved_tensors
        # the input's gradient needs the input's shape alone
        x = grad.new_empty(1).expand(ctx.shape) if ctx.code is None else ctx.code.value(*kept)
        x, weight = x.to(grad.dtype), weight.to(grad.dtype)  # under autocast the forward's copies are gone
        stride, padding, dilation, groups = ctx.geometry
        sizes = [weight.shape[0]] if ctx.biased else None
        grads = torch.ops.aten.convolution_backward(
            grad, x, weight, sizes, stride, padding, dilation, False, [0, 0], groups, list(ctx.needs_input_grad[:3])
        )
        return *grads, None, None, None


class KeptConv2d(Kept, nn.Conv2d):
    stock = nn.Conv2d

    @classmethod
    def serves(cls, module: nn.Module) -> bool:
        return isinstance(module, nn.Conv2d) and module.padding_mode == "zeros" and not isinstance(module.padding, str)

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x, self.weight):
            return super().forward(x)
        handle = operand_handle(self.codec, x) if self.weight.requires_grad else None
        geometry = (self.stride, self.padding, self.dilation, self.groups)
        return _Convolution.apply(x, self.weight, self.bias, handle, self.codec.feeds_forward, geometry)
