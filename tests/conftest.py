"""Fixtures of all tests, and records without training for tests of several layers."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import hypothesis
import pytest

from rlbench import suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.records.types import Collected, Epoch, Evaluated, Outcome, Status, StepCounts
from rlbench.seeds import Seeds
from tests.forging import locked

RecordRun = Callable[..., Path]
RecordSeeds = Callable[..., list[Path]]
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

# One thread a process, and none that spins: scripts/test runs two processes on two cores. Read when torch is imported,
# by the tests' own subprocesses too.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", MPLBACKEND="Agg")

# No setting of the person who runs the tests may reach them.
for name in [name for name in os.environ if name.startswith("RLBENCH_")]:
    del os.environ[name]

# Tests read and write one folder, below their own one; those of own runs beside rlbench's records take this away.
os.environ["RLBENCH_RESULTS"] = "results"

# The same examples in every run: a failure that CI sees is seen here. Slow machines are no failure; hangs are, by
# pytest's own timeout.
for profile, examples in (("rlbench", 100), ("quick", 25)):
    checks = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        profile, max_examples=examples, derandomize=True, deadline=None, suppress_health_check=checks
    )
hypothesis.settings.load_profile("rlbench")


def epoch(number: int, mean: float, env_steps: int, seed: int = 0) -> Epoch:
    """An epoch whose two evaluation games average ``mean``, of a run of ``seed``."""
    seeds = Seeds(seed).child("evaluation", number, "env").numbers(2)
    collected = Collected(episodes=1, steps=env_steps, returns=(mean,), lengths=(10,), steps_per_second=100.0)
    evaluated = Evaluated(returns=(mean - 1.0, mean + 1.0), lengths=(10, 10), seeds=seeds, seconds=0.5)
    counts = {"env_steps": env_steps, "updates": env_steps // 10, "seconds": float(number)}
    return Epoch(number=number, collected=collected, updated=None, evaluated=evaluated, **counts)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    """Runs a test in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The folder into which ``record_run`` writes."""
    return tmp_path / "results"


@pytest.fixture
def record_run(tmp_path: Path) -> RecordRun:
    """Writes a run with the given evaluation means, as if it had been trained; gives its folder."""

    def write(  # noqa: PLR0913 - a record has as many parts
        means: Sequence[float],
        *,
        suite: str = "atari",
        algo: str = "dqn",
        task: str = "BreakoutNoFrameskip-v4",
        seed: int = 0,
        sets: Sequence[str] = (),
        status: Status | None = "done",
        force: bool = False,
        data: Mapping[str, object] | None = None,
        environment: Mapping[str, object] | None = None,
    ) -> Path:
        spec = apply_settings(suites.spec(suite, algo, task, seed=seed), [parse(text) for text in sets])
        metadata: dict[str, object] = {"env": {"env": "test/env"}} | ({} if data is None else {"data": dict(data)})
        metadata |= environment or {}
        store = locked(spec, tmp_path / "results", metadata, force=force)
        store.note_resumption(len(store.epochs))
        epochs = [epoch(i, mean, i * spec.budget.epoch, spec.seed) for i, mean in enumerate(means)]
        for record in epochs:
            store.append(record)
        if status is not None:
            last = epochs[-1] if epochs else StepCounts(env_steps=0, updates=0)
            counts = {"env_steps": last.env_steps, "updates": last.updates, "epochs": len(epochs)}
            best = {"best": max(means, default=None), "best_epoch": list(means).index(max(means)) if means else None}
            rest = {"reason": f"a test says {status}", "seconds": 1.0, "weights": None}
            store.finish(Outcome(status=status, final=means[-1] if means else None, **counts, **best, **rest))
        store.release()
        return store.folder

    return write


@pytest.fixture
def record_seeds(record_run: RecordRun) -> RecordSeeds:
    """Writes a run for each list of evaluation means, its seeds from ``start`` on."""

    def write(*means: Sequence[float], start: int = 0, **words: object) -> list[Path]:
        return [record_run(row, seed=seed, **words) for seed, row in enumerate(means, start)]

    return write
