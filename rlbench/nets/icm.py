"""The intrinsic curiosity module (ICM): a forward model of features and an inverse model of actions."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlbench.nets.torsos import MLPTorso, NatureTorso


class ICMOutput(NamedTuple):
    """The outputs of both models for M steps."""

    error: Tensor  # [M] half the squared error of the predicted features
    action_logits: Tensor  # [M, A] logits of the action


class ICM(nn.Module):
    """A torso with a forward and an inverse model (https://arxiv.org/abs/1705.05363, section 2.2)."""

    def __init__(self, torso: NatureTorso | MLPTorso, *, hidden: int, actions: int) -> None:
        super().__init__()
        self.torso, self.actions, width = torso, actions, torso.features
        self.ahead = nn.Sequential(nn.Linear(width + actions, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.between = nn.Sequential(nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, actions))

    def forward(self, features: Tensor, action: Tensor, next_features: Tensor) -> ICMOutput:
        """Evaluate both models on features ``[M, F]``, actions ``[M]`` and next features ``[M, F]``."""
        one_hot = F.one_hot(action, self.actions).to(features.dtype)
        error = 0.5 * (self.ahead(torch.cat([features, one_hot], -1)) - next_features).square().sum(-1)
        return ICMOutput(error, self.between(torch.cat([features, next_features], -1)))
