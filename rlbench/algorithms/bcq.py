"""BCQ: the policy selects, by value, among actions that a VAE of the data samples."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rlbench.algorithms.base import Compilable, Compiler, Update, compilable
from rlbench.algorithms.steps import optimize, squared_td_errors, target_updates
from rlbench.config.offline import BCQConfig
from rlbench.nets.bcq_vae import BCQPolicy
from rlbench.ops.losses import bc_mse, kl_to_standard_normal, lambda_mix, weighted_mean
from rlbench.ops.types import Role, Transition


class BCQ(Compilable):
    """https://arxiv.org/abs/1812.02900, algorithm 1."""

    saved = (
        "net",
        "target_perturbation",
        "target_critics",
        "proposer_optimizer",
        "critics_optimizer",
        "perturbation_optimizer",
    )

    cycle_length = 1

    def __init__(
        self,
        net: BCQPolicy,
        *,
        proposer_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        perturbation_optimizer: torch.optim.Optimizer,
        tau: float,
        config: BCQConfig,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.net, self.config = net, config
        self.proposer_optimizer, self.critics_optimizer = proposer_optimizer, critic_optimizer
        self.perturbation_optimizer = perturbation_optimizer
        self.target_perturbation = copy.deepcopy(net.perturbation).requires_grad_(False)
        self.target_critics = copy.deepcopy(net.critics).requires_grad_(False)
        pairs = (self.target_critics, net.critics), (self.target_perturbation, net.perturbation)
        self.periodic_actions = target_updates(*pairs, tau=tau)

    @compilable
    def model_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """The VAE's loss (1312.6114, eq. 3), and its mean squared error and divergence, all ``[]``."""
        action, mean, log_std = self.net.proposer(batch.obs, batch.action)
        error, divergence = bc_mse(action, batch.action), kl_to_standard_normal(mean, log_std)
        total = (batch.weight * (error + self.config.vae_kl_weight * divergence)).mean()
        return total, weighted_mean(error.detach(), batch.weight), weighted_mean(divergence.detach(), batch.weight)

    @torch.no_grad()
    def proposals(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """One sampled action at ``obs``, ``[B, A]``, and M candidates at ``next_obs``, ``[M, B, A]``."""
        count = self.config.n_action_samples
        obs, next_obs = batch.obs[None], batch.next_obs.expand(count, -1, -1)
        actions = self.net.proposer.propose(torch.cat([obs, next_obs]).flatten(0, 1), 1)
        actions = actions.view(count + 1, *batch.action.shape)
        return actions[0], actions[1:]

    @compilable
    def critic_loss(self, batch: Transition, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the best ``candidates`` ``[M, B, A]`` (eq. 13)."""
        with torch.no_grad():
            action = self.target_perturbation(batch.next_obs, candidates)
            value = lambda_mix(self.target_critics.action_values(batch.next_obs, action), self.config.lmbda)  # [M, B]
            target = batch.reward + batch.discount * value.amax(0)
        return squared_td_errors(self.net.critics(batch.obs, batch.action), target, batch.weight)

    @compilable
    def policy_loss(self, batch: Transition, candidates: Tensor) -> Tensor:
        """The perturbation's loss, ``[]`` (eq. 12): minus the value of perturbed ``candidates`` ``[B, A]``."""
        value = self.net.critics(batch.obs, self.net.perturbation(batch.obs, candidates), members=1)
        actor_loss: Tensor = -(batch.weight * value[0]).mean()
        return actor_loss

    def update(self, batch: Transition, phase: int = 0) -> Update:  # noqa: ARG002 - all updates are alike
        """A step of the VAE, of the critics and of the perturbation, one after another."""
        model_loss, reconstruction_error, divergence = self.model_loss(batch)
        optimize(model_loss, self.proposer_optimizer)
        candidate, next_candidates = self.proposals(batch)
        critic_loss, q, error = self.critic_loss(batch, next_candidates)
        optimize(critic_loss, self.critics_optimizer)
        actor_loss = self.policy_loss(batch, candidate)
        optimize(actor_loss, self.perturbation_optimizer)
        metrics = {
            "critic_loss": critic_loss.detach(),  # summed over the critics
            "actor_loss": actor_loss.detach(),  # of the perturbation
            "q": q,
            "error": reconstruction_error,  # squared distance of reconstructed actions, mean over their dimensions
            "divergence": divergence,  # nats per latent dimension
        }
        return Update(metrics, error)

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:  # noqa: ARG002 - the data's variety is exploration enough
        """The best of many sampled candidates, ``[N, A]``."""
        action: Tensor = self.net(obs, self.config.eval_action_samples)
        return action

    def policy_net(self) -> BCQPolicy:
        """VAE, perturbation and critics: all of them act."""
        return self.net
