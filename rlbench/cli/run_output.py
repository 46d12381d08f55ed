"""The output of ``rlbench run``: the plan of ``--dry-run``, the runs to come, each run's end, verdicts, exit code."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from rlbench.cli.dataset_option import reference_score, rows_of, run_document
from rlbench.cli.options import seeds_text
from rlbench.cli.output import print_error, print_note, print_result, terminal_width
from rlbench.cli.status import duration
from rlbench.config.footprint import Footprint, footprint, size_text
from rlbench.config.names import count_text, printable
from rlbench.config.run import Spec
from rlbench.errors import RefusedFile, UsageError
from rlbench.records.files import RECORD_FILES, folders
from rlbench.records.looks import DESIGN
from rlbench.records.store import folder_of, read_outcome, read_record, refuse_other_attempt, refuse_other_run
from rlbench.records.types import Outcome
from rlbench.report.cells import Cell, every_cell
from rlbench.report.columns import sentences
from rlbench.report.evidence import RUNS, checkout_records
from rlbench.report.reference_table import cell_name, cell_of
from rlbench.report.remaining_work import throughput
from rlbench.report.run_index import group_runs, run_status
from rlbench.report.runs import read_run
from rlbench.report.tables import score_text
from rlbench.report.verdict import DECIDED, MAX_MORE_SEEDS
from rlbench.sweep.events import Ending
from rlbench.sweep.plan import Job, is_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.cli.sweep import SweepOptions

CODES = {"failed": 5, "halted": 5, "crashed": 5, "refused": 2}
"""Exit code of each status; of any other status it is 0."""


def exit_code(endings: Sequence[Ending], stopped_by: int | None) -> int:
    """Return the command's exit code: the highest of its runs, or that of the signal that stopped it."""
    codes = [CODES.get(ending.status, 0) for ending in endings]
    return max(codes, default=0) if stopped_by is None else 128 + stopped_by


def announce(jobs: Sequence[Job], results: Path, *, quiet: bool, force: bool) -> None:
    """Announce the runs to train; print nothing if all have ended or paused, or for smoke runs.

    With ``force`` every run starts over.
    """
    if quiet:
        return
    due = [job for job in jobs if not job.spec.smoke and (force or is_due(job.spec, results))]
    lacks = [(job.spec, job.steps if force else _steps_left(job)) for job in due]
    if missing := [(spec, steps) for spec, steps in lacks if steps > 0]:
        with suppress(RefusedFile, UsageError):  # of a damaged record in results/
            print_note(announcement(missing, results))


def _steps_left(job: Job) -> int:
    """The steps from a run's last epoch to its end or pause."""
    with suppress(RefusedFile, UsageError):  # the run itself names the file
        if (job.folder / "spec.json").exists() and (record := read_record(job.folder)).epochs:
            return 0 if record.has_ended(job.until) else job.steps - record.epochs[-1].steps
    return job.steps


def announcement(missing: Sequence[tuple[Spec, int]], results: Path) -> str:
    """One line on the runs and the steps that they lack: ``dqn on Pong…, seed 0: at most 10,000,000 steps, …``."""
    specs = [spec for spec, _ in missing]
    first, tasks = specs[0], list(dict.fromkeys(spec.task.id for spec in specs))
    algorithms = list(dict.fromkeys(spec.algorithm for spec in specs))
    who = algorithms[0] if len(algorithms) == 1 else f"{len(algorithms)} algorithms"
    name = f"{who} on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}"
    which = f"seed {first.seed}" if len(specs) == 1 else f"{len(specs)} runs"
    stop = first.protocol.stop
    early = "at most " if any(spec.protocol.stop is not None for spec in specs) else ""
    parts = [f"{early}{sum(steps for _, steps in missing):,} steps{_time(missing, results)}"]
    if stop is not None and len(tasks) == 1:
        parts.append(f"a run stops early at a mean return of {stop:g}")
    parts.append(_checkout_results(specs))
    return f"training {name}, {which}: {'; '.join(filter(None, parts))}"


def _time(missing: Sequence[tuple[Spec, int]], results: Path) -> str:
    """Format the expected duration, one run after another, at the speed of the nearest records."""
    from rlbench.records.machine import has_gpu, processor

    places = dict.fromkeys(place for place in (results, checkout_records()) if place)
    parts = dict.fromkeys(place / spec.suite / spec.algorithm for place in places for spec, _ in missing)
    try:
        near = group_runs([read_run(folder) for part in parts for folder in folders(part)])
    except (RefusedFile, UsageError):  # a damaged record, which `rlbench table` names
        return ""
    cpu, gpu, seconds, here = processor(), has_gpu(), 0.0, True
    for spec, steps in missing:
        expected = throughput(cell_of(spec), near, cpu, gpu=gpu)
        if expected is None:
            return ""
        seconds, here = seconds + steps / expected.speed, here and expected.here
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


def print_endings(
    endings: Sequence[Ending], decisions: list[dict[str, object]], request: SweepOptions, *, json: bool
) -> None:
    """Print the runs with the verdicts of their cells, and the reasons of refused runs on stderr.

    A worker of a sweep prints only why its run has not ended: the sweep reads the last line of its log.
    """
    rows = [ending_row(ending) for ending in endings]
    if request.pipe is None:
        verdicts = [decision_sentence(row) for row in decisions] or (
            [] if json else _verdicts(endings, request.results)
        )
        lines = sentences([*summary(endings, rows), *verdicts], terminal_width())
        if lines or json:
            print_result({"runs": rows, **({"decisions": decisions} if decisions else {})}, "\n".join(lines), json=json)
    of_worker = request.pipe is not None
    refusals = (e.reason for e in endings if e.status == "refused" or (of_worker and e.status in CODES))
    for reason in dict.fromkeys(refusals):  # one for all seeds, such as a missing data set
        print_error(reason)


def summary(endings: Sequence[Ending], rows: Sequence[dict[str, object]]) -> list[str]:
    """One line per run that this command trained; of the others, how many are done and how many it did not reach."""
    lines, untouched = [], Counter[str]()
    for ending, row in zip(endings, rows, strict=True):
        if ending.status == "refused":
            continue  # stderr names it
        if ending.started or len(endings) == 1 or ending.status not in {"done", "interrupted"}:
            lines.append(_sentence(row))
        else:
            paused = "paused already by --until" if ending.is_paused else "not reached; the same command goes on"
            untouched["done already" if ending.status == "done" else paused] += 1
    counts = [f"{count_text(count, 'run')} {state}" for state, count in untouched.items()]
    return [*lines, *counts] or ([] if endings else ["no runs"])


def _verdicts(endings: Sequence[Ending], results: Path) -> list[str]:
    """The verdict of each cell with a run that was trained or is done."""
    if any(ending.job.spec.smoke and ending.status != "refused" for ending in endings):
        return ["a smoke run: its record is marked and enters no table"]
    ended = [ending for ending in endings if ending.started or ending.status == "done"]
    return verdict_lines([e.job.spec for e in ended if e.status not in {"refused", "running"}], results)


def decision_sentence(row: dict[str, object]) -> str:
    """Format a row: ``mujoco/sac/HalfCheetah-v4: REPRODUCED at look 2 of 5, 5 seeds``."""
    place = f"{row['suite']}/{row['algorithm']}/{row['dataset'] or row['task']}"
    goes_on = "" if row["verdict"] in DECIDED or row["look"] == row["looks"] else "; the same command goes on"
    return f"{place}: {row['verdict']} at look {row['look']} of {row['looks']}, {row['seeds']} seeds{goes_on}"


def _sentence(row: dict[str, object]) -> str:
    """``atari/dqn/Pong… seed 0: done at 1,500,000 steps, best 20.3 (documented 20)  results/…``."""
    best, reference = row["best"], row["documented"]
    score = f", best evaluation {best:.6g}" if isinstance(best, float) else ""
    score += f" (documented {reference:.6g})" if isinstance(reference, float) else ""
    why = f" ({printable(str(row['reason']))})" if row["status"] in {*CODES, "interrupted"} else ""
    resumed = ", ".join(f"{step:,}" for step in row["inexact"]) if isinstance(row["inexact"], tuple) else ""
    score += f", resumed inexactly at {resumed} steps" if resumed else ""
    data = f"@{row['dataset']}" if row["dataset"] else ""
    name = f"{row['suite']}/{row['algorithm']}/{row['task']}{data} seed {row['seed']}"
    log = f", log {row['log']}" if row["status"] in CODES and "log" in row else ""
    return f"{name}: {row['status']}{why} at {row['env_steps']:,} steps{score}{log}  {row['folder']}"


def print_plan(
    specs: list[Spec],
    results: Path,
    dataset: str | None,
    pause_steps: Sequence[int | None],
    *,
    json: bool,
    force: bool = False,
) -> None:
    """Print the state of each run, with the steps to its end or pause and its memory; train nothing.

    With ``force`` every run is new.
    """
    row_count = rows_of(dataset)
    memory = [footprint(spec, steps=row_count(spec)) for spec in specs]
    rows: list[dict[str, object]] = []
    for spec, need, pause in zip(specs, memory, pause_steps, strict=True):
        folder = folder_of(spec, results)
        if force:
            refuse_other_attempt(folder, spec)
        record = read_record(folder) if any((folder / part).exists() for part in RECORD_FILES) and not force else None
        if record is not None:
            refuse_other_run(record, spec)
        outcome, epochs = (record.outcome, record.epochs) if record is not None else (None, ())
        status = outcome.status if outcome else ("interrupted" if epochs else "new")
        done = epochs[-1].steps if epochs else 0
        is_paused = status == "interrupted" and record is not None and record.has_ended(pause)
        target = done if is_paused else Job(spec=spec, folder=folder, until=pause).steps
        steps = spec.budget.steps if status == "done" else max(target, done)
        rows.append({**_row(spec, folder, status, outcome), "env_steps": done, "steps": steps, "memory": need.total})
    text = "\n".join(sentences(_plan_lines(specs, rows, memory, results), terminal_width()))
    print_result({"plan": rows}, text, json=json)


def _plan_lines(
    specs: Sequence[Spec], rows: Sequence[dict[str, object]], memory: Sequence[Footprint], results: Path
) -> list[str]:
    """One line for the seeds of a cell of equal state, and of several runs a line with their steps and time."""
    if not specs:
        return ["no run in this shard"]
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, (spec, row) in enumerate(zip(specs, rows, strict=True)):
        name = f"{row['suite']}/{row['algorithm']}/{row['task']}"
        alike.setdefault((name, spec.id, row["status"], row["env_steps"]), []).append(place)
    lines = []
    for (cell, _, status, steps), places in alike.items():
        seeds = f"seed{'s' if len(places) > 1 else ''} {seeds_text([specs[place].seed for place in places])}"
        budget = rows[places[0]]["steps"]
        lines.append(f"{cell} {seeds}: {status}, {f'{steps:,} of ' if steps else ''}{budget:,} steps")
    lines.append(f"memory of a run: at most {size_text(max(need.total for need in memory))}")
    pairs = zip(specs, rows, strict=True)
    lacks = [(spec, int(str(row["steps"])) - int(str(row["env_steps"])), row["status"]) for spec, row in pairs]
    missing = [(spec, steps) for spec, steps, status in lacks if status in {"new", "interrupted"} and steps]
    if len(specs) > 1 and missing:
        ended = len(specs) - len(missing)
        lines.append(f"{ended} of {len(specs)} runs have ended or paused; {announcement(missing, results)}")
    return lines


def ending_row(ending: Ending) -> dict[str, object]:
    """Row of the JSON for a run that has ended."""
    row = {**_row(ending.job.spec, ending.job.folder, ending.status, ending.outcome), "reason": ending.reason}
    if ending.outcome is None and not ending.starts_over:
        status = run_status(ending.job.folder)
        row |= {"env_steps": status.env_steps, "best": status.best}
    attempts = {} if ending.attempts is None else {"attempts": ending.attempts}
    return {**row, **attempts, **({} if ending.log is None else {"log": str(ending.log)})}


def _row(spec: Spec, folder: Path, status: str, outcome: Outcome | None) -> dict[str, object]:
    return {
        **run_document(spec),
        "folder": str(folder),
        "status": status,
        "reason": outcome.reason if outcome else "",
        "env_steps": outcome.steps if outcome else 0,
        "best": outcome.best if outcome else None,
        "final": outcome.final if outcome else None,
        "inexact": outcome.inexact if outcome else (),
        "documented": reference_score(spec),
    }
