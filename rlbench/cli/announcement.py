"""The line on stderr before training: the runs, their longest duration here, and rlbench's records of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.cli.output import remark
from rlbench.cli.status import spoken
from rlbench.errors import RefusedFile, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.config.run import Spec
    from rlbench.report.reference_table import CellKey


def announce(specs: Sequence[Spec], results: Path, *, quiet: bool) -> None:
    """Announce the runs to train; print nothing if all have ended, or for smoke runs."""
    from rlbench.records.store import folder_of, read_outcome

    if quiet:
        return
    with suppress(RefusedFile, UsageError):  # the run itself names the file
        outcomes = [read_outcome(folder_of(spec, results)) for spec in specs]
        to_come = [
            spec
            for spec, outcome in zip(specs, outcomes, strict=True)
            if not spec.smoke and (outcome is None or outcome.status == "interrupted")
        ]
        if to_come:
            remark(announcement(to_come, results))


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
    parts.append(_brought(specs))
    return f"training {name}, {which}: {'; '.join(filter(None, parts))}"


def _time(specs: Sequence[Spec], results: Path) -> str:
    """Format the expected duration, one run after another, at the speed of the nearest records."""
    from rlbench.records.files import folders
    from rlbench.records.machine import has_gpu, processor
    from rlbench.report.remaining_work import throughput
    from rlbench.report.run_index import sorted_runs
    from rlbench.report.runs import read_run
    from rlbench.report.sources import brought_records

    first = specs[0]
    places = dict.fromkeys(place for place in (results, brought_records()) if place)
    runs = [read_run(f) for place in places for f in folders(place / first.suite / first.algorithm)]
    near, cpu, gpu = sorted_runs(runs), processor(), has_gpu()
    seconds, here = 0.0, True
    for spec in specs:
        expected = throughput(cell_key(spec), near, cpu, gpu=gpu)
        if expected is None:
            return ""
        seconds, here = seconds + spec.budget.steps / expected.speed, here and expected.here
    return f", about {spoken(seconds)} {'here' if here else 'on the machine of results/'}"


def cell_key(spec: Spec) -> CellKey:
    """The cell that a run of these settings belongs to."""
    from rlbench.report.reference_table import CellKey, row_of

    dataset = getattr(spec.task, "dataset", "")
    return CellKey(spec.suite, spec.algorithm, *row_of(spec.suite, spec.task.id, dataset))


def _brought(specs: Sequence[Spec]) -> str:
    """The checkout's records with these settings: the score of one run, or the number of several."""
    from rlbench.records.store import folder_of, read_outcome
    from rlbench.report.sources import brought_records

    place = brought_records()
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
        f"{outcome.steps:,} steps and {spoken(outcome.seconds)}"
    )
