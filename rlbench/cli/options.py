"""Options of several verbs, each defined once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from rlbench.cli import choices, completion
from rlbench.cli.choices import parse_count
from rlbench.cli.output import remark
from rlbench.errors import UnknownName, UnknownRun, UsageError, suggest


def known_suite(name: str | None) -> str | None:
    """The suite, if one is named; an unknown name is refused."""
    from rlbench import suites

    if name is not None and name not in suites.names():
        raise UnknownName("suite", name, suites.names())
    return name


def usable_suites() -> list[str]:
    """Return every suite that can be run, and warn of broken plug-ins."""
    from rlbench import suites

    problems = {name: suites.problem(name) for name in suites.names()}
    for problem in filter(None, problems.values()):
        remark(problem)
    return [name for name, problem in problems.items() if not problem]


def suites_named(names: Sequence[str], results: Path | None) -> list[str]:
    """Return the suites that have records or rows: all of them for ``all`` and for no name; warn of missing plug-ins.

    Raises:
        UnknownName: a name is no suite.
    """
    from rlbench import suites
    from rlbench.report.sources import known_suites

    every = known_suites(results)
    for name in names:
        if name not in (*every, "all"):
            raise UnknownName("suite", name, [*every, "all"])
    selection = every if not names or "all" in names else list(dict.fromkeys(names))
    for problem in filter(None, map(suites.problem, selection)):
        remark(problem)
    return selection


Suite: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="atari, mujoco, offline, goals, toy or a plug-in; see: rlbench list suites",
        autocompletion=completion.suites,
    ),
]
SuiteOrAll: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUITE|all", help="A suite, or all of them.", autocompletion=completion.suites_or_all)
]
OnlySuite: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="SUITE",
        help="Only this suite; default: all of them.",
        callback=known_suite,
        autocompletion=completion.suites,
    ),
]
Algo: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ALGO",
        help="An algorithm of the suite, such as dqn; see: rlbench list algos",
        autocompletion=completion.algorithms,
    ),
]
AlgoGlob: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ALGO",
        help="An algorithm of the suite, such as dqn, or '*' for all of them; see: rlbench list algos",
        autocompletion=completion.algorithms,
    ),
]
TaskNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK]...",
        help="Task ids or patterns, as 'Pong*', or gym:ID of Gymnasium; default: every documented task of ALGO.",
        autocompletion=completion.tasks,
    ),
]
Algos: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--algo",
        metavar="GLOB",
        help="Only algorithms of this name or pattern, such as 'td3*'; may be repeated.",
        autocompletion=completion.algorithms,
    ),
]
Tasks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="GLOB",
        help="Only tasks of this name or pattern, such as 'Pong*'; may be repeated.",
        autocompletion=completion.tasks,
    ),
]
PlayedTasks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--task", metavar="GLOB", help="Another spelling of TASK; may be repeated.", autocompletion=completion.tasks
    ),
]
Import: TypeAlias = Annotated[
    str | None,
    typer.Option("--import", metavar="PACKAGE", help="Import this package first, for gym:ID; default: none."),
]
Dataset: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME|PATH",
        help="Data to learn from, of suite offline; default: the data set that TASK names.",
        autocompletion=completion.datasets,
    ),
]
Seeds: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--seeds", envvar="RLBENCH_SEEDS", metavar="0|0-9|0,3,7", help="Seeds to train, one run each; default: 0."
    ),
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="RLBENCH_DEVICE",
        metavar="auto|cpu|cuda|cuda:N",
        help="Device of the networks; auto: the first NVIDIA GPU, else the CPU.",
        autocompletion=completion.devices,
    ),
]
EnvTimeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--env-timeout",
        envvar="RLBENCH_ENV_TIMEOUT",
        metavar="SECONDS",
        min=0.1,
        help="End a run whose environments have not answered for so long.",
    ),
]


def folder_named(text: str | Path) -> Path:
    """A folder; an empty name, as an unset variable of a shell leaves it, would be the current one."""
    if not str(text):
        raise UsageError("--results: is empty; name a folder, or . for the current one")
    return Path(text)


Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Results: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--results", envvar="RLBENCH_RESULTS", metavar="DIR", help="Write records to this folder.", parser=folder_named
    ),
]
Records: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--results",
        envvar="RLBENCH_RESULTS",
        metavar="DIR",
        help="Read records of this folder only; default: runs/ here, beside what rlbench itself measured.",
        parser=folder_named,
    ),
]


def _use_references(context: typer.Context, files: list[Path] | None) -> list[Path] | None:
    """For the time of the command, count the references of ``files``."""
    if files:
        from rlbench.report.reference_files import selected

        context.with_resource(selected(files=files))
    return files


def _use_reference(context: typer.Context, name: str | None) -> str | None:
    """For the time of the command, compare with the reference called ``name``."""
    if name:
        from rlbench.report.reference_files import selected

        context.with_resource(selected(name=name))
    return name


References: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--references",
        metavar="FILE.toml",
        help="Count the published scores of this file too; may be repeated. RLBENCH_REFERENCES names files as well.",
        callback=_use_references,
    ),
]
Reference: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="NAME",
        help="Compare with the scores of this source, such as Dopamine; default: RLBENCH_REFERENCE, else the primary.",
        callback=_use_reference,
    ),
]
Sets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a setting, as algo.lr=1e-3; may be repeated. `rlbench show` lists them.",
        autocompletion=completion.fields,
    ),
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE.toml", help="Settings from a file; --set overrules. Default: none."),
]
Steps: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--steps",
        parser=parse_count,
        metavar="N|1e5|100k|1M",
        help="Train for N agent steps (an Atari step is four frames); default: the published budget.",
    ),
]
Until: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="STEPS|P%|informative",
        help="Pause there, at an evaluation, with the state saved; informative: once the reference's curve differs "
        "from its start. Default: the end.",
    ),
]
UntilDecided: TypeAlias = Annotated[
    bool, typer.Option("--until-decided", help="Add seeds (3, 5, 8 …) until a verdict.")
]
MostSeeds: TypeAlias = Annotated[int | None, typer.Option(metavar="N", help="Last look: 5, 8, 12 or 32; default: 20.")]
Smoke: TypeAlias = Annotated[
    bool, typer.Option("--smoke", help="Run the whole path in seconds; the record enters no table.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Jobs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        metavar="auto|N",
        help="Train N runs at once, each in its own process; auto: as many as fit. Default: one by one.",
        autocompletion=completion.jobs,
    ),
]
Executor: TypeAlias = Annotated[
    choices.Executor, typer.Option("--executor", help="Train on this machine, or on a Ray cluster.")
]
UpdateEngine: TypeAlias = Annotated[
    Literal["auto", "eager", "numpy", "compiled", "cuda-graph"],
    typer.Option(
        "--update-engine",
        envvar="RLBENCH_UPDATE_ENGINE",
        help="Implementation of gradient steps; auto: numpy for small networks, else eager.",
    ),
]
EvalWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--eval-workers",
        envvar="RLBENCH_EVAL_WORKERS",
        metavar="N",
        min=0,
        help="Processes that evaluate beside offline training; default: idle cores.",
    ),
]
RayAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ray-address", metavar="HOST:PORT", help="Address of a running Ray cluster; default: start one here."
    ),
]
Shard: TypeAlias = Annotated[
    str | None,
    typer.Option("--shard", metavar="i/n", help="Take the i-th of n shares of the runs, as 1/8; default: all."),
]
Track: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--track", metavar="|".join(choices.TRACKERS), help="Mirror the records there while they grow; may be repeated."
    ),
]
TrackDir: TypeAlias = Annotated[
    Path, typer.Option("--track-dir", envvar="RLBENCH_TRACK_DIR", metavar="DIR", help="Folder of the trackers' files.")
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Print the runs, and write nothing.")]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Start over; the earlier attempt is kept.")]
Pipe: TypeAlias = Annotated[int | None, typer.Option("--pipe", hidden=True)]

RESULTS = Path("runs")
TRACKED = Path("tracked")


Run: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its folder, a line of: rlbench list runs, or how its id begins.",
        autocompletion=completion.runs,
    ),
]
MOST_RUNS = 3  # that a message lists for an ambiguous name


def run_folder(name: str, results: Path | None) -> Path:
    """Find the folder of a run by name; ``ID/seed=N`` where an id has several seeds.

    Raises:
        UnknownRun: there is no such run; the message has the nearest names.
        UsageError: the name means several.
    """
    from rlbench.records.files import folders
    from rlbench.report.sources import sources

    if (Path(name) / "spec.json").is_file():
        return Path(name)
    places = sources(results).folders
    runs = {str(folder.relative_to(place)): folder for place in reversed(places) for folder in folders(place)}
    if name in runs:
        return runs[name]
    start, _, rest = name.strip("/").partition("/")
    near_folders = [folder for folder in runs.values() if start and folder.parent.name.startswith(start)]
    matches = [folder for folder in near_folders if rest in {"", folder.name}]
    if not matches:
        ids = dict.fromkeys(folder.parent.name for folder in runs.values())
        way = "rlbench eval --policy FILE" if Path(name).is_file() else "rlbench list runs"
        near = suggest(name, [*runs, *ids]).partition("; known:")[0] or f"; see: {way}"
        raise UnknownRun(f"{places[0]}: unknown run {name!r}{near}")
    if len(matches) > 1:
        some = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in matches[:MOST_RUNS])
        more = ", …" if len(matches) > MOST_RUNS else ""
        raise UsageError(f"{name}: {len(matches)} runs have this name: {some}{more}; name one of them")
    return matches[0]
