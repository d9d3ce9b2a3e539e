"""What every method promises, whatever it keeps for the backward pass."""

from abc import ABC, abstractmethod
from typing import Literal

from torch import nn


class NotApplicable(ValueError):
    """The method cannot serve this model; the text says why and what to do instead."""


class Method(ABC):
    """Changes what training keeps in memory, and nothing else.

    After ``apply`` the model has the same Parameter objects, state_dict keys and train/eval state; its outputs in
    training equal the stock model's (``naive`` methods excepted), and evaluation keeps nothing more than stock.
    """

    name: str
    citation: str
    exactness: Literal["exact", "approximate"]
    needs: tuple[str, ...] = ()
    version: int = 1  # raise it when the numbers that the method gives change: records of the old one are void

    @abstractmethod
    def apply(self, model: nn.Module) -> nn.Module:
        """Switch ``model`` to this method, in place, and return it.

        Raises NotApplicable, and then has changed nothing.
        """

    @abstractmethod
    def remove(self, model: nn.Module) -> nn.Module:
        """Give back the stock model, in place, and return it."""
