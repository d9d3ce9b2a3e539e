"""What the methods are compared with, under the same contract."""

from baselines.checkpoint import Checkpoint
from baselines.exact import Exact
from baselines.lean import Lean
from baselines.naive import Naive
from baselines.published_pool import PublishedPool

__all__ = ["Checkpoint", "Exact", "Lean", "Naive", "PublishedPool"]
