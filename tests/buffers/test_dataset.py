"""A ring filled from a file against a reader that goes through it row by row."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlbench.buffers.dataset import dataset_ring
from rlbench.buffers.ring import RingBuffer
from rlbench.datasets.episodes import Dataset, episodes, fit_obs_scaler, insert_final_rows, terminated_on_end
from rlbench.errors import RefusedFile
from rlbench.ops.types import Transition

GAMMA = 0.9
CPU = torch.device("cpu")


class Naive(NamedTuple):
    obs: float
    action: float
    reward: float
    discount: float
    next_obs: float  # -1 where it is never bootstrapped from


class File(NamedTuple):
    """Columns of a flat file."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray | None


def file_of(ends: list[int], *, next_obs: bool, jumps: set[int] = frozenset()) -> File:
    """Step i shows i, unless a jump before it; ``ends``: 0 goes on, 1 terminates, 2 is cut."""
    steps = len(ends)
    obs_values = np.cumsum([1 + 50 * (i in jumps) for i in range(steps)]).astype(np.float32)
    code = np.array(ends)
    led_to = np.where((code > 0) | (np.arange(steps) == steps - 1), obs_values + 0.5, np.r_[obs_values[1:], 0])
    led_to = np.array([obs_values[i] + 0.25 if i + 1 in jumps and not ends[i] else led_to[i] for i in range(steps)])
    pair = np.array([1.0, -1.0], np.float32)
    return File(
        obs=obs_values[:, None] * pair,
        action=-obs_values[:, None],
        reward=np.arange(1, steps + 1, dtype=np.float32) ** 2,
        terminated=code == 1,
        truncated=code == 2,
        next_obs=led_to[:, None].astype(np.float32) * pair if next_obs else None,
    )


def data_of(file: File) -> Dataset:
    """The data with every final observation that the file has, as a reader gives them."""
    steps = Dataset(*file[:5], np.zeros(len(file.obs), np.bool_))
    if file.next_obs is None:
        return insert_final_rows(steps, file.terminated, file.obs[file.terminated])
    last = np.append((file.next_obs[:-1] != file.obs[1:]).any(1), True) | file.terminated | file.truncated
    return insert_final_rows(steps, last, file.next_obs[last])


def naive(file: File, horizon: int) -> list[Naive]:
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


def ring_of(file: File | Dataset, horizon: int = 1, seed: int = 0) -> RingBuffer:
    data = data_of(file) if isinstance(file, File) else file
    return dataset_ring(data, n_step=horizon, gamma=GAMMA, generator=torch.Generator().manual_seed(seed), device=CPU)


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
    shuffled = File(*(column[order] for column in file if column is not None))
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
    data = data_of(file)
    scale = fit_obs_scaler(data)
    plain = ring_of(file)
    scale.normalize_in_place(data.obs)
    replay = ring_of(data)
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


class Episode(NamedTuple):
    """Frames shown, one more than steps, and how it ended."""

    steps: int
    terminated: bool


def frame_dataset(episodes: list[Episode]) -> Dataset:
    """Numbered frames ``[2, 2]``; an episode's end is in a row behind it."""
    parts, frame = [], 0
    for steps, terminated in episodes:
        count = steps + 1
        obs_values = np.arange(frame, frame + count, dtype=np.uint8)[:, None, None] + np.zeros((1, 2, 2), np.uint8)
        action, reward, ended, final = (np.zeros(count, kind) for kind in (np.int64, np.float32, np.bool_, np.bool_))
        action[:steps], reward[:steps] = np.arange(steps) % 3, np.arange(1, steps + 1)
        ended[steps - 1], final[steps], frame = True, True, frame + count
        parts.append((obs_values, action, reward, ended & terminated, ended & (not terminated), final))
    return Dataset(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def batch_of_slots(file: Dataset, horizon: int, stack: int) -> Transition:
    replay = dataset_ring(file, n_step=horizon, gamma=GAMMA, generator=torch.Generator(), device=CPU, stack=stack)
    slots = replay.sampler.slots
    return replay.gather_transitions(slots, torch.ones(len(slots)))


def test_a_stack_repeats_the_first_frame_of_its_own_episode() -> None:
    lives = [Episode(2, terminated=True), Episode(3, terminated=False)]
    actual = batch_of_slots(frame_dataset(lives), 1, 3)
    assert actual.obs[:, :, 0, 0].tolist() == [[0, 0, 0], [0, 0, 1], [3, 3, 3], [3, 3, 4], [3, 4, 5]]
    assert actual.next_obs[[0, 2, 3, 4], :, 0, 0].tolist() == [[0, 0, 1], [3, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert actual.discount.tolist() == pytest.approx([0.9, 0.0, 0.9, 0.9, 0.9])


def test_sampled_frames_share_memory_with_the_file() -> None:
    file = frame_dataset([Episode(4, terminated=True), Episode(5, terminated=False)])
    replay = dataset_ring(file, n_step=1, gamma=GAMMA, generator=torch.Generator(), device=CPU, stack=2)
    assert np.shares_memory(replay.obs.numpy(), file.obs)


def test_interrupted_recording_ends_at_its_last_complete_transition() -> None:
    whole = frame_dataset([Episode(3, terminated=True), Episode(4, terminated=True)])
    cut = Dataset(*(column[:7] for column in whole))
    assert batch_of_slots(cut, 1, 1).obs[:, 0, 0].tolist() == [0, 1, 2, 4, 5]
    assert batch_of_slots(cut, 1, 1).discount.tolist() == pytest.approx([0.9, 0.9, 0.0, 0.9, 0.9])


def test_final_rows_belong_to_no_episode() -> None:
    actual = episodes(frame_dataset([Episode(3, terminated=True), Episode(1, terminated=False)]))
    assert (actual.returns.tolist(), actual.lengths.tolist(), actual.ended.tolist()) == ([6, 1], [3, 1], [True, True])


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
    usual, ended = (every(ring_of(replay)) for replay in (file, terminated_on_end(data_of(file))))
    assert [row.obs for row in ended if row.discount == 0] == [3.0, 5.0, 7.0]
    assert [row.obs for row in usual if row.discount == 0] == [5.0]
    assert {row.obs for row in ended} == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}
    others = [row for row in usual if row.discount and row.obs not in {3.0, 7.0}]
    assert [row for row in ended if row.discount] == others
