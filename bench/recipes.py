"""How a net is trained, as literals: the papers' settings with their source, and short ones for a laptop."""

from dataclasses import dataclass
from typing import Literal

PUBLIC_2019 = "Chakrabarti & Moseley 2019, public code ayanc/blpa at d186457"
PUBLIC_2024 = "Barley & Froening 2024, public code danielbarley/cnn_mean_compression at 52b4ce3"


@dataclass(frozen=True)
class Steps:
    """Piecewise constant: (from which step or epoch on, learning rate), ascending, the first from 0 on."""

    rates: tuple[tuple[int, float], ...]
    unit: Literal["step", "epoch"] = "step"

    def at(self, step: int, total: int, per_epoch: int) -> float:
        now = step if self.unit == "step" else step // per_epoch
        return next(rate for start, rate in reversed(self.rates) if start <= now)


@dataclass(frozen=True)
class WarmupLinear:
    """Rises linearly to ``peak`` within the first ``warmup`` of all steps, then falls linearly to zero."""

    peak: float
    warmup: float = 0.2

    def at(self, step: int, total: int, per_epoch: int) -> float:
        rising = max(1.0, self.warmup * total)
        return self.peak * min((step + 1) / rising, (total - step) / max(1.0, total - rising + 1))


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum on softmax cross-entropy. Either ``steps`` or ``epochs`` is given, the other is 0."""

    name: str
    source: str
    batch: int
    schedule: Steps | WarmupLinear
    steps: int = 0
    epochs: int = 0
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    decayed: Literal["kernels", "all"] = "kernels"  # kernels: no biases, no norms
    augmentation: Literal["none", "shift", "crop-flip", "scale-crop-colour", "rand-augment"] = "none"
    normalisation: Literal["channel", "image-mean"] = "channel"
    label_smoothing: float = 0.0
    eval_every: int = 0  # steps between evaluations, 0: after the last step alone
    test_crop: float = 1.0  # side of the centre crop over the short side; streamed images alone
    memory_format: Literal["channels_last", "contiguous_format"] = "channels_last"

    def __post_init__(self) -> None:
        if (self.steps > 0) == (self.epochs > 0):
            raise ValueError(f"recipe {self.name!r} needs either steps or epochs, has {self.steps} and {self.epochs}")

    @property
    def streams(self) -> bool:
        """Whether it changes each image before it is cut to size, so that the data must be loaded with stream=True."""
        return self.augmentation in ("scale-crop-colour", "rand-augment")

    def total_steps(self, train_images: int) -> int:
        return self.steps or self.epochs * self.steps_per_epoch(train_images)

    def steps_per_epoch(self, train_images: int) -> int:
        """Whole batches in the training images. Raises ValueError where there is none."""
        if train_images < self.batch:
            raise ValueError(f"{train_images} training images make no batch of {self.batch}; lower the batch")
        return train_images // self.batch


_RECIPES = (
    Recipe(
        name="paper2019-cifar",
        source=PUBLIC_2019,
        batch=128,
        # the low first rate lets the 164 layers start
        schedule=Steps(((0, 0.01), (400, 0.1), (32_000, 0.01), (48_000, 0.001))),
        steps=64_000,
        weight_decay=2e-4,
        augmentation="crop-flip",
        normalisation="image-mean",
        eval_every=1_600,
    ),
    Recipe(
        name="paper2019-imagenet",
        # one centre crop at scale 256 is evaluated, where the paper sums ten
        source=PUBLIC_2019,
        batch=256,
        schedule=Steps(((0, 0.1), (160_000, 0.01), (320_000, 0.001), (480_000, 0.0001))),
        steps=640_000,
        weight_decay=1e-4,
        augmentation="scale-crop-colour",
        eval_every=20_000,
        test_crop=224 / 256,
    ),
    Recipe(
        name="paper2024",
        source=PUBLIC_2024 + "; Nesterov momentum is timm's meaning of 'sgd' (unverified)",
        batch=64,
        schedule=Steps(((0, 0.1), (30, 0.01), (60, 0.001)), unit="epoch"),
        epochs=90,
        nesterov=True,
        weight_decay=1e-4,
        augmentation="rand-augment",
        eval_every=20_000,
        test_crop=0.9,
    ),
    Recipe(
        name="laptop-digits",
        source="chosen here",
        batch=64,
        schedule=WarmupLinear(0.1),
        steps=90,
        weight_decay=5e-4,
        augmentation="shift",
        eval_every=30,
    ),
    Recipe(
        name="laptop-cifar10",
        # many small steps, and no augmentation for little more than one epoch
        source="chosen here",
        batch=32,
        schedule=WarmupLinear(0.15, warmup=0.3),
        steps=900,
        weight_decay=5e-4,
        eval_every=450,
    ),
    Recipe(
        name="laptop-cifar100",
        # shows that a stock timm net runs: it learns, and is far from done
        source="chosen here",
        batch=64,
        schedule=WarmupLinear(0.1),
        steps=150,
        nesterov=True,
        weight_decay=5e-4,
        augmentation="crop-flip",
        eval_every=75,
    ),
    Recipe(
        name="laptop-imagenet",
        # as laptop-cifar100
        source="chosen here",
        batch=32,
        schedule=WarmupLinear(0.1),
        steps=100,
        nesterov=True,
        weight_decay=5e-4,
        augmentation="crop-flip",
        eval_every=50,
    ),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}
