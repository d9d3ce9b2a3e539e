"""What the backward pass is given to know of an activation.

A handle is a ``Code`` (how to read it, static) and the tensors it reads, which a reader keeps through
``save_for_backward``: they die with the graph, and an in-place change of one of them raises. A handle is stored (a
codec made it) or derived from another one, and then costs no bytes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_ATTRIBUTE = "_kept_handle"


def gate(x: Tensor, side: Tensor, out: Tensor | None = None) -> Tensor:
    """``x`` where ``side`` is above zero, else 0: ReLU's own backward, one vectorised pass. ``out`` may be ``x``."""
    if out is None:
        return torch.ops.aten.threshold_backward(x, side, 0)
    return torch.ops.aten.threshold_backward.grad_input(x, side, 0, grad_input=out)


class Code(ABC):
    """Reads an activation from the tensors of its handle. Instances hold no tensor and are immutable."""

    readable: bool = True  # False: it knows the signs alone
    gates: bool = False  # True: a norm's code whose ``gated_norm_backward`` does a ReLU's backward as well
    signs_exact: bool = False  # True: ``rectified`` and ``rectify_grad`` are zero exactly where the ReLU is

    @abstractmethod
    def value(self, *tensors: Tensor) -> Tensor:
        """The activation, exact or approximate."""

    def rectified(self, *tensors: Tensor) -> Tensor:
        """relu of the activation."""
        return self.value(*tensors).relu()

    def rectify_grad(self, grad: Tensor, *tensors: Tensor) -> Tensor:
        """The gradient before a ReLU of the activation, from the one after it."""
        return gate(grad, self.value(*tensors))


class Handle(NamedTuple):
    code: Code
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Stored(Code):
    """The activation itself."""

    signs_exact = True

    def value(self, *tensors: Tensor) -> Tensor:
        return tensors[0]


def stored(x: Tensor) -> Handle:
    # detach: the alias shares the version counter, and a tensor that held itself would be freed by the garbage
    # collector alone
    return Handle(Stored(), (x.detach(),))


@dataclass(frozen=True)
class Rectified(Code):
    """relu of the activation of another code, read from that code's tensors."""

    source: Code
    signs_exact = True

    @property
    def readable(self) -> bool:  # type: ignore[override]
        return self.source.readable

    def value(self, *tensors: Tensor) -> Tensor:
        return self.source.rectified(*tensors)

    def rectify_grad(self, grad: Tensor, *tensors: Tensor) -> Tensor:
        return self.source.rectify_grad(grad, *tensors)


class Ticket:
    """Hands the gradient behind a ReLU to the norm before it, within one backward pass.

    A token, an empty second output of the norm, makes autograd run the norm after the ReLU.
    """

    def __init__(self) -> None:
        self.task = -1
        self.grad: Tensor | None = None

    def put(self, grad: Tensor) -> None:
        task = torch._C._current_graph_task_id()
        # of an earlier pass that never came to the norm nothing must be left
        self.grad = self.grad + grad if self.task == task and self.grad is not None else grad
        self.task = task

    def take(self) -> Tensor | None:
        grad = self.grad if self.task == torch._C._current_graph_task_id() else None
        self.grad = None
        return grad


def attach(x: Tensor, handle: Handle, codec: object, ticket: tuple[Tensor, Ticket] | None = None) -> None:
    """Let later readers of ``x`` under the same codec find ``handle``, until ``x`` is changed in place."""
    setattr(x, _ATTRIBUTE, (handle, codec, x._version, ticket))


def handle_of(x: Tensor, codec: object) -> Handle | None:
    """The handle that ``codec`` has given ``x``, or None where there is none or ``x`` has changed since."""
    handle, maker, version, _ = getattr(x, _ATTRIBUTE, (None, None, -1, None))
    return handle if version == x._version and maker == codec else None


def ticket_of(x: Tensor) -> tuple[Tensor, Ticket] | None:
    """(token, ticket) of ``x``, whose handle is valid; None where it has none or somebody watches its gradient."""
    handle, _, _, ticket = getattr(x, _ATTRIBUTE)
    return ticket if handle.code.gates and not x._backward_hooks and not x.retains_grad else None
