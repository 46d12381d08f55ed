"""BCQ: only what a model of the data proposes is ever considered, and of that the best."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from rlbench.algorithms.base import Periodic, optimize
from rlbench.algorithms.critic_loss import polyak_update, td_loss
from rlbench.nets.bcq_vae import BCQPolicy
from rlbench.ops.losses import bc_mse, kl_to_standard_normal, lambda_mix, vae_loss, weighted_mean
from rlbench.ops.state_dict import Parts, State, into_parts, of_parts
from rlbench.ops.types import Role, Transition


class Choice(NamedTuple):
    """How many actions are considered, and how they are judged."""

    n_action_samples: int  # per state in a target
    eval_action_samples: int  # per state when acting
    lmbda: float  # λ: share of the least value in the soft minimum
    vae_kl_weight: float  # what a nat per latent number costs


class Optimizers(NamedTuple):
    """One for each network."""

    proposer: torch.optim.Optimizer
    critics: torch.optim.Optimizer
    perturbation: torch.optim.Optimizer


class ConstrainedUpdate(NamedTuple):
    """What one gradient step has to say."""

    critic_loss: Tensor  # [] summed over the critics
    actor_loss: Tensor  # [] of the perturbation
    q: Tensor  # [] mean value of the actions taken
    error: Tensor  # [] squared distance of repeated actions from the data's, mean over their dimensions
    divergence: Tensor  # [] nats per latent number
    priority: Tensor  # [B]


class BCQ:
    """https://arxiv.org/abs/1812.02900, algorithm 1."""

    every: tuple[Periodic, ...] = ()
    cycle = 1

    def __init__(self, net: BCQPolicy, *, optimizers: Optimizers, tau: float, choice: Choice) -> None:
        self.net, self.optimizers, self.tau, self.choice = net, optimizers, tau, choice
        self.target_perturbation = copy.deepcopy(net.perturbation).requires_grad_(False)
        self.target_critics = copy.deepcopy(net.critics).requires_grad_(False)

    def model_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """The proposer's loss, and its mean squared error and divergence, all ``[]``."""
        action, mean, log_std = self.net.proposer(batch.obs, batch.action)
        error, divergence = bc_mse(action, batch.action), kl_to_standard_normal(mean, log_std)
        loss = (batch.weight * vae_loss(error, divergence, self.choice.vae_kl_weight)).mean()
        return loss, weighted_mean(batch.weight, error.detach()), weighted_mean(batch.weight, divergence.detach())

    @torch.no_grad()
    def proposals(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """One action where the batch begins, ``[B, A]``, and all candidates where it leads to, ``[M, B, A]``."""
        count = self.choice.n_action_samples
        here, there = batch.obs[None], batch.next_obs.expand(count, -1, -1)
        proposed = self.net.proposer.propose(torch.cat([here, there]).flatten(0, 1), 1)
        proposed = proposed.view(count + 1, *batch.action.shape)
        return proposed[0], proposed[1:]

    def critic_loss(self, batch: Transition, proposed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the best of ``proposed`` ``[M, B, A]`` (eq. 13)."""
        with torch.no_grad():
            action = self.target_perturbation(batch.next_obs, proposed)
            value = lambda_mix(self.target_critics.each(batch.next_obs, action), self.choice.lmbda)  # [M, B]
            goal = batch.reward + batch.discount * value.amax(0)
        return td_loss(self.net.critics, batch, goal)

    def policy_loss(self, batch: Transition, proposed: Tensor) -> Tensor:
        """How bad the first critic thinks ``proposed`` actions ``[B, A]`` are once they are moved, ``[]`` (eq. 12)."""
        value = self.net.critics(batch.obs, self.net.perturbation(batch.obs, proposed), members=1)
        loss: Tensor = -(batch.weight * value[0]).mean()
        return loss

    def update(self, batch: Transition, phase: int = 0) -> ConstrainedUpdate:  # noqa: ARG002 - all updates are alike
        """A step of the proposer, of the critics and of the perturbation, one after another; the targets follow."""
        model_loss, repeated, divergence = self.model_loss(batch)
        optimize(model_loss, (self.optimizers.proposer,))
        here, there = self.proposals(batch)
        critic_loss, q, error = self.critic_loss(batch, there)
        optimize(critic_loss, (self.optimizers.critics,))
        actor_loss = self.policy_loss(batch, here)
        optimize(actor_loss, (self.optimizers.perturbation,))
        polyak_update(self.target_critics, self.net.critics, self.tau)
        polyak_update(self.target_perturbation, self.net.perturbation, self.tau)
        return ConstrainedUpdate(critic_loss.detach(), actor_loss.detach(), q, repeated, divergence, error)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:  # noqa: ARG002 - the data's variety is exploration enough
        """The best of many candidates, drawn anew, ``[N, A]``."""
        action: Tensor = self.net(obs, self.choice.eval_action_samples)
        return action

    def policy(self) -> BCQPolicy:
        """Proposer, perturbation and critics: all of them act."""
        return self.net

    def state_dict(self) -> State:
        """Five networks and three optimizers."""
        return of_parts(self._parts())

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_parts(self._parts(), state)

    def _parts(self) -> Parts:
        networks = {"net": self.net, "target_perturbation": self.target_perturbation}
        optimizers = {f"{name}_optimizer": optimizer for name, optimizer in self.optimizers._asdict().items()}
        return {**networks, "target_critics": self.target_critics, **optimizers}
