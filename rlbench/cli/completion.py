"""Shell completion, and suggestions for mistyped words.

A completion prints no error; a file that cannot be read has no names.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import typer

from rlbench.errors import RlbenchError, suggest

SAFE: Final = re.compile(r"[\w./][\w./=@+,:-]*")
"""Plain words of a shell: Tab inserts a name unquoted, a shell would run ``$(…)`` in it, and ``--x`` is an option."""

MAX_RUNS: Final = 2_000  # that a completion offers


def devices() -> list[str]:
    """Names of devices."""
    return ["auto", "cpu", "cuda"]


def suites() -> list[str]:
    """Every suite."""
    from rlbench import suites as tables

    return [name for name in tables.names() if not tables.unavailable_reason(name)]


def suites_or_all() -> list[str]:
    """Every suite, and ``all``."""
    return [*suites(), "all"]


def algorithms(context: typer.Context) -> list[str]:
    """Algorithms of the typed suite, or of all suites."""
    from rlbench import suites as tables

    return list(dict.fromkeys(name for suite in _suites(context) for name in tables.algorithms(suite)))


def sides(context: typer.Context) -> list[str]:
    """Algorithms, and folders below the current one."""
    folders = (path.name for path in Path().iterdir() if path.is_dir() and not path.name.startswith("."))
    return [*algorithms(context), *sorted(filter(SAFE.fullmatch, folders))]


def tasks(context: typer.Context) -> list[str]:
    """Tasks of the typed suite, and of the typed algorithm."""
    from rlbench import suites as tables

    algo = _typed_value(context, "algo")
    return [
        task
        for suite in _suites(context)
        for task in tables.tasks(suite)
        if not isinstance(algo, str) or tables.has_cell(suite, algo, task)
    ]


def fields(context: typer.Context, incomplete: str) -> list[str]:
    """``algo.lr=`` for each field of the typed run; a single match is offered with its value, too.

    It comes after the name alone: with two offers of a common beginning a shell adds no space after the ``=``.
    """
    from rlbench import suites as tables
    from rlbench.cli.resolve import IDENTITY, resolve
    from rlbench.config.overrides import written

    suite, algo, task = (_typed_value(context, name) for name in ("suite", "algo", "task"))
    if not isinstance(suite, str) or not isinstance(algo, str):
        return []
    with suppress(RlbenchError):
        rows = resolve(suite, algo, tables.matching(suite, _words(task), algo)[0]).rows()
        offers = {f"{path}=": written(value) for path, value, *_ in rows if path not in IDENTITY}
        path, equals, _ = incomplete.partition("=")
        fitting = [name for name in offers if name.startswith(path + equals)]
        return [*fitting, fitting[0] + offers[fitting[0]]] if len(fitting) == 1 else fitting
    return []


def runs(context: typer.Context) -> list[str]:
    """The folders of the runs below the results folder."""
    from itertools import islice

    from rlbench.records.files import folders
    from rlbench.report.evidence import evidence_of

    with suppress(RlbenchError, OSError):
        results = _typed_value(context, "results") or os.environ.get("RLBENCH_RESULTS")
        results_folders = evidence_of(Path(str(results)) if results else None).folders
        names = (str(folder) for root in results_folders for folder in folders(root))
        return list(islice(filter(SAFE.fullmatch, names), MAX_RUNS))
    return []


def policies(context: typer.Context) -> list[str]:
    """The folders of the runs, and the policies that come with rlbench."""
    from rlbench.datasets.catalogue import TABLE

    return [*sorted(path.stem for path in (TABLE.parent / "policies").glob("*.safetensors")), *runs(context)]


def datasets() -> list[str]:
    """Data sets on this machine, of D4RL, or with a recipe."""
    from rlbench.datasets import catalogue

    with suppress(RlbenchError, OSError):
        local = filter(SAFE.fullmatch, (place.name for place in catalogue.list_local()))
        return list(dict.fromkeys([*local, *recipes(), *downloads()]))
    return []


def downloads() -> list[str]:
    """D4RL's data sets."""
    from rlbench.datasets import catalogue

    return list(catalogue.d4rl())


def recipes() -> list[str]:
    """Data sets that a recipe generates."""
    from rlbench.datasets import catalogue

    return sorted({entry.recipe for entry in catalogue.d4rl().values() if entry.recipe})


def played() -> list[str]:
    """Sources of generated data: recipes, and the tasks of online suites."""
    from rlbench import suites as tables

    return [*recipes(), *tables.tasks("mujoco"), *tables.tasks("atari")]


def _suites(context: typer.Context) -> list[str]:
    named_suites, every = _words(_typed_value(context, "suite")), suites()
    return [suite for suite in every if suite in named_suites] or every


def _typed_value(context: typer.Context, name: str) -> object:
    """Value of a typed argument or option.

    After an option without its value, as in ``run atari dqn --set``, typer has not assigned the arguments yet.
    """
    if context.params.get(name):
        return context.params[name]
    arguments = [one.name for one in context.command.get_params(context) if one.param_type_name == "argument"]
    return dict(zip(arguments, context.args, strict=False)).get(name)


def _words(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list | tuple) else ()


VERB: Final = "No such command "


def mistyped(error: typer.TyperException) -> str:
    """One line about words that cannot be parsed, with the nearest verbs or options."""
    message, context = error.format_message().rstrip("."), getattr(error, "ctx", None)
    if context is None:
        return f"{message} (see: rlbench --help)"
    if hasattr(error, "possibilities"):  # it names an option that is unknown
        name = str(getattr(error, "option_name", ""))
        visible = [option for option in context.command.get_params(context) if not getattr(option, "hidden", False)]
        options = [word for option in visible for word in option.opts if word.startswith("--")]
        message = f"unknown option {name!r}{suggest(name, options)}"
    elif message.startswith(VERB):
        name = message.removeprefix(VERB)[1:-1]
        message = f"unknown verb {name!r}{suggest(name, context.command.commands)}"
    elif message.startswith(("Missing argument", "Got unexpected extra argument")):
        usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
        usage = re.sub(r"\{(.*?)\}(?:\.{3})?|\[(\[.*?\](?:…|\.{3})?)\](?:\.{3})?", r"\1\2", usage)  # [[TASK]...]...
        message += f"; write: {usage}"
    elif isinstance(error, typer.BadParameter) and error.param is not None and "is not one of" in message:
        word, _, words = error.message.removeprefix("Value error, ").rpartition(" is not one of ")
        option, candidates = error.param.opts[0], re.findall("'([^']*)'", words)
        where = f"{option}: " if option.startswith("-") else ""
        message = f"{where}unknown {option.lstrip('-')} {word}{suggest(word[1:-1], candidates)}"
    return f"{message} (see: {context.command_path} --help)"
