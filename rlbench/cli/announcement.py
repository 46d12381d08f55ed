"""The lines around training: before it the runs, their duration and rlbench's records; after it the verdicts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from rlbench.cli.output import print_note
from rlbench.cli.preflight import is_due
from rlbench.cli.status import duration
from rlbench.config.names import count_text
from rlbench.config.run import Spec
from rlbench.errors import RefusedFile, UsageError
from rlbench.records.files import folders
from rlbench.records.looks import DESIGN
from rlbench.records.store import folder_of, read_outcome
from rlbench.report.cells import Cell, every_cell
from rlbench.report.reference_table import cell_name, cell_of
from rlbench.report.remaining_work import throughput
from rlbench.report.run_index import group_runs
from rlbench.report.runs import read_run
from rlbench.report.sources import RUNS, checkout_records
from rlbench.report.tables import score_text
from rlbench.report.verdict import MAX_MORE_SEEDS

if TYPE_CHECKING:
    from collections.abc import Sequence


def announce(specs: Sequence[Spec], results: Path, *, quiet: bool) -> None:
    """Announce the runs to train; print nothing if all have ended, or for smoke runs."""
    if quiet:
        return
    with suppress(RefusedFile, UsageError):  # the run itself names the file
        due = [spec for spec in specs if not spec.smoke and is_due(spec, results)]
        if due:
            print_note(announcement(due, results))


def announcement(specs: Sequence[Spec], results: Path) -> str:
    """One line on the runs: ``dqn on PongNoFrameskip-v4, seed 0: at most 10,000,000 steps, …``."""
    first, tasks = specs[0], list(dict.fromkeys(spec.task.id for spec in specs))
    algorithms = list(dict.fromkeys(spec.algorithm for spec in specs))
    who = algorithms[0] if len(algorithms) == 1 else f"{len(algorithms)} algorithms"
    name = f"{who} on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}"
    which = f"seed {first.seed}" if len(specs) == 1 else f"{len(specs)} runs"
    stop = first.protocol.stop
    early = "at most " if any(spec.protocol.stop is not None for spec in specs) else ""
    parts = [f"{early}{sum(spec.budget.steps for spec in specs):,} steps{_time(specs, results)}"]
    if stop is not None and len(tasks) == 1:
        parts.append(f"a run stops early at a mean return of {stop:g}")
    parts.append(_checkout_results(specs))
    return f"training {name}, {which}: {'; '.join(filter(None, parts))}"


def _time(specs: Sequence[Spec], results: Path) -> str:
    """Format the expected duration, one run after another, at the speed of the nearest records."""
    from rlbench.records.machine import has_gpu, processor

    first = specs[0]
    places = dict.fromkeys(place for place in (results, checkout_records()) if place)
    runs = [read_run(f) for place in places for f in folders(place / first.suite / first.algorithm)]
    near, cpu, gpu = group_runs(runs), processor(), has_gpu()
    seconds, here = 0.0, True
    for spec in specs:
        expected = throughput(cell_of(spec), near, cpu, gpu=gpu)
        if expected is None:
            return ""
        seconds, here = seconds + spec.budget.steps / expected.speed, here and expected.here
    return f", about {duration(seconds)} {'here' if here else 'on the machine of results/'}"


def _checkout_results(specs: Sequence[Spec]) -> str:
    """The checkout's records with these settings: the score of one run, or the number of several."""
    place = checkout_records()
    if place is None:
        return ""
    if len(specs) > 1:
        count = sum((folder_of(spec, place) / "outcome.json").is_file() for spec in specs)
        return f"results/ has {count} of them" if count else ""
    own = folder_of(specs[0], place)
    others = sorted(own.parent.glob("seed=*"))
    folder = own if own in others else others[0] if others else None
    outcome = read_outcome(folder) if folder else None
    if folder is None or outcome is None or outcome.best is None:
        return ""
    seed = folder.name.removeprefix("seed=")
    return (
        f"results/ has seed {seed}, with a best evaluation of {outcome.best:.6g} in "
        f"{outcome.steps:,} steps and {duration(outcome.seconds)}"
    )


def verdict_lines(specs: Sequence[Spec], results: Path) -> list[str]:
    """One line per cell of ``specs`` with the verdict of its runs in ``results``; smoke runs have none."""
    keys = list(dict.fromkeys(cell_of(spec) for spec in specs if not spec.smoke))
    with suppress(RefusedFile, UsageError):  # `rlbench table` names the file
        cells = {cell.key: cell for cell in every_cell(list(dict.fromkeys(key.suite for key in keys)), results)}
        return [_line(cells[key], results) for key in keys if key in cells]
    return []


def _line(cell: Cell, results: Path) -> str:
    """``toy/dqn/Catch: documented 1, measured 0.94 over 1 seed: INCONCLUSIVE (≈ 2 more seeds); next: rlbench …``."""
    scores = []
    if cell.documented is not None:
        scores.append(f"documented {cell.documented.score:,.6g}")
    if cell.measured is not None:
        scores.append(f"measured {score_text(cell.measured.score)} over {count_text(cell.measured.n, 'seed')}")
    verdict = str(cell.verdict)
    if cell.verdict.word == "PARTIAL" and cell.at is not None:
        verdict += f", {cell.at}"
    elif cell.verdict.word in {"NOT RUN", "NOT COMPARABLE", "PARTIAL"} and cell.note:
        verdict += f" ({cell.note})"
    text = ", ".join(scores) or "nothing measured"
    return f"{cell_name(cell.key)}: {text}: {verdict}; next: `{_next(cell, results)}`"


def _next(cell: Cell, results: Path) -> str:
    """The command that adds the seeds needed for a verdict, or else shows the cell."""
    suite, algorithm, task, dataset = cell.key
    seeds, more = cell.measured.seeds if cell.measured else (), cell.verdict.more
    where = [] if results == RUNS else ["--results", str(results)]
    if more is None or more > MAX_MORE_SEEDS:
        return join(["rlbench", "table", suite, "--algo", algorithm, "--task", dataset or task, *where])
    if cell.looks is not None:
        most = ["--most-seeds", str(cell.looks.max_seeds)]
        until = ["--until-decided", *(most if cell.looks.max_seeds != DESIGN[-1].seeds else ())]
        return join(["rlbench", "run", suite, algorithm, dataset or task, *until, *where])
    first = max(seeds, default=-1) + 1
    numbers = str(first) if more == 1 else f"{first}-{first + more - 1}"
    return join(["rlbench", "run", suite, algorithm, dataset or task, "--seeds", numbers, *where])
