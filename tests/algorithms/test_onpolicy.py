"""A2C and PPO against their equations, by an independent implementation in float64."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.algorithms.onpolicy import RolloutBatch, evaluate_actions, normalize, rollout_batch
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import REINFORCE
from rlbench.config.online import PPOConfig
from rlbench.nets.actor_critic import SeparateActorCritic, SharedActorCritic
from rlbench.ops.action_distributions import CategoricalPolicy, GaussianPolicy
from rlbench.ops.conjugate_gradient import flatten
from rlbench.ops.losses import weighted_mean
from tests.algorithms import by_hand
from tests.algorithms.rollouts import ACTIONS, ENVS, OBS, ROWS, natural, numbers, ppo, reinforce, rollout_of, row_output


def batch_of(net: SeparateActorCritic | SharedActorCritic, size: int = 64) -> RolloutBatch:
    """Ratios on both sides of every bound, advantages of both signs, a third of the rows without weight."""
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    obs = normal(size, OBS)
    with torch.no_grad():
        output = net(obs)
    numbered = isinstance(output.policy, CategoricalPolicy)
    action = torch.randint(0, 3, (size,), generator=generator) if numbered else normal(size, ACTIONS)
    log_prob = output.policy.log_prob(action).detach() + 0.4 * normal(size)
    weight = (torch.rand(size, generator=generator) > 0.3).double()
    return RolloutBatch(
        obs, action, log_prob, output.value + 0.5 * normal(size), 1 + 2 * normal(size), normal(size), weight
    )


@dataclass
class Expected:
    """Sums over the rows that count."""

    gain: float = 0.0
    miss: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    rows: int = 0


def by_the_papers(net: SeparateActorCritic | SharedActorCritic, batch: RolloutBatch, ours: PPOConfig) -> Expected:
    """PPO eq. 7 and 9, dual clip eq. 5 (1912.09729), the clipped value of PPO's own code, row by row."""
    live = [i for i in range(len(batch.weight)) if batch.weight[i]]
    advantage = numbers(batch.advantage)
    if ours.normalize:
        live_advantage = advantage[live]
        advantage = (advantage - live_advantage.mean()) / (live_advantage.std(ddof=1) + 1e-8)
    total = Expected(rows=len(live))
    for i in live:
        now = row_output(net, numbers(batch.obs[i]), numbers(batch.action[i]))
        old, before, goal, gain_of_action = (
            float(x[i]) for x in (batch.log_prob, batch.value, batch.value_target, advantage)
        )
        gain, miss = now.log_prob * gain_of_action, (now.value - goal) ** 2
        if ours.clip is not None:
            ratio = math.exp(now.log_prob - old)
            gain = min(ratio * gain_of_action, float(np.clip(ratio, 1 - ours.clip, 1 + ours.clip)) * gain_of_action)
            if ours.dual_clip is not None and gain_of_action < 0:
                gain = max(gain, ours.dual_clip * gain_of_action)
            if ours.value_clip:
                near = before + float(np.clip(now.value - before, -ours.clip, ours.clip))
                miss = max(miss, (near - goal) ** 2)
        total.gain, total.miss = total.gain + gain, total.miss + miss
        total.entropy, total.kl = total.entropy + now.entropy, total.kl + old - now.log_prob
    return total


@pytest.mark.parametrize("kind", ["gaussian", "discrete", "shared"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip": 0.2},
        {"clip": 0.2, "dual_clip": 1.5},
        {"clip": 0.3, "value_clip": True, "value": 0.25},
        {"clip": 0.2, "normalize": True, "entropy": 0.3},
        {"normalize": True, "value": 2.0},
        {"clip": 0.1, "dual_clip": 3.0, "value_clip": True, "normalize": True, "entropy": 0.0},
    ],
)
def test_ppo_objective_equals_the_papers_row_by_row(kind: str, changes: dict[str, float | bool | None]) -> None:
    learner = ppo(kind, **changes)
    batch = batch_of(learner.net)
    loss, report = learner.loss(batch)
    expected = by_the_papers(learner.net, batch, learner.config)
    gain, miss, entropy, kl = (x / expected.rows for x in (expected.gain, expected.miss, expected.entropy, expected.kl))
    assert [x.item() for x in report] == pytest.approx([-gain, miss, entropy, kl], rel=1e-6)
    ours = learner.config
    assert loss.item() == pytest.approx(-gain + ours.value * miss - ours.entropy * entropy, rel=1e-6)


@pytest.mark.parametrize("changes", [{}, {"clip": 0.2, "dual_clip": 1.5, "value_clip": True, "normalize": True}])
def test_gradient_of_the_objective_equals_finite_differences(changes: dict[str, float | bool | None]) -> None:
    learner = ppo(**changes)
    batch = batch_of(learner.net)
    loss = lambda: learner.loss(batch)[0]
    for name, parameter in learner.net.named_parameters():
        (gradient,) = torch.autograd.grad(loss(), [parameter])
        expected = by_hand.derivative(loss, parameter.data.view(-1), 0)
        assert gradient.flatten()[0].item() == pytest.approx(expected, rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("kind", ["gaussian", "discrete"])
def test_ppo_gradient_equals_a2cs_at_the_behavior_policy(kind: str) -> None:
    one, other = ppo(kind, clip=0.2), ppo(kind)
    batch = batch_of(one.net)
    batch = batch._replace(log_prob=one.net(batch.obs).policy.log_prob(batch.action).detach())
    ours, theirs = (torch.autograd.grad(x.loss(batch)[0], list(x.net.parameters())) for x in (one, other))
    torch.testing.assert_close(ours, theirs)


def test_batch_of_dead_rows_gives_a_finite_zero_gradient() -> None:
    learner = ppo(clip=0.2, normalize=True, entropy=0.3)
    batch = batch_of(learner.net)._replace(weight=torch.zeros(64, dtype=torch.float64))
    loss, _ = learner.loss(batch)
    for gradient in torch.autograd.grad(loss, list(learner.net.parameters())):
        assert (gradient == 0).all()


def test_normalized_advantages_have_mean_zero_and_std_one_over_live_rows() -> None:
    x, weight = torch.tensor([1.0, 2.0, 6.0, 1e6]).double(), torch.tensor([1.0, 1.0, 1.0, 0.0]).double()
    actual = normalize(x, weight)[:3]
    assert actual.tolist() == pytest.approx(((np.array([1, 2, 6]) - 3) / np.std([1, 2, 6], ddof=1)).tolist())
    assert weighted_mean(x, weight).item() == 3
    assert normalize(torch.tensor([5.0]), torch.ones(1)).tolist() == [0]


def test_total_gradient_norm_is_clipped() -> None:
    free, bound = ppo(lr=1.0), ppo(lr=1.0, max_grad_norm=0.01)
    rollout = rollout_of()
    moves = []
    for learner in (free, bound):
        before = flatten(list(learner.net.parameters())).detach().clone()
        learner.update(rollout)
        moves.append(before - flatten(list(learner.net.parameters())).detach())
    assert float(moves[0].norm()) > 0.05
    assert float(moves[1].norm()) == pytest.approx(0.01, rel=1e-4)
    torch.testing.assert_close(moves[1] / moves[1].norm(), moves[0] / moves[0].norm(), rtol=1e-6, atol=1e-9)


def recorded_batches(learner: PPO) -> list[RolloutBatch]:
    """Every batch of which the learner's loss is computed."""
    all_batches: list[RolloutBatch] = []
    plain = learner.loss

    def loss(batch: RolloutBatch) -> tuple[Tensor, object]:
        all_batches.append(RolloutBatch(*(column.clone() for column in batch)))
        return plain(batch)

    learner.loss = loss
    return all_batches


def by_row(batches: list[RolloutBatch]) -> RolloutBatch:
    """The batches of a repeat as one, in the order of the rows' own numbers."""
    whole = RolloutBatch(*(torch.cat(columns) for columns in zip(*batches, strict=True)))
    order = whole.obs[:, 0].argsort()
    return RolloutBatch(*(column[order] for column in whole))


@pytest.mark.parametrize("batches", [1, 5, 8])
def test_every_row_is_in_one_shuffled_minibatch_per_epoch(batches: int) -> None:
    learner = ppo(clip=0.2, epochs=3, minibatches=batches)
    all_batches, rollout = recorded_batches(learner), rollout_of()
    learner.update(rollout)
    assert learner.steps == len(all_batches) == 3 * batches
    assert max(len(b.weight) for b in all_batches) - min(len(b.weight) for b in all_batches) <= 1
    repeats = [all_batches[i * batches : (i + 1) * batches] for i in range(3)]
    for repeat in repeats:
        whole = by_row(repeat)
        assert torch.equal(whole.obs, rollout.obs[:-1].flatten(0, 1))
        assert torch.equal(whole.action, rollout.action.flatten(0, 1))
        assert torch.equal(whole.weight, (~rollout.final).flatten().double())
    if batches > 1:
        companies = [tuple(sorted(repeat[0].obs[:, 0].tolist())) for repeat in repeats]
        assert len(set(companies)) == 3


@pytest.mark.parametrize("recompute", [True, False])
def test_later_epochs_recompute_values_but_not_log_probabilities(recompute: bool) -> None:
    learner = ppo(clip=0.2, normalize=True, epochs=3, minibatches=4, recompute=recompute)
    oracle = ppo(clip=0.2, normalize=True)  # its critic and scale are brought to where the learner's stand
    all_batches, rollout = recorded_batches(learner), rollout_of()
    first = rollout_batch(oracle.net, rollout, oracle.returns)
    states: list[dict[str, Tensor]] = []
    plain = learner.loss

    def loss(batch: RolloutBatch) -> tuple[Tensor, object]:
        states.append({k: v.clone() for k, v in learner.net.state_dict().items()})
        return plain(batch)

    learner.loss = loss
    learner.update(rollout)
    for repeat in range(3):
        whole, expected = by_row(all_batches[4 * repeat : 4 * repeat + 4]), first
        if repeat and recompute:
            oracle.net.load_state_dict(states[4 * repeat])
            value = evaluate_actions(oracle.net, rollout)[1]
            advantage, goal = (x.flatten() for x in oracle.returns(rollout, value))
            expected = first._replace(value=value[:-1].flatten(), advantage=advantage, value_target=goal)
            assert not torch.allclose(expected.advantage, first.advantage)
        for name, column, expected_column in zip(RolloutBatch._fields, whole, expected, strict=True):
            torch.testing.assert_close(column, expected_column, msg=name)


def test_evaluated_values_and_log_probabilities_equal_the_networks() -> None:
    learner, rollout = ppo(), rollout_of()
    log_prob, value = evaluate_actions(learner.net, rollout)
    for row, env_index in np.ndindex(ROWS, ENVS):
        now = row_output(learner.net, numbers(rollout.obs[row, env_index]), numbers(rollout.action[row, env_index]))
        assert (log_prob[row, env_index].item(), value[row, env_index].item()) == pytest.approx(
            (now.log_prob, now.value)
        )
    for env_index in range(ENVS):
        last = row_output(learner.net, numbers(rollout.obs[ROWS, env_index]), np.zeros(ACTIONS))
        assert value[ROWS, env_index].item() == pytest.approx(last.value)


@pytest.mark.parametrize("greedy", [True, False])
def test_only_greedy_learners_are_evaluated_by_their_mode(greedy: bool) -> None:
    obs = torch.randn(5, OBS, dtype=torch.float64)
    for learner in (ppo(), natural(), reinforce(standardise=True)):
        learner.greedy = greedy
        policy = learner.net.policy(obs) if not isinstance(learner, REINFORCE) else learner.actor(obs)
        assert isinstance(policy, GaussianPolicy)
        assert torch.equal(learner.act(obs, "eval"), policy.mode()) == greedy
        assert not torch.equal(learner.act(obs, "act"), policy.mode())
