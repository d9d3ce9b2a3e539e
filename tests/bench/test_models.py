"""The networks of the 2019 paper: size, depth, shortcuts, timm's interface."""

import copy

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

import bench.models
from bench.models import Bottleneck, PreActResNet, Shortcut

NAMES = [name for name in timm.list_models("preact_resnet*")]


def test_all_depths_are_registered() -> None:
    assert {f"preact_resnet{d}" for d in ("11", "20", "29", "164", "254", "488", "1001", "1001x4")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_depth_counts_the_layers_with_weights(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=10)
    layers = sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules())
    assert layers == int(name.removeprefix("preact_resnet").removesuffix("x4"))


@pytest.mark.parametrize(("name", "millions"), [("preact_resnet164", 1.67), ("preact_resnet1001x4", 162.7)])
def test_parameter_count_is_the_papers(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=10)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("size", [8, 15, 32, 33])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_size_and_channel_count_trains(size: int, channels: int) -> None:
    model = timm.create_model("preact_resnet20", num_classes=7, in_chans=channels)
    logits = model(torch.randn(3, channels, size, size))
    F.cross_entropy(logits, torch.tensor([0, 3, 6])).backward()
    assert logits.shape == (3, 7)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_head_follows_timm() -> None:
    model = timm.create_model("preact_resnet20", num_classes=10).eval()
    x = torch.randn(2, 3, 32, 32)
    features = model.forward_features(x)
    assert features.shape == (2, model.num_features, 8, 8)
    assert torch.equal(model.forward_head(features), model(x))
    pooled = model.forward_head(features, pre_logits=True)
    assert isinstance(model.get_classifier(), nn.Linear)
    model.reset_classifier(0)
    assert isinstance(model.get_classifier(), nn.Identity)
    assert torch.equal(model(x), pooled)
    model.reset_classifier(4)
    assert model(x).shape == (2, 4)


def reference_block(block: Bottleneck, x: torch.Tensor) -> torch.Tensor:
    """The block written from the formulas alone."""

    def layer(x: torch.Tensor, norm: nn.BatchNorm2d, conv: nn.Conv2d) -> tuple[torch.Tensor, torch.Tensor]:
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
        a = torch.relu((x - mean) / (var + 1e-3).sqrt() * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1))
        return a, F.conv2d(a, conv.weight, None, conv.stride, conv.padding)

    a, y = layer(x, block.norm1, block.conv1)
    _, y = layer(y, block.norm2, block.conv2)
    _, y = layer(y, block.norm3, block.conv3)
    residual = a if block.first else x
    stride = block.conv1.stride[0]
    n, c, h, w = residual.shape
    pooled = residual.reshape(n, c, h // stride, stride, w // stride, stride).mean((3, 5))
    missing = (y.shape[1] - c) // 2
    zeros = y.new_zeros(n, missing, *y.shape[2:])
    return y + torch.cat([zeros, pooled, zeros], 1)


@pytest.mark.parametrize(("channels", "stride", "first"), [(8, 1, True), (16, 2, False), (32, 1, False)])
def test_block_equals_its_formula(channels: int, stride: int, first: bool) -> None:
    block = Bottleneck(channels, 8, stride, first).double()
    for norm in (block.norm1, block.norm2, block.norm3):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = torch.randn(4, channels, 6, 6, dtype=torch.double)
    torch.testing.assert_close(block(x.clone()), reference_block(block, x))


def test_shortcut_keeps_the_mean_of_odd_maps_borders() -> None:
    x = torch.arange(9.0).view(1, 1, 3, 3)
    assert Shortcut(1, 3, 2)(x)[0, 1].tolist() == [[2.0, 3.5], [6.5, 8.0]]


def test_strides_and_first_residual_sit_where_the_paper_has_them() -> None:
    model = PreActResNet(29)
    blocks = [block for stage in model.stages for block in stage]
    assert [block.first for block in blocks] == [True] + 8 * [False]
    assert [block.conv1.stride[0] for block in blocks] == [1, 1, 1, 2, 1, 1, 2, 1, 1]
    assert all(block.conv2.stride == (1, 1) for block in blocks)


def test_initial_weights_have_the_papers_spread() -> None:
    torch.manual_seed(0)
    model = PreActResNet(20, num_classes=1000)
    for conv in (m for m in model.modules() if isinstance(m, nn.Conv2d) and m.weight.numel() > 4000):
        fan_in = conv.weight[0].numel()
        assert conv.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)
    assert model.fc.weight.std().item() == pytest.approx((1 / 256) ** 0.5, rel=0.05)
    assert model.fc.bias.count_nonzero() == 0


def test_recomputing_blocks_gives_the_same_gradients() -> None:
    model = timm.create_model("preact_resnet20", num_classes=10).double()
    other = copy.deepcopy(model)
    other.set_grad_checkpointing()
    x = torch.randn(4, 3, 16, 16, dtype=torch.double)
    model(x).square().sum().backward()
    other(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_recomputing_keeps_less() -> None:
    def kept(model: nn.Module) -> int:
        tensors: dict[int, torch.Tensor] = {}
        with torch.autograd.graph.saved_tensors_hooks(lambda t: tensors.setdefault(t.data_ptr(), t), lambda t: t):
            model(torch.randn(4, 3, 16, 16))
        return sum(t.numel() for t in tensors.values())

    model = timm.create_model("preact_resnet29")
    stock = kept(model)
    model.set_grad_checkpointing()
    assert kept(model) < stock / 2


def test_wrong_depth_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"depth 111 is not 9 r \+ 2; the nearest that is: 110"):
        PreActResNet(111)


def test_pretrained_is_refused() -> None:
    with pytest.raises(ValueError, match="no pretrained weights"):
        bench.models.preact_resnet20(pretrained=True)
