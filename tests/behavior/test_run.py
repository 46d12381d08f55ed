"""Outcomes of runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbench import checkpoint, suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.errors import Diverged, UsageError
from rlbench.records.store import Record, folder_of, read_record
from rlbench.records.types import Epoch
from rlbench.run import _store_epoch, run
from rlbench.signals import Stop
from tests.forging import locked, outcome_of
from tests.reliability.run_one import carry

SMALL = (
    "budget.steps=800", "budget.epoch=400", "budget.segment=400", "algo.learning_starts=100", "protocol.episodes=4",
    "protocol.envs=4",
)  # fmt: skip


def spec_of(*changes: str, algorithm: str = "dqn") -> Spec:
    return apply_settings(suites.spec("toy", algorithm, "Catch"), [parse(c) for c in (*SMALL, *changes)])


def finish(spec: Spec, results: Path) -> Record:
    carry(spec, results)
    return read_record(folder_of(spec, results))


def test_finished_run_has_an_outcome(tmp_path: Path) -> None:
    record = finish(spec_of(), tmp_path)
    outcome, epochs = record.outcome, record.epochs
    assert (outcome.status, outcome.epochs, outcome.reason) == ("done", 3, "finished all steps")
    assert outcome.final == epochs[-1].evaluated.mean
    assert outcome.best == max(e.evaluated.mean for e in epochs)
    assert epochs[outcome.best_epoch].evaluated.mean == outcome.best
    assert outcome.env_steps == epochs[-1].env_steps >= 800
    assert {p.name for p in (record.folder / "checkpoint").iterdir()} == {"best", "last"}


def test_run_stops_at_its_protocols_score(tmp_path: Path) -> None:
    record = finish(spec_of("protocol.stop=-2"), tmp_path)
    assert len(record.epochs) == 1
    assert (record.outcome.status, record.outcome.reason) == ("done", "stopped early at score -2")


@pytest.mark.parametrize("algorithm", ["dqn", "rainbow"])  # without priorities and with them
def test_a_run_that_diverges_is_a_failed_run(algorithm: str, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"400 steps: online.* is not a finite number"):
        finish(spec_of("algo.lr=1e30", algorithm=algorithm), tmp_path)
    (folder,) = (p.parent for p in tmp_path.rglob("spec.json"))
    outcome = outcome_of(folder)
    assert outcome.status == "failed"
    assert "Diverged" in outcome.reason
    assert "not a finite number" in outcome.reason


def test_dqn_learns_to_catch(tmp_path: Path) -> None:
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse("budget.steps=8000")])
    epochs = finish(spec, tmp_path).epochs
    assert epochs[0].evaluated.mean < 0.5
    assert epochs[-1].evaluated.mean >= 0.95


@pytest.mark.soak
@pytest.mark.timeout(900)  # twenty seconds of a quiet core, minutes of a busy one
def test_dqn_learns_to_balance_the_pole(tmp_path: Path) -> None:
    epochs = finish(suites.spec("toy", "dqn", "CartPole-v1"), tmp_path).epochs
    assert epochs[0].evaluated.mean < 200
    assert max(e.evaluated.mean for e in epochs) >= 475


def test_best_policy_is_of_the_epoch_in_the_outcome(tmp_path: Path) -> None:
    first = finish(spec_of(), tmp_path)
    assert checkpoint.load(first.folder / "checkpoint" / "best")["epoch"] == first.outcome.best_epoch
    spec = spec_of().model_copy(update={"seed": 3})
    other = locked(spec, tmp_path)
    for record in run(spec, Runtime(device="cpu", threads=1), other, Stop()):
        if isinstance(record, Epoch) and record.number == 1:
            break
    better = replace(other.epochs[1], number=2, evaluated=replace(other.epochs[1].evaluated, returns=(9.0,) * 4))
    other.append(better)  # an epoch of another machine, whose policy was kept
    checkpoint.save(other.folder / "checkpoint" / "best", {"policy": {}, "epoch": 2})
    other.release()
    done = finish(spec, tmp_path)
    best_folder = done.folder / "checkpoint" / "best"
    assert not best_folder.exists() or checkpoint.load(best_folder)["epoch"] == done.outcome.best_epoch
    store = locked(spec.model_copy(update={"seed": 4}), tmp_path)
    trainer = SimpleNamespace(evaluated_policy={}, obs_moments=None)
    for number in range(2):
        _store_epoch(store, replace(done.epochs[1], number=number, env_steps=number), trainer)
    assert checkpoint.load(store.folder / "checkpoint" / "best")["epoch"] == 0
    store.release()


@pytest.mark.parametrize("warmup", [1, 15])
def test_learning_before_anything_is_complete_is_refused(warmup: int) -> None:
    with pytest.raises(UsageError, match="no transition is complete before 32 steps"):
        spec_of(f"algo.learning_starts={warmup}")
