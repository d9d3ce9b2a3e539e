"""Recomputation: exact, once in all that counts, on timm's models and on any others."""

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from baselines import Checkpoint
from baselines.checkpoint import blocks
from methods import NotApplicable

Create = Callable[[], nn.Module]


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.norm(self.conv(x)).relu())


class Plain(nn.Module):
    """A model without timm's switch."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.blocks = nn.Sequential(Block(dropout), Block(dropout))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.stem(x)).mean((2, 3))


MODELS: dict[str, Create] = {
    "without a switch": Plain,
    "a switch of its own": lambda: timm.create_model("resnet10t", num_classes=4, channels=(8, 8, 8, 8), stem_width=8),
    "timm's BatchNormAct2d": lambda: timm.create_model("mobilenetv3_small_050", num_classes=4),
}
EVERY_MODEL = pytest.mark.parametrize("create", MODELS.values(), ids=MODELS)


def images(seed: int = 0) -> Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def trained(model: nn.Module, steps: int = 3) -> nn.Module:
    model.train()
    for seed in range(steps):
        model.zero_grad()
        torch.manual_seed(seed)
        F.cross_entropy(model(images(seed)), torch.tensor([0, 1, 2, 3])).backward()
    return model


def pair(create: Create) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = create()
    return model, Checkpoint().apply(copy.deepcopy(model))


@EVERY_MODEL
def test_gradients_are_those_of_stock(create: Create) -> None:
    stock, ours = map(trained, pair(create))
    for (name, p), q in zip(stock.named_parameters(), ours.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad), f"the gradient of {name} differs"  # type: ignore[arg-type]


@EVERY_MODEL
def test_running_statistics_count_each_batch_once(create: Create) -> None:
    stock, ours = map(trained, pair(create))
    counts = [b.item() for name, b in ours.named_buffers() if name.endswith("num_batches_tracked")]
    assert set(counts) == {3}, f"3 steps have been counted as {sorted(set(counts))}"
    for (name, a), b in zip(stock.named_buffers(), ours.buffers(), strict=True):
        assert torch.equal(a, b), f"{name} has been updated by the recomputation as well"


def test_something_is_recomputed() -> None:
    calls = [0, 0]
    for i, model in enumerate(pair(Plain)):
        model.blocks[0].conv.register_forward_hook(lambda *_, i=i: calls.__setitem__(i, calls[i] + 1))  # type: ignore
        trained(model, steps=1)
    assert calls == [1, 2], "the block's forward does not run again in backward"


def test_the_recomputation_drops_the_same_units() -> None:
    stock, ours = map(trained, pair(lambda: Plain(dropout=0.5)))
    for p, q in zip(stock.parameters(), ours.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad), "the dropout masks of forward and recomputation differ"  # type: ignore[arg-type]


def test_the_random_state_after_a_step_is_that_of_stock() -> None:
    states = []
    for model in pair(lambda: Plain(dropout=0.5)):
        trained(model, steps=1)
        states.append(torch.get_rng_state())
    assert torch.equal(*states), "the recomputation has used up random numbers"


def test_cumulative_statistics_count_each_batch_once() -> None:
    def create() -> nn.Module:
        model = Plain()
        model.blocks[0].norm.momentum = None  # type: ignore[union-attr, assignment]
        return model

    stock, ours = map(trained, pair(create))
    assert all(torch.equal(a, b) for a, b in zip(stock.buffers(), ours.buffers(), strict=True))


def test_norms_without_running_statistics_are_served() -> None:
    def create() -> nn.Module:
        model = Plain()
        model.blocks[1].norm = nn.BatchNorm2d(4, track_running_stats=False)  # type: ignore[union-attr]
        return model

    stock, ours = map(trained, pair(create))
    for p, q in zip(stock.parameters(), ours.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("dimensions", [1, 3])
def test_batch_norms_of_other_dimensions_count_once(dimensions: int) -> None:
    kind = {1: nn.BatchNorm1d, 3: nn.BatchNorm3d}[dimensions]
    model = Checkpoint().apply(nn.Sequential(nn.Sequential(kind(2), nn.Tanh())))
    model(torch.randn(3, 2, *(4,) * dimensions, requires_grad=True)).sum().backward()
    assert model[0][0].num_batches_tracked == 1, "the recomputation has counted the batch again"  # type: ignore[index]


@EVERY_MODEL
def test_the_whole_model_survives_pickling(create: Create) -> None:
    _, ours = pair(create)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert [type(m) for m in again.modules()] == [type(m) for m in ours.modules()], "a class was lost on the way"
    assert list(again.state_dict()) == list(ours.state_dict())
    trained(again, steps=1)


def test_a_recomputed_block_keeps_its_state_through_pickle() -> None:
    block = trained(Checkpoint().apply(Plain()))
    again = pickle.loads(pickle.dumps(block))
    for a, b in zip(block.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@EVERY_MODEL
def test_remove_gives_back_the_stock_classes_and_the_switch(create: Create) -> None:
    stock, ours = pair(create)
    Checkpoint().remove(ours)
    assert [type(m) for m in ours.modules()] == [type(m) for m in stock.modules()]
    assert not any(getattr(m, "grad_checkpointing", False) for m in ours.modules()), "timm's switch is still on"


@EVERY_MODEL
def test_evaluation_is_that_of_stock(create: Create) -> None:
    stock, ours = (model.eval() for model in pair(create))
    assert torch.equal(stock(images()), ours(images()))


def test_timms_own_recomputation_is_not_applied_twice() -> None:
    model = timm.create_model("vit_tiny_patch16_224", num_classes=2, depth=1, img_size=32)
    Checkpoint().apply(model)
    with pytest.raises(NotApplicable, match="call model.set_grad_checkpointing"):
        Checkpoint().apply(model)


def test_the_innermost_repeated_parts_are_the_blocks() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(Block(), Block()))
    assert list(blocks(model)) == list(model[1]), "a whole stage is recomputed at once, or a bare layer alone"  # type: ignore[arg-type]


def test_a_model_without_blocks_is_refused_with_a_way_out() -> None:
    with pytest.raises(NotApplicable, match="nn.Sequential"):
        Checkpoint().apply(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
