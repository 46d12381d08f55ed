"""The synchronous collector on environments with scripted answers."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlbench.buffers.ring import RingBuffer
from rlbench.collectors.env_restore import ActionLog, env_state
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.collectors.sync import Collector
from rlbench.envs.base import Discrete, EnvInfo, Step
from rlbench.envs.normalize import Normalized, ObsNormalizer
from rlbench.errors import BrokenEnvironment
from rlbench.ops.state_dict import tensor
from tests.rings import ring_of

NUM_ENVS = 2


@dataclass
class Scripted:
    """Env 0 loses a life every 3 live steps and the game every 6; env 1 is truncated every 4. Shows a count."""

    segment: int
    shift: int = 0
    actions_sent: list[list[int]] = field(default_factory=list)
    at: NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_ENVS, np.int64))
    final: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(NUM_ENVS, np.bool_))
    closed: bool = False

    @property
    def info(self) -> EnvInfo:
        return EnvInfo(NUM_ENVS, (), np.dtype(np.float32), Discrete(3), ())

    def observation(self) -> NDArray[np.float32]:
        return (1000 * self.segment + 100 * np.arange(NUM_ENVS) + len(self.actions_sent) + self.shift).astype(
            np.float32
        )

    def reset(self) -> NDArray[np.float32]:
        return self.observation()

    def send(self, action: NDArray[np.generic]) -> None:
        self.actions_sent.append(action.tolist())

    def recv(self) -> Step:
        live = ~self.final
        self.at += live
        life = np.array([live[0] and self.at[0] % 3 == 0, False])
        game = np.array([live[0] and self.at[0] % 6 == 0, live[1] and self.at[1] % 4 == 0])
        terminated, truncated = life, np.array([False, bool(game[1])])
        self.final = terminated | truncated
        points = np.where(live, 5.0, 0.0)
        reward = np.sign(points).astype(np.float32)
        return Step(self.observation(), reward, terminated, truncated, np.arange(NUM_ENVS), points, game)

    def close(self) -> None:
        self.closed = True


class Always:
    def act(self, obs: torch.Tensor, role: str) -> torch.Tensor:
        assert role == "act"
        return torch.full((len(obs),), 2)


def collector(epsilon: float = 0.0, shift: int = 0) -> tuple[Collector, RingBuffer, list[Scripted]]:
    envs_made: list[Scripted] = []

    def opened(segment: int) -> Scripted:
        envs_made.append(Scripted(segment, shift))
        return envs_made[-1]

    buffer = ring_of(NUM_ENVS, 200 // NUM_ENVS)
    explorer = EpsilonGreedy(actions=3, generator=torch.Generator().manual_seed(4), epsilon=epsilon)
    parts = {"actor": Always(), "buffer": buffer, "explorer": explorer}
    return Collector(open_envs=opened, num_envs=NUM_ENVS, **parts), buffer, envs_made


def test_only_live_steps_are_counted() -> None:
    runner, _, _ = collector()
    runner.open(0)
    # env 0 ends at its 3rd live step, env 1 at its 4th; the step after each is the idle one
    assert [runner.step() for _ in range(10)] == [2, 2, 2, 1, 1, 2, 2, 1, 2, 1]


def test_episode_return_covers_all_lives_with_raw_rewards() -> None:
    runner, buffer, _ = collector()
    runner.open(0)
    for _ in range(8):
        runner.step()
    assert runner.episode_stats.take() == ((20.0, 30.0), (4, 6))  # env 1's four steps, then env 0's six over two lives
    assert runner.episode_stats.take() == ((), ())
    assert runner.episode_stats.last == 30.0
    assert buffer.reward[:3, 0].tolist() == [1.0, 1.0, 1.0]  # the learner is paid the sign


def test_stored_rows_equal_observations_actions_and_answers() -> None:
    runner, buffer, envs = collector()
    runner.open(0)
    for _ in range(5):
        runner.step()
    assert buffer.obs[:5, 0].tolist() == [0, 1, 2, 3, 4]
    assert buffer.action[:5].tolist() == envs[0].actions_sent == [[2, 2]] * 5
    assert buffer.terminated[:5, 0].tolist() == [False, False, True, False, False]
    assert buffer.final[:5, 0].tolist() == [False, False, False, True, False]
    assert buffer.done[:5, 1].tolist() == [False, False, False, True, False]
    assert not buffer.terminated[:5, 1].any()


def test_new_segment_truncates_running_episodes_and_starts_fresh_environments() -> None:
    runner, buffer, envs = collector()
    runner.open(0)
    runner.step()
    runner.step()
    runner.open(1)
    runner.step()
    assert envs[0].closed
    assert not envs[1].closed
    assert buffer.done[1].tolist() == [True, True]
    assert not buffer.terminated[1].any()
    assert buffer.final[2].tolist() == [True, True]
    assert buffer.obs[2:4, 0].tolist() == [2, 1000]  # where it stopped, then the new beginning
    assert buffer.age[3].tolist() == [0, 0]
    assert runner.episode_stats.take() == ((), ())  # a game cut short is no game


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 3, 4, 9])
def test_collector_resumes_from_its_state_in_mid_game(stop: int, *, normalized: bool) -> None:
    def opened() -> tuple[Collector, RingBuffer, list[Scripted]]:
        runner, ring, envs = collector(epsilon=0.5)
        if normalized:
            plain, runner.obs_normalizer = runner.open_envs, (normalizer := ObsNormalizer(()))
            runner.open_envs = lambda segment: Normalized(plain(segment), normalizer, learning=True)
        return runner, ring, envs

    whole, buffer, _ = opened()
    whole.open(0)
    for _ in range(stop):
        whole.step()
    saved, rows = whole.state_dict(), buffer.state_dict()
    rows = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in rows.items()}
    live = [whole.step() for _ in range(12)]
    other, copy, envs = opened()
    copy.load_state_dict(rows)
    other.load_state_dict(saved)
    assert [other.step() for _ in range(12)] == live
    assert torch.equal(copy.obs, buffer.obs)
    assert torch.equal(copy.action, buffer.action)
    assert other.episode_stats.take() == whole.episode_stats.take()
    assert len(envs[0].actions_sent) == stop + 12


def test_nondeterministic_environment_is_refused_on_resume() -> None:
    runner, buffer, _ = collector()
    runner.open(0)
    runner.step()
    other, copy, _ = collector(shift=7)
    copy.load_state_dict(buffer.state_dict())
    with pytest.raises(BrokenEnvironment, match="do not lead back"):
        other.load_state_dict(runner.state_dict())


@pytest.mark.parametrize(("largest", "dtype"), [(32_767, torch.int16), (40_000, torch.int64)])
def test_numbers_of_actions_are_stored_as_they_are(largest: int, dtype: torch.dtype) -> None:
    log = ActionLog()
    log.add(np.array([0, largest]))
    actions = tensor(env_state(None, log), "taken")
    assert (actions.tolist(), actions.dtype) == ([[0, largest]], dtype)
