"""``rlbench status``: the states of runs, and the expected end of running ones."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlbench.cli.options import Json, RecordedSuite, Records, check_recorded_suite, option
from rlbench.cli.output import print_error, print_result, print_text, results_stream, terminal_height, terminal_width
from rlbench.config.names import count_text, number_text
from rlbench.errors import RefusedFile, UnknownName, UsageError
from rlbench.report.columns import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.report.run_index import RunStatus

SECONDS_BETWEEN_LOOKS = 2.0
STATES = ("running", "done", "failed", "interrupted", "damaged")
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def status(
    *,
    suite: RecordedSuite = None,
    state: Annotated[
        list[str] | None,
        option(
            f"--state {'|'.join(STATES)}",
            "List only runs in this state; may be repeated. Default: all but done, which are counted.",
        ),
    ] = None,
    watch: Annotated[bool, option("--watch", "Look again every two seconds until Ctrl-C.")] = False,
    results: Records = None,
    json: Json = False,
) -> None:
    """Show your runs that are not done, and when they will end.

    A run is running, done, failed, interrupted, or damaged; the last makes the exit code 2.
    """
    if watch and json:
        raise UsageError("--watch and --json contradict each other; give one of them")
    for name in state or ():
        if name not in STATES:
            raise UnknownName("state", name, STATES, where="--state")
    check_recorded_suite(suite, results)
    if watch:
        _watch(results, suite, state)
        return
    runs = _statuses(results, suite, state)
    print_result({"runs": [asdict(run) | {"folder": str(run.folder)} for run in runs]}, _text(runs, state), json=json)
    damaged = [run for run in runs if run.state == "damaged"]
    for run in damaged:
        print_error(run.reason)
    if damaged:
        raise typer.Exit(RefusedFile.exit_code)


def _statuses(results: Path | None, suite: str | None, states: Sequence[str] | None) -> list[RunStatus]:
    from rlbench.records.files import folders, suite_of
    from rlbench.report.evidence import evidence_of
    from rlbench.report.run_index import run_status

    own = evidence_of(results).own
    runs = [run_status(folder) for folder in folders(own) if suite is None or suite_of(folder) == suite]
    return [run for run in runs if not states or run.state in states]


def _watch(results: Path | None, suite: str | None, states: Sequence[str] | None) -> None:
    redraws = results_stream().isatty() and os.environ.get("TERM") != "dumb"
    with suppress(KeyboardInterrupt):
        while True:
            text = _text(_statuses(results, suite, states), states)
            text = _cut(text, terminal_width() or 80, terminal_height() or 24) if redraws else text
            lines = text.replace("\n", f"{ERASE_LINE}\n")  # written over what was there, so that nothing flashes
            print_text(f"{HOME}{lines}{ERASE_BELOW}" if redraws else text)
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _cut(text: str, width: int, height: int) -> str:
    """The text in fewer lines than a terminal has; the number of the runs that do not fit stands in their place."""
    lines = [line[:width] for line in text.split("\n")]
    if len(lines) < height:
        return "\n".join(lines)
    if height < 6:
        return lines[-1]
    room = height - 4
    while lines[room].startswith(" "):  # the rest of a folded row
        room -= 1
    hidden = sum(not line.startswith(" ") for line in lines[room:-2])
    return "\n".join([*lines[:room], "", f"{count_text(hidden, 'run')} not shown: enlarge the terminal", lines[-1]])


def duration(seconds: float | None) -> str:
    """A length of time for people: ``42 s``, ``7 min``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def _text(runs: Sequence[RunStatus], states: Sequence[str] | None) -> str:
    """Aligned columns of the runs, and a count by state; runs that are done only where ``states`` asks for them."""
    if not runs:
        return "no runs"
    counts = Counter(run.state for run in runs)
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    listed_runs = [run for run in runs if states or run.state != "done"]
    if not listed_runs:
        return total
    rows: list[tuple[str, ...]] = [("STATE", "RUN", "SEED", "STEPS", "BEST", "ETA", "")]
    rows += [_row(run) for run in listed_runs]
    return "\n".join([*aligned(rows, terminal_width()), "", total])


def _row(run: RunStatus) -> tuple[str, ...]:
    if run.state == "damaged":
        return (run.state, run.name, "", "", "", "", "")
    steps = f"{run.env_steps:,} / {run.budget:,}"
    best = "" if run.best is None else number_text(run.best, ",.2f")
    note = ", ".join(filter(None, ("smoke" if run.smoke else "", run.reason)))
    name = run.name if run.setting == "published" else f"{run.name} {run.setting}"
    return (run.state, name, str(run.seed), steps, best, duration(run.eta_seconds), note)
