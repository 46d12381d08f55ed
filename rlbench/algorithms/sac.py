"""SAC, and REDQ, which is SAC with many critics of which a few are drawn for each target."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from rlbench.algorithms.base import Periodic, optimize
from rlbench.algorithms.critic_loss import ACUpdate, polyak_update, td_loss
from rlbench.nets.actors import SquashedActor
from rlbench.nets.critics import Critics, random_subset
from rlbench.ops.action_distributions import Squashed
from rlbench.ops.state_dict import Parts, State, branch, into_optimizer, into_parts, of_optimizer, of_parts, tensor
from rlbench.ops.types import Role, Transition


class Temperature:
    """What entropy is worth: α, fixed, or learned so that the entropy meets a target (1812.05905, eq. 18)."""

    def __init__(self, start: float, *, device: torch.device, target: float | None = None, lr: float = 0.0) -> None:
        self.target = target  # nats; None leaves α as it is
        self.log = nn.Parameter(torch.tensor(math.log(start), device=device))
        self.optimizer = torch.optim.Adam([self.log], lr=lr, fused=True)

    def value(self) -> Tensor:
        """α, ``[]``, of which nothing is learned."""
        return self.log.detach().exp()

    def loss(self, entropy: Tensor) -> Tensor:
        """Falls when α rises while ``entropy`` ``[]`` is below its target; linear in log α as documented."""
        return self.log * (entropy - (self.target or 0.0))

    def learn(self, entropy: Tensor) -> None:
        """One step towards the target, where there is one, from the policy's entropy ``[]``."""
        if self.target is not None:
            optimize(self.loss(entropy), (self.optimizer,))

    def state_dict(self) -> State:
        """α and what its optimizer has gathered."""
        return {"log": self.log, "optimizer": of_optimizer(self.optimizer)}

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        self.log.data.copy_(tensor(state, "log"))
        into_optimizer(self.optimizer, branch(state, "optimizer"))


class SAC:
    """https://arxiv.org/abs/1812.05905; with ``redq_subset`` and a long ``delay`` REDQ, https://arxiv.org/abs/2101.05982."""

    every: tuple[Periodic, ...] = ()

    def __init__(
        self,
        actor: SquashedActor,
        critics: Critics,
        *,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        temperature: Temperature,
        tau: float,
        delay: int,
        redq_subset: int | None,
    ) -> None:
        self.actor, self.critics, self.temperature = actor, critics, temperature
        self.target_critics = copy.deepcopy(critics).requires_grad_(False)
        self.actor_optimizer, self.critic_optimizer = actor_optimizer, critic_optimizer
        self.tau, self.cycle, self.redq_subset = tau, delay, redq_subset
        self.held = next(actor.parameters()).new_zeros(2)  # the actor's last loss and entropy, between two of its steps

    def critic_loss(self, batch: Transition) -> tuple[Tensor, Tensor, Tensor]:
        """Loss ``[]``, mean value ``[]`` and errors ``[B]`` against the soft value of what comes next (eq. 5 and 6)."""
        with torch.no_grad():
            action, log_prob = self.actor(batch.next_obs).sample()
            future = random_subset(self.target_critics(batch.next_obs, action), self.redq_subset).amin(0)
            goal = batch.reward + batch.discount * (future - self.temperature.value() * log_prob)
        return td_loss(self.critics, batch, goal)

    def policy_loss(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """The actor's loss (eq. 9) and its entropy, both ``[]``; an ensemble is averaged, twins are minimised."""
        policy = self.actor(batch.obs)
        action, log_prob = policy.sample()
        loss = (batch.weight * (self.temperature.value() * log_prob - self.objective(batch, policy, action))).mean()
        rows = batch.weight.sum()
        entropy = -(batch.weight * log_prob.detach()).sum() / rows.clamp_min(torch.finfo(rows.dtype).tiny)
        return loss, torch.where(rows > 0, entropy, self.temperature.target or 0.0)  # no rows ask for no change

    def objective(self, batch: Transition, policy: Squashed, action: Tensor) -> Tensor:  # noqa: ARG002 - of behaviour cloning
        """The value of the policy's ``action`` ``[B, A]``, which the actor maximises beside its entropy, ``[B]``."""
        value: Tensor = self.critics(batch.obs, action)
        return value.amin(0) if self.redq_subset is None else value.mean(0)

    def update(self, batch: Transition, phase: int) -> ACUpdate:
        """A step of the critics and their targets; at the end of a cycle one of the actor and the temperature too."""
        loss, q, error = self.critic_loss(batch)
        optimize(loss, (self.critic_optimizer,))
        if phase == self.cycle - 1:
            self.update_actor(batch)
        polyak_update(self.target_critics, self.critics, self.tau)
        return ACUpdate(loss.detach(), self.held[0], q, self.held[1], self.temperature.value(), error)

    def update_actor(self, batch: Transition) -> None:
        """A step of the actor and of the temperature."""
        actor_loss, entropy = self.policy_loss(batch)
        optimize(actor_loss, (self.actor_optimizer,))
        self.temperature.learn(entropy)
        self.held.copy_(torch.stack([actor_loss.detach(), entropy]))

    @torch.no_grad()
    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Samples of the policy, ``[N, A]``; its mode when it is judged."""
        policy = self.actor(obs)
        action: Tensor = policy.mode() if role == "eval" else policy.sample()[0]
        return action

    def policy(self) -> SquashedActor:
        """The actor."""
        return self.actor

    def state_dict(self) -> State:
        """Three networks, the temperature, their optimizers, and the actor's last figures."""
        return {**of_parts(self._parts()), "held": self.held}

    def load_state_dict(self, state: State) -> None:
        """Take them over, in place."""
        into_parts(self._parts(), state)
        self.held.copy_(tensor(state, "held"))

    def _parts(self) -> Parts:
        networks = {"actor": self.actor, "critics": self.critics, "target_critics": self.target_critics}
        optimizers = {"actor_optimizer": self.actor_optimizer, "critic_optimizer": self.critic_optimizer}
        return {**networks, **optimizers, "temperature": self.temperature}
