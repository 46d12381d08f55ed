"""``rlbench run``: train the cells that were asked for, resume what was interrupted, skip what is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rlbench.cli import options
from rlbench.cli.announcement import announce
from rlbench.cli.experience import Data
from rlbench.cli.options import RESULTS, Config, Json, Results, Sets, Smoke, Steps, Suite
from rlbench.cli.output import emit, emit_json, remark, terminal_width
from rlbench.cli.run_one import carried, row

if TYPE_CHECKING:
    from rlbench.config.run import Runtime, Spec

RUN_SCHEMA = 1
CODES = {"failed": 5, "halted": 5, "crashed": 5, "refused": 2}
"""Exit codes of what a run can come to; done, running and skipped are 0."""


def run(
    suite: Suite,
    algo: options.AlgoGlob,
    tasks: options.TaskNames = None,
    *,
    task: options.PlayedTasks = None,
    dataset: options.Dataset = None,
    seeds: options.Seeds = "0",
    steps: Steps = None,
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
    from rlbench.cli.trackers import following
    from rlbench.config.run import Runtime

    _leashed(pipe)
    data, named = Data(dataset), (*(tasks or ()), *(task or ()))
    specs = _specs(suite, algo, named, seeds, steps, sets or [], config, data, smoke=smoke)
    specs = _shared(specs, shard, results)
    if dry_run:
        _plan(specs, results, dataset, json=json)
        return
    announce(specs, results, quiet=quiet or pipe is not None)
    _thread_policy(specs)
    with following(track or (), specs, results, track_dir):
        if jobs is None and executor == "local":
            runtime = Runtime(
                device=device,
                dataset=data.path,
                env_timeout=env_timeout,
                eval_workers=eval_workers,
                update_engine=update_engine,
            )
            told, worst = _in_turn(specs, runtime, results, pipe, force=force, quiet=quiet)
        else:
            from rlbench.cli.sweep import SweepOptions, parse_jobs, repeated, swept

            asked = SweepOptions(
                results=results,
                device=device,
                sets=repeated(config, os.environ, sets or []),
                steps=steps,
                dataset=dataset,
                env_timeout=env_timeout,
                eval_workers=eval_workers,
                update_engine=update_engine,
                smoke=smoke,
                force=force,
                quiet=quiet,
                jobs=parse_jobs(jobs),
                executor=executor,
                address=ray_address,
            )
            told, worst = swept(specs, asked, row)
    _tell(told, worst, json=json)


def _leashed(pipe: int | None) -> None:
    """End with the process that started this one, where one did."""
    from rlbench.cli.parent_pipe import leashed

    if pipe is not None:
        leashed(pipe)


def _tell(told: list[dict[str, object]], worst: int, *, json: bool) -> None:
    """What became of every run, and the exit code."""
    from rlbench.report.columns import sentences

    if json:
        emit_json({"schema_version": RUN_SCHEMA, "runs": told})
    else:
        emit("\n".join(sentences(map(_sentence, told), terminal_width())) or "no runs")
    if worst:
        raise typer.Exit(worst)


def _in_turn(
    specs: list[Spec], runtime: Runtime, results: Path, pipe: int | None, *, force: bool, quiet: bool
) -> tuple[list[dict[str, object]], int]:
    """Carry the runs on, one after another in this process; what became of them, and the exit code."""
    from rlbench.cli.parent_pipe import PipeDisplay
    from rlbench.cli.preflight import fits
    from rlbench.cli.progress_display import display
    from rlbench.cli.watchdog import asked_to_stop

    told: list[dict[str, object]] = []
    worst = 0
    fits(specs, runtime, results)
    with (
        asked_to_stop() as stop,
        PipeDisplay(pipe) if pipe is not None else display(quiet=quiet, runs=len(specs)) as shown,
    ):
        for spec in specs:
            ending = carried(spec, runtime, results, stop, shown, force=force)
            told.append(ending)
            worst = max(worst, CODES.get(str(ending["status"]), 0))
            if ending["status"] == "halted":  # a full disk is full for the next run too
                break
            if stop.signal is not None:
                worst = 128 + stop.signal
                break
    return told, worst


def _shared(specs: list[Spec], shard: str | None, results: Path) -> list[Spec]:
    """One share of the runs, whatever of them is done already; none of them behind a link or with one."""
    from rlbench.cli.preflight import refuse_links
    from rlbench.sweep.plan import parse_share, shared

    chosen = specs if shard is None else shared(specs, parse_share(shard))
    refuse_links(chosen, results)
    return chosen


def _thread_policy(specs: list[Spec]) -> None:
    """How idle threads wait, before torch starts any: spinning ones take their neighbours' core."""
    from rlbench.config.offline import Offline
    from rlbench.config.online import ActorCritic

    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        return
    if all(isinstance(spec.algo, ActorCritic | Offline) for spec in specs):
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
    data: Data,
    *,
    smoke: bool,
) -> list[Spec]:
    """Every run that was asked for, all of them valid, before the first one starts."""
    from rlbench import suites
    from rlbench.cli.resolve import resolve
    from rlbench.cli.seeds import parse_seeds

    numbers = parse_seeds(seeds)
    for typed, runs in suites.renamed(suite, globs).items():
        remark(f"{typed} is run as {runs}, its maintained version in Gymnasium; the record says so")
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
        ).spec
        for algorithm in suites.algorithms_matching(suite, algo)
        for name in suites.matching(suite, data.tasks(suite, globs), algorithm)
        for seed in numbers
    ]


def _sentence(row: dict[str, object]) -> str:
    """``atari/dqn/Pong… seed 0: done at 1,500,000 steps, best 20.3 (documented 20)  results/…``."""
    best, document = row["best"], row["documented"]
    score = f", best evaluation {best:.6g}" if isinstance(best, float) else ""
    score += f" (documented {document:.6g})" if isinstance(document, float) else ""
    why = f" ({row['reason']})" if row["status"] in CODES else ""
    resumed = ", ".join(f"{step:,}" for step in row["inexact"]) if isinstance(row["inexact"], tuple) else ""
    score += f", resumed inexactly at {resumed} steps" if resumed else ""
    data = f"@{row['dataset']}" if row["dataset"] else ""
    name = f"{row['suite']}/{row['algorithm']}/{row['task']}{data} seed {row['seed']}"
    log = f", log {row['log']}" if row["status"] in CODES and "log" in row else ""
    return f"{name}: {row['status']}{why} at {row['env_steps']:,} steps{score}{log}  {row['folder']}"


def _plan(specs: list[Spec], results: Path, dataset: str | None, *, json: bool) -> None:
    """What would be run, and what is there already."""
    from rlbench.cli.experience import steps_of
    from rlbench.config.footprint import footprint
    from rlbench.records.store import folder_of, read_epochs, read_outcome
    from rlbench.report.columns import sentences

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
            {
                **row(spec, folder, status, outcome),
                "env_steps": done,
                "steps": spec.budget.steps,
                "memory": need.total,
            }
        )
    if json:
        emit_json({"schema_version": RUN_SCHEMA, "plan": rows})
        return
    lines = [
        f"{row['suite']}/{row['algorithm']}/{row['task']} seed {row['seed']}: {row['status']}, "
        f"{row['env_steps']:,} of {row['steps']:,} steps done, epochs {-(-spec.budget.steps // spec.budget.epoch)}, "
        f"{need.line()}  {row['folder']}"
        for row, spec, need in zip(rows, specs, memory, strict=True)
    ]
    emit("\n".join(sentences(lines, terminal_width())))
