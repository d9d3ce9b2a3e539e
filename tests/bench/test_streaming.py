"""Images that stay on disk: what is drawn follows from the seed, whoever draws it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import data
from bench.data import load
from bench.recipes import RECIPES, Recipe
from bench.streaming import Streamed

SMALL = {name: replace(recipe, batch=4) for name, recipe in RECIPES.items()}


@pytest.fixture
def streamed(image_folder: Callable[..., Path]) -> Streamed:
    dataset = load("imagefolder", image_folder(size=(40, 30)), image_size=24, stream=True)
    assert isinstance(dataset, Streamed)
    return replace(dataset, workers=0)


def epoch(dataset: Streamed, recipe: Recipe, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*dataset.train_epoch(recipe, torch.Generator().manual_seed(seed)), strict=True)
    return torch.cat(images), torch.cat(labels)


@pytest.mark.parametrize("name", ["paper2019-imagenet", "paper2024", "laptop-imagenet"])
def test_batches_follow_from_the_seed(streamed: Streamed, name: str) -> None:
    images, labels = epoch(streamed, SMALL[name])
    again, same_labels = epoch(streamed, SMALL[name])
    other, _ = epoch(streamed, SMALL[name], seed=1)
    assert images.shape == (12, 3, 24, 24) and images.dtype == torch.float32
    assert labels.bincount().tolist() == [6, 6]
    assert torch.equal(images, again) and torch.equal(labels, same_labels)
    assert not torch.equal(images, other)


def test_workers_change_nothing(streamed: Streamed) -> None:
    recipe = SMALL["paper2024"]
    assert torch.equal(epoch(streamed, recipe)[0], epoch(replace(streamed, workers=2), recipe)[0])


def test_drawing_leaves_the_global_generators_alone(streamed: Streamed) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    epoch(streamed, SMALL["paper2024"])
    assert torch.equal(torch.rand(3), expected)


def test_an_image_is_augmented_anew_each_time(image_folder: Callable[..., Path]) -> None:
    dataset = load("imagefolder", image_folder(per_class=1, size=(40, 30)), image_size=24, stream=True)
    dataset, recipe = replace(dataset, workers=0), replace(RECIPES["paper2019-imagenet"], batch=2)
    generator = torch.Generator().manual_seed(0)
    first, second = (
        {
            int(label): image
            for x, labels in dataset.train_epoch(recipe, generator)
            for image, label in zip(x, labels, strict=True)
        }
        for _ in range(2)
    )
    assert not torch.equal(first[0], second[0])


def test_held_out_images_are_cut_in_the_middle(streamed: Streamed) -> None:
    whole = torch.cat([x for x, _ in streamed.test_batches(replace(SMALL["paper2024"], test_crop=1.0))])
    cut = torch.cat([x for x, _ in streamed.test_batches(SMALL["paper2024"], batch=5)])
    assert whole.shape == cut.shape == (12, 3, 24, 24)
    assert not torch.equal(whole, cut)
    resident = load("imagefolder", Path(streamed.train_samples[0][0]).parents[2], image_size=24)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (streamed.mean, streamed.std))
    assert ((whole * std + mean) * 255 - resident.test_images.float()).abs().max() < 2


def test_large_folders_stream_by_themselves(image_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = image_folder()
    pixels = 24 * 3 * 12 * 12
    monkeypatch.setattr(data, "RESIDENT_BYTES", pixels)
    assert not isinstance(load("imagefolder", root), Streamed)
    monkeypatch.setattr(data, "RESIDENT_BYTES", pixels - 1)
    assert isinstance(load("imagefolder", root), Streamed)


def test_hash_names_the_files(streamed: Streamed) -> None:
    root = Path(streamed.train_samples[0][0]).parents[2]
    assert load("imagefolder", root, image_size=24, stream=True).hash == streamed.hash
    Path(streamed.train_samples[0][0]).touch()
    assert load("imagefolder", root, image_size=24, stream=True).hash != streamed.hash
