"""A data set of toy episodes played by a half-trained agent, with the final row of every episode."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.rigs import online
from rlbench import suites
from rlbench.algorithms.base import Learner
from rlbench.assembly.environments import describe, environments
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime
from rlbench.config.tasks import ToyTask
from rlbench.datasets.episodes import Dataset, episodes

NUM_ENVS = 16
ACTIONS = {"Catch": 3, "CartPole-v1": 2}


class Recording(NamedTuple):
    dataset: Dataset
    mean: float  # return of the whole episodes


def half_trained(task: str, steps: int) -> Learner:
    """A DQN after so few steps that it is better than chance and far from the best."""
    few = (f"budget.steps={steps}", f"budget.epoch={steps}", f"algo.epsilon.steps={steps}", "algo.learning_starts=300")
    spec = apply_settings(
        suites.spec("toy", "dqn", task), [parse(text) for text in (*few, "protocol.episodes=4", "protocol.envs=4")]
    )
    trainer = online(spec, Runtime(device="cpu", threads=1), describe(spec))
    for _ in trainer:
        pass
    trainer.close()
    return trainer.learner


def play_episodes(agent: Learner, task: str, *, rows: int, epsilon: float) -> Recording:
    """``rows`` rows an env, in a share ``epsilon`` of which any action is taken; env after env."""
    envs = environments(ToyTask(id=task, envs=NUM_ENVS), seeds=tuple(range(NUM_ENVS)), training=False)
    explorer = EpsilonGreedy(actions=ACTIONS[task], generator=torch.Generator().manual_seed(0), epsilon=epsilon)
    obs_now, columns, final = envs.reset(), [], np.zeros(NUM_ENVS, np.bool_)
    for row in range(rows):
        action = explorer(agent.act(torch.from_numpy(obs_now.copy()), "eval")).numpy()
        envs.send(action)
        step = envs.recv()
        columns.append(
            (obs_now.copy(), action, step.reward, step.terminated, step.truncated, final | (row == rows - 1))
        )
        final, obs_now = step.terminated | step.truncated, step.obs
    envs.close()
    obs, action, reward, terminated, truncated, last = (_flatten(column) for column in zip(*columns, strict=True))
    live = ~last
    dataset = Dataset(obs, action * live, reward * live, terminated & live, truncated & live, last)
    episode_list = episodes(dataset)
    return Recording(dataset, float(episode_list.returns[episode_list.ended].mean()))


def score(agent: Learner, task: str, num_envs: int = 64) -> float:
    """Mean return of one episode in each of ``envs`` envs."""
    envs = environments(ToyTask(id=task, envs=num_envs), seeds=tuple(range(100, 100 + num_envs)), training=False)
    obs, total, live = envs.reset(), np.zeros(num_envs), np.ones(num_envs, np.bool_)
    while live.any():
        envs.send(agent.act(torch.from_numpy(obs.copy()), "eval").numpy())
        step = envs.recv()
        total += step.score * live
        live &= ~step.game_over
        obs = step.obs
    envs.close()
    return float(total.mean())


def _flatten(rows: tuple[NDArray[np.generic], ...]) -> NDArray[np.generic]:
    """``[T, N, …]`` to ``[N · T, …]``."""
    columns_by_env = np.stack(rows).swapaxes(0, 1)
    return np.ascontiguousarray(columns_by_env.reshape(-1, *columns_by_env.shape[2:]))
