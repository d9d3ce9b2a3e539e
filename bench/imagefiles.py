"""Images in class folders: found, decoded once, kept as one array in the cache folder."""

import hashlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset
from tqdm import tqdm

HELD_OUT = ("val", "valid", "test")  # ImageNet's own test/ has no labels, so val/ comes first
_DECODER = "1"  # raise it when the pixels that come out change: decoded arrays of the old one are not used

Sample = tuple[str, int]  # path, class number


class Split(NamedTuple):
    """uint8 images (N, C, H, W), int64 labels (N,), and the sha256 of both."""

    images: Tensor
    labels: Tensor
    digest: str

    @classmethod
    def of(cls, images: Tensor, labels: Tensor) -> "Split":
        images, labels = images.contiguous(), labels.to(torch.int64)
        state = hashlib.sha256(repr(tuple(images.shape)).encode())
        state.update(images.numpy().data)
        state.update(labels.numpy().data)
        return cls(images, labels, state.hexdigest())


class ImageFolder(NamedTuple):
    """The samples of a folder's two splits, sorted by class and path."""

    folder: Path
    classes: tuple[str, ...]
    train: list[Sample]
    test: list[Sample]


def cache_folder() -> Path:
    """Where decoded arrays and downloads live: LEAN_CACHE, or ~/.cache/lean-backprop."""
    return Path(os.environ.get("LEAN_CACHE") or "~/.cache/lean-backprop").expanduser()


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()) if folder.is_dir() else []


def list_folder(folder: Path) -> ImageFolder:
    """``folder`` has train/ and val/ or test/ with the same class folders; files may lie at any depth in these.

    Raises ValueError where the held-out part is missing, holds no or other classes, there is one class, or a part has
    no images.
    """
    classes = _subfolders(folder / "train")
    held_out = next((part for part in HELD_OUT if set(_subfolders(folder / part)) & set(classes)), None)
    if held_out is None:
        raise ValueError(
            f"{folder} has the class folders train/{{{', '.join(classes[:3])}, ...}} but none of {', '.join(HELD_OUT)} "
            "holds folders of these names; move the held-out images into val/<class>/"
        )
    unknown = sorted(set(_subfolders(folder / held_out)) - set(classes))
    if unknown:
        raise ValueError(f"{folder / held_out} holds {unknown[0]!r}, which is no class of train/; move it elsewhere")
    if len(classes) < 2:
        raise ValueError(f"{folder / 'train'} has one class folder, {classes[0]!r}; there is nothing to tell apart")
    numbers = {name: i for i, name in enumerate(classes)}
    train, test = (
        make_dataset(str(folder / part), numbers, extensions=IMG_EXTENSIONS, allow_empty=True)
        for part in ("train", held_out)
    )
    for part, samples in (("train", train), (held_out, test)):
        if not samples:
            raise ValueError(f"{folder / part} holds no image; known endings: {', '.join(IMG_EXTENSIONS)}")
    return ImageFolder(folder, tuple(classes), train, test)


def rgb(image: Image.Image) -> Image.Image:
    """Any image as 8-bit RGB: grey, 16-bit grey, palette, with or without transparency (which is dropped)."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if "transparency" in image.info:
        image = image.convert("RGBA")  # else Pillow warns
    return image.convert("RGB")


@contextmanager
def _opened(path: str) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"cannot decode {path}: {error}; replace or remove the file") from error


def open_rgb(path: str) -> Image.Image:
    """The RGB image in a file. Raises ValueError with the path where it cannot be decoded."""
    with _opened(path) as image:
        return rgb(image)


def short_side(path: str) -> int:
    """Pixels of the image's short side, read from the file's header. Raises ValueError with the path."""
    with _opened(path) as image:
        return min(image.size)


def decode(samples: list[Sample], size: int) -> Tensor:
    """uint8 (N, 3, size, size): the short side scaled to ``size`` (bicubic), then the centre cut out."""
    images = np.empty((len(samples), 3, size, size), np.uint8)

    def one(i: int) -> None:
        image = open_rgb(samples[i][0])
        if image.size != (size, size):
            image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
        images[i] = np.asarray(image).transpose(2, 0, 1)

    with warnings.catch_warnings(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        warnings.simplefilter("ignore")  # broken EXIF blocks, of which ImageNet has some
        list(tqdm(pool.map(one, range(len(samples))), "decoding", len(samples), unit=" images", delay=2, leave=False))
    return torch.from_numpy(images)


def listing_key(folder: Path, samples: Iterable[Sample], *settings: object) -> str:
    """Hex digits that change with the names, labels, sizes and times of the files, and with ``settings``."""
    state = hashlib.sha256(repr((_DECODER, *settings)).encode())
    for path, label in samples:
        status = os.stat(path)
        state.update(f"{os.path.relpath(path, folder)}\0{label}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return state.hexdigest()[:32]


def _read(file: Path) -> Split | None:
    """The split in a cache file, mapped into memory; None where the file is missing, torn or changed."""
    try:
        kept = torch.load(file, mmap=True, weights_only=True)
        split = Split.of(kept["images"], kept["labels"])
        return split if split.digest == kept["digest"] else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
        return None


def _write(file: Path, split: Split) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.stem, suffix=".tmp")
        os.close(handle)
        torch.save(split._asdict(), temporary)
        os.replace(temporary, file)
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"cannot keep decoded images in {file.parent} ({error}): each process decodes them again; "
            "set LEAN_CACHE to a folder with room",
            stacklevel=2,
        )


def decoded(folder: Path, samples: list[Sample], size: int) -> Split:
    """The split of ``samples``, files in ``folder``: decoded, or from the cache while the files are unchanged."""
    file = cache_folder() / "decoded" / f"{listing_key(folder, samples, size)}.pt"
    split = _read(file)
    if split is None:
        split = Split.of(decode(samples, size), torch.tensor([label for _, label in samples]))
        _write(file, split)
    return split
