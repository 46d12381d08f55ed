"""rlbench: documented scores of deep reinforcement learning, measured again."""

import os

__version__ = "0.1.0"

os.environ["OPENBLAS_NUM_THREADS"] = (
    "1"  # of numpy, which reads it when it is imported: with more, sums round otherwise
)
