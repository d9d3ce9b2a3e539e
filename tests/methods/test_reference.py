"""Every method's outputs and gradients equal a slow float64 reference written from the papers' formulas."""

import copy
import random
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import bench.models  # noqa: F401  # registers the papers' nets with timm
from bench.registry import METHODS
from methods import NotApplicable
from tests.methods.graphs import Draw, as_reference, randomise
from tests.methods.reference import REFERENCES

SPECS = pytest.mark.parametrize("spec", METHODS)
GRAPHS = 25
NETS = [
    ("preact_resnet20", 16, {"width": 2}),
    ("preact_resnet11", 13, {"width": 2}),
    ("resnet10t", 32, {"channels": (8, 12, 16, 20), "stem_width": 16}),
]


def run(model: nn.Module, x: Tensor, wanted: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and gradients of a random projection of it, by name."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_(wanted)
    y = model(x)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    (y * direction).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return y.detach(), gradients | ({"the input": x.grad} if wanted else {})


def largest(values: dict[str, Tensor]) -> float:
    return max((v.abs().max().item() for v in values.values()), default=0.0)


def compare(spec: str, model: nn.Module, x: Tensor, wanted: bool = False) -> None:
    """Raises NotApplicable where the method does. Tolerances: 1e-9 of the tensor, 1e-11 of the largest gradient."""
    if not hasattr(model, "set_grad_checkpointing"):
        model = nn.Sequential(model)  # one block, for the method that needs blocks
    reference = as_reference(copy.deepcopy(model), REFERENCES[spec])
    ours, theirs = run(METHODS[spec].apply(copy.deepcopy(model)), x, wanted), run(reference, x, wanted)
    assert ours[1].keys() == theirs[1].keys(), "the method gives gradients to other parameters"
    scale = largest(theirs[1])
    for name, expected in theirs[1].items() | {("the output", theirs[0])}:
        got = ours[0] if name == "the output" else ours[1][name]
        error, size = (got - expected).abs().max().item(), max(expected.abs().max().item(), 1e-2 * scale)
        assert error <= 1e-9 * size, f"{spec}: {name} is {error / size:.1e} of its size away from the formulas"


def randomised(model: nn.Module) -> nn.Module:
    for i, layer in enumerate(model.modules()):
        if isinstance(layer, nn.BatchNorm2d):
            randomise(layer, random.Random(i))
    return model.double()


@SPECS
@pytest.mark.parametrize("seed", range(GRAPHS))
def test_a_random_graph_has_the_outputs_and_gradients_of_the_formulas(spec: str, seed: int) -> None:
    torch.manual_seed(seed)
    smallest = int(spec[4]) if spec.endswith("published") else 1  # that code finds no block in a smaller map
    # naive values lie on lattices: they tie in a pool, and on the edges of the next code, and rounding would decide
    draw = Draw(random.Random(seed), pooling=not spec.startswith("naive"), smallest=smallest)
    height, width = draw.size
    graph = draw.graph()
    x = torch.randn(1 + seed % 3, graph.channels, height, width, dtype=torch.float64)
    if seed % 4 == 0:
        x = x.contiguous(memory_format=torch.channels_last)
    compare(spec, graph, x, wanted=seed % 2 == 0)


@SPECS
@pytest.mark.parametrize(("name", "size", "options"), NETS, ids=[name for name, *_ in NETS])
def test_a_residual_net_has_the_outputs_and_gradients_of_the_formulas(
    spec: str, name: str, size: int, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    naive_stock = spec.startswith("naive") and name.startswith("resnet")
    model = timm.create_model(name, num_classes=3, **options | ({"avg_down": False} if naive_stock else {}))
    if naive_stock:  # pooling off, as above
        model.maxpool = nn.Conv2d(32, 32, 2, 2)
    model = randomised(model)
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    if spec in ("pool2-published", "pool4-published") and name.startswith("resnet"):
        with pytest.raises(NotApplicable, match="finds no . x . block in a map"):
            compare(spec, model, x)
    else:
        compare(spec, model, x)


@pytest.mark.parametrize("spec", ["lean", *(spec for spec, reference in REFERENCES.items() if reference.bits)])
@pytest.mark.parametrize("gamma", [1.0, -1.0, 1e-30, -0.5])
def test_a_norm_has_the_gradients_of_the_formulas_wherever_its_threshold_lies(spec: str, gamma: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 9, 1), nn.BatchNorm2d(9), nn.ReLU(), nn.Conv2d(9, 2, 3)).double()
    deviations = torch.tensor([-10, -3.2, -2.9, -0.4, 0, 0.4, 2.9, 3.2, 10], dtype=torch.float64)
    with torch.no_grad():
        model[1].weight.fill_(gamma)
        model[1].bias.copy_(-deviations * gamma)
    compare(spec, model, torch.randn(2, 2, 5, 4, dtype=torch.float64))


@SPECS
def test_a_first_convolution_reads_the_exact_image_that_wants_a_gradient(spec: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 3)).double()
    x = torch.randn(2, 2, 6, 6, dtype=torch.float64)
    compare(spec, model, x, wanted=True)


@SPECS
def test_relu_after_relu_has_the_gradients_of_the_formulas(spec: str) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.ReLU(), nn.Conv2d(3, 3, 1), nn.ReLU(), nn.ReLU()
    model = nn.Sequential(*layers, nn.Conv2d(3, 2, 3)).double()
    compare(spec, model, torch.randn(2, 2, 6, 6, dtype=torch.float64))


@pytest.mark.parametrize("spec", ["naive8", "naive4"])
def test_the_naive_forward_reads_zero_where_a_reserved_bin_is_rectified(spec: str) -> None:
    layers = nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1), nn.ReLU(), nn.Conv2d(1, 1, 1, bias=False)
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[1].bias.fill_(3.6)  # the threshold lies 3.6 standard deviations below the mean
    x = 1 + 0.01 * torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0, 0, 0, 0] = -50
    METHODS[spec].apply(model)
    assert model[:3](x)[0, 0, 0, 0] == 0, "the middle of the reserved bin is above zero, and the ReLU has let it pass"
    compare(spec, METHODS[spec].remove(model), x)
