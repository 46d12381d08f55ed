"""``rlbench run``: train the requested cells; resume interrupted runs and skip finished ones."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlbench import disk
from rlbench.cli import completion
from rlbench.cli.options import (
    ENV_TIMEOUT,
    RESULTS,
    Config,
    EnvTimeout,
    Import,
    Json,
    Quiet,
    Results,
    Sets,
    Smoke,
    Steps,
    Suite,
    argument,
    option,
    parse_seeds,
    pauses,
)
from rlbench.cli.output import print_note
from rlbench.errors import UsageError

if TYPE_CHECKING:
    from rlbench.cli.dataset_option import Data
    from rlbench.config.run import Spec


def run(
    suite: Suite,
    algo: Annotated[
        str,
        argument(
            "ALGO",
            "An algorithm of the suite, such as dqn, or '*' for all of them; see: rlbench list algos",
            completion.algorithms,
        ),
    ],
    tasks: Annotated[
        list[str] | None,
        argument(
            "[TASK]...",
            "Task ids or patterns, as 'Pong*', or gym:ID of Gymnasium; default: every documented task of ALGO.",
            completion.tasks,
        ),
    ] = None,
    *,
    task: Annotated[
        list[str] | None, option("--task GLOB", "Another spelling of TASK; may be repeated.", completion.tasks)
    ] = None,
    package: Import = None,
    dataset: Annotated[
        str | None,
        option(
            "--dataset NAME|PATH",
            "Data to learn from, of suite offline; default: the data set that TASK names.",
            completion.datasets,
        ),
    ] = None,
    seeds: Annotated[
        str | None, option("--seeds 0|0-9|0,3,7", "Seeds to train, one run each; default: 0.", env="RLBENCH_SEEDS")
    ] = None,
    steps: Steps = None,
    until: Annotated[
        str | None,
        option(
            "--until STEPS|P%|informative",
            "Pause after an evaluation, with the state saved; informative: where the published curve has risen "
            "clearly. Default: the end.",
        ),
    ] = None,
    until_decided: Annotated[bool, option("--until-decided", "Test after 3, 5, 8 … seeds until decided.")] = False,
    most_seeds: Annotated[int | None, option("--most-seeds N", "Most seeds: 5, 8, 12 or 32; default: 20.")] = None,
    sets: Sets = None,
    config: Config = None,
    device: Annotated[
        str,
        option(
            "--device auto|cpu|cuda|cuda:N",
            "Device of the networks; auto: the first NVIDIA GPU, else the CPU.",
            completion.devices,
            env="RLBENCH_DEVICE",
        ),
    ] = "auto",
    results: Results = RESULTS,
    smoke: Smoke = False,
    dry_run: Annotated[bool, option("--dry-run", "Print the runs, and write nothing.")] = False,
    force: Annotated[bool, option("--force", "Start over; the earlier attempt is kept.")] = False,
    env_timeout: EnvTimeout = ENV_TIMEOUT,
    quiet: Quiet = False,
    json: Json = False,
    jobs: Annotated[
        str | None,
        option(
            "--jobs auto|N",
            "Train N runs at once, each in its own process; auto: as many as fit. Default: one by one.",
            lambda: ["auto"],
        ),
    ] = None,
    eval_workers: Annotated[
        int | None,
        option(
            "--eval-workers N",
            "Evaluation processes of offline training, on a GPU at least 1; default: idle cores.",
            env="RLBENCH_EVAL_WORKERS",
            least=0,
        ),
    ] = None,
    update_engine: Annotated[
        Literal["auto", "eager", "numpy", "compiled", "cuda-graph"],
        option(
            "--update-engine",
            "Engine of gradient steps; auto: CUDA graphs, numpy or eager.",
            env="RLBENCH_UPDATE_ENGINE",
        ),
    ] = "auto",
    executor: Annotated[
        Literal["local", "ray"], option("--executor", "Train on this machine, or on a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None, option("--ray-address HOST:PORT", "Address of a running Ray cluster; default: start one here.")
    ] = None,
    shard: Annotated[
        str | None, option("--shard i/n", "Take the i-th of n shares of the runs, as 1/8; default: all.")
    ] = None,
    track: Annotated[
        list[str] | None,
        option("--track tensorboard|wandb", "Send the metrics to this tracker during training; may be repeated."),
    ] = None,
    track_dir: Annotated[
        Path, option("--track-dir DIR", "Folder of the trackers' files.", env="RLBENCH_TRACK_DIR")
    ] = Path("tracked"),
    pipe: Annotated[int | None, option("--pipe", "", hidden=True)] = None,
    sha256: Annotated[str | None, option("--sha256", "", hidden=True)] = None,
) -> None:
    """Train an algorithm with its published settings.

    Stop it whenever you like: the same command resumes, and skips finished runs. `rlbench table` then shows the
    published score beside the measured one.
    """
    from rlbench.cli import run_output
    from rlbench.cli import until_decided as sequential
    from rlbench.cli.dataset_option import Data
    from rlbench.cli.progress_display import stop_with_parent
    from rlbench.cli.sweep import SweepOptions, repeated_settings, sweep
    from rlbench.cli.trackers import PATIENCE, STOP_PATIENCE, tracking

    stop_with_parent(pipe)
    task_globs, changes, data = (*(tasks or ()), *(task or ())), sets or [], Data(dataset, sha256)
    design = sequential.design_of(most_seeds, until_decided=until_decided)
    numbers = sequential.seeds_of_design(design, seeds, steps=steps, until=until, shard=shard, smoke=smoke, force=force)
    every = _specs(suite, algo, task_globs, numbers, steps, changes, config, data, package, smoke=smoke)
    specs = _shard(every, shard, results)
    cells = sequential.cells_of(specs, results, design) if design else ()
    if dry_run:
        run_output.print_plan(specs, results, dataset, pauses(until, specs), json=json, force=force)
        return
    _set_thread_policy(specs)
    request = SweepOptions(
        results=results,
        device=device,
        sets=repeated_settings(config, os.environ, changes),
        steps=steps,
        dataset=data,
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
    with tracking(track or (), specs, results, track_dir) as trackers:
        endings, stopped_by = sequential.sweep_until_decided(cells, request) if design else sweep(specs, request)
        trackers.patience = PATIENCE if stopped_by is None else STOP_PATIENCE
    run_output.print_endings(endings, list(sequential.decision_rows(cells, results)), request, json=json)
    if code := run_output.exit_code(endings, stopped_by):
        raise typer.Exit(code)


def _shard(specs: list[Spec], shard: str | None, results: Path) -> list[Spec]:
    """Select one shard of the runs; refuse links in their folders, and results within a run."""
    from rlbench.records.files import refuse_links, refuse_run_folder
    from rlbench.records.store import folder_of
    from rlbench.sweep.plan import parse_shard

    refuse_run_folder(results, "--results")
    selection = specs if shard is None else specs[parse_shard(shard)]
    for spec in selection:
        refuse_links(folder_of(spec, results), results)
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
    data: Data,
    package: str | None,
    *,
    smoke: bool,
) -> list[Spec]:
    """Resolve and validate all requested runs before the first one starts."""
    disk.current_folder()  # before torch, whose libraries end the process in a removed one
    from rlbench import suites
    from rlbench.cli.resolve import resolve
    from rlbench.suites.plugins import import_package

    if suite == "all":
        loop = f"for suite in {' '.join(suites.names())}; do rlbench run $suite {quote(algo)}; done"
        raise UsageError(f"run takes one suite at a time; write {loop}")
    numbers, installed = parse_seeds(seeds), import_package(package) if package else None
    algorithms = suites.algorithms_matching(suite, algo)
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
