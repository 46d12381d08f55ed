"""Curiosity against its paper's equations in float64, and its bonus in every reward of n-step sums and advantages."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbench.algorithms.base import Periodic, Update
from rlbench.algorithms.icm import Curiosity, CuriousOffPolicyLearner, CuriousOnPolicyLearner
from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.buffers.rollout_view import TrajectoryView
from rlbench.nets.icm import ICM
from rlbench.nets.torsos import MLPTorso
from rlbench.ops.returns import advantages
from rlbench.ops.state_dict import State
from rlbench.ops.types import Metrics, Role, Rollout, Transition
from tests.algorithms import by_hand
from tests.algorithms.recorded import Array, numbers
from tests.rings import ring_of

OBS, ACTIONS, GAMMA = 3, 4, 0.9


class Pupil:
    """Keeps what it is given to learn from."""

    steps, cycle_length = 1, 1
    periodic_actions: tuple[Periodic, ...] = ()

    def __init__(self) -> None:
        self.net = nn.Linear(1, 1)
        self.batches: list[Transition] = []
        self.rollouts: list[Rollout] = []

    def act(self, obs: Tensor, role: Role) -> Tensor:
        return torch.zeros(len(obs), dtype=torch.int64)

    def policy_net(self) -> nn.Module:
        return self.net

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


class OfBatches(Pupil):
    def update(self, batch: Transition, phase: int) -> Update:
        self.batches.append(batch)
        metrics = {"loss": torch.tensor(1.0), "q": torch.tensor(2.0)}
        return Update(metrics, torch.arange(len(batch.slot), dtype=torch.float64))


class OfRollouts(Pupil):
    def update(self, rollout: Rollout) -> Metrics:
        self.rollouts.append(rollout)
        return {"entropy": torch.tensor(4.0)}


def curiosity(*, reward_scale: float = 0.5, lr: float = 1e-3) -> Curiosity:
    torch.manual_seed(0)
    net = ICM(MLPTorso(obs_shape=(OBS,), widths=(6,)), hidden=5, actions=ACTIONS).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    return Curiosity(net, optimizer=optimizer, loss_scale=10.0, reward_scale=reward_scale, forward_share=0.2)


def errors_by_hand(net: ICM, before: Array, action: int, after: Array) -> tuple[float, float]:
    """The forward error and the inverse cross entropy of one step (eq. 4, 5 and 2)."""
    one, two = (np.maximum(by_hand.through(obs, net.torso), 0) for obs in (before, after))
    foreseen = by_hand.through(np.concatenate([one, np.eye(ACTIONS)[action]]), net.ahead)
    logits = by_hand.through(np.concatenate([one, two]), net.between)
    surprise = np.log(np.exp(logits).sum()) - logits[action]
    return 0.5 * float(((foreseen - two) ** 2).sum()), float(surprise)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def rollout() -> Rollout:
    """Two envs of four steps; the second ends after its second, is final in its third and goes on."""
    no = torch.zeros(4, 2, dtype=torch.bool)
    done, final = no.clone(), no.clone()
    done[1, 1] = final[2, 1] = True
    action = torch.tensor([[0, 3], [1, 1], [2, 0], [3, 2]])
    reward = normal(4, 2) * ~final
    return Rollout(obs=normal(5, 2, OBS), action=action, reward=reward, terminated=done, done=done, final=final)


def ring(num_envs: int = 2, rows: int = 30, horizon: int = 3) -> RingBuffer:
    """Played by chance, with ends of both kinds; it has wrapped around."""
    draw = np.random.default_rng(3)
    replay = ring_of(num_envs, rows, horizon, obs=ArraySpec((OBS,), torch.float64), seed=1)
    replay.add_observations(draw.normal(size=(num_envs, OBS)))
    for _ in range(rows + 7):
        terminated = draw.random(num_envs) < 0.15
        truncated = (draw.random(num_envs) < 0.15) & ~terminated
        action = torch.from_numpy(draw.integers(ACTIONS, size=num_envs))
        replay.add_transitions(action, draw.normal(size=num_envs).astype(np.float32), terminated, truncated)
        replay.add_observations(draw.normal(size=(num_envs, OBS)))
    return replay


def test_the_loss_is_the_weighted_sum_of_both_models_over_the_steps_that_count() -> None:
    model, steps = curiosity(), rollout()
    outputs = CuriousOnPolicyLearner(OfRollouts(), model).outputs(steps)
    weight = (~steps.final).flatten().double()
    loss, forward, inverse = model.loss(outputs, steps.action.flatten(), weight)
    actual = [
        errors_by_hand(model.net, numbers(steps.obs[t, n]), int(steps.action[t, n]), numbers(steps.obs[t + 1, n]))
        for t in range(4)
        for n in range(2)
        if not steps.final[t, n]
    ]
    errors, surprises = np.array(actual).mean(0)
    assert forward.item() == pytest.approx(errors, rel=1e-12)
    assert inverse.item() == pytest.approx(surprises, rel=1e-12)
    assert loss.item() == pytest.approx(10 * (0.2 * errors + 0.8 * surprises), rel=1e-12)


def test_advantages_contain_the_bonus_of_every_step() -> None:
    model, inner, steps = curiosity(), OfRollouts(), rollout()
    expected = steps.reward.clone()
    for t in range(4):
        for n in range(2):
            if not steps.final[t, n]:
                before, after = numbers(steps.obs[t, n]), numbers(steps.obs[t + 1, n])
                expected[t, n] += 0.5 * errors_by_hand(model.net, before, int(steps.action[t, n]), after)[0]
    report = CuriousOnPolicyLearner(inner, model).update(steps)
    (batch,) = inner.rollouts
    assert numbers(batch.reward) == pytest.approx(numbers(expected), rel=1e-12)
    assert report["bonus"].item() == pytest.approx(float((expected - steps.reward).sum()) / 7, rel=1e-12)
    assert report["entropy"].item() == 4
    value = normal(5, 2)
    plain = advantages(steps, value, gamma=GAMMA, gae_lambda=0.95)
    assert bool((advantages(batch, value, gamma=GAMMA, gae_lambda=0.95) > plain)[~steps.final].all())


@pytest.mark.parametrize("horizon", [1, 3])
def test_every_reward_of_an_n_step_return_has_its_bonus(horizon: int) -> None:
    """The documented code paid the bonus into a batch from which no target was made."""
    model, inner, replay = curiosity(), OfBatches(), ring(horizon=horizon)
    trajectory = TrajectoryView(replay).sample(64)
    report = CuriousOffPolicyLearner(inner, model).update(trajectory, 0)
    (batch,) = inner.batches
    fresh = curiosity()  # as it was when the bonus was found
    for i in range(64):
        row, env = int(trajectory.slot[i]) // replay.num_envs, int(trajectory.slot[i]) % replay.num_envs
        expected = float(trajectory.transition.reward[i])
        for h in range(horizon):
            at, after = (row + h) % replay.length, (row + h + 1) % replay.length
            action = int(replay.action[at, env])
            error, _ = errors_by_hand(fresh.net, numbers(replay.obs[at, env]), action, numbers(replay.obs[after, env]))
            expected += GAMMA**h * 0.5 * error
            if replay.done[at, env]:
                break
        assert batch.reward[i].item() == pytest.approx(expected, rel=1e-5)  # the ring's rewards are float32
    assert torch.equal(batch.discount, trajectory.transition.discount)
    assert torch.equal(batch.next_obs, trajectory.transition.next_obs)
    assert torch.equal(report.priority, torch.arange(64, dtype=torch.float64))


def test_icm_learns_from_live_first_steps() -> None:
    model, replay = curiosity(lr=1e-2), ring()
    trajectory = TrajectoryView(replay).sample(64)
    alive = [i for i in range(64) if trajectory.transition.weight[i] > 0]
    assert 0 < len(alive) < 64

    def errors() -> Array:
        """``[B, 2]``: forward and inverse."""
        steps = [(numbers(trajectory.obs[i, 0]), int(trajectory.action[i, 0]), numbers(trajectory.obs[i, 1]))
                 for i in alive]  # fmt: skip
        return np.array([errors_by_hand(model.net, *step) for step in steps])

    before = errors()
    metrics = CuriousOffPolicyLearner(OfBatches(), model).update(trajectory, 0).metrics
    forward, inverse = before.mean(0)
    assert metrics["forward_loss"].item() == pytest.approx(forward, rel=1e-6)
    assert metrics["inverse_loss"].item() == pytest.approx(inverse, rel=1e-6)
    assert metrics["bonus"].item() == pytest.approx(0.5 * forward, rel=1e-6)
    assert (errors() @ [0.2, 0.8]).mean() < (before @ [0.2, 0.8]).mean()
