"""Runs the kernels compiled where a compiler is at hand and the shape allows it; ``view`` says whether it does."""

import functools
import os
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from methods.packing import Layout


class View(NamedTuple):
    """How a dense (N, C, H, W) tensor divides into the parts that share bytes."""

    shape: tuple[int, ...]  # of a part: (rows, C) or (N / parts, C, columns)
    parts: int

    def of(self, x: Tensor) -> tuple[Tensor, ...]:
        """The parts of ``x``, without a copy."""
        # detached, as the compiler looks at the tensor behind a view
        return x.detach().as_strided((self.parts, *self.shape), _dense((self.parts, *self.shape))).unbind(0)

    def bytes_of(self, packed: Tensor) -> Tensor:
        return packed.view(self.shape)

    def vector(self, v: Tensor) -> Tensor:
        """A per-channel vector (C,), to be broadcast against a part."""
        return v.view(-1, *(1,) * (len(self.shape) - 2))


def _dense(shape: tuple[int, ...]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def view(layout: Layout, bits: int) -> View | None:
    """The division of a tensor of ``layout`` for codes of ``bits``; None where the plain functions must serve it."""
    if not enabled():
        return None
    count, channels, height, width = layout.shape
    columns, parts = height * width, 8 // bits
    if layout.stride == (channels * columns, 1, width * channels, channels) and channels > 1:
        rows, rest = divmod(count * columns, parts)
        return View((rows, channels), parts) if not rest and rows > 1 else None
    if layout.stride == (channels * columns, columns, width, 1) and columns > 1 and channels > 1:
        images, rest = divmod(count, parts)
        return View((images, channels, columns), parts) if not rest and images > 1 else None
    return None


_broken = False


def enabled() -> bool:
    """Whether kernels are compiled: LEAN_COMPILE=1 turns it on, a compiler that failed once turns it off."""
    return not _broken and os.environ.get("LEAN_COMPILE", "0") == "1"


def run(kernel: Callable[..., Any], *arguments: Any, **constants: int | bool) -> Any:
    """``kernel`` of ``arguments``, compiled for their ranks and dtypes and for ``constants``; sizes stay free."""
    try:
        return _compiled(kernel, _kind(arguments), tuple(constants.items()))(*arguments)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        global _broken
        _broken = True
        warnings.warn(f"kernels run uncompiled, several times slower: {_first_line(error)}", stacklevel=2)
        return kernel(*arguments, **constants)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _kind(arguments: Any) -> tuple[Any, ...]:
    """What a compilation is made for."""
    if isinstance(arguments, Tensor):
        return arguments.ndim, arguments.dtype, arguments.device.type
    return tuple(map(_kind, arguments))


@functools.cache
def _compiled(
    kernel: Callable[..., Any], kind: tuple[Any, ...], constants: tuple[tuple[str, int | bool], ...]
) -> Callable[..., Any]:
    # text, because torch would take numbers for sizes and leave them free
    names, values = [name for name, _ in constants], [str(int(value)) for _, value in constants]

    def bound(*arguments: Any) -> Any:
        return kernel(*arguments, **{name: int(value) for name, value in zip(names, values, strict=True)})

    # torch counts compilations by code object, and past a limit runs uncompiled without a word
    own = types.FunctionType(bound.__code__.replace(), bound.__globals__, kernel.__name__, None, bound.__closure__)
    return torch.compile(own, dynamic=True, fullgraph=True)
