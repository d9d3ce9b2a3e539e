"""Packed codes come back as they were, whatever the shape."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from methods.packing import Layout, pack, unpack

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4)
BITS = pytest.mark.parametrize("bits", [1, 2, 4, 8])


def random_codes(shape: tuple[int, ...], bits: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(0, 2**bits, shape, generator=generator, dtype=torch.uint8)


@BITS
@hypothesis.given(shape=SHAPES)
def test_codes_of_any_shape_come_back(bits: int, shape: list[int]) -> None:
    codes = random_codes(tuple(shape), bits)
    assert torch.equal(unpack(pack(codes.clone(), bits), bits, Layout.of(codes)), codes), "a code changed in its byte"


@BITS
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 15, 17, 1001])
def test_codes_take_no_more_bytes_than_their_bits(bits: int, count: int) -> None:
    packed = pack(random_codes((count,), bits), bits)
    assert packed.shape == (-(-count * bits // 8),), "the last byte alone may be part empty"
    assert packed.dtype == torch.uint8


@BITS
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 3, 1, 1), (3, 1, 2, 5)])
def test_channels_last_codes_come_back_in_channels_last(bits: int, shape: tuple[int, ...]) -> None:
    codes = random_codes(shape, bits).contiguous(memory_format=torch.channels_last)
    back = unpack(pack(codes.clone(memory_format=torch.preserve_format), bits), bits, Layout.of(codes))
    assert torch.equal(back, codes), "a code moved"
    assert back.stride() == codes.stride(), "the memory format is lost"


@BITS
def test_a_transposed_dense_tensor_comes_back(bits: int) -> None:
    codes = random_codes((3, 4, 5), bits).permute(2, 0, 1)
    back = unpack(pack(codes, bits), bits, Layout.of(codes))
    assert torch.equal(back, codes) and back.stride() == codes.stride()


@BITS
def test_packing_leaves_the_codes_alone(bits: int) -> None:
    codes = random_codes((5, 3), bits)
    before = codes.clone()
    pack(codes, bits)
    assert torch.equal(codes, before), "packing wrote into the codes"
