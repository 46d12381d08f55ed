"""The tables of documented cells. Looking one up gives a complete ``Spec``; nothing here imports torch or gymnasium."""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import ModuleType

from rlbench.errors import UnknownName
from rlbench.spec.run import Spec
from rlbench.suites import atari, toy

SUITES: dict[str, ModuleType] = {"atari": atari, "toy": toy}


def names() -> list[str]:
    """Every suite."""
    return list(SUITES)


def algorithms(suite: str) -> list[str]:
    """The algorithms of a suite, in the order of its table."""
    return list(_module(suite).ALGORITHMS)


def tasks(suite: str, *, documented: bool = False) -> list[str]:
    """The tasks of a suite by id; with ``documented`` only those with a documented score."""
    module = _module(suite)
    return list(module.DOCUMENTED if documented else module.TASKS)


def matching(suite: str, globs: tuple[str, ...]) -> list[str]:
    """The task ids that any of ``globs`` names, in table order; ``*`` means the documented ones, a plain id itself."""
    known, found = tasks(suite), dict[str, None]()
    for glob in globs or ("*",):
        pool = tasks(suite, documented=True) if glob == "*" else known
        hits = [t for t in pool if fnmatchcase(t.lower(), glob.lower())]
        if not hits:
            raise UnknownName("task", glob, known, where=suite)
        found.update(dict.fromkeys(hits))
    return list(found)


def spec(suite: str, algorithm: str, task: str, *, seed: int = 0) -> Spec:
    """The documented settings of one cell.

    Raises:
        UnknownName: the suite, algorithm or task does not exist; the nearest names are in the message.
        UsageError: the algorithm cannot play the task.
    """
    module = _module(suite)
    if algorithm not in module.ALGORITHMS:
        raise UnknownName("algorithm", algorithm, module.ALGORITHMS, where=suite)
    by_folded = {t.lower(): t for t in module.TASKS}
    if task.lower() not in by_folded:
        raise UnknownName("task", task, module.TASKS, where=suite)
    found: Spec = module.spec(algorithm, by_folded[task.lower()], seed)
    return found


def _module(suite: str) -> ModuleType:
    if suite not in SUITES:
        raise UnknownName("suite", suite, SUITES)
    return SUITES[suite]
