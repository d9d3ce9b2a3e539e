"""Coded activations in the forward pass as well: what Chakrabarti & Moseley 2019 compare their method with."""

from methods.approx import Approx, Quantised


class Naive(Approx):
    """The codes of ``approx``, but every layer computes from its decoded input, so that errors accumulate."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.name = f"naive{bits}"
        self.codec = Quantised(bits, feeds_forward=True)
