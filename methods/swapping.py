"""A method that gives layers other classes, and gives them back."""

from typing import ClassVar

from torch import nn

from methods.base import Method, NotApplicable
from methods.codec import Codec
from methods.rules import Rules
from methods.rules.kept import Kept


class SwappingMethod(Method):
    """Switches every layer that has a rule; the others stay stock, and exact. ``required`` must be among the layers."""

    rules: ClassVar[Rules]
    required: ClassVar[tuple[type[nn.Module], ...]]
    codec: Codec  # set by the subclass, or by its constructor

    def apply(self, model: nn.Module) -> nn.Module:
        ensure_stock(model)
        chosen = [(layer, kept) for layer in model.modules() if (kept := self._rule(layer)) is not None]
        for kind in self.required:
            if not any(isinstance(layer, kind) for layer, _ in chosen):
                raise NotApplicable(
                    f"{self.name} needs {kind.__name__} layers, and {type(model).__name__} has none that it can serve "
                    f"(it knows {', '.join(sorted(rule.__name__ for rule in self.rules))}); "
                    "use 'checkpoint', which needs no particular layer"
                )
        for layer, kept in chosen:
            layer.__dict__["codec"] = self.codec  # past nn.Module's own attributes, which this is none of
            layer.__class__ = kept
        return model

    def remove(self, model: nn.Module) -> nn.Module:
        return restore(model)

    def _rule(self, layer: nn.Module) -> type[Kept] | None:
        kept = self.rules.get(type(layer))
        return kept if kept is not None and kept.serves(layer) else None


def restore(model: nn.Module) -> nn.Module:
    """Give every layer its own class again."""
    for layer in model.modules():
        if isinstance(layer, Kept):
            layer.__dict__.pop("codec", None)
            layer.__class__ = layer.stock  # type: ignore[assignment]
    return model


def ensure_stock(model: nn.Module) -> None:
    """Raise NotApplicable where a method is on the model already, or timm's own recomputation."""
    if any(isinstance(layer, Kept) for layer in model.modules()):
        raise NotApplicable("a method is applied to this model already; call its remove(model) first")
    if any(getattr(layer, "grad_checkpointing", False) for layer in model.modules()):
        raise NotApplicable(
            "this model recomputes its blocks already, and every norm would count each batch twice; "
            "call model.set_grad_checkpointing(False) first"
        )
