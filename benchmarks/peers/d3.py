"""d3rlpy's offline updates: ``… d3.py UPDATES THREADS il|td3bc|iql|cql|bcq`` prints one JSON line.

HalfCheetah's shapes, batches of 256, two critics and an actor of 256–256. It samples as many actions as rlbench: 10 × 3
for CQL, 10 for BCQ with a VAE of 512–512. Differences: its IL clips nothing, and its CQL does not clip gradients.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import d3rlpy
import numpy as np
import torch
from d3rlpy.dataset import MDPDataset
from d3rlpy.models import VectorEncoderFactory

ROWS, OBS, ACTIONS, LIMIT, SETTLING = 50_000, 17, 6, 1_000, 20
CONFIGS = {
    "il": d3rlpy.algos.BCConfig(batch_size=256),
    "td3bc": d3rlpy.algos.TD3PlusBCConfig(batch_size=256),
    "iql": d3rlpy.algos.IQLConfig(batch_size=256),
    "cql": d3rlpy.algos.CQLConfig(batch_size=256),
    "bcq": d3rlpy.algos.BCQConfig(
        batch_size=256, n_action_samples=10, imitator_encoder_factory=VectorEncoderFactory([512, 512])
    ),
}


def data() -> MDPDataset:
    """A data set of noise, the same every time."""
    draw = np.random.default_rng(0)
    timeouts = (np.arange(1, ROWS + 1) % LIMIT == 0).astype(np.float32)
    return MDPDataset(
        draw.standard_normal((ROWS, OBS)).astype(np.float32),
        draw.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        draw.standard_normal(ROWS).astype(np.float32),
        np.zeros(ROWS, np.float32),
        timeouts,
    )


def fit(algorithm: object, dataset: MDPDataset, steps: int) -> None:
    """Make ``steps`` updates without any output."""
    quiet = d3rlpy.logging.NoopAdapterFactory()
    algorithm.fit(dataset, n_steps=steps, n_steps_per_epoch=steps, show_progress=False, logger_adapter=quiet)


def main() -> None:
    """Train, and print the updates per second."""
    updates, threads, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    dataset, algorithm = data(), CONFIGS[name].create(device=False)
    algorithm.build_with_dataset(dataset)
    fit(algorithm, dataset, SETTLING)
    began, busy = perf_counter(), process_time()
    fit(algorithm, dataset, updates)
    seconds, cpu_seconds = perf_counter() - began, process_time() - busy
    sys.stdout.write(json.dumps({"d3rlpy": [updates / seconds], "d3rlpy, CPU": [updates / cpu_seconds]}) + "\n")


if __name__ == "__main__":
    main()
