"""Records with former names of settings: renamed once, with every evaluation and score unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlbench import checkpoint, suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec
from rlbench.ops.state_dict import State
from rlbench.records import files
from rlbench.records.store import Store, folder_of, read_record
from rlbench.records.types import Epoch, Evaluated, Outcome
from rlbench.report.baseline import Baseline, Entry, baseline_text
from rlbench.report.integrity import verified
from rlbench.report.reference_table import CellKey
from tests.laws.source import ROOT

SCRIPT = ROOT / "scripts" / "rename_records.py"
FORMER = {
    "toy/c51/Catch": {
        "algo.target_update_interval": "sync_every",
        "algo.learning_starts": "warmup",
        "algo.replay.n_step": "horizon",
        "algo.head.n_atoms": "atoms",
        "algo.head.v_min": "low",
        "algo.head.v_max": "high",
    },
    "toy/qrdqn/Catch": {"algo.head.n_quantiles": "count"},
    "toy/iqn/Catch": {
        "algo.head.n_taus": "learn",
        "algo.head.n_target_taus": "target",
        "algo.head.n_policy_taus": "act",
        "algo.head.n_eval_taus": "judge",
    },
    "toy/fqf/Catch": {"algo.head.n_quantiles": "count"},
    "toy/redq/Pendulum-v1": {
        "algo.redq_subset": "subset",
        "algo.learning_starts": "warmup",
        "algo.policy.log_std_min": "low",
        "algo.policy.log_std_max": "high",
    },
    "toy/ppo/CartPole-v1": {
        "algo.rollout_length": "rows",
        "algo.gae_lambda": "trace",
        "algo.lr_decay_steps": "decay",
        "algo.method.epochs": "repeats",
        "algo.method.minibatches": "batches",
    },
    "toy/trpo/CartPole-v1": {
        "algo.method.max_kl": "region",
        "algo.method.backtrack_coef": "shrink",
        "algo.method.max_backtracks": "tries",
    },
    "mujoco/td3/Hopper-v4": {"task.async_batch": "answers"},
    "offline/bcq/halfcheetah-medium-v2": {
        "algo.n_step": "horizon",
        "algo.method.vae_widths": "proposer_widths",
        "algo.method.vae_lr": "proposer_lr",
        "algo.method.vae_kl_weight": "divergence",
        "algo.method.perturbation": "reach",
        "algo.method.n_action_samples": "candidates",
        "algo.method.eval_action_samples": "judged",
        "algo.method.lmbda": "caution",
    },
    "offline/cql/halfcheetah-medium-v2": {
        "algo.method.conservative_weight": "weight",
        "algo.method.n_action_samples": "repeats",
        "algo.method.lagrange_threshold": "threshold",
        "algo.method.max_multiplier": "most",
        "algo.method.soft_q_backup": "soft",
        "algo.method.log_std_min": "low",
        "task.world.async_batch": "answers",
    },
    "offline/crr/halfcheetah-medium-v2": {
        "algo.method.max_weight": "bound",
        "algo.method.n_action_samples": "samples",
        "algo.method.advantage_type": "usual",
        "algo.method.target_update_interval": "sync_every",
    },
    "offline/iql/halfcheetah-medium-v2": {
        "algo.method.max_weight": "bound",
        "algo.method.lr_decay_steps": "decay",
        "algo.method.log_std_max": "high",
    },
    "offline/cql/PongNoFrameskip-v4": {
        "algo.method.conservative_weight": "weight",
        "algo.target_update_interval": "sync_every",
        "algo.n_step": "horizon",
    },
    "offline/crr/PongNoFrameskip-v4": {
        "algo.method.max_weight": "bound",
        "algo.method.conservative_weight": "conservative",
    },
}
"""By cell, its settings and what they were called."""


def spec_of(cell: str) -> Spec:
    suite, algorithm, task = cell.split("/")
    return apply_settings(suites.spec(suite, algorithm, task, seed=3), [parse("algo.gamma=0.5")])


def former(spec: Spec, names: dict[str, str]) -> dict[str, object]:
    """The settings as they were written."""
    content = json.loads(spec.model_dump_json())
    for path, name in names.items():
        *inside, last = path.split(".")
        part = content
        for step in inside:
            part = part[step]
        part[name] = part.pop(last)
    return dict(content)


def recorded(cell: str, results: Path) -> Path:
    """A finished run's record under the former names, at the place that a former identity gave it."""
    spec = spec_of(cell)
    store = Store.claim(spec, results, {"cpu": "x"})
    assert store is not None
    score = Evaluated(returns=(-1.5, 1.0), lengths=(9, 8), seeds=(1, 2), seconds=0.1)
    store.append(Epoch(number=0, env_steps=0, updates=0, seconds=0.1, collected=None, updated=None, evaluated=score))
    store.finish(
        Outcome(
            status="done", reason="", env_steps=0, updates=0, epochs=1, seconds=0.1, final=-0.25, best=-0.25,
            best_epoch=0, weights=None,
        )
    )  # fmt: skip
    store.release()
    head = files.read_sealed(store.folder / "spec.json")
    head |= {"id": "0123456789ab", "spec": former(spec, FORMER[cell])}
    (store.folder / "spec.json").write_text(files.seal(head) + "\n", encoding="utf-8")
    checkpoint.save(store.folder / "checkpoint" / "resume", state(spec, "0123456789ab", "byhand"))
    place = store.folder.parent.with_name("0123456789ab")
    store.folder.parent.rename(place)
    return place / store.folder.name


def state(spec: Spec, identity: str, engine: str) -> State:
    """A checkpoint that says whose it is."""
    owner: State = {"spec": identity, "seed": spec.seed}
    return {"trainer": {"a": torch.arange(3.0)}, "engine": engine, "run": owner}


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("cell", FORMER)
def test_settings_take_their_names_and_evaluations_stay_byte_for_byte(cell: str, tmp_path: Path) -> None:
    folder = recorded(cell, tmp_path / "results")
    before = {name: (folder / name).read_bytes() for name in ("epochs.jsonl", "outcome.json")}
    done = run(tmp_path / "results")
    spec = spec_of(cell)
    place = folder_of(spec, tmp_path / "results")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"0123456789ab {spec.id}\n")
    assert not folder.exists()
    assert read_record(place).spec == spec
    assert {name: (place / name).read_bytes() for name in before} == before
    resumed, due = checkpoint.load(place / "checkpoint" / "resume"), state(spec, spec.id, "numpy")
    assert resumed["run"] == due["run"] and resumed["engine"] == due["engine"]
    # the games of this record are nobody's, and verify says so; of settings and identities it has nothing to say
    assert not [fault for fault in verified(tmp_path / "results").faults if not fault.where.endswith("epochs.jsonl")]


def test_a_second_time_changes_nothing_and_a_baseline_keeps_its_scores(tmp_path: Path) -> None:
    results = tmp_path / "results"
    recorded("toy/ppo/CartPole-v1", results)
    assert run(results).returncode == 0
    spec = spec_of("toy/ppo/CartPole-v1")
    key = CellKey("toy", "ppo", "CartPole-v1", "")
    entry = Entry(key=key, id=spec.id, scores={3: -0.25}, speeds={"cpu, x": (7.5,)})
    text = baseline_text(Baseline(entries=(entry,), commits=("abc",), machines=("cpu, x",)))
    old = json.loads(text.replace(spec.id, "0123456789ab"))
    old.pop("checksum")
    (results / "baseline.json").write_text(files.seal(old), encoding="utf-8")
    place = folder_of(spec, results)
    head = files.read_sealed(place / "spec.json")
    head |= {"id": "0123456789ab", "spec": former(spec, FORMER["toy/ppo/CartPole-v1"])}
    (place / "spec.json").write_text(files.seal(head) + "\n", encoding="utf-8")
    assert run(results).stdout == f"0123456789ab {spec.id}\n"
    assert (results / "baseline.json").read_text(encoding="utf-8") == text
    assert run(results).stdout == ""


def test_a_run_under_way_is_left_alone(tmp_path: Path) -> None:
    folder = recorded("toy/trpo/CartPole-v1", tmp_path)
    text = (folder / "spec.json").read_text(encoding="utf-8")
    lock = (
        "import fcntl, sys, time; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    (folder / ".lock").touch()
    with subprocess.Popen([sys.executable, "-c", lock, str(folder / ".lock")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        assert "a process is at work on it" in run(tmp_path).stdout
        holder.kill()
    assert (folder / "spec.json").read_text(encoding="utf-8") == text
