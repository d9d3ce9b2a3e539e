"""What the layers that a method switches have in common: the stock class they stand for and the method's codec."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from methods.codec import Codec


class Kept(nn.Module):
    """A stock layer that keeps for backward what ``codec`` says. Made by assigning ``__class__``, never constructed.

    So parameters, buffers, hooks and train/eval state are untouched, and ``copy.deepcopy`` and pickle work.
    """

    stock: ClassVar[type[nn.Module]]
    codec: Codec

    @classmethod
    def serves(cls, module: nn.Module) -> bool:
        """Whether the layer's settings are among those that this class computes."""
        return True

    def keeps(self, x: Tensor, *parameters: Tensor | None) -> bool:
        """Whether a backward pass in training may come, for a batch of maps ``x`` (N, C, H, W) that is not empty.

        Else the stock forward runs: evaluation is stock, and exact.
        """
        wanted = any(t is not None and t.requires_grad for t in (x, *parameters))
        return self.training and torch.is_grad_enabled() and wanted and x.ndim == 4 and x.numel() > 0
