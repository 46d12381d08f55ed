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
    setting: str  # what it changes, as ``lr=0.01``; else ``published``
    seed: int | None
    smoke: bool
    env_steps: int  # at the end of its last epoch, or where it was stopped since
    budget: int
    best: float | None  # highest mean return of any evaluation
    eta_seconds: float | None  # to the end of the budget; None unless running, or while nothing is known
    reason: str


def standings(results: Path) -> tuple[RunStatus, ...]:
    """Every run, in order of folder; a record that cannot be read is listed as damaged, with the reason."""
    return tuple(standing(folder) for folder in folders(results))


def standing(folder: Path) -> RunStatus:
    """One run; of a record that cannot be read, the reason."""
    try:
        record, run = read_record(folder), read_run(folder)
    except RefusedFile as error:
        return RunStatus(
            folder=folder,
            state="damaged",
            name=str(folder),
            setting="published",
            seed=None,
            smoke=False,
            env_steps=0,
            budget=0,
            best=None,
            eta_seconds=None,
            reason=printable(str(error)),
        )
    state = _state(record)
    return RunStatus(
        folder=folder,
        state=state,
        name=record.spec.name,
        setting="published" if record.spec.smoke else setting(run),
        seed=record.spec.seed,
        smoke=record.spec.smoke,
        env_steps=_steps(record),
        budget=record.spec.budget.steps,
        best=best_of_run(record),
        eta_seconds=_eta(record) if state == "running" else None,
        reason="" if state == "running" else printable(_reason(record)),
    )


def _state(record: Record) -> State:
    if record.outcome is not None and record.outcome.status != "interrupted":
        return record.outcome.status
    return "running" if is_held(record.folder) else "interrupted"


def _steps(record: Record) -> int:
    """The progress of the run, also between two epochs after an interruption."""
    epoch_steps = record.epochs[-1].steps if record.epochs else 0
    return max(epoch_steps, record.outcome.steps if record.outcome else 0)


def _reason(record: Record) -> str:
    """Why it ended; an outcome with fewer epochs than the record is that of an earlier attempt."""
    if record.outcome is None or record.outcome.epochs < len(record.epochs):
        return "ended without a word"
    return record.outcome.reason


def _eta(record: Record) -> float | None:
    """Seconds to the end of the budget at the speed of the last epochs."""
    recent = record.epochs[-RECENT - 1 :]
    if len(recent) < 2 or recent[-1].steps <= recent[0].steps:
        return None
    per_step = (recent[-1].seconds - recent[0].seconds) / (recent[-1].steps - recent[0].steps)
    since = time.time() - (record.folder / "epochs.jsonl").stat().st_mtime
    return max(0.0, per_step * (record.spec.budget.steps - recent[-1].steps) - since)
