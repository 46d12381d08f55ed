"""Stable-Baselines3's SAC and TD3 on HalfCheetah: ``… sb3_continuous.py STEPS THREADS sac|td3`` prints one JSON line.

One environment, one update of 256 a step, two critics and an actor of 256–256, no evaluation. What differs from ours:
its SAC learns the temperature, one small step more; its TD3 computes the same.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

WARMUP, SETTLING = 1_000, 100  # steps before the first update, and then before the clock starts
ALGORITHMS = {"sac": SAC, "td3": TD3}
NETS = {"sac": [256, 256], "td3": [256, 256]}  # its TD3 would have 400–300


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
    steps, threads, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    model = ALGORITHMS[name](
        "MlpPolicy",
        make_vec_env("HalfCheetah-v4", 1),
        learning_starts=WARMUP,
        batch_size=256,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": NETS[name]},
        device="cpu",
    )
    clock = Clock()
    model.learn(WARMUP + SETTLING + steps, callback=clock)
    seconds, used, done = perf_counter() - clock.began, process_time() - clock.busy, model.num_timesteps - clock.first
    found = {"stable-baselines3": [done / seconds], "stable-baselines3, CPU": [done / used]}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
