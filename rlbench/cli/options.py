"""Options of several verbs, each defined once, and the parsing of values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer
from typer.models import ArgumentInfo, OptionInfo

from rlbench.cli import completion
from rlbench.cli.output import print_note
from rlbench.config.names import parse_count
from rlbench.errors import UnknownName, UnknownRun, UsageError, suggest, suggest_path

if TYPE_CHECKING:
    from rlbench.config.run import Spec

Checkpoint: TypeAlias = Literal["best", "last"]
RESULTS = Path("runs")
MAX_LISTED_RUNS = 3  # that a message lists for an ambiguous name
MAX_SEED = 2**32 - 1
MAX_SEEDS = 10_000  # most seeds of one command; more are a typing error


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


def typed_options(context: typer.Context, *names: str) -> list[str]:
    """Those of these options that are on the command line, as ``--device``; a variable of the environment is not."""
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in names}
    return [flags[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def check_suite(name: str | None) -> str | None:
    """The suite, if one is named; an unknown name is refused."""
    from rlbench import suites

    if name is not None and name not in suites.names():
        raise UnknownName("suite", name, suites.names())
    return name


def check_recorded_suite(name: str | None, results: Path | None) -> str | None:
    """The suite, if one is named; one of a missing plug-in counts, too, where ``results`` have its records.

    Raises:
        UnknownName: no suite and no record has the name.
    """
    from rlbench import suites
    from rlbench.records.files import folders, suite_of
    from rlbench.records.imported import curve_folders
    from rlbench.report.evidence import evidence_of

    if name is not None and name not in suites.names():
        own = evidence_of(results).own
        recorded_suites = dict.fromkeys(suite_of(folder) for folder in (*folders(own), *curve_folders(own)))
        if name not in recorded_suites:
            raise UnknownName("suite", name, dict.fromkeys([*suites.names(), *recorded_suites]))
    return name


def check_results_folder(results: Path | None) -> None:
    """Refuse a results folder that is named but does not exist.

    Raises:
        UsageError: there is no such folder.
    """
    if results is not None and not results.exists():
        raise UsageError(f"{results}: no such folder{suggest_path(results)}; name a folder of records with --results")


def suites_named(names: Sequence[str], results: Path | None) -> list[str]:
    """Return the suites that have records or rows: all of them for ``all`` and for no name.

    Missing plug-ins and rows of reference files that fit no cell are noted.

    Raises:
        UnknownName: a name is no suite.
    """
    from rlbench import suites
    from rlbench.report.evidence import known_suites, unmatched_references

    every = known_suites(results)
    for name in names:
        if name not in (*every, "all"):
            raise UnknownName("suite", name, [*every, "all"])
    selection = every if not names or "all" in names else list(dict.fromkeys(names))
    for name in selection:
        problem = suites.unavailable_reason(name)
        for note in [problem] if problem else unmatched_references(name, results):
            print_note(note)
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
RecordedSuite = Annotated[
    str | None, option("--suite SUITE", "Only this suite; default: all of them.", completion.suites)
]
Algo = Annotated[
    str, argument("ALGO", "An algorithm of the suite, such as dqn; see: rlbench list algos", completion.algorithms)
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
Import = Annotated[str | None, option("--import PACKAGE", "Import this package first, for gym:ID; default: none.")]
Quiet = Annotated[bool, option("--quiet", "Show no progress.")]
Results = Annotated[Path, option("--results DIR", "Write records to this folder.", env="RLBENCH_RESULTS")]
Records = Annotated[
    Path | None,
    option(
        "--results DIR",
        "Read records of this folder only; default: runs/ in the current folder, beside rlbench's own records.",
        env="RLBENCH_RESULTS",
    ),
]


def _use_references(context: typer.Context, selection: list[Path] | str | None) -> list[Path] | str | None:
    """For the time of the command, count the references of these files, or compare with the reference of this name."""
    if selection:
        from rlbench.report.reference_files import select_references

        context.with_resource(
            select_references(name=selection) if isinstance(selection, str) else select_references(files=selection)
        )
    return selection


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
        callback=_use_references,
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
Smoke = Annotated[bool, option("--smoke", "Test the setup with a tiny budget; no table shows the run.")]
Json = Annotated[bool, option("--json", "Print one JSON document instead of text.")]
EnvTimeout = Annotated[
    float,
    option(
        "--env-timeout SECONDS",
        "Stop with an error if an environment takes longer to answer.",
        env="RLBENCH_ENV_TIMEOUT",
        least=0.1,
    ),
]
ENV_TIMEOUT: Final = 600.0
Run = Annotated[
    str, argument("RUN", "Its folder, a line of: rlbench list runs, or the beginning of its id.", completion.runs)
]


def run_folder(name: str, results: Path | None) -> Path:
    """Find the folder of a run by name; ``ID/seed=N`` where an id has several seeds.

    Raises:
        UnknownRun: there is no such run; the message has the nearest names.
        UsageError: the name means several.
        RefusedFile: the folder holds a link or special file.
    """
    from rlbench.records.files import folders, refuse_links
    from rlbench.report.evidence import evidence_of

    if lexists(Path(name) / "spec.json"):
        refuse_links(Path(name), Path(name))
        return Path(name)
    places = evidence_of(results).folders
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


def parse_seeds(text: str, source: str = "--seeds") -> tuple[int, ...]:
    """The seeds in the order they were written.

    Raises:
        UsageError: a part is not a number or a range, runs backwards, or names a seed twice.
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        for seed in _range(part.strip(), f"{source} {text!r}"):
            if seed in seeds:
                raise UsageError(f"{source} {text!r}: seed {seed} is named twice; name each seed once")
            seeds[seed] = None
            if len(seeds) > MAX_SEEDS:
                raise UsageError(f"{source} {text!r}: more than {MAX_SEEDS} seeds; split them over several commands")
    return tuple(seeds)


def seeds_text(seeds: Sequence[int]) -> str:
    """Format rising seeds as ``parse_seeds`` reads them: ``0-4,7``."""
    groups = [[seed for _, seed in group] for _, group in groupby(enumerate(seeds), lambda pair: pair[1] - pair[0])]
    return ",".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)


def _range(part: str, where: str) -> range:
    match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
    if match is None:
        raise UsageError(f"{where}: {part!r} is not a seed; write seeds as 0, 0-9, 0,3,7 or 0-2,7")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise UsageError(f"{where}: {part} runs backwards; write {last}-{first}")
    if last > MAX_SEED:
        raise UsageError(f"{where}: {last} is too large for a seed; the highest is {MAX_SEED}")
    return range(first, last + 1)


def pauses(text: str | None, specs: Sequence[Spec]) -> Sequence[int | None]:
    """The steps at which each run pauses, by ``--until``: ``100000``, ``10%`` or ``informative``; None: never.

    Raises:
        UsageError: ``text`` is none of them, or one of the cells has no informative test step.
    """
    if text is None:
        return [None] * len(specs)
    if text == "informative":
        return [_informative(spec) for spec in specs]
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%", text)
    if share is not None and 0 < float(share[1]) <= 100:
        return [max(1, round(spec.budget.steps * float(share[1]) / 100)) for spec in specs]
    with suppress(UsageError):
        return [parse_count(text)] * len(specs)
    raise UsageError(f"--until {text}: not a number of steps; write 100000, 10% or informative")


def _informative(spec: Spec) -> int:
    from rlbench.report.equal_steps import reference_curve
    from rlbench.report.reference_table import cell_of

    curve = reference_curve(cell_of(spec))
    first = None if curve is None else curve.first_informative()
    if first is None:
        why = "has no documented curve" if curve is None else "has no informative test step in its documented curve"
        raise UsageError(f"--until informative: {spec.name} {why}; write a number of steps, or leave it out")
    return first
