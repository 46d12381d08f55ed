"""Fetch: the flat vector, its reward, and its limit."""

import sys

import numpy as np
import pytest
import torch

from rlbench.envs.fetch import FetchVector, compute_reward
from rlbench.errors import UsageError
from tests.envs.factories import answer_to, draw

OBSERVATION, ACHIEVED, DESIRED = slice(0, 10), slice(10, 13), slice(13, 16)


def test_observation_is_observation_achieved_goal_and_desired_goal() -> None:
    env = FetchVector(task="FetchReach-v4", seeds=[1, 2])
    obs = env.reset()
    assert obs.shape == (2, 16) and obs.dtype == np.float32
    for action in draw(env.info.actions, seed=0, size=(60, 2)):
        for env_id, one in enumerate(env._envs):
            parts = one.unwrapped._get_obs()
            slices = (OBSERVATION, ACHIEVED, DESIRED)
            for where, part in zip(slices, ("observation", "achieved_goal", "desired_goal"), strict=True):
                assert np.array_equal(obs[env_id, where], parts[part].astype(np.float32))
        obs = answer_to(env, action).obs


def test_compute_reward_equals_the_environments_reward() -> None:
    env = FetchVector(task="FetchReach-v4", seeds=range(4))
    obs, rewards = env.reset(), set()
    for _ in range(45):  # straight to the goal: an action of 1 is 5 cm
        towards = (obs[:, DESIRED] - obs[:, ACHIEVED]) / 0.05
        step = answer_to(env, np.concatenate([np.clip(towards, -1, 1), np.zeros((4, 1))], 1, dtype=np.float32))
        obs = step.obs
        achieved, desired = (torch.from_numpy(obs[:, where]) for where in (ACHIEVED, DESIRED))
        assert compute_reward(achieved, desired).tolist() == step.reward.tolist()
        rewards |= set(step.reward.tolist())
    assert rewards == {-1.0, 0.0}


def test_the_reward_of_any_two_goals_is_the_environments() -> None:
    env = FetchVector(task="FetchReach-v4", seeds=[1])
    goal_pairs = np.random.default_rng(0).uniform(-0.05, 0.05, (2, 500, 3)).astype(np.float32)
    theirs = env._envs[0].unwrapped.compute_reward(goal_pairs[0], goal_pairs[1], {})
    ours = compute_reward(torch.from_numpy(goal_pairs[0]), torch.from_numpy(goal_pairs[1]))
    assert ours.dtype == torch.float32 and ours.tolist() == theirs.tolist()
    assert 0 < (ours == 0).sum() < 500


def test_episode_of_fifty_steps_is_truncated_or_terminated_by_setting() -> None:
    for terminates in (False, True):
        env = FetchVector(task="FetchReach-v4", seeds=[1], limit_terminates=terminates)
        env.reset()
        ends = []
        for _ in range(102):
            row = answer_to(env, np.zeros((1, 4), np.float32))
            ends.append((bool(row.terminated[0]), bool(row.truncated[0]), bool(row.over[0])))
        assert [at for at, end in enumerate(ends) if any(end)] == [49, 100]
        assert ends[49] == ends[100] == (terminates, not terminates, True)


def test_unsupported_fetch_tasks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="FetchReachDense-v4: its reward is dense"):
        FetchVector(task="FetchReachDense-v4", seeds=[1])
    with pytest.raises(UsageError, match="FetchReach-v1: "):
        FetchVector(task="FetchReach-v1", seeds=[1])
    with pytest.raises(UsageError, match=r"fetch: unknown task 'FetchReach-v3'; did you mean .*'FetchReach-v4'"):
        FetchVector(task="FetchReach-v3", seeds=[1])
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(UsageError, match=r'Robotics is not installed .*: pip install "gymnasium-robotics>=1.4"'):
        FetchVector(task="FetchReach-v4", seeds=[1])
