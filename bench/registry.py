"""Every method by its spec."""

from difflib import get_close_matches

from baselines import Checkpoint, Exact, Lean, Naive, PublishedPool
from methods import Approx, Method, Pool

METHODS: dict[str, Method] = {
    "exact": Exact(),
    "lean": Lean(),
    "approx8": Approx(8),
    "approx4": Approx(4),
    "approx2": Approx(2),
    "naive8": Naive(8),
    "naive4": Naive(4),
    "pool2": Pool(2),
    "pool4": Pool(4),
    "pool1-published": PublishedPool(1),
    "pool2-published": PublishedPool(2),
    "pool4-published": PublishedPool(4),
    "checkpoint": Checkpoint(),
}


def method(spec: str) -> Method:
    """The method that ``spec`` names. Raises KeyError with the known names, the closest first."""
    try:
        return METHODS[spec]
    except KeyError:
        close = get_close_matches(spec, METHODS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise KeyError(f"no method {spec!r}; {hint}known methods: {', '.join(METHODS)}") from None
