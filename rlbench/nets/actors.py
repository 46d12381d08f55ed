"""Actors of continuous actions, and the initializations of actors and critics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlbench.nets.critics import Critics, EnsembleLinear
from rlbench.nets.torsos import MLPTorso
from rlbench.ops.action_distributions import DeterministicPolicy, GaussianPolicy, SquashedGaussianPolicy


class DeterministicActor(nn.Module):
    """``[B, ...]`` to one action, through tanh."""

    def __init__(self, *, obs_shape: tuple[int, ...], actions: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.torso = MLPTorso(obs_shape=obs_shape, widths=widths)
        self.action = nn.Linear(self.torso.features, actions)

    def forward(self, obs: Tensor) -> DeterministicPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        return DeterministicPolicy(self.action(self.torso(obs)).tanh())


class SquashedGaussianActor(nn.Module):
    """``[B, ...]`` to a squashed Gaussian whose std depends on the observation.

    With ``log_std_offset`` a learned factor, at first 1, and a learned shift, at first the offset, act on the log std.
    """

    def __init__(
        self,
        *,
        obs_shape: tuple[int, ...],
        actions: int,
        widths: Sequence[int],
        log_std_min: float,
        log_std_max: float,
        log_scale: float = 0.0,
        log_std_offset: float | None = None,
        mean_bound: float | None = None,
    ) -> None:
        super().__init__()
        self.low, self.high = log_std_min, log_std_max  # bounds of the log std
        self.log_scale = log_scale  # Σ log(action scale), as in ``SquashedGaussianPolicy``
        self.mean_bound = mean_bound
        self.torso = MLPTorso(obs_shape=obs_shape, widths=widths)
        self.mean = nn.Linear(self.torso.features, actions)
        self.log_std = nn.Linear(self.torso.features, actions)
        self.affine = None if log_std_offset is None else nn.Parameter(torch.tensor([1.0, log_std_offset]))

    def forward(self, obs: Tensor) -> SquashedGaussianPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        features = self.torso(obs)
        mean, log_std = self.mean(features), self.log_std(features)
        if self.mean_bound is not None:
            mean = mean.clamp(-self.mean_bound, self.mean_bound)
        if self.affine is not None:
            log_std = self.affine[0] * log_std + self.affine[1]
        return SquashedGaussianPolicy(mean, log_std.clamp(self.low, self.high), self.log_scale)


class BoundedGaussianActor(nn.Module):
    """``[B, ...]`` to a Gaussian whose mean is bounded and whose std does not depend on the observation.

    Its samples may exceed the bounds; the density at ±1, which many actions of the data take, is finite.
    """

    def __init__(
        self, *, obs_shape: tuple[int, ...], actions: int, widths: Sequence[int], log_std_min: float, log_std_max: float
    ) -> None:
        super().__init__()
        self.low, self.high = log_std_min, log_std_max  # bounds of the log std
        self.torso = MLPTorso(obs_shape=obs_shape, widths=widths)
        self.mean = nn.Linear(self.torso.features, actions)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, obs: Tensor) -> GaussianPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        mean = self.mean(self.torso(obs)).tanh()
        return GaussianPolicy(mean, self.log_std.clamp(self.low, self.high).expand_as(mean), clip=True)


class StateDependentStdActor(nn.Module):
    """``[B, ...]`` to a Gaussian whose mean is bounded and whose std is a softplus of the observation.

    robomimic's ``GaussianActorNetwork`` without ``use_tanh``, ARISE-Initiative/robomimic@d309eae
    robomimic/models/policy_nets.py: the std is ``STD`` where the layer gives 0, and the mean is clipped before tanh.
    """

    STD: Final = 0.3
    MEAN_BOUND: Final = 9.0

    def __init__(
        self, *, obs_shape: tuple[int, ...], actions: int, widths: Sequence[int], log_std_min: float, log_std_max: float
    ) -> None:
        super().__init__()
        self.low, self.high = log_std_min, log_std_max  # bounds of the logarithm of the std
        self.torso = MLPTorso(obs_shape=obs_shape, widths=widths)
        self.mean = nn.Linear(self.torso.features, actions)
        self.std = nn.Linear(self.torso.features, actions)
        init_uniform(self.mean, self.std)

    def forward(self, obs: Tensor) -> GaussianPolicy:
        """The policy at ``obs`` ``[B, ...]``, of actions ``[B, A]``."""
        features = self.torso(obs)
        mean = self.mean(features).clamp(-self.MEAN_BOUND, self.MEAN_BOUND).tanh()
        log_std = F.softplus(self.std(features)).log() + math.log(self.STD / math.log(2))
        return GaussianPolicy(mean, log_std.clamp(self.low, self.high), clip=True)


INIT_BOUND: Final = 1e-3
"""Bound of ``init_uniform``; ``init_last_fc_weight`` of ARISE-Initiative/robomimic@d309eae."""

LAST_GAIN: Final = 1e-2
"""Gain of a last layer, here and in ``init_module_weights`` of corl-team/CORL@eeeeef2."""


def init_uniform(*layers: nn.Linear) -> None:
    """Draw weights and biases within ``±INIT_BOUND``."""
    for layer in layers:
        nn.init.uniform_(layer.weight, -INIT_BOUND, INIT_BOUND)
        nn.init.uniform_(layer.bias, -INIT_BOUND, INIT_BOUND)


@torch.no_grad()
def init_xavier(*layers: nn.Linear) -> None:
    """Draw Xavier-uniform weights, times ``LAST_GAIN``, as if ``layers`` were one layer; biases are 0."""
    inputs, outputs = layers[0].in_features, sum(layer.out_features for layer in layers)
    bound = LAST_GAIN * math.sqrt(6 / (inputs + outputs))
    for layer in layers:
        nn.init.uniform_(layer.weight, -bound, bound)
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def init_orthogonal_critics(critics: Critics) -> None:
    """Draw every critic's layers orthogonal with gain √2, the last with ``LAST_GAIN``; biases are 0."""
    layers = [layer for layer in critics.layers if isinstance(layer, EnsembleLinear)]
    for number, layer in enumerate(layers, 1):
        gain = LAST_GAIN if number == len(layers) else math.sqrt(2)
        for weight in layer.weight:  # [in, out], the transpose of a linear layer's
            weight.copy_(nn.init.orthogonal_(torch.empty_like(weight.T), gain=gain).T)
        nn.init.zeros_(layer.bias)
