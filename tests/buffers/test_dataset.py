"""A ring filled from a file against a reader that goes through it row by row."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlbench.buffers.dataset import dataset_ring
from rlbench.buffers.ring import RingBuffer
from rlbench.datasets.episodes import episodes, fit_obs_scaler, terminated_on_end
from rlbench.datasets.types import Dataset
from rlbench.errors import RefusedFile
from rlbench.ops.types import Transition
from tests.rings import same_batches

GAMMA = 0.9
CPU = torch.device("cpu")


class Naive(NamedTuple):
    obs: float
    action: float
    reward: float
    discount: float
    next_obs: float  # -1 where it is never bootstrapped from


def file_of(ends: list[int], *, next_obs: bool, jumps: set[int] = frozenset()) -> Dataset:
    """Step i shows i, unless a jump before it; ``ends``: 0 goes on, 1 terminates, 2 is cut."""
    steps = len(ends)
    obs_values = np.cumsum([1 + 50 * (i in jumps) for i in range(steps)]).astype(np.float32)
    code = np.array(ends)
    led_to = np.where((code > 0) | (np.arange(steps) == steps - 1), obs_values + 0.5, np.r_[obs_values[1:], 0])
    led_to = np.array([obs_values[i] + 0.25 if i + 1 in jumps and not ends[i] else led_to[i] for i in range(steps)])
    pair = np.array([1.0, -1.0], np.float32)
    return Dataset(
        obs=obs_values[:, None] * pair,
        action=-obs_values[:, None],
        reward=np.arange(1, steps + 1, dtype=np.float32) ** 2,
        terminated=code == 1,
        truncated=code == 2,
        next_obs=led_to[:, None].astype(np.float32) * pair if next_obs else None,
    )


def naive(file: Dataset, horizon: int) -> list[Naive]:
    """Every transition of a file, step by step."""
    transitions, steps = [], len(file.obs)

    def follows(i: int) -> tuple[float | None, bool]:
        """The next observation of step i (None: not stored), and whether the episode goes on in the next row."""
        ended = bool(file.terminated[i] or file.truncated[i] or i == steps - 1)
        if file.next_obs is not None:
            return float(file.next_obs[i, 0]), not ended and bool((file.next_obs[i] == file.obs[i + 1]).all())
        return (None, False) if ended else (float(file.obs[i + 1, 0]), True)

    def has_successor(i: int) -> bool:
        return bool(file.terminated[i]) or follows(i)[0] is not None

    for start in range(steps):
        if not has_successor(start):
            continue
        reward, i = 0.0, start
        for k in range(horizon):
            reward += GAMMA**k * float(file.reward[i])
            after, goes_on = follows(i)
            if k == horizon - 1 or not goes_on or not has_successor(i + 1):
                break
            i += 1
        discount = 0.0 if file.terminated[i] else GAMMA ** (i - start + 1)
        led_to = -1.0 if file.terminated[i] or after is None else after
        transitions.append(Naive(float(file.obs[start, 0]), float(file.action[start, 0]), reward, discount, led_to))
    return transitions


def ring_of(file: Dataset, horizon: int = 1, seed: int = 0) -> RingBuffer:
    return dataset_ring(file, n_step=horizon, gamma=GAMMA, generator=torch.Generator().manual_seed(seed), device=CPU)


def every(replay: RingBuffer) -> list[Naive]:
    slots = replay.sampler.slots
    batch_of_slots = replay.gather_transitions(slots, torch.ones(len(slots)))
    assert (batch_of_slots.weight == 1).all()
    assert (batch_of_slots.obs[:, 0] == -batch_of_slots.obs[:, 1]).all()
    columns = (column[:, 0] if column.ndim > 1 else column for column in batch_of_slots[:5])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Naive(*row) if row[3] else Naive(*row[:4], -1.0) for row in rows]


@given(
    ends=st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=2, max_size=40),
    horizon=st.integers(1, 4),
    next_obs=st.booleans(),
    jumps=st.sets(st.integers(1, 39), max_size=3),
)
def test_every_transition_equals_the_files(*, ends: list[int], horizon: int, next_obs: bool, jumps: set[int]) -> None:
    file = file_of(ends, next_obs=next_obs, jumps=jumps if next_obs else set())
    expected = naive(file, horizon)
    if not expected:
        with pytest.raises(RefusedFile):
            ring_of(file, horizon)
        return
    actual = every(ring_of(file, horizon))
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert tuple(one) == pytest.approx(tuple(other), rel=1e-5)


def test_a_shuffled_file_keeps_its_transitions() -> None:
    file = file_of([0] * 9 + [1], next_obs=True)
    order = np.array([3, 1, 4, 0, 9, 2, 6, 5, 8, 7])
    shuffled = Dataset(*(column[order] for column in file if column is not None))
    assert sorted(every(ring_of(shuffled))) == sorted(every(ring_of(file)))


def test_batches_are_full_and_transitions_are_sampled_uniformly() -> None:
    batch_of_slots = ring_of(file_of([0, 0, 1, 0, 2, 1, 0, 0], next_obs=False)).sample(24_000)
    assert (batch_of_slots.weight == 1).all()
    counts = torch.unique(batch_of_slots.slot, return_counts=True)[1]
    assert len(counts) == 6  # of 8 steps the cut one and the last have no successor
    assert counts.min() > 3_700
    assert counts.max() < 4_300


def test_the_same_generator_draws_the_same_batches() -> None:
    file = file_of([0, 0, 1, 0, 2, 1, 0, 0], next_obs=True)
    one, other = ring_of(file), ring_of(file)
    one.sample(5)
    other.sampler.load_state_dict(one.sampler.state_dict())
    assert (one.sample(9).slot == other.sample(9).slot).all()


def test_observations_and_next_observations_are_normalized() -> None:
    file = file_of([0, 0, 2, 0, 0, 1], next_obs=True)
    scale = fit_obs_scaler(file)
    plain = ring_of(file)
    replay = dataset_ring(file, n_step=1, gamma=GAMMA, generator=torch.Generator(), device=CPU, scale=scale)
    ones = torch.ones(len(plain.sampler.slots))
    raw, normalized = (
        plain.gather_transitions(plain.sampler.slots, ones),
        replay.gather_transitions(plain.sampler.slots, ones),
    )
    assert np.allclose(normalized.obs, scale(raw.obs.numpy()))
    assert np.allclose(normalized.next_obs, scale(raw.next_obs.numpy()))
    assert np.allclose(scale.mean, file.obs.mean(0))
    assert np.allclose(scale.deviation, file.obs.std(0) + 1e-3)
    assert np.allclose(normalized.obs.mean(0), 0, atol=1e-6)


def test_chunked_copy_equals_a_whole_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of([0, 0, 1, 0, 2, 2, 0, 0, 1, 1, 0], next_obs=True, jumps={7})
    whole = every(ring_of(file, 2))
    for rows in (1, 2, 3, 5):
        monkeypatch.setattr("rlbench.buffers.dataset.CHUNK", rows)
        monkeypatch.setattr("rlbench.datasets.episodes.CHUNK", rows)
        assert every(ring_of(file, 2)) == whole


class Episode(NamedTuple):
    """Frames shown, one more than steps, and how it ended."""

    steps: int
    terminated: bool


def frame_dataset(episodes: list[Episode], *, rows_behind: bool) -> Dataset:
    """Numbered frames ``[2, 2]``: an episode's end is in a row behind it, or in every step's next observation."""
    parts, frame = [], 0
    for steps, terminated in episodes:
        obs_values = np.arange(frame, frame + steps + 1, dtype=np.uint8)[:, None, None] + np.zeros((1, 2, 2), np.uint8)
        count, frame = steps + rows_behind, frame + steps + 1
        action, reward, ended, final = (np.zeros(count, kind) for kind in (np.int64, np.float32, np.bool_, np.bool_))
        action[:steps], reward[:steps] = np.arange(steps) % 3, np.arange(1, steps + 1)
        ended[steps - 1] = True
        final[steps:] = True
        led_to = None if rows_behind else obs_values[1:]
        parts.append((obs_values[:count], action, reward, ended & terminated, ended & (not terminated), led_to, final))
    columns = [None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)]
    return Dataset(*columns[:6], columns[6] if rows_behind else None)


def batch_of_slots(file: Dataset, horizon: int, stack: int) -> Transition:
    replay = dataset_ring(file, n_step=horizon, gamma=GAMMA, generator=torch.Generator(), device=CPU, stack=stack)
    slots = replay.sampler.slots
    return replay.gather_transitions(slots, torch.ones(len(slots)))


@given(
    lives=st.lists(st.builds(Episode, st.integers(1, 6), st.booleans()), min_size=1, max_size=8),
    horizon=st.integers(1, 4),
    stack=st.integers(1, 4),
)
def test_final_rows_give_the_same_transitions_as_next_observations(
    lives: list[Episode], horizon: int, stack: int
) -> None:
    lean, full = (batch_of_slots(frame_dataset(lives, rows_behind=rows), horizon, stack) for rows in (True, False))
    assert len(lean.obs) == sum(steps for steps, _ in lives)
    same_batches(lean[:4], full[:4])
    bootstraps = lean.discount > 0
    assert torch.equal(lean.next_obs[bootstraps], full.next_obs[bootstraps])
    assert (lean.weight == 1).all()
    assert (lean.obs.dtype, lean.action.dtype) == (torch.uint8, torch.int64)


def test_a_stack_repeats_the_first_frame_of_its_own_episode() -> None:
    lives = [Episode(2, terminated=True), Episode(3, terminated=False)]
    actual = batch_of_slots(frame_dataset(lives, rows_behind=True), 1, 3)
    assert actual.obs[:, :, 0, 0].tolist() == [[0, 0, 0], [0, 0, 1], [3, 3, 3], [3, 3, 4], [3, 4, 5]]
    assert actual.next_obs[[0, 2, 3, 4], :, 0, 0].tolist() == [[0, 0, 1], [3, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert actual.discount.tolist() == pytest.approx([0.9, 0.0, 0.9, 0.9, 0.9])


def test_sampled_frames_share_memory_with_the_file() -> None:
    file = frame_dataset([Episode(4, terminated=True), Episode(5, terminated=False)], rows_behind=True)
    replay = dataset_ring(file, n_step=1, gamma=GAMMA, generator=torch.Generator(), device=CPU, stack=2)
    assert np.shares_memory(replay.obs.numpy(), file.obs)


def test_interrupted_recording_ends_at_its_last_complete_transition() -> None:
    whole = frame_dataset([Episode(3, terminated=True), Episode(4, terminated=True)], rows_behind=True)
    cut = Dataset(*(None if column is None else column[:7] for column in whole))
    assert batch_of_slots(cut, 1, 1).obs[:, 0, 0].tolist() == [0, 1, 2, 4, 5]
    assert batch_of_slots(cut, 1, 1).discount.tolist() == pytest.approx([0.9, 0.9, 0.0, 0.9, 0.9])


def test_final_rows_belong_to_no_episode() -> None:
    actual = episodes(frame_dataset([Episode(3, terminated=True), Episode(1, terminated=False)], rows_behind=True))
    assert (actual.returns.tolist(), actual.lengths.tolist(), actual.closed.tolist()) == ([6, 1], [3, 1], [True, True])


def test_mid_game_recording_stacks_frames_of_preceding_final_rows() -> None:
    """RL Unplugged's lines: up to three frames that only fill the first stack, behind another episode's final one."""
    frames = np.array([1, 2, 3, 10, 11, 12, 13, 14, 15], np.uint8)
    final = np.isin(frames, [3, 10, 11, 12, 15])
    dataset = Dataset(
        obs=np.broadcast_to(frames[:, None, None], (9, 2, 2)).copy(),
        action=np.zeros(9, np.int64),
        reward=np.where(final, 0, frames).astype(np.float32),
        terminated=np.isin(frames, [2, 14]),
        truncated=np.zeros(9, np.bool_),
        next_obs=None,
        final=final,
    )
    generator = torch.Generator().manual_seed(0)
    batch = dataset_ring(dataset, n_step=1, gamma=0.9, generator=generator, device=CPU, stack=4).sample(200)
    stacks = ([tuple(stack) for stack in column[..., 0, 0].tolist()] for column in (batch.obs, batch.next_obs))
    assert dict(zip(*stacks, strict=True)) == {
        (1, 1, 1, 1): (1, 1, 1, 2),
        (1, 1, 1, 2): (1, 1, 2, 3),
        (10, 11, 12, 13): (11, 12, 13, 14),
        (11, 12, 13, 14): (12, 13, 14, 15),
    }


@pytest.mark.parametrize("next_obs", [True, False])
def test_terminating_time_limit_is_sampled_without_bootstrap(*, next_obs: bool) -> None:
    file = file_of([0, 0, 2, 0, 1, 0, 2], next_obs=next_obs)
    usual, ended = (every(ring_of(replay)) for replay in (file, terminated_on_end(file)))
    assert [row.obs for row in ended if row.discount == 0] == [3.0, 5.0, 7.0]
    assert [row.obs for row in usual if row.discount == 0] == [5.0]
    assert {row.obs for row in ended} == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}
    others = [row for row in usual if row.discount and row.obs not in {3.0, 7.0}]
    assert [row for row in ended if row.discount] == others
