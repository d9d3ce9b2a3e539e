"""Pooling: average pooling keeps nothing but a shape, max pooling one byte an output."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from methods.rules.kept import Kept


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def suggested_format(x: Tensor) -> torch.memory_format:
    last = x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _shape_only(grad: Tensor, ctx: Any) -> Tensor:
    """Stands for the forward's input, of which pooling's backward reads the shape and the memory format alone."""
    return torch.empty(ctx.shape, dtype=grad.dtype, device=grad.device, memory_format=ctx.format)


class _AvgPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, settings: tuple[Any, ...]) -> Tensor:
        ctx.settings, ctx.shape, ctx.format = settings, x.shape, suggested_format(x)
        return F.avg_pool2d(x, *settings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x = _shape_only(grad, ctx)
        kernel, stride, *rest = ctx.settings
        return torch.ops.aten.avg_pool2d_backward(grad, x, pair(kernel), pair(stride), pair(rest[0]), *rest[1:]), None


class KeptAvgPool2d(Kept, nn.AvgPool2d):
    stock = nn.AvgPool2d

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x):
            return super().forward(x)
        window = (self.kernel_size, self.stride, self.padding)
        return _AvgPool.apply(x, (*window, self.ceil_mode, self.count_include_pad, self.divisor_override))


class _MaxPool(torch.autograd.Function):
    """Keeps which element of its window each output is: stock keeps that as int64, and the input for its shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, settings: tuple[Any, ...]) -> Tensor:
        y, index = F.max_pool2d(x, *settings, return_indices=True)
        ctx.settings, ctx.shape, ctx.format = settings, x.shape, suggested_format(x)
        rows, columns, width = _corners(y, settings)
        offset = (index // x.shape[3] - rows).mul_(width).add_(index % x.shape[3]).sub_(columns)
        ctx.save_for_backward(offset.to(torch.uint8))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (offset,) = ctx.saved_tensors
        kernel, stride, padding, dilation, ceil = ctx.settings
        rows, columns, width = _corners(offset, ctx.settings)
        index = (offset // width).long().add_(rows).mul_(ctx.shape[3])
        index += (offset % width).long().add_(columns)
        x = _shape_only(grad, ctx)
        return torch.ops.aten.max_pool2d_with_indices_backward(
            grad, x, pair(kernel), pair(stride), pair(padding), pair(dilation), ceil, index
        ), None


def _corners(y: Tensor, settings: tuple[Any, ...]) -> tuple[Tensor, Tensor, int]:
    """(row, column) of each window's first element, and the window's width."""
    kernel, stride, padding, *_ = settings
    (down, across), (above, left) = pair(stride), pair(padding)
    rows = torch.arange(y.shape[2], device=y.device).view(-1, 1) * down - above
    columns = torch.arange(y.shape[3], device=y.device) * across - left
    return rows, columns, pair(kernel)[1]


class KeptMaxPool2d(Kept, nn.MaxPool2d):
    stock = nn.MaxPool2d

    @classmethod
    def serves(cls, module: nn.Module) -> bool:
        if not isinstance(module, nn.MaxPool2d) or module.return_indices or pair(module.dilation) != (1, 1):
            return False  # dilated windows may lie wholly in the padding, where no offset says which index is meant
        height, width = pair(module.kernel_size)
        return height * width <= 256  # an element's number in its window fits a byte

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x):
            return super().forward(x)
        return _MaxPool.apply(x, (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode))
