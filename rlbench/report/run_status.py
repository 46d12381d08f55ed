"""The status of every run below a results folder: running, done, failed, interrupted, or damaged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlbench.config.names import printable
from rlbench.errors import RefusedFile
from rlbench.records.files import folders
from rlbench.records.locks import is_held
from rlbench.records.store import Record, read_record
from rlbench.report.estimate import best_of_run
from rlbench.report.run_index import setting
from rlbench.report.runs import read_run

State = Literal["running", "done", "failed", "interrupted", "damaged"]
RECENT = 3
"""Epochs that the speed of a run is read from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """The state of one run."""

    folder: Path
    state: State
    name: str  # suite/algorithm/task; of a damaged record, its folder
    setting: str = "published"  # or what it changes, as ``lr=0.01``
    seed: int | None = None
    smoke: bool = False
    env_steps: int = 0  # at the end of its last epoch, or where it was stopped since
    budget: int = 0
    best: float | None = None  # highest mean return of any evaluation
    eta_seconds: float | None = None  # to the end of the budget; None unless running, or while nothing is known
    reason: str


def standings(results: Path) -> tuple[RunStatus, ...]:
    """Every run, in order of folder; a record that cannot be read is listed as damaged, with the reason."""
    return tuple(standing(folder) for folder in folders(results))


def standing(folder: Path) -> RunStatus:
    """One run; of a record that cannot be read, the reason."""
    try:
        record, run = read_record(folder), read_run(folder)
    except RefusedFile as error:
        return RunStatus(folder=folder, state="damaged", name=str(folder), reason=printable(str(error)))
    outcome, epochs = record.outcome, record.epochs
    ended = outcome is not None and outcome.status != "interrupted"
    state: State = outcome.status if outcome and ended else "running" if is_held(folder) else "interrupted"
    later = outcome is not None and outcome.epochs >= len(epochs)  # otherwise it is that of an earlier attempt
    reason = outcome.reason if outcome and later else "ended without a word"
    return RunStatus(
        folder=folder,
        state=state,
        name=record.spec.name,
        setting="published" if record.spec.smoke else setting(run),
        seed=record.spec.seed,
        smoke=record.spec.smoke,
        env_steps=max(epochs[-1].steps if epochs else 0, outcome.steps if outcome else 0),
        budget=record.spec.budget.steps,
        best=best_of_run(record),
        eta_seconds=_eta(record) if state == "running" else None,
        reason="" if state == "running" else printable(reason),
    )


def _eta(record: Record) -> float | None:
    """Seconds to the end of the budget at the speed of the last epochs."""
    recent = record.epochs[-RECENT - 1 :]
    if len(recent) < 2 or recent[-1].steps <= recent[0].steps:
        return None
    per_step = (recent[-1].seconds - recent[0].seconds) / (recent[-1].steps - recent[0].steps)
    since = time.time() - (record.folder / "epochs.jsonl").stat().st_mtime
    return max(0.0, per_step * (record.spec.budget.steps - recent[-1].steps) - since)
