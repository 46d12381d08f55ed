"""What d3rlpy's learners come to on a data set: ``… ALGORITHM FILE UPDATES EVERY SEED`` prints JSON lines.

For the comparison of scores, not of speed: the same file as ours, the same number of updates, and after every ``EVERY``
of them ten episodes of the policy's mode on the task's ``-v4`` (in the Gymnasium that d3rlpy wants). Its own defaults,
batches of 256; TD3+BC with normalised observations, CQL with a fixed weight of 5, IQL with rewards scaled to a span of
returns of 1,000, as ours.
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


def data(path: Path, *, scaled: bool) -> MDPDataset:
    """The file's steps as they are; ``scaled``: rewards so that returns span 1,000."""
    keys = ("observations", "actions", "rewards", "terminals", "timeouts")
    with h5py.File(path) as file:
        obs, action, reward, terminal, timeout = (np.asarray(file[key]) for key in keys)
    if scaled:
        total = np.cumsum(reward, dtype=np.float64)[np.flatnonzero(terminal | timeout)]
        returns = np.diff(total, prepend=0.0)
        reward = (reward * SPAN / (returns.max() - returns.min())).astype(np.float32)
    return MDPDataset(obs, action, reward, terminal.astype(np.float32), timeout.astype(np.float32))


def judged(algorithm: object, task: str) -> list[float]:
    """Returns of ten episodes, always the same ones."""
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
    """Learn, and say after every so many updates how good the policy is."""
    name, path = sys.argv[1], Path(sys.argv[2])
    updates, every, seed = (int(text) for text in sys.argv[3:6])
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    dataset, algorithm = data(path, scaled=name == "iql"), CONFIGS[name].create(device=False)
    algorithm.build_with_dataset(dataset)
    task = next(task for body, task in BODIES.items() if body in path.name)
    told = {
        "peer": f"d3rlpy {d3rlpy.__version__}",
        "algorithm": name,
        "data": path.stem,
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "seed": seed,
    }
    quiet = d3rlpy.logging.NoopAdapterFactory()
    for made in range(every, updates + 1, every):
        algorithm.fit(dataset, n_steps=every, n_steps_per_epoch=every, show_progress=False, logger_adapter=quiet)
        line = {**told, "updates": made, "returns": judged(algorithm, task)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
