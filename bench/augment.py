"""Augmentation of a batch, each image by itself, without a loop. What is drawn depends on the generator alone."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 (N, C, H, W) to float32 with the given mean and standard deviation of each channel, in 0..1 (C,)."""
    shift = torch.tensor(mean, device=images.device).view(-1, 1, 1) * 255
    scale = 1 / (torch.tensor(std, device=images.device).view(-1, 1, 1) * 255)
    return (images - shift).mul_(scale)


def subtract_image_mean(images: Tensor) -> Tensor:
    """uint8 (N, C, H, W) to float32 in 0..1 less each image's mean over all channels (2019, public code)."""
    x = images.float().div_(255)
    return x.sub_(x.mean((1, 2, 3), keepdim=True))


def shift(x: Tensor, pad: int, generator: torch.Generator, flip: bool = False) -> Tensor:
    """Each image of (N, C, H, W) moved by up to ``pad`` pixels in both directions, zeros coming in; with ``flip``,
    mirrored with probability 1/2. The same as a random crop after padding. The result is channels_last."""
    count, _, height, width = x.shape
    down, right = torch.randint(0, 2 * pad + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand((count, 1), generator=generator) < 0.5 if flip else torch.zeros(count, 1, dtype=torch.bool)
    columns = torch.arange(width).expand(count, width)
    columns = torch.where(mirrored, columns.flip(1), columns) + right
    rows = torch.arange(height) + down
    padded = F.pad(x, (pad, pad, pad, pad)).permute(0, 2, 3, 1)
    images = torch.arange(count, device=x.device).view(-1, 1, 1)
    return padded[images, rows.to(x.device)[:, :, None], columns.to(x.device)[:, None, :]].permute(0, 3, 1, 2)


def augment(x: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """By ``kind``: "none", "shift" (up to a sixteenth of the side) or "crop-flip" (up to an eighth: 4 of 32 pixels)."""
    size = min(x.shape[2:])
    match kind:
        case "none":
            return x
        case "shift":
            return shift(x, max(1, size // 16), generator)
        case "crop-flip":
            return shift(x, max(1, size // 8), generator, flip=True)
    raise ValueError(f"augmentation {kind!r} needs each image's file anew; load the data with stream=True")
