"""The training loop of every accuracy cell. Weights, batches and augmentation follow from the seed alone."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np
import timm
import torch
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import bench.models  # noqa: F401  # registers the 2019 paper's networks with timm
from bench.data import Dataset
from bench.recipes import Recipe
from bench.streaming import Streamed
from results.schema import Point, TrainResult

POINTS = 50  # of a curve

Progress = Callable[[Iterable[int]], Iterable[int]]


def bar(label: str) -> Progress:
    """For ``train``: a progress bar on stderr with rate and time left."""
    return partial(tqdm, desc=label, unit=" steps", mininterval=0.5, dynamic_ncols=True)


def seed_everything(seed: int) -> None:
    """Seed torch on all devices, numpy and random, from which initial weights and dropout are drawn."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def check_model(name: str) -> None:
    """Raise ValueError with the closest known name where timm has no model ``name``."""
    if not timm.is_model(name.split(".")[0]):
        close = get_close_matches(name, timm.list_models(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"timm has no model {name!r}{hint} (timm.list_models() names them all)")


def build(
    name: str, dataset: Dataset | Streamed, seed: int, memory_format: torch.memory_format = torch.channels_last
) -> nn.Module:
    """timm's model ``name`` for the dataset's classes and channels; the same weights for the same seed.

    Raises ValueError with the closest known name where timm has no such model.
    """
    check_model(name)
    settings = timm.get_pretrained_cfg(name, allow_unregistered=True)
    options: dict[str, Any] = (
        {"img_size": dataset.image_size} if settings is not None and settings.fixed_input_size else {}
    )
    seed_everything(seed)
    model = timm.create_model(name, num_classes=len(dataset.classes), in_chans=dataset.channels, **options)
    return model.to(memory_format=memory_format)


def batches(
    dataset: Dataset | Streamed, recipe: Recipe, seed: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Training batches on ``device`` without end, one shuffled epoch after the other: what ``train`` sees."""
    dataset, generator = dataset.to(device), torch.Generator().manual_seed(seed)
    while True:
        yield from dataset.train_epoch(recipe, generator)


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """The recipe's SGD at its first learning rate."""
    decay = recipe.weight_decay
    groups = param_groups_weight_decay(model, decay) if recipe.decayed == "kernels" else model.parameters()
    return torch.optim.SGD(groups, lr=1.0, momentum=recipe.momentum, nesterov=recipe.nesterov, weight_decay=decay)


@torch.no_grad()
def evaluate(model: nn.Module, dataset: Dataset | Streamed, recipe: Recipe) -> tuple[float, float]:
    """(mean cross-entropy, top-1 accuracy in percent) on the held-out images, by running statistics."""
    was_training = model.training
    model.eval()
    loss, correct, count = 0.0, 0, 0
    for x, labels in dataset.test_batches(recipe):
        logits = model(x)
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        correct += int((logits.argmax(1) == labels).sum())
        count += len(labels)
    model.train(was_training)
    return loss / count, 100 * correct / count


class _Stopwatch:
    """Seconds between starts and stops, with the device's queue drained at both."""

    def __init__(self, device: torch.device | str) -> None:
        self.cuda, self.seconds, self.since = torch.device(device).type == "cuda", 0.0, 0.0

    def _now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def start(self) -> None:
        self.since = self._now()

    def stop(self) -> None:
        self.seconds += self._now() - self.since


def train(
    model: nn.Module,
    dataset: Dataset | Streamed,
    recipe: Recipe,
    seed: int,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> TrainResult:
    """Train ``model`` in place and say how it went. A run that diverges goes on and is recorded as it is.

    ``seconds`` holds all of the steps, the making of their batches too, and no evaluation. ``progress`` wraps the
    steps, as ``bar("...")`` does.
    """
    seed_everything(seed)
    dataset, model = dataset.to(device), model.to(device).train()
    total, per_epoch = recipe.total_steps(dataset.train_count), recipe.steps_per_epoch(dataset.train_count)
    every = -(-total // POINTS)
    evaluated = -(-recipe.eval_every // every) * every or total
    optimizer, losses = make_optimizer(model, recipe), torch.empty(total, device=device)
    curve: list[Point] = []
    watch = _Stopwatch(device)
    watch.start()
    steps = range(total) if progress is None else progress(range(total))
    for step, (x, labels) in zip(steps, batches(dataset, recipe, seed, device), strict=False):
        rate = recipe.schedule.at(step, total, per_epoch)
        losses[step] = _update(model, optimizer, x, labels, rate, recipe.label_smoothing)
        done = step + 1
        if done % every == 0 or done == total:
            watch.stop()
            outcome = evaluate(model, dataset, recipe) if done % evaluated == 0 or done == total else (None, None)
            mean = float(losses[(step // every) * every : done].mean())
            curve.append(
                Point(
                    step=done, epoch=done / per_epoch, train_loss=mean, test_loss=outcome[0], test_accuracy=outcome[1]
                )
            )
            watch.start()
    last = curve[-1]
    assert last.test_loss is not None and last.test_accuracy is not None
    return TrainResult(
        test_accuracy=last.test_accuracy,
        test_loss=last.test_loss,
        train_loss=float(losses[-max(1, total // 10) :].mean()),
        steps=total,
        train_images=dataset.train_count,
        test_images=dataset.test_count,
        seconds=watch.seconds,
        images_per_second=total * recipe.batch / watch.seconds,
        curve=tuple(curve),
    )


def _update(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, labels: Tensor, rate: float, smoothing: float
) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(x), labels, label_smoothing=smoothing)
    loss.backward()
    optimizer.step()
    return loss.detach()
