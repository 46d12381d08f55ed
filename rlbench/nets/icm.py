"""The model behind curiosity: what will be seen after an action, and which action lies between two things seen."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlbench.nets.torsos import MlpTorso, NatureTorso


class ICMOutput(NamedTuple):
    """What the model made of M steps."""

    error: Tensor  # [M] half the squared distance of what was seen from what was foreseen, in features
    guess: Tensor  # [M, A] logits of what was done


class ICM(nn.Module):
    """Features of its own, a forward and an inverse model of them (https://arxiv.org/abs/1705.05363, section 2.2)."""

    def __init__(self, torso: NatureTorso | MlpTorso, *, hidden: int, actions: int) -> None:
        super().__init__()
        self.torso, self.actions, width = torso, actions, torso.features
        self.ahead = nn.Sequential(nn.Linear(width + actions, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.between = nn.Sequential(nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, actions))

    def forward(self, before: Tensor, action: Tensor, after: Tensor) -> ICMOutput:
        """Of features ``[M, F]``, actions ``[M]`` and the features that followed, ``[M, F]``."""
        done = F.one_hot(action, self.actions).to(before.dtype)
        error = 0.5 * (self.ahead(torch.cat([before, done], -1)) - after).square().sum(-1)
        return ICMOutput(error, self.between(torch.cat([before, after], -1)))
