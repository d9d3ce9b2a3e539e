"""Folders of real image files, drawn here, and a cache folder of the test's own."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps the tests out of the user's cache and data."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("LEAN_CACHE", str(folder))
    monkeypatch.delenv("LEAN_DATA", raising=False)
    return folder


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes DIR/train and DIR/<held_out> with two classes of ``per_class`` random images each."""

    def write(per_class: int = 6, size: tuple[int, int] = (12, 12), held_out: str = "val", at: str = "") -> Path:
        random = np.random.default_rng(0)
        root = tmp_path / at
        for part in ("train", held_out):
            for name in ("cat", "dog"):
                (root / part / name).mkdir(parents=True)
                for i in range(per_class):
                    pixels = random.integers(0, 256, (size[1], size[0], 3), np.uint8)
                    Image.fromarray(pixels).save(root / part / name / f"{i}.png")
        return root

    return write


@pytest.fixture(scope="session")
def cifar10_folder() -> Path:
    """The real CIFAR-10 as an image folder, where LEAN_TEST_DATA names one."""
    folder = os.environ.get("LEAN_TEST_DATA")
    if not folder:
        pytest.skip("needs the real CIFAR-10: set LEAN_TEST_DATA to a folder that holds cifar10/train and cifar10/test")
    return Path(folder)


@pytest.fixture
def cifar10_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torchvision's own layout with 6 batches of 20 images; the official checksums are replaced by these files'."""
    import hashlib

    import torchvision

    random = np.random.default_rng(0)
    place = tmp_path / torchvision.datasets.CIFAR10.base_folder
    place.mkdir()

    def write(name: str, content: object) -> list[str]:
        (place / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((place / name).read_bytes()).hexdigest()]

    def batch() -> dict[str, object]:
        return {"data": random.integers(0, 256, (20, 3072), np.uint8), "labels": list(range(10)) * 2}

    kind = torchvision.datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [write(f"data_batch_{i}", batch()) for i in range(1, 6)])
    monkeypatch.setattr(kind, "test_list", [write("test_batch", batch())])
    name, digest = write("batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(kind, "meta", {"filename": name, "key": "label_names", "md5": digest})
    return tmp_path
