"""Asynchronous vectors: each env answers like a synchronous one, and a slow env delays no other."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import pytest

from rlbench.envs.async_vector import AsyncVector
from rlbench.envs.base import AsyncVectorEnv, Discrete, EnvInfo, Step
from rlbench.envs.envpool import EnvPoolMujoco
from rlbench.errors import BrokenEnvironment, Diverged, RlbenchError
from tests.envs.factories import answer_to, draw, make_any
from tests.slow import slow_but

SEEDS = [11, 13, 11, 14]
STEPS = 120
KINDS = ["ale", "envpool", "hopper", "envpool-hopper"]  # all of them end several episodes in these steps


def make(kind: str, answers: int, seeds: list[int] | None = None) -> AsyncVectorEnv:
    seeds = seeds or SEEDS
    if kind == "envpool-hopper":
        return EnvPoolMujoco(task="Hopper-v4", seeds=seeds, threads=2, async_batch=answers)
    return AsyncVector(envs=[make_any(kind, seeds=[seed]) for seed in seeds], async_batch=answers)


def rows_of(step: Step) -> Iterator[tuple[int, bytes]]:
    """Columns of each env's step but the env index."""
    for i, env_id in enumerate(step.env_id.tolist()):
        yield env_id, b"".join(column[i].tobytes() for column in step._replace(env_id=step.reward))


@pytest.fixture(scope="module", params=KINDS, name="kind")
def kind_fixture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Synchronous(NamedTuple):
    """The random steps of a synchronous vector."""

    info: EnvInfo
    first: np.ndarray  # observations, [env, ...]
    action: np.ndarray  # [step, env, ...]
    answers: list[list[bytes]]  # of each env


@pytest.fixture(scope="module", name="together")
def together_fixture(kind: str) -> Synchronous:
    together = make_any(kind, seeds=SEEDS)
    first = together.reset().copy()
    action = draw(together.info.actions, seed=7, size=(STEPS, len(SEEDS)))
    expected: list[list[bytes]] = [[] for _ in SEEDS]
    ends = 0
    for row in action:
        step = answer_to(together, row)
        ends += int((step.terminated | step.truncated).sum())
        for env_id, answer in rows_of(step):
            expected[env_id].append(answer)
    together.close()
    assert ends >= 4
    return Synchronous(together.info, first, action, expected)


@pytest.mark.parametrize("answers", slow_but([1, 2, 3, 4], 1))
def test_asynchronous_envs_answer_like_synchronous_ones(kind: str, answers: int, together: Synchronous) -> None:
    """Lives, FIRE, resets and scores too, to the bit: no env depends on the others or on the order of requests."""
    action, envs = together.action, make(kind, answers)
    assert np.array_equal(together.first, envs.reset())
    observations: list[list[bytes]] = [[] for _ in SEEDS]
    ready = np.arange(len(SEEDS))
    while max(len(one) for one in observations) < STEPS:
        step = answer_to(envs, np.stack([action[len(observations[i]), i] for i in ready.tolist()]), ready)
        assert len(step.env_id) == answers and (np.diff(step.env_id) > 0).all()
        for env_id, answer in rows_of(step):
            observations[env_id].append(answer)
        ready = step.env_id
    envs.close()
    assert all(ours == theirs[: len(ours)] for ours, theirs in zip(observations, together.answers, strict=True))


def test_asynchronous_vector_keeps_the_vector_contract(kind: str, together: Synchronous) -> None:
    envs = make(kind, 2)
    ours, theirs = envs.info, together.info
    assert (ours.num_envs, ours.obs_shape, ours.obs_dtype, ours.versions) == (4, *theirs[1:3], theirs.versions)
    assert [np.asarray(part).tolist() for part in ours.actions] == [np.asarray(p).tolist() for p in theirs.actions]
    frames = envs.reset()
    assert frames.shape == (4, *ours.obs_shape) and frames.dtype == ours.obs_dtype
    action = np.zeros(4, np.int64) if isinstance(ours.actions, Discrete) else np.zeros((4, 3), np.float32)
    step = answer_to(envs, action, np.arange(4))
    assert step.obs.dtype == ours.obs_dtype
    assert [c.dtype for c in step[1:]] == [np.float32, bool, bool, np.int64, np.float64, bool]
    assert [c.shape for c in step[1:]] == [(2,)] * 6
    envs.close()  # two of them are on their way
    envs.close()


class BlockedEnv:
    """One env that answers when it is let go, with how often it was sent."""

    info = EnvInfo(1, (), np.dtype(np.float32), Discrete(9), ())

    def __init__(self) -> None:
        self.free, self.requests_sent, self.closed, self.cause = Event(), 0, False, ""
        self.free.set()

    def reset(self) -> np.ndarray:
        return np.zeros(1, np.float32)

    def send(self, action: np.ndarray) -> None:
        if action[0] < 0:
            raise Diverged("held: env 0: action is not finite")
        self.requests_sent += 1

    def recv(self) -> Step:
        assert self.free.wait(30)
        if self.cause:
            raise BrokenEnvironment(f"held: env 0, step {self.requests_sent}: {self.cause}")
        flag, number = np.zeros(1, bool), np.full(1, self.requests_sent)
        return Step(number.astype(np.float32), flag.astype(np.float32), flag, flag, number * 0, number * 1.0, flag)

    def close(self) -> None:
        self.closed = True


def blocked_envs(count: int, answers: int) -> tuple[AsyncVector, list[BlockedEnv]]:
    envs = [BlockedEnv() for _ in range(count)]
    env = AsyncVector(envs=envs, async_batch=answers)
    env.reset()
    return env, envs


def test_slow_env_delays_no_other_and_answers_when_done() -> None:
    env, envs = blocked_envs(3, 2)
    envs[1].free.clear()
    env.send(np.arange(3), np.arange(3))
    for turn in range(1, 6):
        step = env.recv()
        assert step.env_id.tolist() == [0, 2]
        assert step.score.tolist() == [turn, turn]
        env.send(np.zeros(2, np.int64), step.env_id)
    envs[1].free.set()
    heard: Counter[int] = Counter()
    while not heard[1]:
        step = env.recv()
        heard.update(step.env_id.tolist())
        env.send(np.zeros(2, np.int64), step.env_id)
    assert envs[1].requests_sent == 2
    env.close()
    assert all(one.closed for one in envs)


def test_every_action_goes_to_its_env() -> None:
    envs = [make_any("cartpole", seeds=[3]) for _ in range(2)]
    env = AsyncVector(envs=envs, async_batch=2)
    env.reset()
    pushed = answer_to(env, np.array([1, 0]), np.array([1, 0])).obs[:, 1]
    assert pushed[1] > 0 > pushed[0]
    env.close()


def test_error_in_an_env_names_its_index() -> None:
    env, envs = blocked_envs(3, 1)
    envs[2].cause = "reward is not finite"
    env.send(np.zeros(1, np.int64), np.array([2]))
    with pytest.raises(BrokenEnvironment, match="async env 2: held: env 0, step 1: reward is not finite"):
        env.recv()
    with pytest.raises(Diverged, match="async env 1: held: env 0: action is not finite"):
        env.send(np.array([0, -1]), np.array([0, 1]))
    env.close()


def test_invalid_action_is_refused_with_its_env_index() -> None:
    env = make("envpool-hopper", 2)
    env.reset()
    send: Callable[[Any], None] = partial(env.send, env_id=np.array([1, 3]))
    action = np.zeros((2, 3), np.float32)
    with pytest.raises(RlbenchError, match=r"actions must be \[2, 3\] float32"):
        send(np.zeros((4, 3), np.float32))
    action[1, 0] = np.nan
    with pytest.raises(Diverged, match="env 3, step 0: action is not finite"):
        send(action)
    env.close()
