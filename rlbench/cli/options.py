"""Options of several verbs, each defined once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.models import ArgumentInfo, OptionInfo

from rlbench.cli import choices, completion
from rlbench.cli.choices import parse_count
from rlbench.cli.output import print_note
from rlbench.errors import UnknownName, UnknownRun, UsageError, suggest


def option(
    usage: str,
    text: str,
    complete: Callable[..., list[str]] | None = None,
    *,
    env: str | None = None,
    least: float | None = None,
    most: float | None = None,
    parser: Callable[[str], object] | None = None,
    callback: Callable[..., object] | None = None,
    hidden: bool = False,
) -> OptionInfo:
    """Declare an option by its usage, as ``--seeds 0-9``, and its help text; ``env`` is its environment variable."""
    flag, _, metavar = usage.partition(" ")
    info: OptionInfo = typer.Option(
        flag,
        metavar=metavar or None,
        help=text,
        autocompletion=complete,
        envvar=env,
        min=least,
        max=most,
        parser=parser,
        callback=callback,
        hidden=hidden,
    )
    return info


def argument(
    metavar: str,
    text: str,
    complete: Callable[..., list[str]] | None = None,
    *,
    env: str | None = None,
    callback: Callable[..., object] | None = None,
) -> ArgumentInfo:
    """Declare an argument by its usage and its help text."""
    info: ArgumentInfo = typer.Argument(
        metavar=metavar, help=text, autocompletion=complete, envvar=env, callback=callback
    )
    return info


def check_suite(name: str | None) -> str | None:
    """The suite, if one is named; an unknown name is refused."""
    from rlbench import suites

    if name is not None and name not in suites.names():
        raise UnknownName("suite", name, suites.names())
    return name


def usable_suites() -> list[str]:
    """Return every suite that can be run, and warn of broken plug-ins."""
    from rlbench import suites

    problems = {name: suites.unavailable_reason(name) for name in suites.names()}
    for problem in filter(None, problems.values()):
        print_note(problem)
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
    for problem in filter(None, map(suites.unavailable_reason, selection)):
        print_note(problem)
    return selection


Suite = Annotated[
    str,
    argument("SUITE", "atari, mujoco, offline, goals, toy or a plug-in; see: rlbench list suites", completion.suites),
]
SuiteOrAll = Annotated[str, argument("SUITE|all", "A suite, or all of them.", completion.suites_or_all)]
OnlySuite = Annotated[
    str | None,
    option("--suite SUITE", "Only this suite; default: all of them.", completion.suites, callback=check_suite),
]
Algo = Annotated[
    str, argument("ALGO", "An algorithm of the suite, such as dqn; see: rlbench list algos", completion.algorithms)
]
AlgoGlob = Annotated[
    str,
    argument(
        "ALGO",
        "An algorithm of the suite, such as dqn, or '*' for all of them; see: rlbench list algos",
        completion.algorithms,
    ),
]
TaskNames = Annotated[
    list[str] | None,
    argument(
        "[TASK]...",
        "Task ids or patterns, as 'Pong*', or gym:ID of Gymnasium; default: every documented task of ALGO.",
        completion.tasks,
    ),
]
Algos = Annotated[
    list[str] | None,
    option(
        "--algo GLOB",
        "Only algorithms of this name or pattern, such as 'td3*'; may be repeated.",
        completion.algorithms,
    ),
]
Tasks = Annotated[
    list[str] | None,
    option("--task GLOB", "Only tasks of this name or pattern, such as 'Pong*'; may be repeated.", completion.tasks),
]
PlayedTasks = Annotated[
    list[str] | None, option("--task GLOB", "Another spelling of TASK; may be repeated.", completion.tasks)
]
Import = Annotated[str | None, option("--import PACKAGE", "Import this package first, for gym:ID; default: none.")]
Dataset = Annotated[
    str | None,
    option(
        "--dataset NAME|PATH",
        "Data to learn from, of suite offline; default: the data set that TASK names.",
        completion.datasets,
    ),
]
Seeds = Annotated[
    str | None, option("--seeds 0|0-9|0,3,7", "Seeds to train, one run each; default: 0.", env="RLBENCH_SEEDS")
]
Device = Annotated[
    str,
    option(
        "--device auto|cpu|cuda|cuda:N",
        "Device of the networks; auto: the first NVIDIA GPU, else the CPU.",
        completion.devices,
        env="RLBENCH_DEVICE",
    ),
]
EnvTimeout = Annotated[
    float,
    option(
        "--env-timeout SECONDS",
        "End a run whose environments have not answered for so long.",
        env="RLBENCH_ENV_TIMEOUT",
        least=0.1,
    ),
]

Quiet = Annotated[bool, option("--quiet", "Show no progress.")]
Results = Annotated[Path, option("--results DIR", "Write records to this folder.", env="RLBENCH_RESULTS")]
Records = Annotated[
    Path | None,
    option(
        "--results DIR",
        "Read records of this folder only; default: runs/ here, beside what rlbench itself measured.",
        env="RLBENCH_RESULTS",
    ),
]


def _use_references(context: typer.Context, files: list[Path] | None) -> list[Path] | None:
    """For the time of the command, count the references of ``files``."""
    if files:
        from rlbench.report.reference_files import select_references

        context.with_resource(select_references(files=files))
    return files


def _use_reference(context: typer.Context, name: str | None) -> str | None:
    """For the time of the command, compare with the reference called ``name``."""
    if name:
        from rlbench.report.reference_files import select_references

        context.with_resource(select_references(name=name))
    return name


References = Annotated[
    list[Path] | None,
    option(
        "--references FILE.toml",
        "Count the published scores of this file too; may be repeated. RLBENCH_REFERENCES names files as well.",
        callback=_use_references,
    ),
]
Reference = Annotated[
    str | None,
    option(
        "--reference NAME",
        "Compare with the scores of this source, such as Dopamine; default: RLBENCH_REFERENCE, else the primary.",
        callback=_use_reference,
    ),
]
Sets = Annotated[
    list[str] | None,
    option(
        "--set FIELD=VALUE",
        "Change a setting, as algo.lr=1e-3; may be repeated. `rlbench show` lists them.",
        completion.fields,
    ),
]
Config = Annotated[Path | None, option("--config FILE.toml", "Settings from a file; --set overrules. Default: none.")]
Steps = Annotated[
    int | None,
    option(
        "--steps N|1e5|100k|1M",
        "Train for N agent steps (an Atari step is four frames); default: the published budget.",
        parser=parse_count,
    ),
]
Until = Annotated[
    str | None,
    option(
        "--until STEPS|P%|informative",
        "Pause there, at an evaluation, with the state saved; informative: once the reference's curve differs "
        "from its start. Default: the end.",
    ),
]
UntilDecided = Annotated[bool, option("--until-decided", "Add seeds (3, 5, 8 …) until a verdict.")]
MostSeeds = Annotated[int | None, option("--most-seeds N", "Last look: 5, 8, 12 or 32; default: 20.")]
Smoke = Annotated[bool, option("--smoke", "Run the whole path in seconds; the record enters no table.")]
Json = Annotated[bool, option("--json", "Print one JSON document instead of text.")]
Jobs = Annotated[
    str | None,
    option(
        "--jobs auto|N",
        "Train N runs at once, each in its own process; auto: as many as fit. Default: one by one.",
        completion.jobs,
    ),
]
Executor = Annotated[choices.Executor, option("--executor", "Train on this machine, or on a Ray cluster.")]
UpdateEngine = Annotated[
    Literal["auto", "eager", "numpy", "compiled", "cuda-graph"],
    option(
        "--update-engine",
        "Implementation of gradient steps; auto: numpy for small networks, else eager.",
        env="RLBENCH_UPDATE_ENGINE",
    ),
]
EvalWorkers = Annotated[
    int | None,
    option(
        "--eval-workers N",
        "Processes that evaluate beside offline training; default: idle cores.",
        env="RLBENCH_EVAL_WORKERS",
        least=0,
    ),
]
RayAddress = Annotated[
    str | None, option("--ray-address HOST:PORT", "Address of a running Ray cluster; default: start one here.")
]
Shard = Annotated[str | None, option("--shard i/n", "Take the i-th of n shares of the runs, as 1/8; default: all.")]
Track = Annotated[
    list[str] | None,
    option(f"--track {'|'.join(choices.TRACKERS)}", "Mirror the records there while they grow; may be repeated."),
]
TrackDir = Annotated[Path, option("--track-dir DIR", "Folder of the trackers' files.", env="RLBENCH_TRACK_DIR")]
DryRun = Annotated[bool, option("--dry-run", "Print the runs, and write nothing.")]
Force = Annotated[bool, option("--force", "Start over; the earlier attempt is kept.")]
Pipe = Annotated[int | None, option("--pipe", "", hidden=True)]

RESULTS = Path("runs")
TRACKED = Path("tracked")

Run = Annotated[
    str, argument("RUN", "Its folder, a line of: rlbench list runs, or how its id begins.", completion.runs)
]
MAX_LISTED_RUNS = 3  # that a message lists for an ambiguous name


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
        some = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in matches[:MAX_LISTED_RUNS])
        more = ", …" if len(matches) > MAX_LISTED_RUNS else ""
        raise UsageError(f"{name}: {len(matches)} runs have this name: {some}{more}; name one of them")
    return matches[0]
