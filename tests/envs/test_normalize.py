"""Running normalization of observations: updated in training, constant in evaluation, and equal to numpy's."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.assembly.environments import environments
from rlbench.config.tasks import MujocoTask, ToyTask
from rlbench.envs.base import Box, EnvInfo, Snapshot, Step, VectorEnv
from rlbench.envs.normalize import CLIP, Normalized, ObsNormalizer, unnormalized
from tests.envs.factories import answer_to

ENVS, SIZE = 3, 2


class Shows:
    """Environments that show what they are given, in its order."""

    def __init__(self, *observations: NDArray[np.float32]) -> None:
        self.observations, self.actions_sent, self.closed = list(observations), 0, False
        bound = np.ones(1, np.float32)
        self.info = EnvInfo(ENVS, (SIZE,), np.dtype(np.float32), Box(-bound, bound), (("env", "shows"),))

    def reset(self) -> NDArray[np.float32]:
        return self.observations.pop(0)

    def send(self, action: NDArray[Any]) -> None:
        self.actions_sent += 1

    def recv(self) -> Step:
        none = np.zeros(ENVS, np.bool_)
        return Step(
            self.observations.pop(0), np.arange(3, dtype=np.float32), none, none, np.arange(ENVS), np.arange(3.0), none
        )

    def close(self) -> None:
        self.closed = True


def random_rows(steps: int, seed: int = 0) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return [(5 + generator.normal(size=(ENVS, SIZE)) * [1, 40]).astype(np.float32) for _ in range(steps)]


def play(envs: Normalized, steps: int) -> list[NDArray[np.float32]]:
    return [envs.reset(), *(answer_to(envs, np.zeros((ENVS, 1), np.float32)).obs for _ in range(steps))]


def test_statistics_include_an_observation_before_normalizing_it() -> None:
    observations = random_rows(20)
    actual = play(Normalized(Shows(*observations), ObsNormalizer((SIZE,)), learning=True), 19)
    for i, obs in enumerate(actual):
        so_far = np.concatenate(observations[: i + 1]).astype(np.float64)
        expected = (observations[i] - so_far.mean(0)) / np.sqrt(so_far.var(0) + np.finfo(np.float32).eps)
        np.testing.assert_allclose(obs, expected.clip(-10, 10), rtol=1e-5, atol=1e-6)
        assert obs.dtype == np.float32


def test_evaluation_uses_trainings_statistics_without_updating_them() -> None:
    normalizer, first, other = ObsNormalizer((SIZE,)), random_rows(10), random_rows(4, seed=1)
    play(Normalized(Shows(*first), normalizer, learning=True), 9)
    rows, before = np.concatenate(first).astype(np.float64), normalizer.moments
    evaluation = Normalized(Shows(*other), normalizer, learning=False)
    actual = play(evaluation, 2)
    for obs, raw in zip(actual, other, strict=False):
        expected = (raw - rows.mean(0)) / np.sqrt(rows.var(0) + np.finfo(np.float32).eps)
        np.testing.assert_allclose(obs, expected, rtol=1e-5, atol=1e-6)
    assert normalizer.moments is before
    # training goes on, and evaluation sees it
    play(Normalized(Shows(*random_rows(3, seed=2)), normalizer, learning=True), 2)
    evaluation.send(np.zeros((ENVS, 1), np.float32))
    rows = np.concatenate([*first, *random_rows(3, seed=2)]).astype(np.float64)
    expected = (other[3] - rows.mean(0)) / np.sqrt(rows.var(0) + np.finfo(np.float32).eps)
    np.testing.assert_allclose(evaluation.recv().obs, expected, rtol=1e-5, atol=1e-6)


def test_normalized_observations_are_clipped_at_ten() -> None:
    normalizer = ObsNormalizer((SIZE,))
    normalizer.update(np.array([[-1, 0], [1, 2]], np.float32))
    assert normalizer(np.array([[9.9, 1], [100, -1e6], [-100, 12]], np.float32)).tolist() == [
        pytest.approx([9.9, 0]),
        [CLIP, -CLIP],
        [-CLIP, CLIP],
    ]
    assert CLIP == 10


def test_initial_statistics_change_nothing_and_constants_become_zero() -> None:
    normalizer = ObsNormalizer((SIZE,))
    assert normalizer(np.array([[3, -4]], np.float32)).tolist() == [pytest.approx([3, -4])]
    for _ in range(5):
        normalizer.update(np.array([[7, 1], [7, 2]], np.float32))
    assert normalizer(np.array([[7, 1.5]], np.float32)).tolist() == [[0, 0]]


def test_everything_but_observations_passes_untouched() -> None:
    inner = Shows(*random_rows(2))
    envs = Normalized(inner, ObsNormalizer((SIZE,)), learning=True)
    assert envs.info is inner.info
    envs.reset()
    answer = answer_to(envs, np.zeros((ENVS, 1), np.float32))
    assert inner.actions_sent == 1
    assert answer.reward.tolist() == [0, 1, 2]
    assert answer.score.tolist() == [0, 1, 2]
    envs.close()
    assert inner.closed


@pytest.mark.parametrize("task", [MujocoTask(id="Hopper-v4"), ToyTask(id="CartPole-v1")], ids=["hopper", "cartpole"])
def test_normalized_environments_resume_from_a_snapshot_exactly(task: MujocoTask | ToyTask) -> None:
    def opened() -> tuple[VectorEnv, Snapshot, ObsNormalizer]:
        normalizer = ObsNormalizer((11,) if task.kind == "mujoco" else (4,))
        envs = environments(task, seeds=(1, 2), training=True, obs_transform=normalizer)
        inner = unnormalized(envs)
        assert isinstance(envs, Normalized) and isinstance(inner, Snapshot)
        return envs, inner, normalizer

    def step(envs: VectorEnv, i: int) -> NDArray[np.float32]:
        real = np.full((2, 3), np.sin(i), np.float32)
        obs: NDArray[np.float32] = answer_to(
            envs, real if task.kind == "mujoco" else np.array([i % 2, (i // 3) % 2])
        ).obs
        return obs

    (one, saved, normalizer), (other, loaded, restored) = opened(), opened()
    one.reset()
    for i in range(40):
        step(one, i)
    loaded.load_state_dict(saved.state_dict())
    restored.load_state_dict(normalizer.state_dict())
    for i in range(40, 90):
        np.testing.assert_array_equal(step(one, i), step(other, i))
    one.close()
    other.close()


def test_environments_without_snapshots_are_normalized_too_and_learn_only_in_training() -> None:
    for training in (True, False):
        normalizer = ObsNormalizer((10, 5))
        envs = environments(ToyTask(id="Catch"), seeds=(1, 2), training=training, obs_transform=normalizer)
        assert type(envs) is Normalized
        envs.reset()
        assert normalizer.moments.rows.item() == (2 if training else 0)
