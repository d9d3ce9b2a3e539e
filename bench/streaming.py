"""Images that stay on disk: ImageNet at full size. Each image's augmentation has a seed of its own."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from timm.data import create_transform
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from bench.imagefiles import Sample, open_rgb
from bench.recipes import Recipe

_BICUBIC = v2.InterpolationMode.BICUBIC


def _tensor() -> list[v2.Transform]:
    return [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD),
    ]


def train_transform(augmentation: str, size: int) -> Callable[..., Tensor]:
    """From an RGB image to a normalised float32 tensor (3, size, size)."""
    cut = [v2.RandomCrop(size, pad_if_needed=True), v2.RandomHorizontalFlip()]
    match augmentation:
        case "rand-augment":
            # the public code's command lines (Barley & Froening 2024)
            return create_transform(
                size, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", color_jitter=0.3, re_prob=0.25,
                re_mode="pixel", interpolation="bicubic",
            )  # fmt: skip
        case "scale-crop-colour":
            # 256..480 for 224 (Chakrabarti & Moseley 2019, public code)
            scale = v2.RandomResize(size * 8 // 7, size * 15 // 7 + 1, interpolation=_BICUBIC)
            colour = v2.ColorJitter(brightness=32 / 255, contrast=0.5, saturation=0.5, hue=0.2)
            return v2.Compose([scale, *cut, colour, *_tensor()])
        case "crop-flip":
            return v2.Compose([v2.Resize(size * 9 // 8, _BICUBIC), *cut, *_tensor()])
    return test_transform(1.0, size)


def test_transform(crop: float, size: int) -> Callable[..., Tensor]:
    """The centre (3, size, size) of the image whose short side was scaled to ``size / crop``, normalised."""
    return v2.Compose([v2.Resize(round(size / crop), _BICUBIC), v2.CenterCrop(size), *_tensor()])


class _Files(TorchDataset[tuple[Tensor, int]]):
    """Indexed by (number, seed), so that an image does not depend on the worker that makes it."""

    def __init__(self, samples: tuple[Sample, ...], transform: Callable[..., Tensor]) -> None:
        self.samples, self.transform = samples, transform

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, int]:
        number, seed = item
        path, label = self.samples[number]
        image = open_rgb(path)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)  # timm's RandAugment draws from these two
            np.random.seed(seed)
            return self.transform(image), label


@dataclass(frozen=True)
class Streamed:
    """What ``Dataset`` offers for training, with every batch decoded anew. Normalised by ImageNet's constants."""

    name: str
    train_samples: tuple[Sample, ...]
    test_samples: tuple[Sample, ...]
    classes: tuple[str, ...]
    image_size: int
    hash: str  # over names, labels, sizes and times of the files, not over their pixels
    device: str = "cpu"
    workers: int = min(8, len(os.sched_getaffinity(0)))
    mean: tuple[float, ...] = IMAGENET_DEFAULT_MEAN
    std: tuple[float, ...] = IMAGENET_DEFAULT_STD
    channels: int = 3

    @property
    def train_count(self) -> int:
        return len(self.train_samples)

    @property
    def test_count(self) -> int:
        return len(self.test_samples)

    def to(self, device: torch.device | str) -> "Streamed":
        """The same data, its batches on ``device``."""
        return replace(self, device=str(device))

    def train_epoch(self, recipe: Recipe, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """All whole batches in a new order: float32 (batch, 3, size, size) and labels."""
        order = torch.randperm(self.train_count, generator=generator)
        seeds = torch.randint(2**32, (self.train_count,), generator=generator)
        whole = recipe.steps_per_epoch(self.train_count) * recipe.batch
        items = list(zip(order[:whole].tolist(), seeds[:whole].tolist(), strict=True))
        files = _Files(self.train_samples, train_transform(recipe.augmentation, self.image_size))
        return self._load(files, items, recipe.batch, recipe)

    def test_batches(self, recipe: Recipe, batch: int = 250) -> Iterator[tuple[Tensor, Tensor]]:
        """The held-out images in order and their labels."""
        files = _Files(self.test_samples, test_transform(recipe.test_crop, self.image_size))
        return self._load(files, [(number, 0) for number in range(self.test_count)], batch, recipe)

    def _load(
        self, files: _Files, items: list[tuple[int, int]], batch: int, recipe: Recipe
    ) -> Iterator[tuple[Tensor, Tensor]]:
        batches = [items[start : start + batch] for start in range(0, len(items), batch)]
        loader = DataLoader(
            files,
            batch_sampler=batches,
            num_workers=self.workers,
            pin_memory=self.device.startswith("cuda"),
            generator=torch.Generator(),  # else it draws from the global one, which may be the model's dropout's
        )
        for x, labels in loader:
            x = x.to(self.device, non_blocking=True, memory_format=getattr(torch, recipe.memory_format))
            yield x, labels.to(self.device, non_blocking=True)
