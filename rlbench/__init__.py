"""rlbench: documented scores of deep reinforcement learning, measured again."""

import os

__version__ = "0.1.0"

# numpy reads it when it is imported; with more threads its sums round otherwise.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
