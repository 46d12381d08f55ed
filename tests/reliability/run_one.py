"""Runs in this process, stopped or dropped at will, and their outcomes."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path

from rlbench.config.run import Runtime, Spec
from rlbench.errors import Interrupted
from rlbench.records import manifest
from rlbench.records.epochs import scores
from rlbench.records.store import read_record
from rlbench.run import run
from rlbench.signals import Stop
from tests.forging import locked

QUIET = Runtime(device="cpu", threads=1, checkpoint_seconds=1e9)


def carry(
    spec: Spec,
    results: Path,
    stop_after: int | None = None,
    *,
    stop_at: int | None = None,
    crash: bool = False,
    runtime: Runtime = QUIET,
    environment: Mapping[str, object] | None = None,
) -> int:
    """Go on with a run to its end, for so many records or up to a step; gives how many records it made.

    It is stopped as a signal would, or with ``crash`` without a message, as SIGKILL would.
    """
    store = locked(spec, results, environment)
    stop, count = Stop(), 0
    try:
        for record in run(spec, runtime, store, stop):
            count += 1
            stops = count == stop_after or (stop_at is not None and (record.env_steps or record.updates) >= stop_at)
            if stops and crash:
                break
            if stops:
                stop.signal = signal.SIGTERM
    except Interrupted:
        assert stop.signal == signal.SIGTERM
    finally:
        store.release()
    return count


def only_run(results: Path) -> Path:
    """The folder of the one run below a folder of results."""
    (spec,) = results.rglob("spec.json")
    return spec.parent


def ending(folder: Path) -> tuple[object, ...]:
    """All that a finished run leaves behind but times: weights, scores, every epoch, and the policies it keeps."""
    record = read_record(folder)
    assert record.outcome is not None, folder
    outcome = record.outcome
    return (
        (outcome.status, outcome.reason, outcome.weights, outcome.env_steps, outcome.updates, outcome.epochs),
        (outcome.best, outcome.best_epoch, outcome.final, outcome.inexact),
        [scores(epoch) for epoch in record.epochs],
        [checkpoint_content(folder / "checkpoint" / name) for name in ("best", "last")],
        sorted(path.name for path in (folder / "checkpoint").iterdir()),
    )


def checkpoint_content(folder: Path) -> object:
    """The content of a checkpoint, by the SHA-256 of its files."""
    head = manifest.read_manifest(folder)
    return dict(head.files), {name: value for name, value in head.values.items() if not name.startswith("run/")}


def epochs_of(folder: Path) -> list[dict[str, object]]:
    """Every epoch whose line is whole, times left out: what must never be lost again."""
    path = folder / "epochs.jsonl"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return [{key: line[key] for key in ("number", "env_steps", "updates", "updated")} | _games(line) for line in lines]


def _games(line: dict[str, object]) -> dict[str, object]:
    episodes = {}
    for part in ("evaluated", "collected"):
        games = line[part]
        if isinstance(games, dict):
            episodes[part] = (games["returns"], games["lengths"])
    return episodes
