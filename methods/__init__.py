"""The methods under test: what training keeps for the backward pass, and how it is used."""

from methods.approx import Approx
from methods.base import Method, NotApplicable
from methods.pool import Pool

__all__ = ["Approx", "Method", "NotApplicable", "Pool"]
