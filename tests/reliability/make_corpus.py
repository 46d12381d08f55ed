"""One file of every kind that rlbench writes, which every later version must read.

``python -m tests.reliability.make_corpus tests/reliability/corpus/schema-<n>`` after a schema version was raised, once;
what is in the corpus is never changed. Runs are real ones, copied from ``results/`` and from smoke runs in FOLDERS.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import torch

from rlbench import checkpoint, suites
from rlbench.datasets import d4rl, policies, recording_writer
from rlbench.datasets.recording_format import FINAL, TERMINATED
from rlbench.datasets.recording_writer import RecordingWriter, row
from rlbench.records.types import Epoch, Evaluated, Outcome, Status
from rlbench.report.baseline import baseline_of, baseline_text
from rlbench.report.run_index import gather
from tests.forging import locked

REAL = (
    "atari/dqn/PongNoFrameskip-v4/3c138bcd9e9f/seed=0",
    "goals/ddpg+her/FetchReach-v4/d9c58c22ccd3/seed=0",
    "mujoco/ppo/InvertedPendulum-v4/b675fd645a11/seed=0",
    "offline/il/rlb-hopper-medium/7d24af021a6e/seed=0",
    "offline/iql/rlb-halfcheetah-medium/e87c8cf6117d/seed=0",
    "toy/dqn/Catch/dff3a282c094/seed=0",
    "toy/ppo+icm/Doors/8af7bfea00ac/seed=0",
    "toy/sac/Pendulum-v1/9e1f281af52a/seed=0",
)


def ended(results: Path, seed: int, status: Status | None) -> None:
    """A run that failed, was interrupted, or has not ended."""
    store = locked(suites.spec("toy", "dqn", "Catch", seed=seed), results, {"cpu": "a corpus"})
    evaluated = Evaluated(returns=(-1.0, 1.0), lengths=(9, 9), seeds=(1, 2), seconds=0.1)
    store.append(
        Epoch(number=0, env_steps=0, updates=0, seconds=0.1, collected=None, updated=None, evaluated=evaluated)
    )
    if status is not None:
        outcome = Outcome(
            status=status, reason="a corpus says so", env_steps=0, updates=0, epochs=1, seconds=0.1, final=0.0,
            best=0.0, best_epoch=0, weights=None,
        )  # fmt: skip
        store.finish(outcome)
    store.release()
    (store.folder / ".lock").unlink(missing_ok=True)


def record_runs() -> d4rl.D4RLArrays:
    """Eight steps of two episodes."""
    draw, ends = np.random.default_rng(0), np.arange(8) % 4 == 3
    obs = draw.standard_normal((8, 3)).astype(np.float32)
    action = draw.uniform(-1, 1, (8, 2)).astype(np.float32)
    return d4rl.D4RLArrays(obs, action, np.ones(8, np.float32), ends, np.zeros(8, np.bool_), np.roll(obs, -1, axis=0))


def main(target: Path, *folders: Path) -> None:
    """Make the corpus in ``target``, where nothing is yet."""
    results = target / "results"
    for source, inside in [(Path("results"), run) for run in REAL] + [
        (root, path.parent.relative_to(root).as_posix()) for root in folders for path in root.rglob("outcome.json")
    ]:
        (results / inside).mkdir(parents=True)
        for part in ("spec.json", "epochs.jsonl", "outcome.json"):
            shutil.copyfile(source / inside / part, results / inside / part)
    (target / "baseline.json").write_text(baseline_text(baseline_of(gather(results))), encoding="utf-8")
    for seed, status in ((1, "failed"), (2, "interrupted"), (3, None)):
        ended(results, seed, status)
    checkpoint.save(target / "checkpoint", {"a": torch.arange(6.0).view(2, 3), "b": {"n": 1, "s": "x", "f": 0.5}})
    d4rl.write_hdf5(target / "rlb-corpus.hdf5", record_runs(), {"rlbench_task": "Small-v0"})
    frames = np.arange(36, dtype=np.uint8).reshape(3, 12)
    writer = RecordingWriter(target / "rlb-corpus.frames")
    for moment in range(4):
        writer.add(row(0, frames + np.uint8(moment), moment, 1.0, TERMINATED * (moment == 3)))
    writer.add(row(0, frames, 0, 0.0, FINAL))
    writer.flush()
    recording_writer.finish(target / "rlb-corpus.frames", writer.digests, {"task": "Small", "source": "a corpus"})
    arrays = {"mean.weight": np.ones((2, 3), np.float32), "mean.bias": np.zeros(2, np.float32)}
    facts = {"format": "actor-v1", "name": "corpus", "env_evaluated": "Small-v0", "input_dim": "3", "action_dim": "2"}
    facts |= {"hidden_layers": "0", "activation": "none", "squash": "clip", "log_std": "none"}
    (target / "policy.safetensors").write_bytes(policies.serialize(arrays, facts))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
