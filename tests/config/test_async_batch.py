"""Asynchronous collection as a field of the task: older identities are kept, and invalid values refused."""

from __future__ import annotations

import pytest

from rlbench import suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec
from rlbench.errors import UsageError

PONG = suites.spec("atari", "dqn", "PongNoFrameskip-v4")
CHEETAH = suites.spec("mujoco", "sac", "HalfCheetah-v4")


def changed(spec: Spec, *texts: str) -> Spec:
    return apply_settings(spec, [parse(text) for text in texts])


def test_async_batch_of_all_envs_keeps_the_identity() -> None:
    assert PONG.id == "3c138bcd9e9f"
    assert PONG.async_batch is None
    assert changed(PONG, "task.async_batch=none").id == PONG.id


def test_smaller_async_batch_changes_the_identity() -> None:
    ids = {changed(PONG, *texts).id for texts in ([], ["task.async_batch=5"], ["task.async_batch=10"])}
    assert len(ids) == 3


@pytest.mark.parametrize(("spec", "num_envs"), [(PONG, 10), (CHEETAH, 4)])
def test_async_batch_ranges_from_one_to_all_envs(spec: Spec, num_envs: int) -> None:
    spec = changed(spec, f"task.envs={num_envs}")
    for answers in (1, num_envs):
        assert changed(spec, f"task.async_batch={answers}").async_batch == answers
    with pytest.raises(UsageError, match=r"task\.async_batch"):
        changed(spec, "task.async_batch=0")
    with pytest.raises(UsageError, match=rf"task\.async_batch={num_envs + 1}: there are {num_envs} envs"):
        changed(spec, f"task.async_batch={num_envs + 1}")


@pytest.mark.parametrize("algorithm", ["ppo", "trpo", "reinforce"])
def test_rollout_algorithms_refuse_async_batch(algorithm: str) -> None:
    with pytest.raises(UsageError, match=r"task\.async_batch: a rollout needs rows of every env"):
        changed(suites.spec("mujoco", algorithm, "HalfCheetah-v4"), "task.async_batch=1")


def test_rollout_algorithms_on_frames_refuse_async_batch() -> None:
    with pytest.raises(UsageError, match=r"task\.async_batch: a rollout needs rows of every env"):
        changed(suites.spec("atari", "ppo", "PongNoFrameskip-v4"), "task.async_batch=1")


def test_a_task_that_is_stepped_together_has_no_such_field() -> None:
    with pytest.raises(UsageError, match="unknown field 'async_batch'"):
        changed(suites.spec("toy", "dqn", "Catch"), "task.async_batch=1")
