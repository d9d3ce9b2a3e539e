"""What the methods hold between forward and backward, on the net of the 2019 paper."""

from functools import cache

import pytest
import timm
import torch

import bench.models  # noqa: F401  # registers the papers' nets with timm
from bench.memory import measure
from bench.registry import method
from results.schema import MemoryResult

IMAGES = 16


@cache
def measured(spec: str) -> MemoryResult:
    """preact_resnet164 on a batch of 16 images of 32 x 32, in channels_last."""
    torch.manual_seed(0)
    model = timm.create_model("preact_resnet164", num_classes=10).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(method(spec).apply(model).parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(IMAGES, 3, 32, 32).to(memory_format=torch.channels_last)
    return measure(model, optimizer, images, torch.arange(IMAGES) % 10)


def held(spec: str) -> int:
    return measured(spec).held_bytes


def test_approx4_holds_a_thirteenth_of_exact() -> None:
    ratio = held("exact") / held("approx4")
    assert ratio >= 13, f"exact holds {ratio:.2f} times as much as approx4, not 13 times"


def test_approx4_holds_a_seventh_of_lean() -> None:
    ratio = held("lean") / held("approx4")
    assert ratio >= 7, f"lean holds {ratio:.2f} times as much as approx4, not 7 times"


def test_pooling_holds_less_than_stock() -> None:
    assert held("pool2") < held("exact"), "the stock ReLU's output is still held beside the block means"


def test_the_published_pooling_holds_more_than_stock() -> None:
    assert held("pool2-published") > held("exact"), "its means replace nothing, so they must come on top"


@pytest.mark.parametrize("spec", ["exact", "lean", "approx4", "pool2", "pool2-published"])
def test_what_is_saved_is_nearly_all_that_is_held(spec: str) -> None:
    result = measured(spec)
    assert 0.95 <= result.held_bytes / result.saved_bytes <= 1.05, "something is held that autograd has not saved"
    assert result.memory_format == "channels_last"
