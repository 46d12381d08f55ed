"""Stable-Baselines3's PPO on Pong: ``… sb3_ppo_pong.py STEPS THREADS`` prints one JSON line.

Ten environments of 100 steps, four passes in batches of 250, the same network, objective and learning rate, no
evaluation: the samples and gradient steps of ours. It judges each step as it acts, ours the rollout in one pass.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import ale_py
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

ROLLOUT = 1_000  # steps; the first one with its update is the warm-up


class Clock(BaseCallback):
    """Starts after the first update."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.began, self.busy = 0, 0.0, 0.0

    def _on_rollout_start(self) -> None:
        if self.first == 0 and self.num_timesteps >= ROLLOUT:
            self.first, self.began, self.busy = self.num_timesteps, perf_counter(), process_time()

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Train for so many whole rollouts and say how fast it went."""
    rollouts, threads = max(2, int(sys.argv[1]) // ROLLOUT), int(sys.argv[2])
    torch.set_num_threads(threads)
    gymnasium.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=10, vec_env_cls=DummyVecEnv), 4)
    model = PPO(
        "CnnPolicy",
        envs,
        n_steps=100,
        batch_size=250,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        clip_range_vf=0.1,
        vf_coef=0.25,
        ent_coef=0.01,
        device="cpu",
    )
    clock = Clock()
    model.learn(ROLLOUT * (rollouts + 1), callback=clock)
    seconds, used, done = perf_counter() - clock.began, process_time() - clock.busy, model.num_timesteps - clock.first
    found = {"stable-baselines3": [done / seconds], "stable-baselines3, CPU": [done / used]}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
