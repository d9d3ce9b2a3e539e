"""One training step, as the measures of memory, time and gradients run it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def forward(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy averaged over the batch."""
    return F.cross_entropy(model(images), labels)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """Gradients are dropped first, so that each step allocates its own."""
    optimizer.zero_grad(set_to_none=True)
    forward(model, images, labels).backward()
    optimizer.step()
