"""Suites of installed packages, and the packages themselves: entry point ``rlbench.suites`` and ``--import``.

A plug-in is a module with the names of a suite of rlbench (``ALGORITHMS``, ``TASKS``, ``DOCUMENTED``, ``spec``), and
``make_env`` where Gymnasium's registry does not have its environments. It is imported when a command needs the suite,
never from the current folder: Python puts that folder in front of the standard library.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, TypeGuard
from urllib.parse import unquote, urlsplit

from rlbench import disk
from rlbench.config.names import check_name, printable
from rlbench.config.tasks import GymnasiumTask, Task
from rlbench.errors import UsageError
from rlbench.signals import interruption_behind, keep_process_state
from rlbench.versions import version

GROUP: Final = "rlbench.suites"
DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError)  # errors of metadata that are cut, or no text


class Package(NamedTuple):
    """An import package and the version of the distribution that brings it."""

    name: str
    version: str


class Plugin(NamedTuple):
    """An entry point of an installed distribution."""

    module: str
    package: Package
    distribution: str


@cache
def plugins() -> dict[str, Plugin]:
    """Return the suites of installed distributions by name; of two of one name the first distribution's."""
    suites: dict[str, Plugin] = {}
    for dist, point in sorted(entry_points(GROUP), key=lambda pair: pair[0].name):
        with suppress(*DAMAGED):
            package = Package(point.module.partition(".")[0], dist.version)
            suites.setdefault(point.name, Plugin(point.module, package, dist.name))
    return suites


def entry_points(group: str) -> Iterator[tuple[Distribution, EntryPoint]]:
    """Yield the entry points of installed distributions; none of the current folder, or of damaged metadata."""
    for dist in _distributions():
        points: list[EntryPoint] = []
        with suppress(*DAMAGED):  # a package of anybody, such as one whose installation was killed
            entries = [point for point in dist.entry_points if point.group == group]
            points = entries if entries and dist.name and dist.version else []
        yield from ((dist, point) for point in points)


def gymnasium() -> Package:
    """Return the package that brings Gymnasium's own environments."""
    return Package("gymnasium", version("gymnasium"))


def load(suite: str) -> ModuleType:
    """Import a plug-in.

    Raises:
        UsageError: it cannot be imported, or lacks a name of a suite.
    """
    loaded = _load_plugin(suite)
    if isinstance(loaded, str):
        raise UsageError(loaded)
    return loaded


@cache
def _load_plugin(suite: str) -> ModuleType | str:
    """Import a plug-in, once; a text says why that fails."""
    plugin = plugins()[suite]
    where = f"suite {printable(suite)} of {plugin.distribution} {plugin.package.version}"
    try:
        if "/" in check_name(suite) or suite == "all":
            return f"{where}: rename the entry point, {suite!r} is no name of a suite"
        with _installed_only():
            module = importlib.import_module(plugin.module)
        invalid = _invalid_name(module)
    except BaseException as error:  # code of a plug-in may raise anything, such as pytest's Skipped
        if interruption_behind(error) is not None:
            raise
        return (
            f"{where}: cannot be imported ({printable(f'{type(error).__name__}: {error}', 200)}); repair or remove it"
        )
    problem = f"{where}: its module {plugin.module} has no valid {invalid}; repair or remove it"
    return module if invalid is None else problem


def _invalid_name(module: ModuleType) -> str | None:
    """Return the first name of a suite whose value is missing or invalid; None where all are valid."""
    algorithms, tasks, ids, spec = (
        getattr(module, name, None) for name in ("ALGORITHMS", "TASKS", "DOCUMENTED", "spec")
    )
    pairs, make_env = getattr(module, "IMPOSSIBLE", ()), getattr(module, "make_env", None)
    task_ids = dict(tasks) if isinstance(tasks, Mapping) else {}
    valid = {
        "ALGORITHMS": _are_names(algorithms),
        "TASKS": isinstance(tasks, Mapping)
        and _are_names([*tasks])
        and all(task_ids.get(i) == i for i in tasks.values()),
        "DOCUMENTED": _are_names(ids) and set(ids) <= set(task_ids.values()),
        "spec": callable(spec),
        "IMPOSSIBLE": isinstance(pairs, Collection) and all(_are_names(pair) and len(pair) == 2 for pair in pairs),
        "make_env": make_env is None or callable(make_env),
    }
    return next((name for name, is_valid in valid.items() if not is_valid), None)


def _are_names(value: object) -> TypeGuard[Collection[str]]:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(name, str) for name in value)


def import_package(name: str) -> Package:
    """Import an installed package, which registers its environments with Gymnasium.

    Raises:
        UsageError: no installed distribution brings it, or its import fails.
    """
    if name == "__main__" or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"--import {printable(name, 80)}: no name of a package; write it as in an import statement")
    with _installed_only():
        package = Package(name, _version(name))
        try:
            importlib.import_module(name)
        except BaseException as error:
            if interruption_behind(error) is not None:
                raise
            raise UsageError(f"--import {name}: {printable(f'{type(error).__name__}: {error}', 200)}") from error
    return package


def import_for_run(name: str | None, task: Task) -> None:
    """Import the package that brings the environment of a recorded run, which ``--import`` must name.

    Raises:
        UsageError: the name is another one, which could replace the environment, or it is missing, or the package has
            another version here.
    """
    if not isinstance(task, GymnasiumTask):
        if name is not None:
            raise UsageError(f"--import {name}: is for a task gym:ID, {task.id} is none; leave it out")
        return
    owner = None if task.suite or task.package in {"", "gymnasium"} else task.package
    if name not in {owner, task.package} and (name is None or (task.package and not task.suite)):
        remedy = f"name it with --import {owner}" if owner else f"leave --import {name} out"
        raise UsageError(f"{task.id}: its environment was of the package {task.package}; {remedy}")
    plugin, package = plugins().get(task.suite), None if name is None else import_package(name)
    here = plugin.package if plugin is not None else package
    if here is not None and task.version not in {"", here.version}:
        versions = f"{here.name}: {task.version} recorded, {here.version} here"
        raise UsageError(f"{task.id}: its environment is not here ({versions}); install the recorded version")


def _version(name: str) -> str:
    """Version of the distribution that brings an import package; refuse a package without one."""
    top = name.partition(".")[0]
    module = importlib.util.find_spec(top)
    file = re.compile(rf"^\"?{top}(/|\.py,|\.[^/,]*\.so,)", re.MULTILINE)
    every = [*_distributions()] if module is not None else []
    origin = Path(module.origin or "") if module else Path()  # also below an editable checkout with its environment
    owners = [dist for dist in every if file.search(_text(dist, "RECORD"))]
    for dist in owners or [dist for dist in every if _is_editable(dist, origin)]:
        with suppress(*DAMAGED):
            return dist.version
    raise UsageError(f"--import {name}: no installed package brings it; install it with pip")


def _is_editable(dist: Distribution, origin: Path) -> bool:
    """Tell whether a distribution is an editable installation of the folder that holds ``origin``."""
    with suppress(*DAMAGED):
        url = json.loads(_text(dist, "direct_url.json") or "{}")
        folder = Path(unquote(urlsplit(url.get("url", "")).path))
        return bool(url.get("dir_info", {}).get("editable")) and origin.is_relative_to(folder)
    return False


def _text(dist: Distribution, name: str) -> str:
    """A file of a distribution's metadata; empty where it is missing, or no text."""
    with suppress(UnicodeDecodeError):
        return dist.read_text(name) or ""
    return ""


def _distributions() -> Iterable[Distribution]:
    return distributions(path=_search_path())


def _search_path() -> list[str]:
    """``sys.path`` without the current folder in front of the standard library."""
    here, library = disk.current_folder(), sysconfig.get_path("stdlib")
    ahead = sys.path.index(library) if library in sys.path else len(sys.path)
    return [path for place, path in enumerate(sys.path) if place > ahead or Path(path or ".").resolve() != here]


def stdout_to_stderr() -> AbstractContextManager[object]:
    """Lead to stderr what a package prints: stdout is for results."""
    return redirect_stdout(sys.stderr)


@contextmanager
def _installed_only() -> Iterator[None]:
    """Exclude the current folder from imports, keep the state of the process, and lead what is printed to stderr."""
    before = sys.path[:]
    sys.path[:] = _search_path()
    try:
        with stdout_to_stderr(), keep_process_state():
            yield
    finally:
        sys.path[:] = before
