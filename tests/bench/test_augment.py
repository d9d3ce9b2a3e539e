"""Augmentation: each image has its own draw, and the draw follows from the generator."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bench.augment import augment, normalise, shift, subtract_image_mean


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same_images(count: int) -> torch.Tensor:
    return torch.arange(1.0, 193).view(1, 3, 8, 8).expand(count, 3, 8, 8)


def as_bytes(x: torch.Tensor) -> bytes:
    return x.contiguous().numpy().tobytes()


def test_equal_images_in_a_batch_get_different_crops() -> None:
    y = shift(same_images(64), 4, generator())
    assert len({as_bytes(image) for image in y}) > 32


def test_every_output_is_a_crop_of_the_padded_image_or_its_mirror() -> None:
    x = same_images(500)
    padded = F.pad(x[0], (2, 2, 2, 2))
    crops = [padded[:, i : i + 8, j : j + 8] for i in range(5) for j in range(5)]
    allowed = {as_bytes(crop) for crop in crops} | {as_bytes(crop.flip(2)) for crop in crops}
    seen = {as_bytes(image) for image in shift(x, 2, generator(), flip=True)}
    assert seen <= allowed
    assert len(seen) == 50, "500 draws should meet all 25 offsets, mirrored and not"


def test_about_half_are_mirrored() -> None:
    y = shift(same_images(1000), 0, generator(), flip=True)
    mirrored = (y[:, 0, 0, 0] > y[:, 0, 0, 7]).sum().item()
    assert 400 < mirrored < 600
    assert torch.equal(shift(same_images(10), 0, generator()), same_images(10))


def test_offsets_are_uniform_and_independent_of_each_other() -> None:
    x = torch.zeros(5000, 1, 5, 5)
    x[:, :, 2, 2] = 1
    where = shift(x, 1, generator()).mean((0, 1))[1:4, 1:4]
    assert where.sum().item() == pytest.approx(1)
    torch.testing.assert_close(where, torch.full((3, 3), 1 / 9), atol=0.02, rtol=0)


def test_the_draw_follows_from_the_seed() -> None:
    x = torch.randn(16, 3, 8, 8)
    assert torch.equal(augment(x, "crop-flip", generator(1)), augment(x, "crop-flip", generator(1)))
    assert not torch.equal(augment(x, "crop-flip", generator(1)), augment(x, "crop-flip", generator(2)))


@pytest.mark.parametrize(("side", "kind", "reach"), [(32, "crop-flip", 4), (64, "crop-flip", 8), (16, "shift", 1)])
def test_reach_follows_the_side(side: int, kind: str, reach: int) -> None:
    x = torch.ones(500, 1, side, side)
    empty_rows = (augment(x, kind, generator()).sum((1, 3)) == 0).sum(1)
    assert empty_rows.max().item() == reach


def test_result_is_channels_last() -> None:
    assert shift(torch.randn(4, 3, 8, 8), 1, generator()).is_contiguous(memory_format=torch.channels_last)


def test_normalised_pixels_have_mean_zero_and_deviation_one() -> None:
    images = torch.randint(0, 256, (32, 2, 9, 7), dtype=torch.uint8)
    pixels = images.numpy().astype(np.float64) / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    x = normalise(images, mean.tolist(), std.tolist())
    expected = (pixels - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)
    assert x.dtype == torch.float32


def test_image_mean_is_taken_over_all_channels_of_each_image() -> None:
    images = torch.tensor([[[[0]], [[255]]], [[[51]], [[51]]]], dtype=torch.uint8)
    assert subtract_image_mean(images).flatten().tolist() == pytest.approx([-0.5, 0.5, 0, 0])


def test_augmentation_of_files_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="'rand-augment'.*stream=True"):
        augment(torch.zeros(1, 3, 8, 8), "rand-augment", generator())
