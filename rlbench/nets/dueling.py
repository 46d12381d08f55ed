"""The layers from features to a Q-head's output: one stream or two (dueling), plain or noisy."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlbench.ops.types import Role


class RoleLinear(nn.Linear):
    """A linear layer that ignores its role, with the signature of ``NoisyLinear``."""

    def forward(self, x: Tensor, role: Role = "eval") -> Tensor:  # noqa: ARG002 - the same for every purpose
        """``[..., in]`` to ``[..., out]``."""
        return super().forward(x)


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise on its weights, except in evaluation.

    https://arxiv.org/abs/1706.10295, eq. 10 and 11 and section 3.2; one draw serves the whole batch.
    """

    def __init__(self, inputs: int, outputs: int, *, scale: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_noise = nn.Parameter(torch.full((outputs, inputs), scale * bound))
        self.bias_noise = nn.Parameter(torch.full((outputs,), scale * bound))

    def forward(self, x: Tensor, role: Role) -> Tensor:
        """``[..., in]`` to ``[..., out]``; the noise matrix is never formed, since it is an outer product."""
        y = F.linear(x, self.weight, self.bias)
        if role == "eval":
            return y
        columns, rows = (_factor_noise(torch.randn_like(like)) for like in (self.weight[0], self.bias))
        return y + F.linear(x * columns, self.weight_noise) * rows + self.bias_noise * rows


class HeadMLP(nn.Module):
    """Features to ``width`` outputs per action, ``[..., F]`` to ``[..., A, Q]``; the MLP of every Q-head.

    With ``dueling`` a second stream, ``shared``, computes the state value (https://arxiv.org/abs/1511.06581, eq. 9).
    """

    def __init__(
        self, width: int, *, features: int, hidden: int, actions: int, dueling: bool = False, noisy: float | None = None
    ) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int) -> nn.Module:
            return RoleLinear(inputs, outputs) if noisy is None else NoisyLinear(inputs, outputs, scale=noisy)

        self.shape, self.dueling = (actions, width), dueling
        self.hidden, self.out = layer(features, hidden), layer(hidden, actions * width)
        if dueling:
            self.shared_hidden, self.shared = layer(features, hidden), layer(hidden, width)

    def forward(self, x: Tensor, role: Role) -> Tensor:
        """``width`` outputs for every action, ``[..., F]`` to ``[..., A, width]``."""
        y: Tensor = self.out(self.hidden(x, role).relu(), role).unflatten(-1, self.shape)
        if not self.dueling:
            return y
        state_value: Tensor = self.shared(self.shared_hidden(x, role).relu(), role)
        return state_value.unsqueeze(-2) + y - y.mean(-2, keepdim=True)


def _factor_noise(noise: Tensor) -> Tensor:
    """``sign(x) √|x|``: the noise of one factor (section 3.2)."""
    return noise.sign() * noise.abs().sqrt()
