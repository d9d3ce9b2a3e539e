"""What the README shows, run as it stands there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from bench.memory import saved_bytes
from bench.registry import METHODS
from bench.suites import SUITES
from methods import Method
from paper_figs.tables import markdown
from results import store
from results.compare import compare

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _run(needle: str) -> dict[str, Any]:
    (block,) = (block for block in BLOCKS if needle in block)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), names)
    return names


def test_use_in_your_own_training_loop() -> None:
    model = _run("timm.create_model")["model"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.conv1.weight.clone()
    torch.nn.functional.cross_entropy(model(torch.randn(2, 3, 64, 64)), torch.tensor([0, 1])).backward()
    optimizer.step()
    assert not torch.equal(model.conv1.weight, before)
    model.eval()
    with torch.no_grad():
        assert model(torch.randn(1, 3, 64, 64)).isfinite().all()


@pytest.fixture
def registry() -> Iterator[dict[str, Method]]:
    """The registry, as it was afterwards."""
    before = dict(METHODS)
    yield METHODS
    METHODS.clear()
    METHODS.update(before)


def test_add_a_method(registry: dict[str, Method]) -> None:
    _run("METHODS[")
    added = list(registry)[-1]
    batch = torch.randn(4, 3, 64, 64), torch.tensor([0, 1, 2, 3])
    saved = {}
    for spec in ("exact", "lean", added):
        model = registry[spec].apply(timm.create_model("resnet18", num_classes=10).train())
        saved[spec] = saved_bytes(model, *batch)
    assert saved[added] < saved["lean"] < saved["exact"]


def test_every_method_and_suite_is_listed() -> None:
    for spec in METHODS:
        assert f"`{spec}`" in README, f"the README's table of methods lacks {spec}"
    for name, _ in SUITES:
        assert f"`{name}`" in README, f"the README's options lack the suite {name}"


def test_results_table_is_made_from_the_reference_records() -> None:
    table = markdown(compare(store.read_all(ROOT / "results/reference/cifar10-laptop/records")))
    for line in table.splitlines():
        assert line in README, "make the README's table anew: python -m paper_figs results/reference/cifar10-laptop"
