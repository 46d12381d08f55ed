"""HindsightReplay against a reference implementation that stores every episode as a list."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from rlbench.buffers.hindsight import HindsightReplay
from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import COLUMNS, ArraySpec, RingBuffer
from tests.buffers.counting import Touched
from tests.buffers.simulation import Episode, Simulation
from tests.rings import ring_of, same_batches

GAMMA, DESIRED = 0.9, 1e5  # no goal that is ever achieved lies near those that are wanted


def reward_of(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    assert achieved.dtype == desired.dtype == np.float32
    assert achieved.shape == desired.shape
    return -np.abs(achieved - desired).sum(-1)


def repaid(achieved: torch.Tensor, desired: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(reward_of(achieved.numpy(), desired.numpy()))


def goal_ring(num_envs: int, rows: int, horizon: int) -> RingBuffer:
    ring = ring_of(num_envs, rows, horizon, obs=ArraySpec((5,), torch.float32))
    ring.obs.fill_(torch.nan)  # what was never written is nobody's goal
    return ring


def simulation_of(num_envs: int, rows: int, horizon: int = 1) -> Simulation:
    """Every row of every env shows and achieves its own number; what is wanted holds for the episode."""
    envs = np.arange(num_envs)

    def observe(row: int, first_rows: list[int]) -> np.ndarray:
        number = row * num_envs + envs + 1.0
        return np.stack([number, number, -number, DESIRED + np.array(first_rows), DESIRED + envs], 1).astype(np.float32)

    return Simulation(
        goal_ring(num_envs, rows, horizon), observe, reward=lambda _, obs: reward_of(obs[:, 1:3], obs[:, 3:])
    )


def episode_at(simulation: Simulation, slot: int) -> tuple[Episode, int]:
    """The episode that a slot lies in, and which of its steps it is; the newest, where the slot was reused."""
    place, env = divmod(slot, simulation.ring.num_envs)
    row = simulation.row - (simulation.row - place) % simulation.ring.length
    episode = next(e for e in simulation.episodes[env] if row in e.rows)
    return episode, row - episode.rows[0]


@st.composite
def simulations(draw: st.DrawFn) -> Simulation:
    num_envs, horizon = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    rows, steps = draw(st.integers(horizon + 2, 40)), draw(st.integers(horizon + 1, 90))
    likely = draw(st.sampled_from([[0, 1, 2], [0] * 6 + [1, 2], [0] * 30 + [1, 2], [0]]))
    ends = [[draw(st.sampled_from(likely)) for _ in range(num_envs)] for _ in range(steps)]
    simulation = simulation_of(num_envs, rows, horizon)
    simulation.play(ends, close_at=draw(st.none() | st.integers(1, steps - 1)))
    return simulation


def hindsight(ring: RingBuffer, her_ratio: float = 0.875, limit: int = 50, seed: int = 5) -> HindsightReplay:
    generator = torch.Generator().manual_seed(seed)
    return HindsightReplay(
        ring=ring, goal=2, reward=repaid, her_ratio=her_ratio, max_episode_steps=limit, generator=generator
    )


def naive(simulation: Simulation, slot: int, offset: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Observation, next observation and n-step sum of a slot, had its episode wanted what it achieved later."""
    episode, t = episode_at(simulation, slot)
    steps = min(simulation.ring.n_step, len(episode.observations) - 1 - t)
    goal = episode.observations[t + offset][1:3]
    both = [np.concatenate([episode.observations[u][:3], goal]) for u in (t, t + steps)]
    achieved = [episode.observations[t + i + 1][1:3] for i in range(steps)]
    return both[0], both[1], sum(GAMMA**i * float(reward_of(a, goal)) for i, a in enumerate(achieved))


@given(simulations(), st.sampled_from([0.5, 1.0]), st.sampled_from([1, 3, 100]))
def test_relabeled_goal_is_a_future_goal_of_the_episode(simulation: Simulation, her_ratio: float, limit: int) -> None:
    ring = simulation.ring
    before = {name: getattr(ring, name).clone() for name in COLUMNS}
    batch = hindsight(ring, her_ratio, limit).sample(128)
    plain = ring.gather_transitions(batch.slot, torch.ones(128))
    for name in COLUMNS:
        assert torch.equal(getattr(ring, name).nan_to_num(7.0), before[name].nan_to_num(7.0)), (
            f"{name}: the store was changed"
        )
    assert torch.equal(batch.discount, plain.discount)
    assert torch.equal(batch.action, plain.action)
    assert torch.equal(batch.weight, plain.weight)
    for i, slot in enumerate(batch.slot.tolist()):
        if batch.obs[i, 3] >= DESIRED or plain.weight[i] == 0:
            assert her_ratio < 1 or plain.weight[i] == 0
            assert all(torch.equal(ours[i], theirs[i]) for ours, theirs in zip(batch, plain, strict=True))
            continue
        episode, t = episode_at(simulation, slot)
        future = [o[1] for o in episode.observations[t + 1 : t + 1 + limit]]
        assert batch.obs[i, 3] in future
        obs, next_obs, reward = naive(simulation, slot, 1 + future.index(batch.obs[i, 3]))
        assert batch.obs[i].tolist() == obs.tolist()
        assert batch.next_obs[i].tolist() == next_obs.tolist()
        assert batch.reward[i].item() == pytest.approx(reward, rel=1e-5, abs=1e-4)


@settings(max_examples=40)
@given(simulations())
def test_hindsight_samples_the_same_slots_and_share_zero_changes_nothing(simulation: Simulation) -> None:
    ring = simulation.ring
    state = ring.sampler.state_dict()
    plain = ring.sample(64)
    ring.sampler.load_state_dict(state)
    same_batches(hindsight(ring, her_ratio=0.0).sample(64), plain)


def one_env(steps: int, ends: set[int], horizon: int = 1, rows: int = 200) -> Simulation:
    simulation = simulation_of(1, rows, horizon)
    simulation.play([[1 if number in ends else 0] for number in range(steps)])
    return simulation


@pytest.mark.parametrize("her_ratio", [0.25, 0.875])
def test_share_of_relabeled_goals_is_the_requested_one(her_ratio: float) -> None:
    batch = hindsight(one_env(150, set()).ring, her_ratio).sample(20_000)
    assert binomtest(int((batch.obs[:, 3] < DESIRED).sum()), 20_000, her_ratio).pvalue > 1e-3


@pytest.mark.parametrize(
    ("steps", "ends", "limit", "first", "reach"),
    [
        (100, {19}, 50, 12, 8),  # up to and with the final observation
        (60, set(), 50, 40, 20),  # a running episode: up to and with what the env shows now
        (150, set(), 50, 10, 50),  # no further than the limit
    ],
)
def test_future_steps_are_equally_likely(steps: int, ends: set[int], limit: int, first: int, reach: int) -> None:
    simulation = one_env(steps, ends)
    hindsight_ring = hindsight(simulation.ring, 1.0, limit)
    slots_drawn = torch.full((20_000,), first)
    simulation.ring.sampler.draw = lambda batch, span: (slots_drawn, torch.ones(batch))
    batch = hindsight_ring.sample(20_000)
    offset = batch.obs[:, 3] - batch.obs[:, 1]  # with one env the number shown counts rows
    assert offset.min() == 1 and offset.max() == reach
    assert chisquare(torch.bincount(offset.long())[1:]).pvalue > 1e-3


def test_an_empty_ring_gives_weightless_rows() -> None:
    simulation = simulation_of(2, 20, 3)
    simulation.play([[0, 0]])
    assert (hindsight(simulation.ring, 1.0).sample(16).weight == 0).all()


def test_hindsight_resumes_from_its_state() -> None:
    hindsight_ring = hindsight(one_env(100, {30}).ring)
    hindsight_ring.sample(8)
    state, slots_drawn = hindsight_ring.state_dict(), hindsight_ring.ring.sampler.state_dict()
    ours = hindsight_ring.sample(32)
    hindsight_ring.ring.sampler.load_state_dict(slots_drawn)
    other = hindsight(hindsight_ring.ring, seed=99)
    other.load_state_dict(state)
    same_batches(ours, other.sample(32))


def test_priorities_reach_the_ring() -> None:
    sampler = PrioritizedSampler(torch.Generator().manual_seed(0), capacity=50, num_envs=1, alpha=1.0, beta=0.0)
    simulation = simulation_of(1, 50)
    simulation.ring.sampler = sampler
    simulation.play([[0]] * 20)
    hindsight(simulation.ring).update_priorities(torch.tensor([3]), torch.tensor([1e6]))
    assert (hindsight(simulation.ring).sample(64).slot == 3).sum() > 60


def test_cost_of_hindsight_is_independent_of_the_fill() -> None:
    counts = []
    for rows, steps in ((100, 60), (5_000, 60), (5_000, 4_990)):
        hindsight_ring = hindsight(one_env(steps, {7, 30}, horizon=3, rows=rows).ring)
        with Touched() as touched:
            hindsight_ring.sample(8)
        counts.append(touched.elements)
    assert counts[0] == counts[1] == counts[2] < 5_000
