"""Recomputation (Chen et al. 2016): only the inputs of blocks are kept, and each block runs again in backward."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from methods.base import Method, NotApplicable
from methods.rules.kept import Kept
from methods.swapping import ensure_stock, restore


class _OncePerStep(Kept):
    """A batch norm whose running statistics the recomputation leaves alone: they have been updated in the forward."""

    def forward(self, x: Tensor) -> Tensor:
        recomputing = torch._C._current_graph_task_id() != -1  # a forward inside a backward pass
        if not recomputing:
            return super().forward(x)
        updated = dict(self._buffers)
        # copies, not None: the recomputation has to save as many tensors as the forward did
        self._buffers.update({name: b if b is None else b.clone() for name, b in updated.items()})
        try:
            return super().forward(x)
        finally:
            self._buffers.update(updated)


class _BatchNorm1d(_OncePerStep, nn.BatchNorm1d):
    stock = nn.BatchNorm1d


class _BatchNorm2d(_OncePerStep, nn.BatchNorm2d):
    stock = nn.BatchNorm2d


class _BatchNorm3d(_OncePerStep, nn.BatchNorm3d):
    stock = nn.BatchNorm3d


class _BatchNormAct2d(_OncePerStep, BatchNormAct2d):
    stock = BatchNormAct2d


_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    rule.stock: rule for rule in (_BatchNorm1d, _BatchNorm2d, _BatchNorm3d, _BatchNormAct2d)
}


@cache
def _recomputed(block: type[nn.Module]) -> type[Kept]:
    class Recomputed(Kept, block):  # type: ignore[misc, valid-type]
        stock = block

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if not (self.training and torch.is_grad_enabled()):
                return super().forward(*args, **kwargs)
            return checkpoint(super().forward, *args, use_reentrant=False, **kwargs)

        def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
            return _revive, (block,), self.__dict__  # pickle finds no class that was made in a function

    Recomputed.__name__ = f"Recomputed{block.__name__}"
    return Recomputed


def _revive(block: type[nn.Module]) -> nn.Module:
    kept = _recomputed(block)  # type: ignore[arg-type]
    return kept.__new__(kept)


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The innermost repeated parts: children, with children of their own, of Sequentials and ModuleLists."""
    for child in module.children():
        inner = list(blocks(child))
        if inner:
            yield from inner
        elif isinstance(module, nn.Sequential | nn.ModuleList) and any(True for _ in child.children()):
            yield child


class Checkpoint(Method):
    """Exact gradients for one more forward pass. timm's own switch where the model has one, else blocks found."""

    name = "checkpoint"
    citation = "Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, arXiv 1604.06174"
    exactness: Literal["exact", "approximate"] = "exact"

    def apply(self, model: nn.Module) -> nn.Module:
        ensure_stock(model)
        if not self._switch(model, on=True):
            found = list(blocks(model))
            if not found:
                raise NotApplicable(
                    f"{type(model).__name__} has no set_grad_checkpointing and no blocks in an nn.Sequential or "
                    "nn.ModuleList; put its repeated part into one, or use 'lean'"
                )
            for block in found:
                block.__class__ = _recomputed(type(block))  # type: ignore[arg-type]  # classes are hashable
        for layer in model.modules():
            layer.__class__ = _NORMS.get(type(layer), type(layer))
        return model

    def remove(self, model: nn.Module) -> nn.Module:
        self._switch(model, on=False)
        return restore(model)

    @staticmethod
    def _switch(model: nn.Module, on: bool) -> bool:
        switch = getattr(model, "set_grad_checkpointing", None)
        if switch is None:
            return False
        try:
            switch(on)
        except (AssertionError, NotImplementedError):  # timm's way to say that the model does not have it
            return False
        return True
