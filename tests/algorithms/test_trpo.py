"""NPG and TRPO against explicit second derivatives and a direct solver, in float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.algorithms.onpolicy import rollout_batch
from rlbench.algorithms.trpo import TRPO
from rlbench.nets.actor_critic import SeparateActorCritic
from rlbench.ops.action_distributions import StochasticPolicy
from rlbench.ops.conjugate_gradient import flatten
from rlbench.ops.types import Rollout
from tests.algorithms.recorded import same_parameters
from tests.algorithms.rollouts import estimator_of, natural, net_of, rollout_of, sgd


def row_of(learner: TRPO) -> Tensor:
    return flatten(list(learner.net.actor.parameters())).detach().clone()


@dataclass
class Solution:
    """The actor's parameters, the natural gradient there by a direct solver, and its size in the damped metric."""

    start: Tensor
    direction: Tensor
    size: float
    surrogate: Callable[[Tensor], float]  # of the parameters
    divergence: Callable[[Tensor], float]


def solution_of(learner: TRPO, rollout: Rollout) -> Solution:
    """Of a learner that has not moved yet; by explicit first and second derivatives."""
    batch, start, damping = rollout_batch(learner.net, rollout, estimator_of()), row_of(learner), learner.config.damping
    parameters = dict(learner.net.actor.named_parameters())
    live = batch.weight > 0
    live_advantage = batch.advantage[live]
    advantage = (batch.advantage - live_advantage.mean()) / live_advantage.std()

    def at(row: Tensor) -> StochasticPolicy:
        sizes = [p.numel() for p in parameters.values()]
        pieces = [x.view_as(p) for x, p in zip(row.split(sizes), parameters.values(), strict=True)]
        call = torch.func.functional_call
        policy: StochasticPolicy = call(learner.net.actor, dict(zip(parameters, pieces, strict=True)), (batch.obs,))
        return policy

    before = at(start).detach()

    def gain(row: Tensor) -> Tensor:
        return ((at(row).log_prob(batch.action) - before.log_prob(batch.action)).exp() * advantage)[live].mean()

    def divergence(row: Tensor) -> Tensor:
        return before.kl_divergence(at(row))[live].mean()

    gradient = torch.autograd.functional.jacobian(gain, start)
    matrix = torch.autograd.functional.hessian(divergence, start) + damping * torch.eye(len(start)).double()
    direction = torch.linalg.solve(matrix, gradient)
    size = float(direction @ matrix @ direction)
    return Solution(start, direction, size, lambda row: gain(row).item(), lambda row: divergence(row).item())


@pytest.mark.parametrize("kind", ["gaussian", "discrete"])
@pytest.mark.parametrize("size", [0.1, 0.03])
def test_npg_step_is_its_size_times_the_natural_gradient(kind: str, size: float) -> None:
    learner = natural(kind, step=size)
    rollout = rollout_of(learner.net)
    solution = solution_of(learner, rollout)
    report = learner.update(rollout)
    torch.testing.assert_close(row_of(learner), solution.start + size * solution.direction, rtol=1e-6, atol=1e-8)
    assert report["divergence"].item() == pytest.approx(solution.divergence(row_of(learner)), rel=1e-6)
    assert report["policy_loss"].item() == pytest.approx(-solution.surrogate(solution.start), abs=1e-9)


SEARCHES = [
    ("gaussian", 0.01, 0.1, 0), ("gaussian", 50.0, 0.1, 1), ("gaussian", 0.1, 0.01, 3), ("gaussian", 10.0, 0.01, 6),
    ("discrete", 0.1, 0.1, 0), ("discrete", 1000.0, 0.1, 4), ("discrete", 0.5, 0.01, 3),
]  # fmt: skip
"""Kind, region, damping and backtracks; with 1000 too long strides stay within the region but worsen the surrogate."""


def acceptable(solution: Solution, region: float) -> list[int]:
    """Which of ten strides stay within the region and better the surrogate."""
    longest, start = math.sqrt(2 * region / solution.size) * solution.direction, solution.surrogate(solution.start)
    places = [solution.start + 0.8**k * longest for k in range(10)]
    return [k for k, p in enumerate(places) if solution.divergence(p) < region and solution.surrogate(p) > start]


@pytest.mark.parametrize(("kind", "region", "damping", "backtracks"), SEARCHES)
def test_trpo_takes_the_first_improving_step_within_the_trust_region(
    kind: str, region: float, damping: float, backtracks: int
) -> None:
    learner = natural(kind, max_kl=region, damping=damping)
    rollout = rollout_of(learner.net)
    solution = solution_of(learner, rollout)
    assert acceptable(solution, region)[0] == backtracks
    report = learner.update(rollout)
    stride = 0.8**backtracks * math.sqrt(2 * region / solution.size) * solution.direction
    torch.testing.assert_close(row_of(learner), solution.start + stride, rtol=1e-6, atol=1e-8)
    assert solution.divergence(row_of(learner)) < region
    assert solution.surrogate(row_of(learner)) > solution.surrogate(solution.start)
    assert report["divergence"].item() == pytest.approx(solution.divergence(row_of(learner)), rel=1e-6)


@pytest.mark.parametrize("kind", ["gaussian", "discrete"])
def test_failed_line_search_keeps_the_actor_to_the_bit(kind: str) -> None:
    """No stride will do here; the documented code kept the last of them (semantics.md, 9.19)."""
    learner = natural(kind, max_kl=2.0, damping=0.001)
    rollout = rollout_of(learner.net)
    assert acceptable(solution_of(learner, rollout), 2.0) == []
    before = [p.detach().clone() for p in learner.net.actor.parameters()]
    critic = [p.detach().clone() for p in learner.net.critic.parameters()]
    report = learner.update(rollout)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.net.actor.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(critic, learner.net.critic.parameters(), strict=True))
    assert report["divergence"].item() == 0


def test_equal_advantages_leave_the_actor() -> None:
    for learner in (natural(max_kl=0.01), natural(step=0.1)):
        rollout = rollout_of()
        alike = rollout._replace(reward=torch.zeros_like(rollout.reward))
        for parameter in learner.net.critic.parameters():
            parameter.data.zero_()
        before = row_of(learner)
        learner.update(alike)
        assert torch.equal(row_of(learner), before)


def test_critic_takes_the_configured_gradient_steps_on_the_squared_error() -> None:
    learner, rollout = natural(critic_steps=3), rollout_of()
    batch = rollout_batch(learner.net, rollout, estimator_of())
    twin, losses = net_of("gaussian"), []
    assert isinstance(twin, SeparateActorCritic)
    optimizer, live = sgd(twin.critic), batch.weight > 0
    for _ in range(3):
        loss = (twin.critic(batch.obs).squeeze(-1) - batch.value_target)[live].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report = learner.update(rollout)
    same_parameters(learner.net.critic, twin.critic)
    assert report["value_loss"].item() == pytest.approx(np.mean(losses))
    assert learner.steps == 1
