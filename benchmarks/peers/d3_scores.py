"""Scores of d3rlpy on a data set: ``… ALGORITHM FILE UPDATES EVERY SEED`` prints JSON lines.

File and number of updates are those of rlbench. After every ``EVERY`` updates the policy's mode is evaluated for ten
episodes on the task's ``-v4``, in the Gymnasium that d3rlpy needs. Settings are d3rlpy's defaults with batches of 256.
As in rlbench, TD3+BC normalizes observations, CQL has a fixed weight of 5, and IQL scales rewards to returns that span
1,000.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

import d3rlpy
import gymnasium
import h5py
import numpy as np
import torch
from d3rlpy.dataset import MDPDataset
from d3rlpy.preprocessing import StandardObservationScaler

BODIES = {"halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}
EPISODES, SPAN = 10, 1_000
CONFIGS = {
    "td3bc": d3rlpy.algos.TD3PlusBCConfig(batch_size=256, observation_scaler=StandardObservationScaler()),
    "cql": d3rlpy.algos.CQLConfig(batch_size=256, conservative_weight=5.0, alpha_learning_rate=0.0),
    "iql": d3rlpy.algos.IQLConfig(batch_size=256),
    "il": d3rlpy.algos.BCConfig(batch_size=256),
}


def data(path: Path, *, scale_rewards: bool) -> MDPDataset:
    """The steps of a file; ``scale_rewards`` makes returns span 1,000."""
    keys = ("observations", "actions", "rewards", "terminals", "timeouts")
    with h5py.File(path) as file:
        obs, action, reward, terminal, timeout = (np.asarray(file[key]) for key in keys)
    if scale_rewards:
        total = np.cumsum(reward, dtype=np.float64)[np.flatnonzero(terminal | timeout)]
        returns = np.diff(total, prepend=0.0)
        reward = (reward * SPAN / (returns.max() - returns.min())).astype(np.float32)
    return MDPDataset(obs, action, reward, terminal.astype(np.float32), timeout.astype(np.float32))


def evaluate(algorithm: object, task: str) -> list[float]:
    """Returns of ten episodes, always with the same seeds."""
    env, returns = gymnasium.make(task), []
    for seed in range(EPISODES):
        obs, _ = env.reset(seed=1_000 + seed)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(algorithm.predict(obs[None].astype(np.float32))[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    """Train, and print a line with an evaluation after every ``EVERY`` updates."""
    name, path = sys.argv[1], Path(sys.argv[2])
    updates, every, seed = (int(text) for text in sys.argv[3:6])
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    dataset, algorithm = data(path, scale_rewards=name == "iql"), CONFIGS[name].create(device=False)
    algorithm.build_with_dataset(dataset)
    task = next(task for body, task in BODIES.items() if body in path.name)
    metadata = {
        "peer": f"d3rlpy {d3rlpy.__version__}",
        "algorithm": name,
        "data": path.stem,
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "seed": seed,
    }
    quiet = d3rlpy.logging.NoopAdapterFactory()
    for done in range(every, updates + 1, every):
        algorithm.fit(dataset, n_steps=every, n_steps_per_epoch=every, show_progress=False, logger_adapter=quiet)
        line = {**metadata, "updates": done, "returns": evaluate(algorithm, task)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
