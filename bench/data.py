"""Real images by name: in memory as one uint8 tensor where they fit, subsets balanced over the classes."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bench.augment import augment, normalise, subtract_image_mean
from bench.imagefiles import ImageFolder, Sample, Split, decoded, listing_key, short_side
from bench.recipes import Recipe
from bench.sources import NAMES, find
from bench.streaming import Streamed

RESIDENT_BYTES = 4 * 2**30  # more pixels than this are streamed
SIDES = {"digits": 16, "cifar10": 32, "cifar100": 32}  # digits from 8: strided nets want more
LARGEST_SIDE = 224  # of an image folder, where no size is asked for


@dataclass(frozen=True)
class Dataset:
    """Images uint8 (N, C, H, W), labels int64 (N,), per-channel mean and deviation of the training pixels in 0..1."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    hash: str  # 16 hex digits over the pixels and labels

    @classmethod
    def of(cls, name: str, train: Split, test: Split, classes: tuple[str, ...]) -> "Dataset":
        mean, std = channel_statistics(train.images)
        digest = hashlib.sha256(f"{train.digest} {test.digest}".encode()).hexdigest()[:16]
        return cls(name, train.images, train.labels, test.images, test.labels, classes, mean, std, digest)

    @property
    def train_count(self) -> int:
        return len(self.train_labels)

    @property
    def test_count(self) -> int:
        return len(self.test_labels)

    @property
    def channels(self) -> int:
        return self.train_images.shape[1]

    @property
    def image_size(self) -> int:
        return self.train_images.shape[-1]

    def to(self, device: torch.device | str) -> "Dataset":
        """The same data on ``device``, which is where its batches are made."""
        names = ("train_images", "train_labels", "test_images", "test_labels")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def train_epoch(self, recipe: Recipe, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """All whole batches in a new order: float32 (batch, C, H, W), normalised and augmented, and labels."""
        order = torch.randperm(self.train_count, generator=generator)
        for chosen in order.split(recipe.batch)[: recipe.steps_per_epoch(self.train_count)]:
            chosen = chosen.to(self.train_labels.device)
            x = augment(self._normalised(self.train_images[chosen], recipe), recipe.augmentation, generator)
            yield x.contiguous(memory_format=getattr(torch, recipe.memory_format)), self.train_labels[chosen]

    def test_batches(self, recipe: Recipe, batch: int = 250) -> Iterator[tuple[Tensor, Tensor]]:
        """The held-out images in order, normalised, and their labels."""
        for images, labels in zip(self.test_images.split(batch), self.test_labels.split(batch), strict=True):
            x = self._normalised(images, recipe)
            yield x.contiguous(memory_format=getattr(torch, recipe.memory_format)), labels

    def _normalised(self, images: Tensor, recipe: Recipe) -> Tensor:
        if recipe.normalisation == "image-mean":
            return subtract_image_mean(images)
        return normalise(images, self.mean, self.std)


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, standard deviation) of each channel of uint8 (N, C, H, W), in 0..1; exact, from histograms."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        share = torch.bincount(images[:, channel].flatten(), minlength=256) / images[:, channel].numel()
        mean = (share * values).sum()
        means.append(float(mean))
        # a constant channel has no deviation to divide by
        deviations.append(max(float((share * (values - mean) ** 2).sum().sqrt()), 1 / 255))
    return tuple(means), tuple(deviations)


def balanced(labels: np.ndarray, size: int | None, seed: int) -> np.ndarray:
    """Ascending indices of ``size`` of the samples, drawn by ``seed``, as equal in the classes as these allow.

    A larger subset holds the smaller one of the same seed; where there are no more than ``size`` it is all of them.
    """
    if size is not None and size < 1:
        raise ValueError(f"{size} images asked for; ask for 1 or more, or None for all")
    if size is None or size >= len(labels):
        return np.arange(len(labels))
    random = np.random.default_rng(seed)
    rank = np.empty(len(labels), np.int64)
    count = labels.max() + 1
    for label in range(count):
        members = np.flatnonzero(labels == label)
        rank[members] = random.permutation(len(members))
    return np.sort(np.argsort(rank * count + random.permutation(count)[labels])[:size])


def load(
    name: str,
    root: Path | None = None,
    *,
    train_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    image_size: int | None = None,
    stream: bool | None = None,
) -> Dataset | Streamed:
    """The dataset ``name`` (one of NAMES), from ``root`` or LEAN_DATA where given, else shipped or downloaded.

    ``seed`` draws the balanced subsets of at most ``train_size`` and ``test_size`` images (None: all).
    ``image_size`` in pixels is 16, 32, 32 and for folders the first image's short side, at most 224, where None.
    ``stream`` keeps the images on disk; None does so above RESIDENT_BYTES.

    Raises FileNotFoundError where the data is not found, ValueError where it is not what it should be.
    """
    if name not in NAMES:
        raise ValueError(f"no dataset {name!r}; known datasets: {', '.join(NAMES)}")
    source = find(name, root)
    if isinstance(source, ImageFolder):
        parts = _chosen(source.train, train_size, seed), _chosen(source.test, test_size, seed)
        size = image_size or SIDES.get(name) or min(LARGEST_SIDE, short_side(parts[0][0][0]))
        return _from_files(name, source, *parts, size, stream)
    if stream:
        raise ValueError(f"{name} is not in image files, so it cannot be streamed; choose a recipe for small images")
    size = image_size or SIDES[name]
    train, test = _part(*source.train, train_size, seed, size), _part(*source.test, test_size, seed, size)
    return Dataset.of(name, train, test, source.classes)


def _part(images: Tensor, labels: Tensor, count: int | None, seed: int, size: int) -> Split:
    chosen = balanced(labels.numpy(), count, seed)
    images = images[chosen]
    if images.shape[-1] != size:
        images = F.interpolate(images.float(), (size, size), mode="bilinear", antialias=True).round_().to(torch.uint8)
    return Split.of(images, labels[chosen])


def _chosen(samples: list[Sample], count: int | None, seed: int) -> list[Sample]:
    labels = np.array([label for _, label in samples])
    return [samples[i] for i in balanced(labels, count, seed)]


def _from_files(
    name: str, source: ImageFolder, train: list[Sample], test: list[Sample], size: int, stream: bool | None
) -> Dataset | Streamed:
    if stream is None:
        stream = (len(train) + len(test)) * 3 * size**2 > RESIDENT_BYTES
    if stream:
        key = listing_key(source.folder, train + test, size)[:16]
        return Streamed(name, tuple(train), tuple(test), source.classes, size, key)
    parts = decoded(source.folder, train, size), decoded(source.folder, test, size)
    return Dataset.of(name, *parts, source.classes)
