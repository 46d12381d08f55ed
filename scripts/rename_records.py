"""Rename the settings in records that were written before the settings had their names of today.

Only ``spec.json`` is written anew, with the identity and the engine in the heads of checkpoints, and a run's folder
moves to the identity of its renamed spec; ``epochs.jsonl``, ``outcome.json`` and tensors stay as they are. A baseline
keeps its scores and takes the new identities over.
Running it twice changes nothing; a run that a process is at work on is left alone and named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rlbench.config.run import Spec, recorded_settings
from rlbench.errors import RlbenchError
from rlbench.records import files, locks
from rlbench.records.store import folder_of

Names = Mapping[str, str]

LOG_STD: Final = {"low": "log_std_min", "high": "log_std_max"}
Q_LEARNING: Final = {"sync_every": "target_update_interval", "warmup": "learning_starts"}

PARTS: Final[Mapping[str, Names]] = {
    # by the part's ``kind`` or ``family``, below the field that holds it
    "algo.qlearning": Q_LEARNING,
    "algo.actorcritic": {"subset": "redq_subset", "warmup": "learning_starts"},
    "algo.discretesac": {"warmup": "learning_starts"},
    "algo.policygradient": {"decay": "lr_decay_steps", "rows": "rollout_length", "trace": "gae_lambda"},
    "algo.offline": {"horizon": "n_step"},
    "algo.offlineq": {"horizon": "n_step", "sync_every": "target_update_interval"},
    "replay.": {"horizon": "n_step"},
    "head.categorical": {"atoms": "n_atoms", "low": "v_min", "high": "v_max"},
    "head.quantiles": {"count": "n_quantiles"},
    "head.implicit": {
        "learn": "n_taus", "target": "n_target_taus", "act": "n_policy_taus", "judge": "n_eval_taus",
    },
    "head.proposed": {"count": "n_quantiles"},
    "policy.soft": LOG_STD,
    "method.surrogate": {"repeats": "epochs", "batches": "minibatches"},
    "method.natural": {"region": "max_kl", "shrink": "backtrack_coef", "tries": "max_backtracks"},
    "method.implicitq": {"bound": "max_weight", "decay": "lr_decay_steps", **LOG_STD},
    "offline.method.batchconstrained": {
        "proposer_widths": "vae_widths", "proposer_lr": "vae_lr", "divergence": "vae_kl_weight",
        "reach": "perturbation", "candidates": "n_action_samples", "judged": "eval_action_samples", "caution": "lmbda",
    },
    "offline.method.conservative": {
        "weight": "conservative_weight", "repeats": "n_action_samples", "threshold": "lagrange_threshold",
        "most": "max_multiplier", "soft": "soft_q_backup", **LOG_STD,
    },
    "offline.method.criticregularized": {
        "bound": "max_weight", "samples": "n_action_samples", "usual": "advantage_type",
        "sync_every": "target_update_interval",
    },
    "offlineq.method.conservative": {"weight": "conservative_weight"},
    "offlineq.method.criticregularized": {"bound": "max_weight", "conservative": "conservative_weight"},
    "task.atari": {"answers": "async_batch"},
    "task.mujoco": {"answers": "async_batch"},
    "world.atari": {"answers": "async_batch"},
    "world.mujoco": {"answers": "async_batch"},
}  # fmt: skip


ENGINES: Final = {"byhand": "numpy", "captured": "cuda-graph"}


def renamed(spec: Mapping[str, object]) -> dict[str, object]:
    """A spec as JSON, with every setting under its name of today."""
    return {name: _part(name, value, "") for name, value in spec.items()}


def _part(name: str, value: object, family: str) -> object:
    if not isinstance(value, dict):
        return value
    kind = str(value.get("family") or value.get("kind") or "")
    inside = str(value.get("family") or family)
    names = PARTS.get(f"{name}.{kind}", {}) or PARTS.get(f"{inside}.{name}.{kind}", {})
    return {names.get(key, key): _part(key, inner, inside) for key, inner in value.items()}


def rename_run(path: Path, moved: dict[str, str]) -> Iterator[str]:
    """Rewrite one ``spec.json`` and move its run's folder; yields a line for what was done or left alone."""
    folder = path.parent
    if locks.is_held(folder):
        yield f"{folder}: a process is at work on it; rename it when that has ended"
        return
    head = files.read_sealed(path)
    content = head["spec"]
    if not isinstance(content, dict):
        yield f"{path}: not a spec; left alone"
        return
    spec = Spec.model_validate(recorded_settings(renamed(content)), strict=False)
    old = str(head["id"])
    if content != renamed(content) or old != spec.id:
        for manifest in sorted(folder.glob("checkpoint/*/manifest.json")):
            rename_checkpoint(manifest, old, spec.id)
        files.replace(path, files.seal({**head, "id": spec.id, "spec": renamed(content)}) + "\n")
        yield f"{old} {spec.id}"
        moved[old] = spec.id
    if folder.name.startswith("attempt-"):
        return
    target = folder_of(spec, folder.parents[len(Path(spec.place).parts) + 3])
    if folder == target:
        return
    if target.exists():
        yield f"{target}: is there already; {folder} stays"
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def rename_checkpoint(path: Path, old: str, new: str) -> None:
    """Let the head of a checkpoint name its run and its engine as they are called today; its tensors stay."""
    head = files.read_sealed(path)
    values = head.get("values")
    if not isinstance(values, dict):
        return
    fresh = dict(values)
    if fresh.get("run/spec") == old:
        fresh["run/spec"] = new
    if (engine := fresh.get("engine")) in ENGINES:
        fresh["engine"] = ENGINES[engine]
    if fresh != values:
        files.replace(path, files.seal({**head, "values": fresh}))


def rename_baseline(path: Path, moved: Mapping[str, str]) -> None:
    """Take new identities over into a baseline; its scores and speeds stay."""
    content = files.read_sealed(path)
    cells = content["cells"]
    if not isinstance(cells, list):
        return
    fresh = {**content, "cells": [{**cell, "id": moved.get(cell["id"], cell["id"])} for cell in cells]}
    if fresh != content:
        files.replace(path, json.dumps(json.loads(files.seal(fresh)), indent=1, ensure_ascii=False) + "\n")


def main(folders: list[str]) -> int:
    """Rename below every folder; 2 where a record cannot be read."""
    moved: dict[str, str] = {}
    try:
        for folder in map(Path, folders):
            # what was put aside lies inside a run's folder: first, while the folder is where it was found
            for path in sorted(folder.rglob("spec.json"), key=lambda path: (-len(path.parts), path)):
                for line in rename_run(path, moved):
                    sys.stdout.write(line + "\n")
            for path in sorted([*folder.glob("baseline.json"), *folder.glob("../baseline.json")]):
                rename_baseline(path, moved)
    except RlbenchError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
