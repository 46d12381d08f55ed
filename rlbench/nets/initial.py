"""Initialisation of weights where a documented algorithm departs from torch's own."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import nn

from rlbench.nets.critics import Critics, EnsembleLinear

SMALL: Final = 1e-3
"""Bound of ``uniform``; ``init_last_fc_weight`` of ARISE-Initiative/robomimic@d309eae."""

GAIN: Final = 1e-2
"""Gain of a last layer in ``xavier`` and ``orthogonal``; ``init_module_weights`` of corl-team/CORL@eeeeef2."""


def uniform(*layers: nn.Linear) -> None:
    """Draw weights and biases within ``±SMALL``."""
    for layer in layers:
        nn.init.uniform_(layer.weight, -SMALL, SMALL)
        nn.init.uniform_(layer.bias, -SMALL, SMALL)


@torch.no_grad()
def xavier(*layers: nn.Linear) -> None:
    """Draw weights as Xavier's of one layer with the outputs of all ``layers``, times ``GAIN``; biases are 0."""
    inputs, outputs = layers[0].in_features, sum(layer.out_features for layer in layers)
    bound = GAIN * math.sqrt(6 / (inputs + outputs))
    for layer in layers:
        nn.init.uniform_(layer.weight, -bound, bound)
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def orthogonal(critics: Critics) -> None:
    """Draw every critic's layers orthogonal with gain √2, the last with ``GAIN``; biases are 0."""
    layers = [layer for layer in critics.layers if isinstance(layer, EnsembleLinear)]
    for number, layer in enumerate(layers, 1):
        gain = GAIN if number == len(layers) else math.sqrt(2)
        for weight in layer.weight:  # [in, out], the transpose of a linear layer's
            weight.copy_(nn.init.orthogonal_(torch.empty_like(weight.T), gain=gain).T)
        nn.init.zeros_(layer.bias)
