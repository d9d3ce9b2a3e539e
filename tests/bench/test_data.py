"""Data: found, decoded, cut to balanced subsets, named by a hash of what is used."""

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bench import data, imagefiles
from bench.data import balanced, channel_statistics, load
from bench.imagefiles import Split, rgb
from bench.recipes import RECIPES

Write = Callable[..., Path]


def test_digits_are_grey_and_held_out_evenly() -> None:
    digits = load("digits")
    assert digits.train_images.shape == (1500, 1, 16, 16)
    assert digits.test_images.shape == (297, 1, 16, 16)
    counts = digits.test_labels.bincount()
    assert len(counts) == 10 and counts.max() - counts.min() <= 1
    assert digits.train_images.dtype == torch.uint8 and digits.train_labels.dtype == torch.int64
    assert digits.train_images.max() > 240, "0..16 is stretched to 0..255"


def test_digits_splits_share_no_image() -> None:
    digits = load("digits")
    train = {image.numpy().tobytes() for image in digits.train_images}
    assert not train & {image.numpy().tobytes() for image in digits.test_images}


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=8), share=st.floats(0.01, 1), seed=st.integers(0, 2**31)
)
def test_subsets_are_as_even_as_the_classes_allow(counts: list[int], share: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    size = max(1, int(share * len(labels)))
    chosen = balanced(labels, size, seed)
    taken = np.bincount(labels[chosen], minlength=len(counts))
    assert len(set(chosen.tolist())) == size
    for label, available in enumerate(counts):
        assert taken[label] >= min(available, taken.max() - 1), "a class is short though it has more images"


def test_subset_follows_from_the_seed_and_nests() -> None:
    labels = np.repeat(np.arange(10), 50)
    assert np.array_equal(balanced(labels, 100, 3), balanced(labels, 100, 3))
    assert not np.array_equal(balanced(labels, 100, 3), balanced(labels, 100, 4))
    assert set(balanced(labels, 55, 3)) < set(balanced(labels, 100, 3))


def test_of_fewer_images_than_the_subset_all_are_taken() -> None:
    assert np.array_equal(balanced(np.array([0, 0, 1]), 4, 0), [0, 1, 2])
    assert load("digits", train_size=1600).hash == load("digits").hash


def test_a_subset_of_no_image_is_refused() -> None:
    with pytest.raises(ValueError, match="0 images asked for"):
        load("digits", train_size=0)


def test_statistics_are_those_of_the_pixels_used() -> None:
    digits = load("digits", train_size=100)
    pixels = digits.train_images.numpy() / 255
    assert digits.mean == pytest.approx([pixels.mean()])
    assert digits.std == pytest.approx([pixels.std()])
    assert channel_statistics(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))[1] == (1 / 255,) * 3


def test_hash_names_pixels_labels_and_parts() -> None:
    images, labels = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    changed = images.clone()
    changed[3, 2, 1, 1] ^= 1
    splits = [Split.of(images, labels), Split.of(changed, labels), Split.of(images, labels.flip(0))]
    hashes = {data.Dataset.of("x", a, b, ("p", "q")).hash for a in splits for b in splits}
    assert len(hashes) == 9
    assert all(len(h) == 16 and int(h, 16) >= 0 for h in hashes)
    assert Split.of(images.to(memory_format=torch.channels_last), labels).digest == splits[0].digest


@pytest.mark.parametrize("held_out", ["val", "test"])
def test_image_folder(image_folder: Write, held_out: str) -> None:
    root = image_folder(held_out=held_out)
    folder = load("imagefolder", root)
    assert folder.classes == ("cat", "dog")
    assert folder.train_images.shape == (12, 3, 12, 12)
    assert folder.test_labels.tolist() == 6 * [0] + 6 * [1]
    first = np.asarray(Image.open(root / "train/cat/0.png")).transpose(2, 0, 1)
    assert np.array_equal(folder.train_images[0].numpy(), first)


def test_folder_is_found_below_its_name_and_in_the_environment(
    image_folder: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = image_folder(at="imagefolder")
    monkeypatch.setenv("LEAN_DATA", str(root.parent))
    assert load("imagefolder").hash == load("imagefolder", root).hash == load("imagefolder", root.parent).hash


def test_hash_does_not_depend_on_the_order_in_which_files_were_made(image_folder: Write, tmp_path: Path) -> None:
    root = image_folder()
    copy = tmp_path / "copy"
    for file in sorted(root.rglob("*.png"), reverse=True):
        target = copy / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    assert load("imagefolder", copy).hash == load("imagefolder", root).hash


def test_sizes_are_scaled_by_the_short_side_and_cut_in_the_middle(image_folder: Write) -> None:
    root = image_folder(size=(40, 20))
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 10:30] = 200
    Image.fromarray(pixels).save(root / "train/cat/0.png")
    cut = load("imagefolder", root, image_size=10).train_images[0]
    assert cut.shape == (3, 10, 10)
    assert cut[:, :, 2:-2].unique().tolist() == [200]


def test_default_size_is_that_of_the_first_image_up_to_224(image_folder: Write) -> None:
    assert load("imagefolder", image_folder(size=(30, 20), at="a")).image_size == 20
    assert load("imagefolder", image_folder(size=(300, 260), at="b", per_class=1)).image_size == 224


GREY = np.arange(144, dtype=np.uint8).reshape(12, 12)
RGB = np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8)


def palette_with_transparency() -> Image.Image:
    image = Image.fromarray(RGB).quantize(16)
    image.info["transparency"] = bytes(range(16))
    return image


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(GREY), np.stack([GREY] * 3, 2)),
        (Image.fromarray(GREY.astype(np.uint16) * 256), np.stack([GREY] * 3, 2)),
        (Image.fromarray(GREY > 70), np.stack([(GREY > 70) * np.uint8(255)] * 3, 2)),
        (Image.fromarray(np.dstack([RGB, GREY])), RGB),
        (Image.fromarray(np.dstack([GREY, GREY])), np.stack([GREY] * 3, 2)),
        (Image.fromarray(RGB).quantize(16), np.asarray(Image.fromarray(RGB).quantize(16).convert("RGB"))),
        (palette_with_transparency(), np.asarray(Image.fromarray(RGB).quantize(16).convert("RGB"))),
    ],
    ids=["grey", "16-bit", "1-bit", "RGBA", "grey-alpha", "palette", "palette-transparent"],
)
def test_every_kind_of_image_becomes_rgb(image: Image.Image, expected: np.ndarray, tmp_path: Path) -> None:
    image.save(tmp_path / "image.png")
    with Image.open(tmp_path / "image.png") as opened:
        assert np.array_equal(np.asarray(rgb(opened)), expected)


def test_broken_image_is_named(image_folder: Write) -> None:
    root = image_folder()
    (root / "train/dog/2.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"cannot decode .*train/dog/2\.png.*replace or remove"):
        load("imagefolder", root)


def test_missing_folder_error_names_places_and_both_ways(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load("cifar10", tmp_path)
    text = str(caught.value)
    assert str(tmp_path / "cifar10" / "train") in text and str(tmp_path / "train") in text
    assert "--data DIR" in text and "LEAN_DATA" in text and "torchvision downloads it" in text
    with pytest.raises(FileNotFoundError, match=r"no folder was given.*--data DIR.*digits ships with scikit-learn"):
        load("imagefolder")


def test_folder_without_held_out_part(image_folder: Write) -> None:
    root = image_folder()
    shutil.rmtree(root / "val")
    with pytest.raises(ValueError, match=r"none of val, valid, test.*move the held-out images into val/<class>/"):
        load("imagefolder", root)


def test_class_that_was_never_trained(image_folder: Write) -> None:
    root = image_folder()
    (root / "val" / "emu").mkdir()
    with pytest.raises(ValueError, match="'emu', which is no class of train/"):
        load("imagefolder", root)


def test_empty_class_folders(image_folder: Write) -> None:
    root = image_folder()
    for file in (root / "val").rglob("*.png"):
        file.unlink()
    with pytest.raises(ValueError, match=r"val holds no image"):
        load("imagefolder", root)


def test_other_data_is_not_taken_for_cifar(image_folder: Write) -> None:
    with pytest.raises(ValueError, match="holds 2 classes, cifar10 has 10"):
        load("cifar10", image_folder())


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="no dataset 'mnist'; known datasets: digits, cifar10, cifar100, imagefolder"):
        load("mnist")


def cached(folder: Path) -> list[Path]:
    return sorted((folder / "decoded").glob("*"))


def test_second_load_decodes_nothing(image_folder: Write, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = image_folder()
    first = load("imagefolder", root)
    assert len(cached(own_cache)) == 2, "one array for each split and nothing else"
    monkeypatch.setattr(imagefiles, "open_rgb", lambda path: pytest.fail(f"{path} was decoded again"))
    second = load("imagefolder", root)
    assert torch.equal(second.train_images, first.train_images) and second.hash == first.hash


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "flipped"])
def test_damaged_cache_is_rebuilt(image_folder: Write, own_cache: Path, damage: str) -> None:
    root = image_folder()
    first = load("imagefolder", root)
    for file in cached(own_cache):
        content = bytearray(file.read_bytes())
        content[content.find(first.train_images[0].numpy().tobytes()[:64])] ^= 1
        file.write_bytes(
            {"truncated": content[: len(content) // 2], "empty": b"", "garbage": b"x" * 999, "flipped": content}[damage]
        )
    again = load("imagefolder", root)
    assert torch.equal(again.train_images, first.train_images) and again.hash == first.hash
    assert load("imagefolder", root).hash == first.hash


def test_changed_file_is_decoded_again(image_folder: Write) -> None:
    root = image_folder()
    before = load("imagefolder", root)
    file = root / "train/cat/3.png"
    pixels = np.asarray(Image.open(file)).copy()
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(file)
    os.utime(file, (1, 1))
    after = load("imagefolder", root)
    assert (after.train_images != before.train_images).sum() == 1
    assert after.hash != before.hash


def test_unwritable_cache_costs_a_warning_only(
    image_folder: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LEAN_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot keep decoded images.*set LEAN_CACHE"):
        assert load("imagefolder", image_folder(at="images")).train_count == 12


def test_only_the_subset_is_decoded(image_folder: Write) -> None:
    root = image_folder()
    chosen = load("imagefolder", root, train_size=4, seed=1)
    assert chosen.train_labels.tolist() == [0, 0, 1, 1]
    labels = np.repeat([0, 1], 6)
    left_out = set(range(12)) - set(balanced(labels, 4, 1).tolist())
    files = sorted((root / "train").rglob("*.png"))
    for i in left_out:
        files[i].write_bytes(b"no image")
    assert load("imagefolder", root, train_size=4, seed=1).hash == chosen.hash


def test_torchvisions_layout(cifar10_archive: Path) -> None:
    cifar = load("cifar10", cifar10_archive, train_size=50)
    assert cifar.train_images.shape == (50, 3, 32, 32)
    assert cifar.train_labels.bincount().tolist() == 10 * [5]
    assert cifar.classes == tuple("abcdefghij")
    first = torchvision.datasets.CIFAR10(cifar10_archive, train=False).data[0].transpose(2, 0, 1)
    assert np.array_equal(load("cifar10", cifar10_archive).test_images[0].numpy(), first)


def test_incomplete_archive_is_named(cifar10_archive: Path) -> None:
    place = cifar10_archive / torchvision.datasets.CIFAR10.base_folder
    (place / "data_batch_3").write_bytes(b"")
    with pytest.raises(ValueError, match=f"{place} is not the whole official cifar10"):
        load("cifar10", cifar10_archive)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def test_download_goes_to_the_cache_once(
    cifar10_archive: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive comes from a server on this machine, through torchvision's own download, unpacking and check."""
    kind = torchvision.datasets.CIFAR10
    shutil.make_archive(str(cifar10_archive / "packed"), "gztar", cifar10_archive, kind.base_folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(cifar10_archive)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(kind, "url", f"http://127.0.0.1:{server.server_port}/packed.tar.gz")
    monkeypatch.setattr(kind, "tgz_md5", None)
    first = load("cifar10")
    server.shutdown()
    server.server_close()
    assert (own_cache / kind.base_folder / "test_batch").is_file()
    assert load("cifar10").hash == first.hash == load("cifar10", cifar10_archive).hash
    assert [entry.name for entry in own_cache.iterdir()] == [kind.base_folder]


def test_failed_download_says_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.datasets.CIFAR100, "url", "file:///nowhere")
    with pytest.raises(FileNotFoundError, match=r"cifar100: the download failed.*--data DIR.*torchvision downloads it"):
        load("cifar100")


def test_images_in_arrays_cannot_be_streamed() -> None:
    with pytest.raises(ValueError, match="digits is not in image files"):
        load("digits", stream=True)


def test_batches_cover_an_epoch_without_repeats() -> None:
    digits = load("digits", train_size=200)
    recipe = RECIPES["laptop-digits"]
    drawn = list(digits.train_epoch(recipe, torch.Generator().manual_seed(0)))
    assert [len(labels) for _, labels in drawn] == 3 * [64]
    assert all(x.dtype == torch.float32 and x.shape == (64, 1, 16, 16) for x, _ in drawn)
    order = torch.cat([labels for _, labels in drawn])
    assert order.bincount().max() <= 20
    held_out = list(digits.test_batches(recipe, batch=100))
    assert [len(labels) for _, labels in held_out] == [100, 100, 97]
    assert torch.equal(torch.cat([labels for _, labels in held_out]), digits.test_labels)


def test_real_cifar10(cifar10_folder: Path) -> None:
    cifar = load("cifar10", cifar10_folder, train_size=1000, test_size=200)
    assert cifar.train_labels.bincount().tolist() == 10 * [100]
    assert cifar.classes[0] == "airplane" and cifar.classes[9] == "truck"
    assert cifar.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.02)
    assert cifar.std == pytest.approx((0.247, 0.243, 0.262), abs=0.02)


def test_a_folder_of_one_class_is_refused(image_folder: Callable[..., Path]) -> None:
    root = image_folder()
    for part in ("train", "val"):
        shutil.rmtree(root / part / "dog")
    with pytest.raises(ValueError, match="has one class folder, 'cat'"):
        load("imagefolder", root)
