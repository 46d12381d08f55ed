"""R8: a NaN or an infinity anywhere fails the seed with its place, and is never stored."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import rlbench.run
from rlbench.assembly.assemble import build
from rlbench.cli.app import main
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.errors import RunFailed
from rlbench.ops.state_dict import State
from rlbench.records.store import read_record
from rlbench.run import run
from rlbench.signals import Stop
from tests.commands import stdout_of
from tests.conftest import Capture, Patch
from tests.forging import locked
from tests.reliability.families import ALL, CATCH, FLAT, HOPPER, PENDULUM, Family, marked

FEW = (CATCH, PENDULUM, HOPPER, FLAT)
"""Of every trainer and every engine one."""

Break = Callable[[Any, float], None]


def weight(trainer: Any, value: float) -> None:
    parameter = next(iter(trainer.learner.policy_net().parameters()))
    with torch.no_grad():
        parameter[(0,) * parameter.dim()] = value  # filters are not contiguous


def hidden(trainer: Any, value: float) -> None:
    """One number of what learns beside it: of a target network, or of the optimizer."""
    state = copy.deepcopy(trainer.learner.state_dict())
    tensors = dict(floating(state))
    targets = [tensor for name, tensor in tensors.items() if "target" in name]
    tensor = [*tensors.values(), *targets][-1]
    tensor[(0,) * tensor.dim()] = value
    trainer.learner.load_state_dict(state)


def loss(trainer: Any, value: float) -> None:
    """The metrics of one update whose weights are finite."""
    trainer.updater.metrics.sums[0] += value


def floating(state: State, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from floating(value, f"{prefix}{key}.")
        elif isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 0:
            yield prefix + key, value


def breaking(at: int, into: Break, value: float, monkeypatch: Patch) -> list[int]:
    """Break something after the ``at``-th update; the list tells when that was."""
    happened: list[int] = []

    def built(*parts: Any) -> Any:
        trainer = build(*parts)
        learn = trainer.updater.run

        def run_updates(first: int, count: int) -> None:
            learn(first, count)
            if not happened and first + count > at:
                into(trainer, value)
                happened.append(first + count)

        trainer.updater.run = run_updates
        return trainer

    monkeypatch.setattr(rlbench.run, "build", built)
    return happened


def failed(spec: Spec, results: Path) -> str:
    store = locked(spec, results)
    try:
        with pytest.raises(RunFailed):
            list(run(spec, Runtime(device="cpu", threads=1), store, Stop()))
    finally:
        store.release()
    record = read_record(store.folder)
    assert (record.outcome.status, record.outcome.weights) == ("failed", None)
    assert (store.folder / "failure.txt").exists()
    assert all(e.evaluated is not None and math.isfinite(e.evaluated.mean) for e in record.epochs)
    for file in store.folder.rglob("*.safetensors"):
        assert all(t.isfinite().all() for t in load_file(file).values() if t.is_floating_point()), file
    return record.outcome.reason


@pytest.mark.parametrize("family", marked(ALL, FEW, pytest.mark.soak))
@pytest.mark.parametrize("value", [math.nan, pytest.param(math.inf, marks=pytest.mark.soak)])
def test_nan_weight_fails_the_seed_of_every_learner(
    family: Family, value: float, tmp_path: Path, monkeypatch: Patch
) -> None:
    happened = breaking(2, weight, value, monkeypatch)
    reason = failed(family.spec(), tmp_path)
    assert happened, reason
    assert "finite" in reason or "nan" in reason.lower(), reason


@pytest.mark.parametrize("family", marked(FEW, [CATCH], pytest.mark.soak))
@pytest.mark.parametrize("into", [hidden, loss])
@pytest.mark.parametrize("value", [math.inf, pytest.param(math.nan, marks=pytest.mark.soak)])
def test_nan_in_auxiliary_networks_and_metrics_fails_the_seed(
    family: Family, into: Break, value: float, tmp_path: Path, monkeypatch: Patch
) -> None:
    happened = breaking(2, into, value, monkeypatch)
    spec = apply_settings(family.spec(), [parse("budget.segment=600")])  # nothing is saved before an epoch ends
    assert "finite" in failed(spec, tmp_path)
    assert happened


@pytest.mark.parametrize("part", ["returns", pytest.param("collected", marks=pytest.mark.soak)])
@pytest.mark.parametrize("value", [math.inf, 1e60])
def test_return_that_no_record_holds_fails_the_seed(
    part: str, value: float, tmp_path: Path, monkeypatch: Patch
) -> None:
    def built(*parts: Any) -> Any:
        trainer = build(*parts)
        if part == "collected":
            take = trainer.collector.episode_stats.take
            trainer.collector.episode_stats.take = lambda: ((value, *take()[0]), (1, *take()[1]))
            return trainer
        evaluate = trainer.evaluate

        def evaluate_once(epoch: int) -> Any:
            evaluation = evaluate(epoch)
            result = evaluation.result
            evaluation.result = lambda: replace(result(), returns=(value, *result().returns[1:]))
            return evaluation

        trainer.evaluate = evaluate_once
        return trainer

    monkeypatch.setattr(rlbench.run, "build", built)
    assert "return is not a finite number" in failed(CATCH.spec(), tmp_path)


def test_failed_seed_exits_5_and_counts_in_the_table(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    breaking(1, weight, math.nan, monkeypatch)
    assert "failed (Diverged: epoch 1, 4,000 steps: " in stdout_of(
        f"run toy dqn --task Catch --device cpu --results {tmp_path}", 5
    )
    assert main(["table", "toy", "--results", str(tmp_path), "--format", "csv"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("toy,dqn,Catch"))
    assert "1 of 1 run failed" in row
