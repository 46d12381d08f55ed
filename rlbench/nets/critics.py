"""K critics side by side: one batched matrix product a layer, whatever K is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from rlbench.nets.chunked_mlp import apply_chunked, pays_to_chunk
from rlbench.nets.torsos import MLPTorso


class EnsembleLinear(nn.Module):
    """K linear layers, ``[K, B, in]`` to ``[K, B, out]``, initialized like ``nn.Linear``."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor, members: int) -> Tensor:
        """The first ``members``, each on its own rows: ``[K, B, in]`` to ``[K, B, out]``."""
        return torch.baddbmm(self.bias[:members], x, self.weight[:members])


class Critics(nn.Module):
    """K independent estimates of the value of an action, with ReLU between the layers.

    With ``units``, scale and center ``[A]`` of the environment's actions, the networks see ``center + scale · action``.
    """

    scale: Tensor | None
    center: Tensor | None

    def __init__(
        self, *, members: int, obs: int, actions: int, widths: Sequence[int], units: tuple[Tensor, Tensor] | None = None
    ) -> None:
        super().__init__()
        self.members = members
        scale, center = units or (None, None)
        self.register_buffer("scale", scale, persistent=False)  # from the environment, so not in a checkpoint
        self.register_buffer("center", center, persistent=False)
        sizes = [obs + actions, *widths, 1]
        self.layers = nn.ModuleList(EnsembleLinear(members, inputs, outputs) for inputs, outputs in pairwise(sizes))

    def forward(self, obs: Tensor, action: Tensor, members: int | None = None) -> Tensor:
        """The value of ``action`` ``[B, A]`` at ``obs`` ``[B, F]`` for each of the first ``members``, ``[K, B]``."""
        return self._values(self._inputs(obs, action), members or self.members)

    def action_values(self, obs: Tensor, action: Tensor, members: int | None = None) -> Tensor:
        """The value of M actions ``[M, B, A]`` at each of ``obs`` ``[B, F]``, ``[K, M, B]``."""
        rows, count = self._inputs(obs, action).flatten(0, 1), members or self.members
        if pays_to_chunk(rows):
            parameters = (parameter[:count] for layer in self.layers for parameter in layer.parameters())
            value = apply_chunked(rows, *parameters).squeeze(-1)
        else:
            value = self._values(rows, count)
        return value.view(-1, *action.shape[:2])

    def _inputs(self, obs: Tensor, action: Tensor) -> Tensor:
        if self.scale is not None and self.center is not None:
            action = torch.addcmul(self.center, self.scale, action)
        return concatenate_obs_action(obs, action)

    def _values(self, rows: Tensor, count: int) -> Tensor:
        x = rows.expand(count, -1, -1)
        for layer in self.layers[:-1]:
            x = layer(x, count).relu_()  # in place: for many rows memory costs as much as the product
        value: Tensor = self.layers[-1](x, count)
        return value.squeeze(-1)


class StateValue(nn.Module):
    """A state-value network, ``[B, F]`` to ``[B]``."""

    def __init__(self, *, obs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.torso = MLPTorso(obs_shape=(obs,), widths=widths)
        self.value = nn.Linear(self.torso.features, 1)

    def forward(self, obs: Tensor) -> Tensor:
        """The value of every row, ``[B]``."""
        value: Tensor = self.value(self.torso(obs))
        return value.squeeze(-1)


def concatenate_obs_action(obs: Tensor, action: Tensor) -> Tensor:
    """``[B, F]`` and ``[..., B, A]`` to ``[..., B, F + A]``: observations joined with actions."""
    return torch.cat([obs.expand(*action.shape[:-1], -1), action], -1)


def random_subset(value: Tensor, subset: int | None) -> Tensor:
    """A random ``subset`` of the ensemble ``[K, B]`` without repetition; all of it if None."""
    if subset is None:
        return value
    return value.index_select(0, torch.rand(len(value), device=value.device).topk(subset).indices)
