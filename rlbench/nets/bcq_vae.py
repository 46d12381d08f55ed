"""BCQ's networks: a VAE of the data's actions, a perturbation of its samples, and the policy of both."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlbench.nets.critics import Critics, concatenate_obs_action

LATENT_CLIP = 0.5  # samples of the latent code are clipped to ±0.5, so that only likely actions are proposed


class VAEOutput(NamedTuple):
    """A reconstructed action and its latent code."""

    action: Tensor  # [B, A] reconstructed
    mean: Tensor  # [B, L] of the code
    log_std: Tensor  # [B, L]


class ActionVAE(nn.Module):
    """A conditional variational autoencoder of actions (https://arxiv.org/abs/1812.02900, section 5)."""

    def __init__(
        self, *, obs: int, actions: int, latent: int, widths: Sequence[int], clip: float | None = LATENT_CLIP
    ) -> None:
        super().__init__()
        self.latent, self.clip = latent, clip
        self.encoder, self.decoder = _layers([obs + actions, *widths]), _layers([obs + latent, *widths])
        last = widths[-1] if widths else obs + actions
        self.mean, self.log_std = nn.Linear(last, latent), nn.Linear(last, latent)
        self.action = nn.Linear(widths[-1] if widths else obs + latent, actions)

    def forward(self, obs: Tensor, action: Tensor) -> VAEOutput:
        """Actions ``[B, A]`` at ``obs`` ``[B, F]``, through a sampled latent code."""
        features = self.encoder(concatenate_obs_action(obs, action))
        mean, log_std = self.mean(features), self.log_std(features).clamp(-4, 15)
        return VAEOutput(self.decode(obs, mean + log_std.exp() * torch.randn_like(mean)), mean, log_std)

    def decode(self, obs: Tensor, code: Tensor) -> Tensor:
        """Codes ``[..., B, L]`` to actions ``[..., B, A]``."""
        action: Tensor = self.action(self.decoder(concatenate_obs_action(obs, code))).tanh()
        return action

    def propose(self, obs: Tensor, count: int) -> Tensor:
        """Sample ``count`` actions at each of ``obs`` ``[B, F]``, ``[count, B, A]``."""
        code = torch.randn(count, len(obs), self.latent, device=obs.device, dtype=obs.dtype)
        return self.decode(obs, code if self.clip is None else code.clamp(-self.clip, self.clip))


class PerturbationNet(nn.Module):
    """A network that shifts an action by at most ``perturbation`` in each dimension, within bounds."""

    def __init__(self, *, obs: int, actions: int, widths: Sequence[int], perturbation: float) -> None:
        super().__init__()
        self.perturbation = perturbation
        self.layers = _layers([obs + actions, *widths])
        self.shift = nn.Linear(widths[-1] if widths else obs + actions, actions)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Actions ``[..., B, A]`` at ``obs`` ``[B, F]`` to the same shape."""
        shift: Tensor = self.shift(self.layers(concatenate_obs_action(obs, action))).tanh()
        return (action + self.perturbation * shift).clamp(-1, 1)


class BCQPolicy(nn.Module):
    """BCQ's policy: samples of the VAE, their perturbation, and the critic that selects one of them."""

    def __init__(self, proposer: ActionVAE, perturbation: PerturbationNet, critics: Critics) -> None:
        super().__init__()
        self.proposer, self.perturbation, self.critics = proposer, perturbation, critics

    def forward(self, obs: Tensor, count: int) -> Tensor:
        """The action of the highest value by the first critic among ``count`` samples, ``[B, A]``."""
        action = self.perturbation(obs, self.proposer.propose(obs, count))
        best = self.critics.action_values(obs, action, members=1)[0].argmax(0)  # [B]
        best_action: Tensor = action.gather(0, best[None, :, None].expand(1, -1, action.shape[-1]))
        return best_action.squeeze(0)


def _layers(sizes: Sequence[int]) -> nn.Sequential:
    return nn.Sequential(*(layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())))
