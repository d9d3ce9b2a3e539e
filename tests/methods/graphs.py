"""Any model as the reference computes it, and small random nets to compare on."""

import random
import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.methods.reference import Known, Reference


def as_reference(model: nn.Module, reference: Reference) -> nn.Module:
    """``model``, in place, with every convolution, batch norm and ReLU computed by ``reference``."""

    def convolution(layer: Any, x: Tensor) -> Tensor:
        known = what_is_known(x)
        y = reference.conv(known, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        if not x.is_leaf:
            remember(x, known)
        return y.x

    def norm(layer: Any, x: Tensor) -> Tensor:
        ones = torch.ones(layer.num_features, dtype=x.dtype)
        gamma, beta = (layer.weight, layer.bias) if layer.affine else (ones, 0 * ones)
        y = reference.norm(what_is_known(x), gamma, beta, layer.eps)
        return remember(y.x, y)

    def relu(layer: Any, x: Tensor) -> Tensor:
        y = reference.relu(what_is_known(x))
        return remember(y.x, y)

    for layer in model.modules():
        for kind, forward in ((nn.Conv2d, convolution), (nn.BatchNorm2d, norm), (nn.ReLU, relu)):
            if isinstance(layer, kind):
                layer.forward = types.MethodType(forward, layer)  # type: ignore[method-assign]
    return model


def remember(x: Tensor, known: Known) -> Tensor:
    x._known = (known, x._version)  # type: ignore[attr-defined]
    return x


def what_is_known(x: Tensor) -> Known:
    known, version = getattr(x, "_known", (None, -1))
    return known if version == x._version else Known(x)


class Graph(nn.Module):
    """Layers in turn, with sums, concatenations and readers of earlier values in between."""

    def __init__(self, steps: list[tuple[str, Any]], channels: int) -> None:
        super().__init__()
        self.steps, self.channels = [(kind, None if kind == "layer" else key) for kind, key in steps], channels
        self.layers = nn.ModuleList(layer for kind, layer in steps if kind == "layer")

    def forward(self, x: Tensor) -> Tensor:
        layers, saved = iter(self.layers), {}
        for kind, key in self.steps:
            match kind:
                case "layer":
                    x = next(layers)(x)
                case "save":
                    saved[key] = x
                case "swap":
                    x, saved[key] = saved[key], x
                case "add":
                    x = x + saved[key]
                case "add_in_place":
                    x += saved[key]
                case "concatenate":
                    x = torch.cat([x, saved[key]], 1)
                case "functional_relu":
                    x = F.relu(x)
        return x


class Draw:
    """One random net, layer by layer, whose maps are never smaller than ``smallest`` in height or width."""

    KINDS = "conv conv norm norm_relu norm_relu relu save add add_in_place max average swap concatenate functional_relu"

    def __init__(self, random: random.Random, pooling: bool = True, smallest: int = 1) -> None:
        self.random, self.pooling, self.smallest = random, pooling, smallest
        low = 1 if smallest == 1 else 3 * smallest
        self.size = random.randint(low, low + 8), random.randint(low + 1, low + 8)
        self.steps: list[tuple[str, Any]] = []
        self.fresh = False  # nobody has read the value yet, so it may be changed in place
        self.plain = random.random() < 0.2  # norms as they start: no channel is constant, so thresholds may be at 0
        self.channels = self.inputs = random.randint(1, 4)
        self.saved: list[tuple[int, tuple[int, int]]] = []

    def graph(self) -> Graph:
        kinds = self.random.choices(self.KINDS.split(), k=self.random.randint(2, 12))
        start = self.random.randrange(3)  # whatever comes before, every method finds the layers that it needs
        kinds[start:start] = ["conv", "norm_relu", "conv"]
        for kind in kinds:
            getattr(self, kind)()
            if self.size[0] * self.size[1] * self.channels > 1200:
                break
        return Graph(self.steps, self.inputs).double()

    def layer(self, layer: nn.Module, fresh: bool) -> bool:
        """Adds ``layer`` and returns True, unless its map would be too small."""
        try:
            size = layer(torch.zeros(2, self.channels, *self.size)).shape[1:]
        except RuntimeError:
            return False
        if min(size[1:]) < self.smallest:
            return False
        self.channels, self.size, self.fresh = size[0], (size[1], size[2]), fresh
        self.steps.append(("layer", layer))
        return True

    def conv(self) -> None:
        pick = self.random.choice
        groups = pick([g for g in (1, 2, 3, 4) if self.channels % g == 0])
        kernel, stride = (pick([1, 2, 3]), pick([1, 1, 3])), (pick([1, 1, 2]), pick([1, 1, 2]))
        padding, dilation = (pick([0, 1, 2]), pick([0, 1, 2])), (pick([1, 1, 2]), pick([1, 1, 2]))
        out = groups * pick([1, 2])
        layer = nn.Conv2d(self.channels, out, kernel, stride, padding, dilation, groups, bias=pick([True, False]))
        if not self.layer(layer, fresh=True):
            self.layer(nn.Conv2d(self.channels, out, 1), fresh=True)

    def norm(self) -> None:
        pick = self.random.choice
        layer = nn.BatchNorm2d(
            self.channels, pick([1e-5, 1e-3]), pick([0.1, None]), affine=not self.plain or pick([True, False]),
            track_running_stats=pick([True, True, False]),
        )  # fmt: skip
        if not self.plain:
            randomise(layer, self.random)
        self.layer(layer, fresh=True)

    def norm_relu(self) -> None:
        self.norm()
        self.relu()

    def relu(self) -> None:
        self.layer(nn.ReLU(inplace=self.fresh and self.random.random() < 0.5), fresh=False)

    def functional_relu(self) -> None:
        self.steps.append(("functional_relu", None))
        self.fresh = False

    def max(self) -> None:
        if self.pooling:
            kernel = self.random.choice([2, 3])
            layer = nn.MaxPool2d(kernel, self.random.choice([1, 2]), 1, ceil_mode=self.random.random() < 0.5)
            self.layer(layer, fresh=False)

    def average(self) -> None:
        if self.pooling:
            counted, ceil = self.random.random() < 0.5, self.random.random() < 0.5
            self.layer(nn.AvgPool2d(2, self.random.choice([1, 2]), 1, ceil, counted), fresh=False)

    def save(self) -> None:
        self.steps.append(("save", len(self.saved)))
        self.saved.append((self.channels, self.size))
        self.fresh = False

    def add(self, kind: str = "add") -> None:
        fitting = [i for i, value in enumerate(self.saved) if value == (self.channels, self.size)]
        if fitting:
            self.steps.append((kind, self.random.choice(fitting)))
            self.fresh = True

    def add_in_place(self) -> None:
        self.add("add_in_place" if self.fresh else "add")

    def swap(self) -> None:
        if self.saved:
            i = self.random.randrange(len(self.saved))
            self.steps.append(("swap", i))
            (self.channels, self.size), self.saved[i] = self.saved[i], (self.channels, self.size)
            self.fresh = False

    def concatenate(self) -> None:
        fitting = [i for i, (channels, size) in enumerate(self.saved) if size == self.size and channels < 4]
        if fitting and self.channels < 5:
            i = self.random.choice(fitting)
            self.steps.append(("concatenate", i))
            self.channels, self.fresh = self.channels + self.saved[i][0], False


def randomise(norm: nn.BatchNorm2d, random: random.Random) -> None:
    """Gammas of both signs, zero and tiny, and thresholds out to 10 standard deviations.

    Never at 0 deviations: what comes before may be constant, and rounding then has the last word.
    """
    with torch.no_grad():
        for c in range(norm.num_features):
            gamma = random.choice([1, 1, -1, 0.5, -2.0, 0.0, 1e-30, -1e-30, -0.3, 0.01])
            size = abs(gamma) or 1
            norm.weight[c] = gamma
            norm.bias[c] = random.choice([random.gauss(0, 1), 10 * size, -10 * size, size * random.uniform(-3.5, 3.5)])
