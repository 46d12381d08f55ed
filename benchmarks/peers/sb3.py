"""Stable-Baselines3's DQN on Pong: ``.peers/bin/python benchmarks/peers/sb3.py STEPS THREADS`` prints one JSON line.

Ten environments, one update of 32 per ten steps, a store of 20,000, no evaluation. What it does less of than rlbench:
its target is that of plain DQN, one forward pass fewer than double DQN, and its returns are of one step.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import ale_py
import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

WARMUP, SETTLING = 2_000, 500  # steps before the first update, and then before the clock starts


class Clock(BaseCallback):
    """Starts after the warm-up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.began, self.busy = 0, 0.0, 0.0

    def _on_step(self) -> bool:
        if self.first == 0 and self.num_timesteps >= WARMUP + SETTLING:
            self.first, self.began, self.busy = self.num_timesteps, perf_counter(), process_time()
        return True


def main() -> None:
    """Train for so many steps and say how fast it went."""
    steps, threads = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    gymnasium.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=10, vec_env_cls=DummyVecEnv), 4)
    model = DQN(
        "CnnPolicy",
        envs,
        buffer_size=20_000,
        learning_starts=WARMUP,
        batch_size=32,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=500,
        device="cpu",
    )
    clock = Clock()
    model.learn(WARMUP + SETTLING + steps, callback=clock)
    seconds, used, done = perf_counter() - clock.began, process_time() - clock.busy, model.num_timesteps - clock.first
    found = {"stable-baselines3": [done / seconds], "stable-baselines3, CPU": [done / used]}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
