"""Observations to features: the convolutions of Nature DQN, and plain layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn


class NatureTorso(nn.Module):
    """``[B, stack, 84, 84]`` uint8 to ``[B, 3136]`` (https://www.nature.com/articles/nature14236)."""

    def __init__(self, *, stack: int, size: int, scale: bool) -> None:
        super().__init__()
        self.scale = scale
        self.layers = nn.Sequential(
            nn.Conv2d(stack, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            self.features = int(self.layers(torch.zeros(1, stack, size, size)).shape[1])
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):  # lies in memory as the pixels will
                layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)

    def forward(self, obs: Tensor) -> Tensor:
        """Features after the last convolution's ReLU, ``[B, F]``."""
        # channels last: a fifth faster than planes on a CPU; and in two passes, for the fused one is slower
        pixels = obs.float().contiguous(memory_format=torch.channels_last)
        features: Tensor = self.layers(pixels / 255 if self.scale else pixels)
        return features


ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


class MLPTorso(nn.Module):
    """``[B, ...]`` to ``[B, widths[-1]]`` through fully connected layers; bytes are read as 0 … 1."""

    def __init__(self, *, obs_shape: tuple[int, ...], widths: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        sizes, self.activation = [prod(obs_shape), *widths], ACTIVATIONS[activation]
        self.features = sizes[-1]
        self.layers = nn.Sequential(
            nn.Flatten(),
            *(
                layer
                for inputs, outputs in pairwise(sizes)
                for layer in (nn.Linear(inputs, outputs), self.activation())
            ),
        )

    def forward(self, obs: Tensor) -> Tensor:
        """Features after the last layer, ``[B, widths[-1]]``."""
        features: Tensor = self.layers(obs.float() / 255 if obs.dtype == torch.uint8 else obs)
        return features
