"""What a method keeps of each kind of activation: the one thing in which coded training methods differ."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor

from methods.handles import Handle, attach, handle_of


class Normed(NamedTuple):
    """A batch norm's forward: input and output (N, C, H, W), statistics and affine (C,), the eps it was run with."""

    x: Tensor
    y: Tensor
    mean: Tensor
    invstd: Tensor
    gamma: Tensor
    beta: Tensor
    eps: float


class Codec(ABC):
    """Makes handles. All three are called without autograd, on the exact values."""

    shared: bool = True  # False: every convolution makes a handle of its own, whoever else reads its input
    feeds_forward: bool = False  # True: the forward pass goes on from the decoded value (the naive baseline)

    @abstractmethod
    def norm(self, normed: Normed) -> Handle:
        """For a batch norm's backward and whoever reads its output; the code has ``norm_backward``."""

    @abstractmethod
    def rectified(self, y: Tensor) -> Handle:
        """For a ReLU's backward and whoever reads its output ``y``, where no handle with exact signs is at hand."""

    @abstractmethod
    def operand(self, x: Tensor, leaf: bool) -> Handle:
        """For a convolution's weight gradient, where ``x`` has no handle; ``leaf``: it is the network's input."""


def operand_handle(codec: Codec, x: Tensor) -> Handle:
    """The handle of a convolution's input: the one it carries, or a new one, which its other readers then share."""
    handle = handle_of(x, codec)
    if handle is None or not handle.code.readable:
        leaf = x.is_leaf
        handle = codec.operand(x.detach(), leaf)
        if codec.shared and not leaf:  # the caller's own tensor outlives the step, and its handle would too
            attach(x, handle, codec)
    return handle
