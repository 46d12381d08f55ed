"""The asynchronous collector on environments that answer in a scripted order."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlbench.buffers.async_ring import AsyncRingBuffer
from rlbench.buffers.ring import COLUMNS, ArraySpec
from rlbench.collectors.asynchronous import AsyncCollector
from rlbench.collectors.explore import EpsilonGreedy, NoExploration
from rlbench.collectors.sync import Collector
from rlbench.config.tasks import AtariTask
from rlbench.envs.ale import AleVector
from rlbench.envs.async_vector import AsyncVector as AsyncEnvs
from rlbench.envs.base import Discrete, EnvInfo, Step
from tests.rings import ring_of

NUM_ENVS, ACTIONS = 3, 5
Order = Callable[[list[int]], list[int]]
"""Of the envs on their way, ascending, those that answer."""


class Env:
    """One environment: what it shows, pays and when it ends follows from its number, segment and actions alone."""

    def __init__(self, env_id: int, segment: int) -> None:
        self.env_id, self.at, self.sum, self.final, self.episode = env_id, 0, segment * 7, False, 0

    def observation(self) -> float:
        return 1e5 * self.env_id + 1e3 * self.episode + 10 * self.at + self.sum % 10

    def answer(self, action: int) -> tuple[float, float, bool, bool, float, bool]:
        if self.final:
            self.at, self.final, self.episode = 0, False, self.episode + 1
            return self.observation(), 0.0, False, False, 0.0, False
        self.at, self.sum = self.at + 1, self.sum * 3 + action + 1
        terminated = self.sum % 11 == 0
        truncated = not terminated and self.at == 6 + self.env_id
        self.final = terminated or truncated
        return self.observation(), float(action - 1), terminated, truncated, 2.0 * action, self.final


class Together:
    def __init__(self, segment: int) -> None:
        self.worlds = [Env(env_id, segment) for env_id in range(NUM_ENVS)]
        self.actions_sent: dict[int, int] = {}
        self.closed = False

    @property
    def info(self) -> EnvInfo:
        return EnvInfo(NUM_ENVS, (), np.dtype(np.float32), Discrete(ACTIONS), ())

    def reset(self) -> NDArray[np.float32]:
        return np.array([world.observation() for world in self.worlds], np.float32)

    def send(self, action: NDArray[np.generic]) -> None:
        self.actions_sent = dict(enumerate(action.tolist()))

    def recv(self) -> Step:
        return self.answered(sorted(self.actions_sent))

    def answered(self, env_ids: list[int]) -> Step:
        rows = [self.worlds[env_id].answer(self.actions_sent.pop(env_id)) for env_id in env_ids]
        obs, reward, terminated, truncated, score, over = (np.array(part) for part in zip(*rows, strict=True))
        return Step(
            obs.astype(np.float32), reward.astype(np.float32), terminated, truncated, np.array(env_ids), score, over
        )

    def close(self) -> None:
        self.closed = True


class Apart(Together):
    """The envs that the script says answer."""

    def __init__(self, segment: int, order: Order) -> None:
        super().__init__(segment)
        self.order = order

    def send(self, action: NDArray[np.generic], env_id: NDArray[np.int64]) -> None:
        assert not set(env_id.tolist()) & set(self.actions_sent), "an env that is on its way was sent again"
        self.actions_sent.update(zip(env_id.tolist(), action.tolist(), strict=True))

    def recv(self) -> Step:
        return self.answered(self.order(sorted(self.actions_sent)))


class EchoActor:
    """Acts on what is shown alone, so that an env's actions do not depend on when it answers."""

    def act(self, obs: torch.Tensor, role: str) -> torch.Tensor:
        assert role == "act"
        assert obs.dim() == 2  # [M, stack]
        return (obs.sum(1).long() // 3) % ACTIONS


def apart(order: Order, epsilon: float = 0.0) -> tuple[AsyncCollector, AsyncRingBuffer, list[Apart]]:
    envs_made: list[Apart] = []

    def opened(segment: int) -> Apart:
        envs_made.append(Apart(segment, order))
        return envs_made[-1]

    buffer = ring_of(NUM_ENVS, 500, stack=2, kind=AsyncRingBuffer)
    explorer = EpsilonGreedy(actions=ACTIONS, generator=torch.Generator().manual_seed(4), epsilon=epsilon)
    parts = {"actor": EchoActor(), "buffer": buffer, "explorer": explorer, "open_envs": opened, "num_envs": NUM_ENVS}
    return AsyncCollector(**parts), buffer, envs_made


def together(steps: list[int]) -> tuple[Collector, AsyncRingBuffer]:
    """The same environments in step, ``steps[segment]`` vector steps each."""
    buffer = ring_of(NUM_ENVS, 500, stack=2, kind=AsyncRingBuffer)
    explorer = EpsilonGreedy(actions=ACTIONS, generator=torch.Generator())
    runner = Collector(actor=EchoActor(), buffer=buffer, explorer=explorer, open_envs=Together, num_envs=NUM_ENVS)
    for segment, count in enumerate(steps):
        runner.open(segment)
        for _ in range(count):
            runner.step()
    return runner, buffer


def rows_of(buffer: AsyncRingBuffer, env_id: int) -> list[tuple[float, ...]]:
    columns = [getattr(buffer, name) for name in COLUMNS]
    return [tuple(column[row, env_id].item() for column in columns) for row in range(buffer.size[env_id])]


@settings(max_examples=40)
@given(st.data())
def test_asynchronous_envs_store_the_same_as_synchronous_ones(data: st.DataObject) -> None:
    def order(waiting: list[int]) -> list[int]:
        return sorted(data.draw(st.sets(st.sampled_from(waiting), min_size=1)))

    runner, buffer, _ = apart(order)
    runner.open(0)
    steps_counted = sum(runner.step() for _ in range(data.draw(st.integers(0, 60))))
    live = [row for env_id in range(NUM_ENVS) for row in rows_of(buffer, env_id) if not row[5]]
    assert steps_counted == len(live), "not every stored live step was counted, or one twice"
    reference, whole = together([int(buffer.size.max())])
    for env_id in range(NUM_ENVS):
        rows = rows_of(buffer, env_id)
        assert rows == rows_of(whole, env_id)[: len(rows)]
        assert buffer.newest_observations()[env_id, -1] == whole.obs[len(rows), env_id]
    ours, theirs = runner.episode_stats.take(), reference.episode_stats.take()
    assert set(zip(*ours, strict=True)) <= set(zip(*theirs, strict=True))


def test_segment_begins_with_every_env_live() -> None:
    runner, _, _ = apart(lambda waiting: waiting)
    runner.open(0)
    while not runner.ended.any():
        runner.step()
    runner.open(1)
    assert runner.step() == NUM_ENVS


def test_actions_stay_with_their_env_until_it_answers() -> None:
    """With exploration no action follows from what is shown: what is stored must be what was sent."""
    runner, buffer, envs = apart(
        lambda waiting: waiting[-1:] if sum(envs[0].actions_sent.values()) % 2 else waiting[:2], 0.9
    )
    runner.open(0)
    done: list[list[int]] = [[], [], []]
    for _ in range(80):
        before = dict(envs[0].actions_sent)
        runner.step()
        sizes = buffer.size.tolist()
        for env_id in range(NUM_ENVS):
            if sizes[env_id] > len(done[env_id]):
                done[env_id].append(before[env_id])
    for env_id in range(NUM_ENVS):
        assert buffer.action[: len(done[env_id]), env_id].tolist() == done[env_id]
        assert len(done[env_id]) > 5


def test_new_segment_truncates_running_episodes_and_drops_pending_answers() -> None:
    runner, buffer, envs = apart(lambda waiting: waiting[:1])
    runner.open(0)
    for _ in range(3):
        runner.step()  # env 0 alone
    runner.open(1)
    runner.step()
    assert envs[0].closed and not envs[1].closed
    assert buffer.size.tolist() == [5, 1, 1]  # three steps, the row that closes, one step
    assert buffer.final[3, 0] and buffer.final[0, 1:].all()
    assert buffer.done[2, 0] and not buffer.terminated[2, 0]
    assert buffer.age[4, 0] == 0 and buffer.age[1, 1:].tolist() == [0, 0]
    assert runner.episode_stats.length.tolist() == [1, 0, 0]


def test_loaded_collector_truncates_and_restarts_its_segment() -> None:
    runner, buffer, _ = apart(lambda waiting: waiting[:2], epsilon=0.5)
    runner.open(2)
    for _ in range(30):
        runner.step()
    games = runner.episode_stats.last
    saved, rows = runner.state_dict(), buffer.state_dict()
    rows = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in rows.items()}
    other, copy, envs = apart(lambda waiting: waiting[:2], epsilon=0.5)
    copy.load_state_dict(rows)
    other.load_state_dict(saved)
    assert (other.segment, other.episode_stats.last) == (2, games)
    assert runner.exact and not other.exact
    assert copy.size.tolist() == [31, 31, 1]
    assert copy.final[[30, 30, 0], [0, 1, 2]].all()
    assert copy.newest_observations()[:, -1].tolist() == Together(2).reset().tolist()
    assert other.step() == 2
    assert len(envs) == 1


def test_unstarted_collector_is_loaded_exactly() -> None:
    runner, other = (apart(lambda waiting: waiting)[0] for _ in range(2))
    other.load_state_dict(runner.state_dict())
    assert other.exact and other.envs is None


class Pixels:
    def act(self, obs: torch.Tensor, role: str) -> torch.Tensor:
        return obs.flatten(1).long().sum(1) % 4


def test_asynchronous_ale_envs_store_the_same_as_synchronous_ones() -> None:
    task = AtariTask(id="breakout", game="breakout")
    seeds = [1, 2, 3]
    buffers = []

    def vector(seeds: list[int]) -> AleVector:
        return AleVector(task=task, seeds=seeds, training=True)

    for kind, open_envs in (
        (Collector, lambda _: vector(seeds)),
        (AsyncCollector, lambda _: AsyncEnvs(envs=[vector([seed]) for seed in seeds], async_batch=2)),
    ):
        buffer = ring_of(NUM_ENVS, 60, stack=2, kind=AsyncRingBuffer, obs=ArraySpec((84, 84), torch.uint8))
        parts = {"actor": Pixels(), "buffer": buffer, "explorer": NoExploration()}
        runner = kind(open_envs=open_envs, num_envs=NUM_ENVS, **parts)
        runner.open(0)
        for _ in range(55):
            runner.step()
        runner.close()
        buffers.append(buffer)
    together, apart = buffers
    assert int(apart.size.sum()) == 2 * 55
    assert bool(together.terminated.any())
    for env_id in range(NUM_ENVS):
        rows = int(apart.size[env_id])
        for name in COLUMNS:
            assert torch.equal(getattr(apart, name)[:rows, env_id], getattr(together, name)[:rows, env_id]), name


def test_unopened_collector_raises() -> None:
    with pytest.raises(RuntimeError, match="open a segment first"):
        apart(lambda waiting: waiting)[0].step()
