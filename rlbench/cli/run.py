"""``rlbench run``: train the requested cells; resume interrupted runs and skip finished ones."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

from rlbench.cli import options
from rlbench.cli.choices import seeds_text
from rlbench.cli.options import RESULTS, Config, Json, Results, Sets, Smoke, Steps, Suite
from rlbench.cli.output import print_error, print_note, print_result, terminal_width
from rlbench.config.names import count_text
from rlbench.errors import UsageError
from rlbench.report.columns import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.config.footprint import Footprint
    from rlbench.config.run import Spec
    from rlbench.records.types import Outcome
    from rlbench.sweep.events import Ending

CODES = {"failed": 5, "halted": 5, "crashed": 5, "refused": 2}
"""Exit code of each status; of any other status it is 0."""


def run(
    suite: Suite,
    algo: options.AlgoGlob,
    tasks: options.TaskNames = None,
    *,
    task: options.PlayedTasks = None,
    package: options.Import = None,
    dataset: options.Dataset = None,
    seeds: options.Seeds = None,
    steps: Steps = None,
    until: options.Until = None,
    until_decided: options.UntilDecided = False,
    most_seeds: options.MostSeeds = None,
    sets: Sets = None,
    config: Config = None,
    device: options.Device = "auto",
    results: Results = RESULTS,
    smoke: Smoke = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    env_timeout: options.EnvTimeout = 600.0,
    quiet: options.Quiet = False,
    json: Json = False,
    jobs: options.Jobs = None,
    eval_workers: options.EvalWorkers = None,
    update_engine: options.UpdateEngine = "auto",
    executor: options.Executor = "local",
    ray_address: options.RayAddress = None,
    shard: options.Shard = None,
    track: options.Track = None,
    track_dir: options.TrackDir = options.TRACKED,
    pipe: options.Pipe = None,
) -> None:
    """Train an algorithm with its published settings.

    Stop it whenever you like: the same command resumes, and skips finished runs. `rlbench table` then shows the
    published score beside the measured one.
    """
    from rlbench.cli import until_decided as sequential
    from rlbench.cli.progress_display import end_with_parent
    from rlbench.cli.sweep import SweepOptions, repeated_settings, sweep
    from rlbench.cli.trackers import tracking

    if pipe is not None:
        end_with_parent(pipe)
    task_globs, changes = (*(tasks or ()), *(task or ())), sets or []
    design = sequential.design_of(most_seeds, until_decided=until_decided)
    fixed = {"steps": steps, "until": until, "shard": shard, "smoke": smoke, "force": force}
    numbers = sequential.seeds_of_design(design, seeds, **fixed)
    every = _specs(suite, algo, task_globs, numbers, steps, changes, config, dataset, package, smoke=smoke)
    specs = _shard(every, shard, results)
    cells = sequential.cells_of(specs, results, design) if design else ()
    if dry_run:
        _print_plan(specs, results, dataset, json=json)
        return
    _set_thread_policy(specs)
    request = SweepOptions(
        results=results,
        device=device,
        sets=repeated_settings(config, os.environ, changes),
        steps=steps,
        dataset=dataset,
        package=package,
        env_timeout=env_timeout,
        eval_workers=eval_workers,
        update_engine=update_engine,
        until=until,
        smoke=smoke,
        force=force,
        quiet=quiet,
        jobs=jobs,
        executor=executor,
        address=ray_address,
        pipe=pipe,
    )
    with redirect_stdout(sys.stderr), tracking(track or (), specs, results, track_dir):  # environments may print
        endings, stopped_by = sequential.sweep_until_decided(cells, request) if design else sweep(specs, request)
    _print(endings, list(sequential.decision_rows(cells, results)), results, json=json)
    code = max((CODES.get(ending.status, 0) for ending in endings), default=0)
    if code or stopped_by is not None:
        raise typer.Exit(code if stopped_by is None else 128 + stopped_by)


def _shard(specs: list[Spec], shard: str | None, results: Path) -> list[Spec]:
    """Select one shard of the runs and refuse links in their folders."""
    from rlbench.cli.preflight import refuse_links
    from rlbench.sweep.plan import parse_shard

    selection = specs if shard is None else specs[parse_shard(shard)]
    refuse_links(selection, results)
    return selection


def _set_thread_policy(specs: list[Spec]) -> None:
    """Choose how idle OpenMP threads wait, before torch starts any: spinning threads take a core."""
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        return
    if all(spec.algo.vectors_only for spec in specs):
        os.environ["GOMP_SPINCOUNT"] = "30000"  # to wake a sleeping thread takes as long as the product it is woken for
    else:
        os.environ["OMP_WAIT_POLICY"] = "passive"


def _specs(
    suite: str,
    algo: str,
    globs: tuple[str, ...],
    seeds: str,
    steps: int | None,
    sets: list[str],
    config: Path | None,
    dataset: str | None,
    package: str | None,
    *,
    smoke: bool,
) -> list[Spec]:
    """Resolve and validate all requested runs before the first one starts."""
    from rlbench import suites
    from rlbench.cli.choices import parse_seeds
    from rlbench.cli.dataset_option import Data
    from rlbench.cli.resolve import resolve
    from rlbench.suites.plugins import import_package

    if suite == "all":
        loop = f"for suite in {' '.join(suites.names())}; do rlbench run $suite {quote(algo)}; done"
        raise UsageError(f"run takes one suite at a time; write {loop}")
    numbers, installed = parse_seeds(seeds), import_package(package) if package else None
    data, algorithms = Data(dataset), suites.algorithms_matching(suite, algo)
    patterns = data.tasks(suite, globs)
    for name_given, runs in suites.substitutes(suite, globs).items():
        print_note(f"{name_given} is run as {runs}, its maintained version in Gymnasium; the record says so")
    return [
        resolve(
            suite,
            algorithm,
            name,
            seed=seed,
            sets=sets,
            config=config,
            steps=steps,
            smoke=smoke,
            environ=os.environ,
            dataset=data.name(suite, name, smoke=smoke),
            package=installed,
        ).spec
        for algorithm in algorithms
        for name in suites.matching(suite, patterns, algorithm)
        for seed in numbers
    ]


def _print(endings: Sequence[Ending], decisions: list[dict[str, object]], results: Path, *, json: bool) -> None:
    """Print the runs with the verdicts of their cells; name refused runs on stderr."""
    from rlbench.cli.until_decided import decision_sentence

    rows = [ending_row(ending) for ending in endings]
    verdicts = [decision_sentence(row) for row in decisions] or ([] if json else _verdicts(endings, results))
    lines = sentences([*summary(endings, rows), *verdicts], terminal_width())
    if lines or json:
        print_result({"runs": rows, **({"decisions": decisions} if decisions else {})}, "\n".join(lines), json=json)
    for row in rows:
        if row["status"] == "refused":
            print_error(str(row["reason"]))


def summary(endings: Sequence[Ending], rows: Sequence[dict[str, object]]) -> list[str]:
    """One line a run that this command trained; of the others, how many are done and how many it did not reach."""
    lines, untouched = [], Counter[str]()
    for ending, row in zip(endings, rows, strict=True):
        if ending.status == "refused":
            continue  # stderr names it
        if ending.started or len(endings) == 1 or ending.status not in {"done", "interrupted"}:
            lines.append(_sentence(row))
        else:
            untouched["done already" if ending.status == "done" else "not reached; the same command goes on"] += 1
    counts = [f"{count_text(count, 'run')} {state}" for state, count in untouched.items()]
    return [*lines, *counts] or ([] if endings else ["no runs"])


def _verdicts(endings: Sequence[Ending], results: Path) -> list[str]:
    """The verdict of each cell with a run that was trained or is done."""
    from rlbench.cli.announcement import verdict_lines

    if any(ending.job.spec.smoke and ending.status != "refused" for ending in endings):
        return ["a smoke run: its record is marked and enters no table"]
    ended = [ending for ending in endings if ending.started or ending.status == "done"]
    return verdict_lines([e.job.spec for e in ended if e.status not in {"refused", "running"}], results)


def _sentence(row: dict[str, object]) -> str:
    """``atari/dqn/Pong… seed 0: done at 1,500,000 steps, best 20.3 (documented 20)  results/…``."""
    best, reference = row["best"], row["documented"]
    score = f", best evaluation {best:.6g}" if isinstance(best, float) else ""
    score += f" (documented {reference:.6g})" if isinstance(reference, float) else ""
    why = f" ({row['reason']})" if row["status"] in {*CODES, "interrupted"} else ""
    resumed = ", ".join(f"{step:,}" for step in row["inexact"]) if isinstance(row["inexact"], tuple) else ""
    score += f", resumed inexactly at {resumed} steps" if resumed else ""
    data = f"@{row['dataset']}" if row["dataset"] else ""
    name = f"{row['suite']}/{row['algorithm']}/{row['task']}{data} seed {row['seed']}"
    log = f", log {row['log']}" if row["status"] in CODES and "log" in row else ""
    return f"{name}: {row['status']}{why} at {row['env_steps']:,} steps{score}{log}  {row['folder']}"


def _print_plan(specs: list[Spec], results: Path, dataset: str | None, *, json: bool) -> None:
    from rlbench.cli.dataset_option import steps_of
    from rlbench.config.footprint import footprint
    from rlbench.records.store import folder_of, read_epochs, read_outcome

    steps = steps_of(dataset)
    memory = [footprint(spec, steps=steps(spec)) for spec in specs]
    rows: list[dict[str, object]] = []
    for spec, need in zip(specs, memory, strict=True):
        folder = folder_of(spec, results)
        outcome = read_outcome(folder) if folder.is_dir() else None
        epochs = read_epochs(folder, complete=False) if folder.is_dir() else ()
        status = outcome.status if outcome else ("interrupted" if epochs else "new")
        done = epochs[-1].steps if epochs else 0
        rows.append(
            {**_row(spec, folder, status, outcome), "env_steps": done, "steps": spec.budget.steps, "memory": need.total}
        )
    text = "\n".join(sentences(_plan_lines(specs, rows, memory, results), terminal_width()))
    print_result({"plan": rows}, text, json=json)


def _plan_lines(
    specs: Sequence[Spec], rows: Sequence[dict[str, object]], memory: Sequence[Footprint], results: Path
) -> list[str]:
    """One line for the seeds of a cell of equal state, and of several runs a line with their steps and time."""
    from rlbench.cli.announcement import announcement
    from rlbench.config.footprint import size_text

    if not specs:
        return ["no run in this shard"]
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, (spec, row) in enumerate(zip(specs, rows, strict=True)):
        name = f"{row['suite']}/{row['algorithm']}/{row['task']}"
        alike.setdefault((name, spec.id, row["status"], row["env_steps"]), []).append(place)
    lines = []
    for (cell, _, status, steps), places in alike.items():
        seeds = f"seed{'s' if len(places) > 1 else ''} {seeds_text([specs[place].seed for place in places])}"
        budget = specs[places[0]].budget.steps
        lines.append(f"{cell} {seeds}: {status}, {f'{steps:,} of ' if steps else ''}{budget:,} steps")
    lines.append(f"memory of a run: at most {size_text(max(need.total for need in memory))}")
    to_come = [spec for spec, row in zip(specs, rows, strict=True) if row["status"] in {"new", "interrupted"}]
    if len(specs) > 1 and to_come:
        lines.append(f"{len(specs) - len(to_come)} of {len(specs)} runs are done; {announcement(to_come, results)}")
    return lines


def ending_row(ending: Ending) -> dict[str, object]:
    """Row of the JSON for a run that has ended."""
    from rlbench.report.run_index import run_status

    row = {**_row(ending.job.spec, ending.job.folder, ending.status, ending.outcome), "reason": ending.reason}
    if ending.status == "running":
        status = run_status(ending.job.folder)
        row |= {"env_steps": status.env_steps, "best": status.best}
    attempts = {} if ending.attempts is None else {"attempts": ending.attempts}
    return {**row, **attempts, **({} if ending.log is None else {"log": str(ending.log)})}


def _row(spec: Spec, folder: Path, status: str, outcome: Outcome | None) -> dict[str, object]:
    from rlbench.cli.dataset_option import reference_score, run_document

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
