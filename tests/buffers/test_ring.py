"""The ring against a reference implementation that stores every episode as a list."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.buffers.rollout_view import newest_rollout
from tests.buffers.counting import Touched
from tests.buffers.simulation import Simulation
from tests.rings import ring_of, same_batches

CPU = torch.device("cpu")
GAMMA = 0.9


def simulation_of(num_envs: int, rows: int, horizon: int, stack: int) -> Simulation:
    """Every row of every env shows its own number."""
    envs = np.arange(num_envs)
    return Simulation(
        ring_of(num_envs, rows, horizon, stack),
        observe=lambda row, _: (row * num_envs + envs + 1).astype(np.float32),
        reward=lambda row, _: row % 11 - envs,
    )


def expected(simulation: Simulation, horizon: int, stack: int) -> dict[tuple[int, int], tuple[object, ...]]:
    """Every transition the definition allows, by (row, env): what the ring must give, and nothing else."""
    table = {}
    for env, episodes in enumerate(simulation.episodes):
        for episode in episodes:
            for t in range(len(episode.actions)):
                k = min(horizon, len(episode.actions) - t)
                if k < horizon and not episode.ended:
                    continue  # its future is not known yet
                reward = sum(GAMMA**i * episode.rewards[t + i] for i in range(k))
                final = episode.ended and t + k == len(episode.actions)
                discount = 0.0 if final and episode.terminated else GAMMA**k
                stacks = [[episode.observations[max(0, u - b)] for b in range(stack - 1, -1, -1)] for u in (t, t + k)]
                table[episode.rows[t], env] = (stacks[0], episode.actions[t], reward, discount, stacks[1])
    return table


@st.composite
def simulations(draw: st.DrawFn) -> tuple[Simulation, int, int]:
    num_envs, horizon, stack = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rows = draw(st.integers(horizon + stack + 1, 40))
    steps = draw(st.integers(horizon + 1, 90))
    likely = draw(st.sampled_from([[0, 1, 2], [0] * 6 + [1, 2], [0] * 30 + [1, 2], [0]]))
    ends = [[draw(st.sampled_from(likely)) for _ in range(num_envs)] for _ in range(steps)]
    simulation = simulation_of(num_envs, rows, horizon, stack)
    simulation.play(ends, close_at=draw(st.none() | st.integers(1, steps - 1)))
    return simulation, horizon, stack


def usable(simulation: Simulation) -> list[tuple[int, int]]:
    """Every (row, env) that the ring's own span may draw, by the vector step at which it was shown."""
    span = simulation.ring.sample_range()
    rows = [simulation.row - span.n_step - i for i in range(int(span.rows))]
    return [(row, env) for row in rows for env in range(simulation.ring.num_envs)]


@given(simulations())
def test_sampled_transitions_equal_the_definition(case: tuple[Simulation, int, int]) -> None:
    simulation, horizon, stack = case
    ring, want, places = simulation.ring, expected(simulation, horizon, stack), usable(simulation)
    if not places:
        return
    slot = torch.tensor([(row % ring.length) * simulation.ring.num_envs + env for row, env in places])
    batch = ring.gather_transitions(slot, torch.ones(len(slot)))
    for i, place in enumerate(places):
        if batch.weight[i] == 0:
            assert place not in want, f"{place} starts a transition but weighs nothing"
            continue
        assert place in want, f"{place} starts nothing"
        obs, action, reward, discount, next_obs = want[place]
        assert batch.obs[i].reshape(-1).tolist() == obs
        assert batch.action[i].item() == action
        assert batch.reward[i].item() == pytest.approx(reward, rel=1e-5, abs=1e-5)
        assert batch.discount[i].item() == pytest.approx(discount, rel=1e-6)
        assert batch.next_obs[i].reshape(-1).tolist() == next_obs


@given(simulations())
def test_every_complete_slot_is_sampleable(case: tuple[Simulation, int, int]) -> None:
    simulation, horizon, stack = case
    places = set(usable(simulation))
    span, length = simulation.ring.sample_range(), simulation.ring.length
    overwritten = simulation.row - (length - 1)  # rows up to here may have lost themselves or their stack
    for (row, env), transition in expected(simulation, horizon, stack).items():
        if row > overwritten + stack - 1 and row <= simulation.row - horizon:
            assert (row, env) in places, (row, env, transition, int(span.rows))


@settings(max_examples=40)
@given(simulations())
def test_ring_is_restored_from_its_state(case: tuple[Simulation, int, int]) -> None:
    simulation, horizon, stack = case
    if not usable(simulation):
        return
    copy = ring_of(simulation.ring.num_envs, simulation.ring.length, horizon, stack, seed=9)
    copy.load_state_dict(simulation.ring.state_dict())
    assert torch.equal(copy.newest_observations(), simulation.ring.newest_observations())
    same_batches(simulation.ring.sample(64), copy.sample(64))


def test_frame_stack_is_padded_with_the_episodes_first_frame() -> None:
    ring = ring_of(1, 20, 1, 4)
    nothing, flag = np.zeros(1, np.float32), np.zeros(1, np.bool_)
    acts = []
    for frame in range(8):
        acts.append(ring.add_observations(np.array([frame], np.float32))[0].tolist())
        ring.add_transitions(torch.zeros(1, dtype=torch.int64), nothing, np.array([frame == 4]), flag)
    assert acts == [
        [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4],
        [2, 3, 4, 5],  # the final observation still belongs to the episode that it ends
        [6, 6, 6, 6], [6, 6, 6, 7],
    ]  # fmt: skip


def test_uniform_sampling_draws_every_usable_slot_equally_often() -> None:
    simulation = simulation_of(3, 11, 2, 2)
    simulation.play([[0, 0, 0]] * 40)
    span = simulation.ring.sample_range()
    count = int(span.rows) * 3
    assert count == (10 - 2 + 1 - 1) * 3
    size = 60_000
    slots, weights = simulation.ring.sampler.draw(size, span)
    assert set(slots.tolist()) == {row % 11 * 3 + env for row, env in usable(simulation)}
    allowed = torch.bincount(slots, minlength=33).double()[slots.unique()]
    chi2 = float(((allowed - size / count) ** 2 / (size / count)).sum())
    assert chi2 < 54.0  # 0.1 % of a χ² with 23 degrees of freedom lies above 49.7
    assert torch.equal(weights, torch.ones(size))


def touched_by_one_step(rows: int) -> int:
    ring = ring_of(4, 5_000, 3, 4)
    frames, reward, flag = np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(4, np.bool_)
    action = torch.zeros(4, dtype=torch.int64)
    ring.add_observations(frames)
    for _ in range(rows):
        ring.add_transitions(action, reward, flag, flag)
        ring.add_observations(frames)
    with Touched() as touched:
        ring.add_transitions(action, reward, flag, flag)
        ring.add_observations(frames)
        ring.sample(32)
    return touched.elements


def test_a_step_touches_as_many_slots_in_a_full_ring_as_in_an_empty_one() -> None:
    few, many = touched_by_one_step(20), touched_by_one_step(4_990)
    assert few == many
    assert few < 5_000


def test_a_ring_too_small_for_its_horizon_and_stack_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 8"):
        ring_of(2, 7, 3, 4)


def expected_rows(simulation: Simulation, stack: int) -> dict[tuple[int, int], tuple[object, ...]]:
    """Frame stack of every (row, env), and the action, reward and end of those with a step."""
    rows_by_slot: dict[tuple[int, int], tuple[object, ...]] = {}
    for env, episodes in enumerate(simulation.episodes):
        for episode in episodes:
            for t, row in enumerate(episode.rows):
                obs_now = [episode.observations[max(0, t - back)] for back in range(stack - 1, -1, -1)]
                if t == len(episode.actions):
                    rows_by_slot[row, env] = (obs_now, None, 0.0, False, False, episode.ended)
                    continue
                last = episode.ended and t + 1 == len(episode.actions)
                end = (last and episode.terminated, last)
                rows_by_slot[row, env] = (obs_now, episode.actions[t], episode.rewards[t], *end, False)
    return rows_by_slot


@given(simulations(), st.data())
def test_rollout_has_the_last_rows_in_time_order(case: tuple[Simulation, int, int], data: st.DataObject) -> None:
    simulation, _, stack = case
    ring, add_transitions = simulation.ring, expected_rows(simulation, stack)
    rows = data.draw(st.integers(1, min(simulation.row, ring.length - stack)))
    rollout = newest_rollout(ring, rows)
    obs = rollout.obs.view(rows + 1, simulation.ring.num_envs, stack)
    for t in range(rows + 1):
        for env in range(simulation.ring.num_envs):
            obs_now, action, reward, terminated, done, final = add_transitions[simulation.row - rows + t, env]
            assert obs[t, env].tolist() == obs_now
            if t == rows:
                continue
            assert rollout.reward[t, env].item() == reward
            flags = (rollout.terminated[t, env], rollout.done[t, env], rollout.final[t, env])
            assert flags == (terminated, done, final)
            if not final:
                assert rollout.action[t, env].item() == action
