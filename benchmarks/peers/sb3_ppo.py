"""Stable-Baselines3's PPO on HalfCheetah: ``… sb3_ppo.py STEPS THREADS`` prints one JSON line.

Eight environments of 256 steps, ten passes in batches of 64, two networks of 64–64 tanh, no evaluation: the samples and
gradient steps of ours. What it does less of: it neither normalises observations nor judges a rollout anew.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

ROLLOUT = 2_048  # steps; the first one with its update is the warm-up


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
    model = PPO("MlpPolicy", make_vec_env("HalfCheetah-v4", 8), n_steps=256, batch_size=64, n_epochs=10, device="cpu")
    clock = Clock()
    model.learn(ROLLOUT * (rollouts + 1), callback=clock)
    seconds, used, done = perf_counter() - clock.began, process_time() - clock.busy, model.num_timesteps - clock.first
    found = {"stable-baselines3": [done / seconds], "stable-baselines3, CPU": [done / used]}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
