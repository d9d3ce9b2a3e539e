"""Stock autograd."""

from typing import Literal

from torch import nn

from methods.base import Method
from methods.swapping import ensure_stock


class Exact(Method):
    """The model as it is."""

    name = "exact"
    citation = "Paszke et al., PyTorch, NeurIPS 2019, arXiv 1912.01703"
    exactness: Literal["exact", "approximate"] = "exact"

    def apply(self, model: nn.Module) -> nn.Module:
        ensure_stock(model)
        return model

    def remove(self, model: nn.Module) -> nn.Module:
        return model
