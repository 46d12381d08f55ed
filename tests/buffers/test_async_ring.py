"""The asynchronous ring against rings of one env each."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from rlbench.buffers.async_ring import AsyncRingBuffer
from rlbench.buffers.hindsight import HindsightReplay, steps_to_episode_end
from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import COLUMNS, ArraySpec, RingBuffer
from rlbench.buffers.samplers import UniformSampler
from tests.rings import ring_of, same_batches


@dataclass
class Both:
    """The same envs in one staggered ring and in rings of their own."""

    ring: AsyncRingBuffer
    alone: list[RingBuffer]
    count: int = 0

    def frames(self, envs: list[int]) -> np.ndarray:
        self.count += 1
        return np.array([100 * self.count + env for env in envs], np.float32)

    def add_observations(self, envs: list[int]) -> None:
        frames = self.frames(envs)
        stack_obs = self.ring.add_observations(frames, np.array(envs))
        for i, env in enumerate(envs):
            assert torch.equal(stack_obs[i], self.alone[env].add_observations(frames[i : i + 1])[0])

    def step(self, envs: list[int], codes: list[int]) -> None:
        code, action = np.array(codes), torch.tensor([self.count % 7 + env for env in envs])
        reward = np.array([self.count + 0.5 * env for env in envs], np.float32)
        answers = [(action, reward, code == 1, code == 2)]
        self.ring.add_transitions(*answers[0], np.array(envs))
        for i, env in enumerate(envs):
            self.alone[env].add_transitions(*(part[i : i + 1] for part in answers[0]))
        self.add_observations(envs)

    def close(self) -> None:
        self.ring.truncate_episodes()
        for ring in self.alone:
            ring.truncate_episodes()
        self.add_observations(list(range(len(self.alone))))


def both_of(
    num_envs: int, rows: int, horizon: int, stack: int, sampler: UniformSampler | PrioritizedSampler | None = None
) -> Both:
    ring = ring_of(num_envs, rows, horizon, stack, kind=AsyncRingBuffer, sampler=sampler)
    both = Both(ring, [ring_of(1, rows, horizon, stack) for _ in range(num_envs)])
    both.add_observations(list(range(num_envs)))
    return both


def usable(both: Both) -> list[int]:
    """Flat slots that the rings of one env may draw, final ones too."""
    slots = []
    for env, ring in enumerate(both.alone):
        span = ring.sample_range()
        rows = [int((span.head - span.n_step - i) % span.length) for i in range(int(span.rows))]
        slots += [row * len(both.alone) + env for row in rows]
    return slots


@st.composite
def ring_pairs(draw: st.DrawFn) -> Both:
    num_envs, horizon, stack = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    both = both_of(num_envs, draw(st.integers(horizon + stack + 1, 20)), horizon, stack)
    close_at = draw(st.none() | st.integers(0, 30))
    for number in range(draw(st.integers(0, 60))):
        if number == close_at:
            both.close()
        some = sorted(draw(st.sets(st.integers(0, num_envs - 1), min_size=1)))
        both.step(some, [draw(st.sampled_from([0, 0, 0, 0, 1, 2])) for _ in some])
    return both


@given(ring_pairs())
def test_every_env_stores_the_same_as_a_ring_of_its_own(both: Both) -> None:
    for env, ring in enumerate(both.alone):
        for name in COLUMNS:
            assert torch.equal(getattr(both.ring, name)[:, env], getattr(ring, name)[:, 0]), name
        assert torch.equal(both.ring.newest_observations()[env], ring.newest_observations()[0])


@given(ring_pairs())
def test_sampleable_slots_equal_those_of_single_env_rings(both: Both) -> None:
    want, num_envs = usable(both), len(both.alone)
    count = len(want)
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / max(count, 1)
    slots, weights = both.ring.sample_range().at(uniform)
    assert sorted(slots.tolist()) == sorted(want)
    assert (weights == 1).all()
    batch = both.ring.gather_transitions(slots, weights)
    for i, slot in enumerate(slots.tolist()):
        row, env = divmod(slot, num_envs)
        one = both.alone[env].gather_transitions(torch.tensor([row]), torch.ones(1))
        for ours, theirs in zip(batch[:6], one[:6], strict=True):
            assert torch.equal(ours[i], theirs[0])


@settings(max_examples=40)
@given(ring_pairs())
def test_future_rows_of_an_episode_end_at_the_envs_cursor(both: Both) -> None:
    for slot in usable(both):
        row, env = divmod(slot, len(both.alone))
        alone = steps_to_episode_end(both.alone[env], torch.tensor([row]), 10)
        assert torch.equal(steps_to_episode_end(both.ring, torch.tensor([slot]), 10), alone)


@settings(max_examples=40)
@given(ring_pairs())
def test_async_ring_is_restored_from_its_state(both: Both) -> None:
    ring = both.ring
    copy = ring_of(ring.num_envs, ring.length, ring.n_step, ring.stack, kind=AsyncRingBuffer, seed=9)
    copy.load_state_dict(ring.state_dict())
    assert torch.equal(copy.newest_observations(), ring.newest_observations())
    same_batches(ring.sample(64), copy.sample(64))


def uneven(sampler: UniformSampler | PrioritizedSampler | None = None, steps: int = 40, horizon: int = 2) -> Both:
    """Env 0 has wrapped around, env 1 is half full, env 2 has two steps, env 3 none."""
    both = both_of(4, 12, horizon, 2, sampler)
    for number in range(steps):
        some = [env for env, count in enumerate((steps, 6, 2, 0)) if number < count]
        both.step(some, [1 if number % 5 == 4 and env == 0 else 0 for env in some])
    return both


def test_uniform_sampling_draws_complete_slots_of_all_envs_equally() -> None:
    both = uneven()
    want = usable(both)
    assert [sum(s % 4 == env for s in want) for env in range(4)] == [9, 5, 1, 0]
    counts = torch.bincount(both.ring.sample(30_000).slot, minlength=48)
    assert counts.sum() == counts[want].sum()
    assert chisquare(counts[want].numpy()).pvalue > 1e-3


@pytest.mark.parametrize(("steps", "horizon"), [(40, 2), (41, 3), (42, 4)])
def test_prioritized_sampling_draws_complete_slots_of_all_envs_in_proportion(steps: int, horizon: int) -> None:
    sampler = PrioritizedSampler(torch.Generator().manual_seed(0), capacity=48, num_envs=4, alpha=1.0, beta=0.0)
    both = uneven(sampler, steps, horizon)
    live = [slot for slot in usable(both) if not both.ring.final.view(-1)[slot]]
    assert sorted(torch.nonzero(sampler.mass.view(-1)[:48] > 0).flatten().tolist()) == sorted(live)
    both.ring.update_priorities(torch.tensor(live), torch.arange(1.0, len(live) + 1))
    counts = torch.bincount(torch.cat([both.ring.sample(16).slot for _ in range(2_000)]), minlength=48)[live].numpy()
    mass = np.arange(1.0, len(live) + 1)
    assert counts.sum() == 32_000
    assert chisquare(counts, mass / mass.sum() * counts.sum()).pvalue > 1e-4


@pytest.mark.parametrize("steps", [0, 1])
def test_batch_has_zero_weight_without_complete_slots(steps: int) -> None:
    both = both_of(2, 12, 2, 1)
    for _ in range(steps):
        both.step([0, 1], [0, 0])
    assert (both.ring.sample(8).weight == 0).all()


def test_omitted_env_index_means_all_envs() -> None:
    together, ring = (ring_of(3, 10, 2, 2, kind=kind) for kind in (RingBuffer, AsyncRingBuffer))
    for both in (together, ring):
        rng = np.random.default_rng(0)
        both.add_observations(rng.random(3, np.float32))
        for _ in range(25):
            both.add_transitions(
                torch.zeros(3, dtype=torch.int64), rng.random(3, np.float32), rng.random(3) < 0.2, rng.random(3) < 0
            )
            both.add_observations(rng.random(3, np.float32))
    for name in COLUMNS:
        assert torch.equal(getattr(together, name), getattr(ring, name))


def test_hindsight_samples_future_goals_in_every_env() -> None:
    ring = AsyncRingBuffer(
        capacity=40, num_envs=2, obs=ArraySpec((3,), torch.float32), action=ArraySpec((), torch.int64), n_step=1,
        gamma=0.9, stack=1, sampler=UniformSampler(torch.Generator().manual_seed(0)), device=torch.device("cpu"),
    )  # fmt: skip
    ring.add_observations(np.array([[0, 0, -1], [0, 100, -1]], np.float32))
    for number in range(1, 12):
        for env in [0] if number > 4 else [0, 1]:
            no = np.zeros(1, np.bool_)
            ring.add_transitions(torch.zeros(1, dtype=torch.int64), np.zeros(1, np.float32), no, no, np.array([env]))
            ring.add_observations(np.array([[0, 100 * env + number, -1]], np.float32), np.array([env]))
    both = HindsightReplay(
        ring=ring,
        goal=1,
        reward=lambda achieved, desired: -abs(achieved - desired)[:, 0],
        her_ratio=1.0,
        max_episode_steps=50,
        generator=torch.Generator().manual_seed(1),
    )
    pairs = {(int(a), int(g)) for a, g in both.sample(2_000).obs[:, 1:].tolist()}
    assert pairs == {
        (a, g) for last in (11, 104) for a in range(last // 100 * 100, last) for g in range(a + 1, last + 1)
    }
