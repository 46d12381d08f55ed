"""``rlbench list``: the names that other verbs take, one a line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlbench.cli import completion
from rlbench.cli.choices import LISTS
from rlbench.cli.options import Json, OnlySuite, Records
from rlbench.cli.output import emit, emit_json, remark
from rlbench.cli.suite_names import usable_suites
from rlbench.errors import UnknownName

LIST_SCHEMA = 1


def listing(
    kind: Annotated[
        str, typer.Argument(metavar="|".join(LISTS), help="What to list.", autocompletion=completion.lists)
    ],
    *,
    suite: OnlySuite = None,
    results: Records = None,
    json: Json = False,
) -> None:
    """List suites, algorithms, tasks or runs, one a line.

    Algorithms and tasks have their suite in front, unless --suite names it. Runs are the folders of your
    runs; `--results results` lists those that a checkout of rlbench brings. Those without weights cannot be played.
    """
    if kind not in LISTS:
        raise UnknownName("kind", kind, LISTS, where="list")
    rows = _runs(suite, results) if kind == "runs" else _names(kind, suite)
    if json:
        emit_json({"schema_version": LIST_SCHEMA, kind: [{"suite": of, "name": name} for of, name in rows]})
    elif rows:
        alone = suite is not None or kind in {"suites", "runs"}
        lines = (name if alone else f"{of}\t{name}" for of, name in rows)
        emit("\n".join(map(_marked, lines) if kind == "runs" else lines))
    elif kind == "runs":
        remark("no runs of yours; `rlbench list runs --results results` lists those that a checkout brings")


def _marked(folder: str) -> str:
    """The folder of a run, with a mark where its weights are missing."""
    return folder if Path(folder, "checkpoint", "best").is_dir() else f"{folder}\tno weights"


def _names(kind: str, suite: str | None) -> list[tuple[str, str]]:
    """``(suite, name)`` for each suite, algorithm or task that can be run."""
    from rlbench import suites

    if suite is not None and suite not in suites.names():
        raise UnknownName("suite", suite, suites.names())
    suite_names = usable_suites() if suite is None else [suite]
    if kind == "suites":
        return [(name, name) for name in suite_names]
    names = suites.algorithms if kind == "algos" else suites.tasks
    return [(of, name) for of in suite_names for name in names(of)]


def _runs(suite: str | None, results: Path | None) -> list[tuple[str, str]]:
    """``(suite, folder)`` for each run in any state."""
    from rlbench import suites
    from rlbench.records.files import folders
    from rlbench.report.sources import sources

    if suite is not None and suite not in suites.names():
        raise UnknownName("suite", suite, suites.names())
    own = sources(results).own
    runs = [(folder.relative_to(own).parts[0], str(folder)) for folder in folders(own)]
    return [(of, folder) for of, folder in runs if suite in {None, of}]
