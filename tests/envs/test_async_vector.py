"""Lanes that do not wait for each other: each lives as it does in step, and a late one holds nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import pytest

from rlbench.envs.async_vector import AsyncVector
from rlbench.envs.base import AsyncVectorEnv, Discrete, EnvInfo, Step, VectorEnv
from rlbench.envs.envpool_async import EnvPoolMujocoAsync
from rlbench.errors import BrokenEnvironment, Diverged, RlbenchError, UsageError

Make = Callable[..., VectorEnv]
Draw = Callable[..., np.ndarray]
SEEDS = [11, 13, 11, 14]
STEPS = 120
KINDS = ["ale", "envpool", "hopper", "envpool-hopper"]  # all of them end several episodes in these steps


def made(make_any: Make, kind: str, answers: int, seeds: list[int] | None = None) -> AsyncVectorEnv:
    seeds = seeds or SEEDS
    if kind == "envpool-hopper":
        return EnvPoolMujocoAsync(task="Hopper-v4", seeds=seeds, threads=2, async_batch=answers)
    return AsyncVector(lanes=[make_any(kind, seeds=[seed]) for seed in seeds], async_batch=answers)


def rows_of(step: Step) -> Iterator[tuple[int, tuple[bytes, ...]]]:
    """What each lane answered, every column but the lane's number."""
    for i, lane in enumerate(step.lane.tolist()):
        yield lane, tuple(column[i].tobytes() for column in step._replace(lane=step.reward))


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_every_lane_answers_its_actions_as_it_does_in_step(make_any: Make, draw: Draw, kind: str, answers: int) -> None:
    """Lives, FIRE, resets and scores too, to the bit: no lane knows in what company or order it is asked."""
    together, lanes = make_any(kind, seeds=SEEDS), made(make_any, kind, answers)
    action = draw(together.info.actions, seed=7, size=(STEPS, len(SEEDS)))
    assert np.array_equal(together.reset(), lanes.reset())
    expected: list[list[tuple[bytes, ...]]] = [[] for _ in SEEDS]
    ends = 0
    for row in action:
        together.send(row)
        step = together.recv()
        ends += int((step.terminated | step.truncated).sum())
        for lane, answer in rows_of(step):
            expected[lane].append(answer)
    found: list[list[tuple[bytes, ...]]] = [[] for _ in SEEDS]
    ready = np.arange(len(SEEDS))
    while max(len(one) for one in found) < STEPS:
        lanes.send(np.stack([action[len(found[lane]), lane] for lane in ready.tolist()]), ready)
        step = lanes.recv()
        assert len(step.lane) == answers and (np.diff(step.lane) > 0).all()
        for lane, answer in rows_of(step):
            found[lane].append(answer)
        ready = step.lane
    lanes.close()
    together.close()
    assert ends >= 4
    assert all(ours == theirs[: len(ours)] for ours, theirs in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_apart_promise_what_they_promise_together(make_any: Make, kind: str) -> None:
    together, lanes = make_any(kind, seeds=SEEDS), made(make_any, kind, 2)
    ours, theirs = lanes.info, together.info
    assert (ours.lanes, ours.obs_shape, ours.obs_dtype, ours.versions) == (4, *theirs[1:3], theirs.versions)
    assert [np.asarray(part).tolist() for part in ours.actions] == [np.asarray(p).tolist() for p in theirs.actions]
    frames = lanes.reset()
    assert frames.shape == (4, *ours.obs_shape) and frames.dtype == ours.obs_dtype
    action = np.zeros(4, np.int64) if isinstance(ours.actions, Discrete) else np.zeros((4, 3), np.float32)
    lanes.send(action, np.arange(4))
    step = lanes.recv()
    assert step.obs.dtype == ours.obs_dtype
    assert [c.dtype for c in step[1:]] == [np.float32, bool, bool, np.int64, np.float64, bool]
    assert [c.shape for c in step[1:]] == [(2,)] * 6
    lanes.close()  # two of them are on their way
    lanes.close()


class Held:
    """One lane that answers when it is let go, with how often it was sent."""

    info = EnvInfo(1, (), np.dtype(np.float32), Discrete(9), ())

    def __init__(self) -> None:
        self.free, self.sent, self.closed, self.cause = Event(), 0, False, ""
        self.free.set()

    def reset(self) -> np.ndarray:
        return np.zeros(1, np.float32)

    def send(self, action: np.ndarray) -> None:
        if action[0] < 0:
            raise Diverged("held: lane 0: action is not finite")
        self.sent += 1

    def recv(self) -> Step:
        assert self.free.wait(30)
        if self.cause:
            raise BrokenEnvironment(f"held: lane 0, step {self.sent}: {self.cause}")
        flag, number = np.zeros(1, bool), np.full(1, self.sent)
        return Step(number.astype(np.float32), flag.astype(np.float32), flag, flag, number * 0, number * 1.0, flag)

    def close(self) -> None:
        self.closed = True


def held(count: int, answers: int) -> tuple[AsyncVector, list[Held]]:
    lanes = [Held() for _ in range(count)]
    env = AsyncVector(lanes=lanes, async_batch=answers)
    env.reset()
    return env, lanes


def test_a_lane_that_is_late_holds_nobody_and_is_heard_once_it_is_done() -> None:
    env, lanes = held(3, 2)
    lanes[1].free.clear()
    env.send(np.arange(3), np.arange(3))
    for turn in range(1, 6):
        step = env.recv()
        assert step.lane.tolist() == [0, 2]
        assert step.score.tolist() == [turn, turn]
        env.send(np.zeros(2, np.int64), step.lane)
    lanes[1].free.set()
    heard: Counter[int] = Counter()
    while not heard[1]:
        step = env.recv()
        heard.update(step.lane.tolist())
        env.send(np.zeros(2, np.int64), step.lane)
    assert lanes[1].sent == 2
    env.close()
    assert all(lane.closed for lane in lanes)


def test_every_action_goes_to_its_own_lane(make_any: Make) -> None:
    lanes = [make_any("cartpole", seeds=[3]) for _ in range(2)]
    env = AsyncVector(lanes=lanes, async_batch=2)
    env.reset()
    env.send(np.array([1, 0]), np.array([1, 0]))
    pushed = env.recv().obs[:, 1]
    assert pushed[1] > 0 > pushed[0]
    env.close()


def test_what_breaks_in_a_lane_is_told_with_the_lane() -> None:
    env, lanes = held(3, 1)
    lanes[2].cause = "reward is not finite"
    env.send(np.zeros(1, np.int64), np.array([2]))
    with pytest.raises(BrokenEnvironment, match="number 2: held: lane 0, step 1: reward is not finite"):
        env.recv()
    with pytest.raises(Diverged, match="number 1: held: lane 0: action is not finite"):
        env.send(np.array([0, -1]), np.array([0, 1]))
    env.close()


@pytest.mark.parametrize("answers", [0, 5])
@pytest.mark.parametrize("kind", ["ale", "envpool-hopper"])
def test_answers_that_can_never_come_are_refused(make_any: Make, kind: str, answers: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 4 lanes can answer"):
        made(make_any, kind, answers)


def test_an_impossible_action_of_some_lanes_is_refused_with_its_lane(make_any: Make) -> None:
    env = made(make_any, "envpool-hopper", 2)
    env.reset()
    refused: Callable[[Any], None] = partial(env.send, lane=np.array([1, 3]))
    action = np.zeros((2, 3), np.float32)
    with pytest.raises(RlbenchError, match=r"actions must be \[2, 3\] float32"):
        refused(np.zeros((4, 3), np.float32))
    action[1, 0] = np.nan
    with pytest.raises(Diverged, match="lane 3, step 0: action is not finite"):
        refused(action)
    env.close()
