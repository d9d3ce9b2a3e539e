"""Where each dataset comes from: scikit-learn, a folder that the user has, or torchvision's download."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torchvision
from torch import Tensor

from bench.imagefiles import HELD_OUT, ImageFolder, cache_folder, list_folder

NAMES = ("digits", "cifar10", "cifar100", "imagefolder")
_DIGITS_HELD_OUT = 297
_CIFAR = {"cifar10": torchvision.datasets.CIFAR10, "cifar100": torchvision.datasets.CIFAR100}
_CLASSES = {"cifar10": 10, "cifar100": 100}


class Arrays(NamedTuple):
    """uint8 images (N, C, H, W) and int64 labels (N,) of both splits."""

    classes: tuple[str, ...]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def digits() -> Arrays:
    """scikit-learn's 1,797 grey 8x8 digits, the same 297 of them held out always, as equal in the classes as can be."""
    from sklearn.datasets import load_digits  # here: importing it takes a second, which the other datasets need not
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    train, test = train_test_split(
        np.arange(len(labels)), test_size=_DIGITS_HELD_OUT, stratify=bunch.target, random_state=0
    )
    classes = tuple(str(name) for name in bunch.target_names)
    return Arrays(classes, (images[train], labels[train]), (images[test], labels[test]))


def _candidates(name: str, root: Path) -> Iterator[Path]:
    yield from (root / name, root)


def _from_folder(name: str, root: Path) -> ImageFolder | Arrays | None:
    for folder in _candidates(name, root):
        if (folder / "train").is_dir():
            found = list_folder(folder)
            if len(found.classes) != _CLASSES.get(name, len(found.classes)):
                raise ValueError(
                    f"{folder} holds {len(found.classes)} classes, {name} has {_CLASSES[name]}: it is other data; "
                    f"put {name} into {root / name} or choose the suite 'imagenet' for any image folder"
                )
            return found
        if name in _CIFAR and (folder / _CIFAR[name].base_folder).is_dir():
            return _read_cifar(name, folder)
    return None


def _read_cifar(name: str, folder: Path) -> Arrays:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the archive's pickles are older than numpy's rules for them
        try:
            parts = [_CIFAR[name](folder, train=train) for train in (True, False)]
        except RuntimeError as error:
            place = folder / _CIFAR[name].base_folder
            raise ValueError(
                f"{place} is not the whole official {name}: {error}; remove it and download again"
            ) from error
    train, test = ((torch.from_numpy(p.data.transpose(0, 3, 1, 2)), torch.tensor(p.targets)) for p in parts)
    return Arrays(tuple(parts[0].classes), train, test)


def _download(name: str) -> Arrays:
    """The official archive, in the cache folder; other processes see it whole or not at all."""
    cache = cache_folder()
    place = cache / _CIFAR[name].base_folder
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            try:
                _CIFAR[name](work, download=True)
            except (OSError, RuntimeError) as error:
                raise FileNotFoundError(_missing(name, [place], f"the download failed: {error}")) from error
            if not place.is_dir():
                shutil.move(Path(work, _CIFAR[name].base_folder), place)
    return _read_cifar(name, cache)


def _missing(name: str, looked: list[Path], reason: str) -> str:
    layout = f"DIR/train/<class>/*.png and DIR/{{{'|'.join(HELD_OUT)}}}/<class>/*.png"
    ways = [f"pass --data DIR (or set LEAN_DATA=DIR), where DIR or DIR/{name} has {layout}"]
    if name in _CIFAR:
        ways[0] += f", or torchvision's {_CIFAR[name].base_folder}/"
        ways.append("leave --data and LEAN_DATA away on a machine with a network, and torchvision downloads it")
    else:
        ways.append("choose a dataset that needs none: digits ships with scikit-learn, cifar10 is downloaded")
    places = f" Looked for: {', '.join(map(str, looked))}." if looked else ""
    return f"{name}: {reason}.{places} Either {'; or '.join(ways)}."


def find(name: str, root: Path | None) -> ImageFolder | Arrays:
    """The whole dataset, listed or loaded. Raises FileNotFoundError with both ways to mend it, ValueError where a
    folder is there but is not this dataset."""
    if name == "digits":
        return digits()
    given = root if root is not None else os.environ.get("LEAN_DATA")
    if not given:
        if name in _CIFAR:
            return _download(name)
        raise FileNotFoundError(_missing(name, [], "no folder was given: --data and LEAN_DATA are not set"))
    folder = Path(given).expanduser()
    found = _from_folder(name, folder)
    if found is None:
        looked = [place / "train" for place in _candidates(name, folder)]
        if name in _CIFAR:
            looked += [place / _CIFAR[name].base_folder for place in _candidates(name, folder)]
        raise FileNotFoundError(_missing(name, looked, "not found in the folder given"))
    return found
