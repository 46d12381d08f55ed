"""Discrete SAC against its equations, summed action by action in float64, and the order in which it learns."""

import math

import numpy as np
import pytest
import torch
from scipy import special
from torch import nn

from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.sac import Temperature
from rlbench.algorithms.steps import optimize
from rlbench.nets.discrete_actor_critic import DiscreteActorCritic
from rlbench.nets.torsos import MLPTorso
from rlbench.ops.types import Transition
from tests.algorithms import by_hand, recorded, small_nets
from tests.algorithms.recorded import BATCH, OBS, Array, numbers, rows, same_parameters

ACTIONS, ALPHA = 4, 0.05


def batch() -> Transition:
    return recorded.batch()._replace(action=torch.tensor([0, 3, 1, 1, 2]))


def sac(*, critics: int = 2, target: float | None = None) -> DiscreteSAC:
    torch.manual_seed(0)
    torso = MLPTorso(obs_shape=(OBS,), widths=(6,))
    net = DiscreteActorCritic(torso, hidden=5, actions=ACTIONS, critics=critics).double()

    def adam(head: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam([*net.torso.parameters(), *head.parameters()], lr=1e-3)

    learner = DiscreteSAC(
        net,
        actor_optimizer=adam(net.logits),
        critic_optimizers=[adam(critic) for critic in net.critics],
        temperature=Temperature(ALPHA, device=torch.device("cpu"), target=target, lr=1e-2),
        tau=0.25,
    )
    small_nets.spread(learner.target)
    return learner


def q(net: DiscreteActorCritic, member: int, obs: Array) -> Array:
    return by_hand.through(obs, net.torso, net.critics[member])


def chances(net: DiscreteActorCritic, obs: Array) -> Array:
    return special.softmax(by_hand.through(obs, net.torso, net.logits))


def soft(probability: Array, value: Array) -> float:
    return float(sum(p * (v - ALPHA * math.log(p)) for p, v in zip(probability, value, strict=True)))


@pytest.mark.parametrize("critics", [1, 2, 3])
def test_critics_regress_to_the_expected_soft_minimum_target(critics: int) -> None:
    learner, b = sac(critics=critics), batch()
    goal = learner.td_target(b)
    for target, row in zip(goal, rows(b), strict=True):
        least = np.min([q(learner.target, k, row.next_obs) for k in range(critics)], axis=0)
        expected = row.reward + row.discount * soft(chances(learner.net, row.next_obs), least)
        assert target.item() == pytest.approx(expected, rel=1e-6)  # α lies in float32
    for k in range(critics):
        loss, mean, error = learner.critic_loss(b, goal, k)
        values = np.array([q(learner.net, k, row.obs)[int(row.action)] for row in rows(b)])
        gaps, weight = values - numbers(goal), numbers(b.weight)
        assert loss.item() == pytest.approx((weight * gaps**2).mean(), rel=1e-12)
        assert mean.item() == pytest.approx(values[weight > 0].mean(), rel=1e-12)  # a row of weight 0 is in no mean
        assert numbers(error) == pytest.approx(np.abs(gaps), rel=1e-12)


def test_actor_ascends_the_expected_soft_minimum_value() -> None:
    learner, b = sac(), batch()
    loss, entropy = learner.policy_loss(b)
    expected, surprise = 0.0, 0.0
    for row in rows(b):
        probability = chances(learner.net, row.obs)
        least = np.minimum(q(learner.net, 0, row.obs), q(learner.net, 1, row.obs))
        expected -= row.weight * soft(probability, least) / BATCH
        surprise -= row.weight * float((probability * np.log(probability)).sum()) / float(b.weight.sum())
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert entropy.item() == pytest.approx(surprise, rel=1e-12)


def test_actor_loss_has_no_gradient_in_the_critics() -> None:
    learner, b = sac(), batch()
    loss, _ = learner.policy_loss(b)
    assert torch.autograd.grad(loss, list(learner.net.critics.parameters()), allow_unused=True) == (None,) * 4


def test_optimizers_update_the_shared_torso_in_turn() -> None:
    """Documented: critic after critic, then the actor, each with a torso of which none has a copy."""
    learner, other, b = sac(), sac(), batch()
    report = learner.update(b)
    goal, losses = other.td_target(b), []
    for member, optimizer in enumerate(other.critic_optimizers):
        loss, _, _ = other.critic_loss(b, goal, member)
        optimize(loss, optimizer)
        losses.append(loss.item())
    first = sac()
    assert losses[1] != first.critic_loss(b, first.td_target(b), 1)[0].item()
    optimize(other.policy_loss(b)[0], other.actor_optimizer)
    assert report.metrics["critic_loss"].item() == pytest.approx(sum(losses), rel=1e-12)
    same_parameters(learner.net, other.net, rtol=0, atol=0)


@pytest.mark.parametrize(("target", "rises"), [(math.log(ACTIONS), True), (0.1, False)])
def test_a_learned_temperature_rises_while_entropy_is_missing(target: float, rises: bool) -> None:
    learner, b = sac(target=target), batch()
    assert bool(learner.update(b).metrics["alpha"] > ALPHA) == rises


def test_discrete_sac_samples_in_training_and_is_greedy_in_evaluation() -> None:
    learner = sac()
    obs = batch().obs[:1].expand(4000, -1)
    torch.manual_seed(1)
    share = torch.bincount(learner.act(obs, "act"), minlength=ACTIONS) / 4000
    probability = chances(learner.net, numbers(obs[0]))
    assert numbers(share) == pytest.approx(probability, abs=0.04)
    assert set(learner.act(obs, "eval").tolist()) == {int(probability.argmax())}
