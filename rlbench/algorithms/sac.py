"""SAC, and REDQ, which is SAC with an ensemble of critics and a random subset of it in each target."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from rlbench.algorithms.base import ActorLearner, Compiler, Update, compilable
from rlbench.algorithms.steps import optimize, squared_td_errors, target_updates
from rlbench.nets.actors import SquashedGaussianActor
from rlbench.nets.critics import Critics, random_subset
from rlbench.ops.action_distributions import SquashedGaussianPolicy
from rlbench.ops.losses import weighted_mean
from rlbench.ops.state_dict import Composite
from rlbench.ops.types import Metrics, Transition


class Temperature(Composite):
    """The entropy coefficient α, fixed, or learned so that the entropy meets a target (1812.05905, eq. 18)."""

    saved = ("log", "optimizer")

    def __init__(
        self, alpha: float, *, device: torch.device, target: float | None = None, lr: float | None = None
    ) -> None:
        self.target = None if lr is None else target  # nats; None fixes α
        self.log = nn.Parameter(torch.tensor(math.log(alpha), device=device))
        self.optimizer = torch.optim.Adam([self.log], lr=lr or 0.0, fused=True)

    def value(self) -> Tensor:
        """α, ``[]``, without gradient."""
        return self.log.detach().exp()

    def loss(self, entropy: Tensor) -> Tensor:
        """The loss of α, ``[]``, from the policy's ``entropy`` ``[]``; linear in log α, as in the reference code."""
        return self.log * (entropy - (self.target or 0.0))

    def learn(self, entropy: Tensor) -> None:
        """One step towards the target entropy, if there is one, from the policy's entropy ``[]``."""
        if self.target is not None:
            optimize(self.loss(entropy), self.optimizer)

    def mean_entropy(self, entropy: Tensor, weight: Tensor) -> Tensor:
        """The mean of ``entropy`` ``[B]``, ``[]``; its target if every weight is 0, so that α stays."""
        return torch.where(weight.sum() > 0, weighted_mean(entropy, weight), self.target or 0.0)


class SAC(ActorLearner):
    """https://arxiv.org/abs/1812.05905; with ``redq_subset`` and a long ``delay`` REDQ, https://arxiv.org/abs/2101.05982."""

    saved = ("actor", "critics", "target_critics", "actor_optimizer", "critic_optimizer", "temperature", "held")

    def __init__(
        self,
        actor: SquashedGaussianActor,
        critics: Critics,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        temperature: Temperature,
        tau: float,
        delay: int,
        redq_subset: int | None,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__(compiler)
        self.actor, self.critics, self.temperature = actor, critics, temperature
        self.target_critics = copy.deepcopy(critics).requires_grad_(False)
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer
        self.cycle_length, self.redq_subset = delay, redq_subset
        self.periodic_actions = target_updates((self.target_critics, critics), tau=tau)
        self.held = next(actor.parameters()).new_zeros(2)  # the actor's last loss and entropy, between two of its steps

    @compilable
    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the soft value of the next state (eq. 5 and 6)."""
        with torch.no_grad():
            action, log_prob = self.actor(batch.next_obs).sample_and_log_prob()
            future = random_subset(self.target_critics(batch.next_obs, action), self.redq_subset).amin(0)
            target = batch.reward + batch.discount * (future - self.temperature.value() * log_prob)
        return squared_td_errors(self.critics(batch.obs, batch.action), target, batch.weight)

    @compilable
    def policy_loss(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """The actor's loss (eq. 9) and its entropy, both ``[]``; REDQ averages its critics, SAC takes the minimum."""
        policy = self.actor(batch.obs)
        action, log_prob = policy.sample_and_log_prob()
        actor_loss = (
            batch.weight * (self.temperature.value() * log_prob - self.objective(batch, policy, action))
        ).mean()
        return actor_loss, self.temperature.mean_entropy(-log_prob.detach(), batch.weight)

    def objective(self, batch: Transition, policy: SquashedGaussianPolicy, action: Tensor) -> Tensor:  # noqa: ARG002 - for behavior cloning
        """The value of the policy's ``action`` ``[B, A]``, which the actor maximizes beside its entropy, ``[B]``."""
        value: Tensor = self.critics(batch.obs, action)
        return value.amin(0) if self.redq_subset is None else value.mean(0)

    def update(self, batch: Transition, phase: int) -> Update:
        """A step of the critics, and at the end of a cycle one of the actor and the temperature."""
        critic_loss, q, error = self.critic_loss(batch)
        optimize(critic_loss, self.critic_optimizer)
        if phase == self.cycle_length - 1:
            self.update_actor(batch)
        return Update(self.metrics(critic_loss, q), error)

    def metrics(self, critic_loss: Tensor, q: Tensor) -> Metrics:
        """The metrics of a gradient step, ``[]``; actor loss and entropy are those of the actor's last step."""
        actor_loss, entropy = self.held.clone()
        return {
            "critic_loss": critic_loss.detach(),  # summed over the critics
            "actor_loss": actor_loss,
            "q": q,
            "entropy": entropy,  # nats, by the policy's own samples
            "alpha": self.temperature.value(),
        }

    def update_actor(self, batch: Transition) -> None:
        """A step of the actor and of the temperature."""
        actor_loss, entropy = self.policy_loss(batch)
        optimize(actor_loss, self.actor_optimizer)
        self.temperature.learn(entropy)
        self.held.copy_(torch.stack([actor_loss.detach(), entropy]))
