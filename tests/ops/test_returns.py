"""Advantages and returns against their definitions in float64, and running moments against numpy."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from rlbench.ops.returns import RunningMoments, advantages, discounted_returns, initial_moments, update_moments
from rlbench.ops.types import Rollout

Array = NDArray[np.float64]
GOES_ON, TERMINATES, TRUNCATES = 0, 1, 2


@dataclass
class Env:
    """The rows of one env as they happened; a final row follows each end."""

    codes: list[int]
    begins_dead: bool  # the row before the rollout ended an episode

    def final(self) -> list[bool]:
        actual = [self.begins_dead]
        for code in self.codes:
            actual.append(code != GOES_ON and not actual[-1])
        return actual[:-1]


def column(rows: list[list[bool]]) -> Tensor:
    return torch.tensor(rows).T


def rolled(envs: list[Env], reward: Tensor) -> Rollout:
    """A rollout of these envs; the content of a final row must not matter and stays random."""
    final = [env_index.final() for env_index in envs]
    alive = [[c if not d else GOES_ON for c, d in zip(env_index.codes, gone, strict=True)] for env_index, gone in zip(
        envs, final, strict=True)]  # fmt: skip
    rows, width = len(envs[0].codes), len(envs)
    return Rollout(
        obs=torch.zeros(rows + 1, width),
        action=torch.zeros(rows, width, dtype=torch.int64),
        reward=reward,
        terminated=column([[c == TERMINATES for c in env_index] for env_index in alive]),
        done=column([[c != GOES_ON for c in env_index] for env_index in alive]),
        final=column(final),
    )


class Arrays(NamedTuple):
    """A rollout for loops to read: indexing an array is quick."""

    reward: Array
    terminated: NDArray[np.bool_]
    done: NDArray[np.bool_]
    final: NDArray[np.bool_]
    value: Array


def arrays_of(rollout: Rollout, value: Tensor) -> Arrays:
    return Arrays(*(x.numpy() for x in (rollout.reward, rollout.terminated, rollout.done, rollout.final, value)))


def future(rollout: Arrays, row: int, env_index: int) -> int:
    """Steps from a live row to the end of its episode or of the rollout."""
    steps = 1
    while not rollout.done[row + steps - 1, env_index] and row + steps < len(rollout.reward):
        steps += 1
    return steps


def multistep(rollout: Arrays, row: int, env_index: int, steps: int, gamma: float) -> float:
    """The return of so many steps, then the value of the next row."""
    total = sum(gamma**i * float(rollout.reward[row + i, env_index]) for i in range(steps))
    if not rollout.terminated[row + steps - 1, env_index]:
        total += gamma**steps * float(rollout.value[row + steps, env_index])
    return total


def mixed(rollout: Arrays, gamma: float, trace: float) -> Array:
    """The λ-return minus the value: every multistep return with its weight, the longest with all that is left."""
    mixture = np.zeros(rollout.reward.shape)
    for row, env_index in np.ndindex(*mixture.shape):
        if rollout.final[row, env_index]:
            continue
        longest = future(rollout, row, env_index)
        for steps in range(1, longest + 1):
            share = trace ** (steps - 1) * (1 - trace if steps < longest else 1)
            mixture[row, env_index] += share * multistep(rollout, row, env_index, steps, gamma)
        mixture[row, env_index] -= float(rollout.value[row, env_index])
    return mixture


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[Rollout, Tensor]:
    rows, width = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    likely = draw(st.sampled_from([[0, 1, 2], [0, 0, 0, 0, 1, 2], [0], [1, 2], [0, 0, 1], [0, 0, 2]]))
    codes = st.lists(st.sampled_from(likely), min_size=rows, max_size=rows)
    envs = [Env(draw(codes), draw(st.booleans())) for _ in range(width)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    reward = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    value = 3 * torch.randn(rows + 1, width, generator=generator, dtype=torch.float64)
    return rolled(envs, reward), value


RATES = st.tuples(st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.sampled_from([0.0, 0.6, 0.95, 1.0]))


@given(rollouts(), RATES)
def test_advantages_are_the_mixture_of_all_multistep_returns(
    case: tuple[Rollout, Tensor], rates: tuple[float, float]
) -> None:
    (rollout, value), (gamma, trace) = case, rates
    actual = advantages(rollout, value, gamma=gamma, gae_lambda=trace)
    np.testing.assert_allclose(actual.numpy(), mixed(arrays_of(rollout, value), gamma, trace), rtol=1e-10, atol=1e-10)


@given(rollouts(), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.sampled_from([0.0, -2.5, 7.0]))
def test_returns_sum_to_the_episodes_end_and_bootstrap_truncated_ones(
    case: tuple[Rollout, Tensor], gamma: float, ending: float
) -> None:
    rollout, value = case
    actual = discounted_returns(rollout, torch.tensor(ending, dtype=torch.float64), gamma=gamma)
    arrays, expected = arrays_of(rollout, torch.full_like(value, ending)), np.zeros(actual.shape)
    for row, env_index in np.ndindex(*expected.shape):
        if not arrays.final[row, env_index]:
            expected[row, env_index] = multistep(arrays, row, env_index, future(arrays, row, env_index), gamma)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10, atol=1e-10)


@given(st.data())
def test_running_moments_are_independent_of_the_split(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(), (3,), (2, 2)]))
    sizes = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    moments, parts = initial_moments(shape, torch.empty(0)), []
    for size in sizes:
        x = 5 + 3 * torch.randn(size, *shape, generator=generator)
        weight = data.draw(st.lists(st.sampled_from([0.0, 1.0, 1.0]), min_size=size, max_size=size))
        moments = update_moments(moments, x, torch.tensor(weight))
        parts.append(x.double().numpy()[np.array(weight, dtype=bool)])
    rows = np.concatenate(parts)
    assert moments.rows.item() == len(rows)
    if len(rows) == 0:
        assert (moments.mean == 0).all() and (moments.var == 1).all()
        return
    np.testing.assert_allclose(moments.mean.numpy(), rows.mean(0), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moments.var.numpy(), rows.var(0), rtol=1e-9, atol=1e-10)


def test_moments_of_many_batches_far_from_zero_keep_their_digits() -> None:
    generator = np.random.default_rng(0)
    moments, rows = initial_moments((), torch.empty(0)), 1e4 + generator.normal(size=(1000, 16))
    for batch in rows:
        moments = update_moments(moments, torch.from_numpy(batch), torch.ones(16))
    assert moments.mean.item() == pytest.approx(rows.mean(), rel=1e-13)
    assert moments.var.item() == pytest.approx(rows.var(), rel=1e-8)


def test_dead_rows_leave_the_moments_and_nothing_is_changed_in_place() -> None:
    first = update_moments(initial_moments((2,), torch.empty(0)), torch.tensor([[1.0, 2], [3, 4]]), torch.ones(2))
    copy = RunningMoments(*(part.clone() for part in first))
    for x in (torch.full((3, 2), 9.0), torch.empty(0, 2)):
        again = update_moments(first, x, torch.zeros(len(x)))
        assert all(torch.equal(a, b) for a, b in zip(again, first, strict=True))
    update_moments(first, torch.full((3, 2), 9.0), torch.ones(3))
    assert all(torch.equal(a, b) for a, b in zip(copy, first, strict=True))
    assert first.mean.tolist() == [2, 3]
    assert first.var.tolist() == [1, 1]
