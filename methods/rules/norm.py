"""Batch norm: keeps one handle of its normalised input, which whoever reads its output derives from."""

from typing import Any, ClassVar

import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from methods.codec import Normed
from methods.handles import Handle, Ticket, attach
from methods.rules.kept import Kept


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: "KeptBatchNorm2d", made: list[Handle],
        ticket: Ticket,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        y, mean, invstd = layer.normalise(x)
        gamma = torch.ones_like(mean) if weight is None else weight
        beta = torch.zeros_like(mean) if bias is None else bias
        handle = layer.codec.norm(Normed(x.detach(), y, mean, invstd, gamma.detach(), beta.detach(), layer.eps))
        made.append(handle)
        ctx.code, ctx.ticket = handle.code, ticket
        ctx.save_for_backward(*handle.tensors)
        ctx.set_materialize_grads(False)
        if layer.codec.feeds_forward:
            y = handle.code.value(*handle.tensors).to(y.dtype)
        return y, y.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        kept, code, mask = ctx.saved_tensors, ctx.code, list(ctx.needs_input_grad[:3])
        behind = ctx.ticket.take()
        if behind is not None and grad is not None:
            grad, behind = grad + code.rectify_grad(behind, *kept), None
        if behind is not None:
            grads = code.gated_norm_backward(behind, kept, mask)
        else:
            grads = (None,) * 3 if grad is None else code.norm_backward(grad, kept, mask)
        return *grads, None, None, None


class KeptBatchNorm2d(Kept, nn.BatchNorm2d):
    stock: ClassVar[type[nn.Module]] = nn.BatchNorm2d

    def normalise(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(output, mean, 1 / standard deviation) by the very operator that ``F.batch_norm`` calls; updates the
        running statistics as the stock layer does."""
        factor = 0.0 if self.momentum is None else self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        tracked = self.track_running_stats
        means, variances = (self.running_mean, self.running_var) if tracked else (None, None)
        fast = torch.backends.cudnn.enabled
        y, mean, invstd, *_ = torch._batch_norm_impl_index(
            x, self.weight, self.bias, means, variances, True, factor, self.eps, fast
        )
        return y, mean, invstd

    def kept_forward(self, x: Tensor) -> Tensor:
        F._verify_batch_size(list(x.shape))  # type: ignore[attr-defined]  # the stock layer's own error
        made: list[Handle] = []
        ticket = Ticket()
        y, token = _BatchNorm.apply(x, self.weight, self.bias, self, made, ticket)
        attach(y, made[0], self.codec, (token, ticket))
        return y

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x, self.weight, self.bias):
            return super().forward(x)
        self._check_input_dim(x)
        return self.kept_forward(x)


class KeptBatchNormAct2d(KeptBatchNorm2d, BatchNormAct2d):
    """timm's norm with its activation inside: the activation is a layer of its own and has its own rule."""

    stock: ClassVar[type[nn.Module]] = BatchNormAct2d

    def forward(self, x: Tensor) -> Tensor:
        if not self.keeps(x, self.weight, self.bias):
            return BatchNormAct2d.forward(self, x)
        return self.act(self.drop(self.kept_forward(x)))
