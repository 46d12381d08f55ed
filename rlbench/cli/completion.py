"""What the shell offers after Tab: names that fit what was typed before. It answers in a blink or not at all.

A completion says nothing on a prompt: what cannot be read has no names.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import typer

from rlbench.errors import RlbenchError

KINDS: Final = ("curves", "walltime", "profile", "interval", "improvement")
"""Of pictures; here, because where they are drawn takes long to import."""

SAFE: Final = re.compile(r"[\w./=@+,:-]+")
"""What a shell takes for a plain word: Tab puts a name on the line as it is, and ``$(…)`` in it would run."""

MOST: Final = 2_000
"""Runs beyond which nobody reads on."""


def suites() -> list[str]:
    """Every suite."""
    from rlbench import suites as tables

    return tables.names()


def suites_or_all() -> list[str]:
    """Every suite, and the word for all of them."""
    return [*suites(), "all"]


def algorithms(context: typer.Context) -> list[str]:
    """The algorithms of the suite that was typed before, or of all."""
    from rlbench import suites as tables

    return list(dict.fromkeys(name for suite in _suites(context) for name in tables.algorithms(suite)))


def tasks(context: typer.Context) -> list[str]:
    """The tasks of the suite that was typed before; where one algorithm was too, those that it plays."""
    from rlbench import suites as tables

    algo = _typed(context, "algo")
    return [
        task
        for suite in _suites(context)
        for task in tables.tasks(suite)
        if not isinstance(algo, str) or tables.plays(suite, algo, task)
    ]


def fields(context: typer.Context, incomplete: str) -> list[str]:
    """``algo.lr=`` for each field of the run that was typed before; the only one left with the value it has, too.

    Two offers that begin alike keep a shell from putting a space behind the ``=``.
    """
    from rlbench import suites as tables
    from rlbench.cli.resolve import IDENTITY, resolve, written

    suite, algo, task = (_typed(context, name) for name in ("suite", "algo", "task"))
    if not isinstance(suite, str) or not isinstance(algo, str):
        return []
    with suppress(RlbenchError):
        rows = resolve(suite, algo, tables.matching(suite, _words(task), algo)[0]).rows()
        known = {f"{path}=": written(value) for path, value, _ in rows if path not in IDENTITY}
        path, equals, _ = incomplete.partition("=")
        fitting = [name for name in known if name.startswith(path + equals)]
        return [*fitting, fitting[0] + known[fitting[0]]] if len(fitting) == 1 else fitting
    return []


def runs(context: typer.Context) -> list[str]:
    """The folders of the runs below the results folder."""
    from itertools import islice

    from rlbench.records.folders import folders
    from rlbench.report.sources import sources

    with suppress(RlbenchError, OSError):
        named = _typed(context, "results") or os.environ.get("RLBENCH_RESULTS")
        places = sources(Path(str(named)) if named else None).folders
        found = (str(folder) for place in places for folder in folders(place))
        return list(islice(filter(SAFE.fullmatch, found), MOST))
    return []


def policies(context: typer.Context) -> list[str]:
    """The folders of the runs, and the policies that come with rlbench."""
    from rlbench.datasets.catalogue import TABLE

    return [*sorted(path.stem for path in (TABLE.parent / "policies").glob("*.safetensors")), *runs(context)]


def datasets() -> list[str]:
    """Every data set that is here, can be fetched from D4RL, or has a recipe."""
    from rlbench.datasets import locations

    with suppress(RlbenchError, OSError):
        return list(dict.fromkeys([*(there.name for there in locations.local()), *recipes(), *downloads()]))
    return []


def downloads() -> list[str]:
    """D4RL's data sets."""
    from rlbench.datasets import catalogue

    return list(catalogue.d4rl())


def recipes() -> list[str]:
    """The data sets that can be made of nothing."""
    from rlbench.datasets.catalogue import STANDINS

    return sorted(set(STANDINS.values()))


def played() -> list[str]:
    """What data can be generated of: recipes, and the tasks of suites that play."""
    from rlbench import suites as tables

    return [*recipes(), *tables.tasks("mujoco"), *tables.tasks("atari")]


def formats() -> list[str]:
    """How a table can be written."""
    from rlbench.cli.table import FORMATS

    return list(FORMATS)


def kinds() -> list[str]:
    """What a picture can show."""
    return list(KINDS)


def lists() -> list[str]:
    """What can be listed."""
    from rlbench.cli.list import KINDS as LISTS

    return list(LISTS)


def baseline_actions() -> list[str]:
    """What can be done with a baseline."""
    from rlbench.cli.baseline import ACTIONS

    return list(ACTIONS)


def kept() -> list[str]:
    """The policies that a run keeps."""
    return ["best", "last"]


def jobs() -> list[str]:
    """A number of processes that is no number."""
    return ["auto"]


def executors() -> list[str]:
    """Where runs can be carried on."""
    from rlbench.cli.sweep import EXECUTORS

    return list(EXECUTORS)


def devices() -> list[str]:
    """Where networks can be."""
    return ["auto", "cpu", "cuda"]


def _suites(context: typer.Context) -> list[str]:
    """The suites that were typed before, or all."""
    named, known = _words(_typed(context, "suite")), suites()
    return [suite for suite in known if suite in named] or known


def _typed(context: typer.Context, name: str) -> object:
    """An argument or option that was typed before.

    Behind an option that still wants its value, as ``run atari dqn --set``, the arguments have not been told apart yet.
    """
    if context.params.get(name):
        return context.params[name]
    arguments = [one.name for one in context.command.get_params(context) if one.param_type_name == "argument"]
    return dict(zip(arguments, context.args, strict=False)).get(name)


def _words(value: object) -> tuple[str, ...]:
    """One word, several, or none."""
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list | tuple) else ()
