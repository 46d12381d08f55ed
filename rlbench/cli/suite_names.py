"""Suites that an argument names; a broken plug-in becomes a warning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlbench.cli.output import remark
from rlbench.errors import UnknownName


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
