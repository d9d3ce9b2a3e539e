"""The code of a batch norm's input: within half a step in the window, and the exact side of ReLU's threshold."""

import pytest
import torch
from torch import Tensor

from methods import normcode, rangecode
from methods.affine import channelwise
from methods.handles import Handle

BITS = pytest.mark.parametrize("bits", [2, 4, 8])
GAMMAS = (1.0, -1.0, 0.5, -2.0, 0.0, 1e-30, -1e-30, 1e-3, -0.3)
BETAS = (0.0, 1e-7, -1e-7, 0.4, -0.4, 2.9, -2.9, 3.0, -3.0, 10.0, -10.0)


def coded(x: Tensor, gamma: Tensor, beta: Tensor, bits: int) -> tuple[Tensor, Tensor, Handle]:
    """(normalised input, output, handle) of a batch norm as torch itself runs it."""
    y, mean, invstd, *_ = torch._batch_norm_impl_index(x, gamma, beta, None, None, True, 0.0, 1e-5, True)
    xhat = (x - mean.view(1, -1, 1, 1)) * invstd.view(1, -1, 1, 1)
    return xhat, y, normcode.encode(x, y, mean, invstd, gamma, beta, bits)


def channels(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every sign and size of gamma with every beta, in units of gamma where that is not zero."""
    pairs = [(gamma, beta * (abs(gamma) or 1)) for gamma in GAMMAS for beta in BETAS]
    gamma, beta = torch.tensor(pairs, dtype=torch.float64).T
    return gamma.to(dtype), beta.to(dtype)


def images(count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(2, count, 6, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mask_of(handle: Handle, like: Tensor) -> Tensor:
    return handle.code.rectify_grad(torch.ones_like(like), *handle.tensors) > 0


@BITS
def test_a_decoded_input_is_within_half_a_step_inside_the_window(bits: int) -> None:
    gamma, beta = channels(torch.float64)
    xhat, _, handle = coded(images(len(gamma), torch.float64), gamma, beta, bits)
    origin, step, edge, _ = map(channelwise, normcode.grid(gamma, beta, bits))
    decoded = handle.code.normalised(*handle.tensors)  # type: ignore[attr-defined]
    reserves = step > 6 / 2**bits * (1 + 1e-9)  # one bin is for the other sign, not for values near it
    first = torch.minimum(decoded, xhat) < origin + step
    reserved = reserves & torch.where(edge == 1, first, torch.maximum(decoded, xhat) > 3)
    inside = (xhat >= origin) & (xhat < origin + 2**bits * step) & ~reserved
    error = (decoded - xhat).abs() / step
    assert inside.double().mean() > 0.9, "the window misses values within 3 standard deviations"
    assert error[inside].max() <= 0.5 + 1e-6, f"{error[inside].max():.3f} steps off, inside the window"


@BITS
def test_the_window_reaches_three_deviations_whatever_beta(bits: int) -> None:
    gamma, beta = channels(torch.float64)
    origin, step, edge, _ = normcode.grid(gamma, beta, bits)
    top, free = origin + 2**bits * step, step > 6 / 2**bits * (1 + 1e-9)
    below = torch.where(free & (edge == 1), origin + step, origin)
    above = torch.where(free & (edge == 2**bits - 1), top - step, top)
    assert (below <= -3 + step / 2 + 1e-9).all(), "values 3 deviations below the mean are cut"
    assert (above >= 3 - step / 2 - 1e-9).all(), "values 3 deviations above the mean are cut"


@BITS
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mask_is_the_forwards_own_for_every_gamma_and_beta(bits: int, seed: int, dtype: torch.dtype) -> None:
    gamma, beta = channels(dtype)
    _, y, handle = coded(images(len(gamma), dtype, seed), gamma, beta, bits)
    assert torch.equal(mask_of(handle, y), y > 0), "a code lies on the other side of zero than its output"


@BITS
@pytest.mark.parametrize("sign", [1, -1])
def test_the_mask_is_exact_for_values_right_at_the_threshold(bits: int, sign: int) -> None:
    x = images(16, torch.float32)
    near = x[0, :, 0, 0]
    for i in range(1, 5):  # neighbours, a few units in the last place away
        near = torch.nextafter(near, torch.full_like(near, 9.0 if i % 2 else -9.0) * i)
        x[1, :, 0, i] = near
    _, mean, invstd, *_ = torch._batch_norm_impl_index(x, None, None, None, None, True, 0.0, 1e-5, True)
    gamma = sign * torch.linspace(0.1, 3, 16)
    beta = -gamma * (x[0, :, 0, 0] - mean) * invstd  # the output there is zero but for rounding
    _, y, handle = coded(x, gamma, beta, bits)
    assert y[0, :, 0, 0].abs().max() < 1e-5, "the values are not at the threshold"
    assert torch.equal(mask_of(handle, y), y > 0), "rounding flipped the mask"


@BITS
def test_gamma_zero_passes_what_beta_lets_pass(bits: int) -> None:
    gamma, beta = torch.zeros(3), torch.tensor([1.0, 0.0, -1.0])
    _, y, handle = coded(images(3, torch.float32), gamma, beta, bits)
    passed = mask_of(handle, y).float().mean((0, 2, 3)).tolist()
    assert passed == [1.0, 0.0, 0.0], "with gamma 0 the output is beta, and its sign the mask"
    assert handle.code.value(*handle.tensors).isfinite().all(), "gamma 0 has made a value infinite"


@BITS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_mask_is_exact_in_half_precision(bits: int, dtype: torch.dtype) -> None:
    gamma = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    beta = (3 * torch.randn(64, generator=torch.Generator().manual_seed(1))).to(dtype)
    _, y, handle = coded(images(64, dtype), gamma, beta, bits)
    assert torch.equal(mask_of(handle, y), y > 0), "the edges of the bins have been rounded to half precision"


@BITS
def test_the_grid_of_a_double_is_a_double(bits: int) -> None:
    gamma, beta = channels(torch.float64)
    bins = normcode.grid(gamma, beta, bits)
    assert {v.dtype for v in bins} == {torch.float64}
    narrow = (6 / (2**bits - 1) - bins.step).abs().min()
    assert narrow < 1e-15, "the step has been rounded to float32 on its way"


@BITS
def test_a_rectified_value_is_zero_exactly_where_relu_is(bits: int) -> None:
    gamma, beta = channels(torch.float64)
    _, y, handle = coded(images(len(gamma), torch.float64), gamma, beta, bits)
    assert (handle.code.rectified(*handle.tensors)[y <= 0] == 0).all(), "a value passes that ReLU stops"


@BITS
@pytest.mark.parametrize("size", [1.0, 1e-10, 1e-20, 1e-30, 1e-34])
def test_a_tiny_rectified_channel_is_coded_as_well_as_a_large_one(bits: int, size: float) -> None:
    y = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * size
    handle = rangecode.encode_rectified(y, bits)
    error = (handle.code.value(*handle.tensors) - y).abs().max() / size
    assert error <= 0.6 / (2**bits - 1), f"off by {error:.3f} of the channel's own size"


@BITS
def test_a_channel_of_denormals_stays_finite(bits: int) -> None:
    y = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 1e-40
    for encode in (rangecode.encode_rectified, rangecode.encode_signed):
        handle = encode(y, bits)
        assert handle.code.value(*handle.tensors).isfinite().all(), f"{encode.__name__} has divided by zero"


@BITS
def test_zero_has_a_code_of_its_own_in_a_rectified_sum(bits: int) -> None:
    y = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)).relu()
    y[:, 1] = 0
    handle = rangecode.encode_rectified(y, bits)
    assert torch.equal(handle.code.value(*handle.tensors) > 0, y > 0), "zero and something else share a code"
    assert torch.equal(mask_of(handle, y), y > 0), "the code is not ReLU's mask"


@BITS
def test_a_signed_value_is_within_half_a_step(bits: int) -> None:
    x = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.3
    x[:, 1] = 0.25
    handle = rangecode.encode_signed(x, bits)
    _, _, step = handle.tensors
    error = (handle.code.value(*handle.tensors) - x).abs() - step.view(1, -1, 1, 1) / 2
    assert error.max() < 1e-12, "a value without outliers is more than half a step off"
