"""rlbench: documented scores of deep reinforcement learning, measured again."""

__version__ = "0.1.0"
