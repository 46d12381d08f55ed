"""Stable-Baselines3 at a workload: ``.peers/bin/python …/sb3.py STEPS THREADS ALGORITHM BATCH WORKLOAD``.

Prints one JSON line. Nothing is evaluated, and samples, gradient steps and networks are those of rlbench but for this:

- dqn-pong: its target is that of plain DQN, one forward pass fewer than double DQN, and its returns are of one step.
- halfcheetah: its SAC learns the temperature, one small step more; its TD3 computes the same.
- ppo-halfcheetah: it neither normalizes observations nor evaluates a rollout again.
- ppo-pong: it evaluates each step as it acts, rlbench the rollout in one pass.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import ale_py
import gymnasium
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

ROLLOUTS = {"ppo-halfcheetah": 2_048, "ppo-pong": 1_000}
"""Steps of a rollout; the first one with its update is the warm-up."""

WARMUPS = {"dqn-pong": (2_000, 500), "halfcheetah": (1_000, 100)}
"""Steps before the first update, and then before the clock starts."""


class Clock(BaseCallback):
    """Start the clock after ``warmup`` steps, on-policy between two rollouts."""

    def __init__(self, warmup: int, *, rollouts: bool) -> None:
        super().__init__()
        self.warmup, self.rollouts = warmup, rollouts
        self.first, self.began, self.busy = 0, 0.0, 0.0

    def _on_rollout_start(self) -> None:
        if self.rollouts:
            self._start()

    def _on_step(self) -> bool:
        if not self.rollouts:
            self._start()
        return True

    def _start(self) -> None:
        if self.first == 0 and self.num_timesteps >= self.warmup:
            self.first, self.began, self.busy = self.num_timesteps, perf_counter(), process_time()


def build(workload: str, algorithm: str) -> BaseAlgorithm:
    """The algorithm on its environments; nothing has been sampled yet."""
    if workload == "ppo-halfcheetah":
        envs = make_vec_env("HalfCheetah-v4", 8)
        return PPO("MlpPolicy", envs, n_steps=256, batch_size=64, n_epochs=10, device="cpu")
    replay = {"train_freq": 1, "gradient_steps": 1, "device": "cpu"}
    if workload == "halfcheetah":
        return {"sac": SAC, "td3": TD3}[algorithm](
            "MlpPolicy",
            make_vec_env("HalfCheetah-v4", 1),
            learning_starts=WARMUPS[workload][0],
            batch_size=256,
            policy_kwargs={"net_arch": [256, 256]},  # its TD3 would have 400–300
            **replay,
        )
    gymnasium.register_envs(ale_py)
    frames = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=10, vec_env_cls=DummyVecEnv), 4)
    if workload == "dqn-pong":
        limits = {"buffer_size": 20_000, "learning_starts": WARMUPS[workload][0], "target_update_interval": 500}
        return DQN("CnnPolicy", frames, batch_size=32, **limits, **replay)
    loss = {"clip_range": 0.1, "clip_range_vf": 0.1, "vf_coef": 0.25, "ent_coef": 0.01}
    return PPO("CnnPolicy", frames, n_steps=100, batch_size=250, n_epochs=4, learning_rate=2.5e-4, **loss, device="cpu")


def main() -> None:
    """Train, on-policy for whole rollouts, and print the steps per second."""
    steps, threads, algorithm, workload = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[5]
    torch.set_num_threads(threads)
    rollout = ROLLOUTS.get(workload)
    warmup = sum(WARMUPS[workload]) if rollout is None else rollout
    model, clock = build(workload, algorithm), Clock(warmup, rollouts=rollout is not None)
    model.learn(warmup + (steps if rollout is None else rollout * max(2, steps // rollout)), callback=clock)
    seconds, cpu_seconds, done = (
        perf_counter() - clock.began,
        process_time() - clock.busy,
        model.num_timesteps - clock.first,
    )
    speeds = {"stable-baselines3": [done / seconds], "stable-baselines3, CPU": [done / cpu_seconds]}
    sys.stdout.write(json.dumps(speeds) + "\n")


if __name__ == "__main__":
    main()
