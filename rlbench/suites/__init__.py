"""The suites: tables of cells, each with a complete ``Spec``; nothing here imports torch or Gymnasium."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from types import ModuleType

from pydantic import ValidationError

from rlbench.config.names import printable
from rlbench.config.overrides import one_line
from rlbench.config.run import Spec
from rlbench.config.tasks import GYM, AtariTask, GymnasiumTask
from rlbench.errors import UnknownName, UsageError
from rlbench.signals import interruption_behind
from rlbench.suites import atari, goals, mujoco, offline, plugins, toy
from rlbench.suites.plugins import Package

SUITES: dict[str, ModuleType] = {"atari": atari, "mujoco": mujoco, "offline": offline, "goals": goals, "toy": toy}

MAX_NAMES = 8
"""Names that a message lists."""


def names() -> list[str]:
    """The names of all suites: rlbench's own, then those of installed plug-ins, which may be broken."""
    return [*SUITES, *(name for name in plugins.plugins() if name not in SUITES)]


def unavailable_reason(suite: str) -> str:
    """Say why a suite cannot be used; empty where it can."""
    if suite not in names():
        return f"suite {suite}: no installed package brings it; its records are shown as they are"
    try:
        _module(suite)
    except UsageError as error:
        return str(error)
    return ""


def algorithms(suite: str) -> list[str]:
    """The algorithms of a suite, in the order of its table."""
    return list(_module(suite).ALGORITHMS)


def tasks(suite: str, *, with_reference: bool = False) -> list[str]:
    """The tasks of a suite by id; with ``with_reference`` those of a documented score or of rlbench's own data."""
    module = _module(suite)
    return list(module.DOCUMENTED if with_reference else dict.fromkeys(module.TASKS.values()))


def matching(suite: str, globs: tuple[str, ...], algorithm: str | None = None) -> list[str]:
    """The task ids that match any of ``globs``, in table order; a plain id matches itself.

    ``*`` matches the documented tasks that ``algorithm`` can play.

    Raises:
        UnknownName: a glob matches nothing.
    """
    module, task_names, ids = _module(suite), list(_module(suite).TASKS), dict[str, None]()
    for glob in globs or ("*",):
        if glob.startswith(GYM):
            ids[glob] = None
            continue
        pool = tasks(suite, with_reference=True) if glob == "*" else task_names
        hits = [module.TASKS[t] for t in pool if fnmatchcase(t.lower(), glob.lower())]
        if glob == "*" and algorithm is not None:
            hits = [t for t in hits if has_cell(suite, algorithm, t)]
        if not hits:
            raise _unknown_task(suite, glob)
        ids.update(dict.fromkeys(hits))
    return list(ids)


def algorithms_matching(suite: str, glob: str) -> list[str]:
    """The algorithms of a suite that match a name or a glob.

    Raises:
        UnknownName: none matches.
    """
    matches = [name for name in algorithms(suite) if fnmatchcase(name, glob)]
    if not matches:
        check_algorithm(suite, glob)
    return matches


def substitutes(suite: str, names: Iterable[str]) -> dict[str, str]:
    """Names of other versions, such as ``Hopper-v3``, and the task that runs instead."""
    tasks_by_name = {name.lower(): task for name, task in _module(suite).TASKS.items()}
    return {
        name: tasks_by_name[name.lower()]
        for name in names
        if tasks_by_name.get(name.lower(), name).lower() != name.lower()
    }


def has_cell(suite: str, algorithm: str, task: str) -> bool:
    """True if the suite has a cell of this algorithm and task."""
    impossible: frozenset[tuple[str, str]] = getattr(_module(suite), "IMPOSSIBLE", frozenset())
    return (algorithm, task) not in impossible


def spec(
    suite: str, algorithm: str, task: str, *, seed: int = 0, dataset: str = "", package: Package | None = None
) -> Spec:
    """The documented settings of one cell; an offline cell may have another ``dataset`` than its task's own.

    ``package`` brings the environment of a task ``gym:…``; default: Gymnasium.

    Raises:
        UnknownName: the suite, algorithm or task does not exist; the nearest names are in the message.
        UsageError: the algorithm cannot play the task.
    """
    module = _module(suite)
    check_algorithm(suite, algorithm)
    if dataset and suite != "offline":
        raise UsageError(f"{suite}: its algorithms learn from no data set; choose the suite offline")
    if task.startswith(GYM):
        return _of_registry(suite, algorithm, task, seed, package or plugins.gymnasium())
    if package is not None and suite in SUITES:  # it could replace the environment of a documented task
        raise UsageError(f"--import {package.name}: is for a task {GYM}ID, {task} is none; leave it out")
    name_by_lower = {t.lower(): t for t in module.TASKS}
    if task.lower() not in name_by_lower:
        raise _unknown_task(suite, task)
    task_id = module.TASKS[name_by_lower[task.lower()]]
    if not has_cell(suite, algorithm, task_id):
        able = _shortlist([t for t in module.DOCUMENTED if has_cell(suite, algorithm, t)])
        raise UsageError(f"{suite}/{algorithm}: cannot play {task_id}: the table has no such cell; it plays {able}")
    if suite not in SUITES:
        return _of_plugin(suite, algorithm, task_id, seed)
    try:
        cell: Spec = (
            module.spec(algorithm, task_id, seed, dataset) if dataset else module.spec(algorithm, task_id, seed)
        )
    except ValidationError as error:
        raise UsageError(f"{suite}/{algorithm}: {one_line(error)}") from None
    return cell


def env_factory(suite: str) -> Callable[[str, Sequence[int]], object] | None:
    """Return a plug-in's ``make_env``; None where Gymnasium's registry has its environments.

    Raises:
        UsageError: the plug-in is not installed, or broken.
    """
    make: Callable[[str, Sequence[int]], object] | None = getattr(_module(suite), "make_env", None)
    return make


def _of_registry(suite: str, algorithm: str, task: str, seed: int, package: Package) -> Spec:
    """Settings of a task of Gymnasium's registry: those of the suite's nearest row."""
    nearest = {
        "atari": "QbertNoFrameskip-v4",
        "mujoco": "HalfCheetah-v4",
        "toy": "Pendulum-v1" if has_cell("toy", algorithm, "Pendulum-v1") else "CartPole-v1",
    }
    if suite not in nearest:
        raise UsageError(f"{task}: {suite} has no settings for it; choose {', '.join(nearest)}")
    if not has_cell(suite, algorithm, nearest[suite]):
        raise UsageError(f"{task}: {suite}/{algorithm} has no settings for it; choose another algorithm or suite")
    row = spec(suite, algorithm, nearest[suite], seed=seed)
    frames = isinstance(row.task, AtariTask)
    try:
        env = GymnasiumTask(
            id=task,
            package=package.name,
            version=package.version,
            envs=row.task.envs,
            size=84 if frames else None,
            stack=row.task.stack,
            clip=frames,
        )
        protocol = row.protocol.model_copy(update={"stop": None})
        return Spec.model_validate(dict(row) | {"task": env, "protocol": protocol})
    except ValidationError as error:
        raise UsageError(f"{suite}/{algorithm}: {one_line(error)}") from None


def _of_plugin(suite: str, algorithm: str, task: str, seed: int) -> Spec:
    """Settings of a plug-in's row, with its package and version in the task."""
    plugin = plugins.plugins()[suite]
    try:
        with plugins.stdout_to_stderr():
            row: Spec = plugins.load(suite).spec(algorithm, task, seed)
        env = row.task
        if isinstance(env, GymnasiumTask):
            origin = {"package": plugin.package.name, "version": plugin.package.version, "suite": suite}
            env = GymnasiumTask.model_validate(dict(env) | origin)
        return Spec.model_validate(dict(row) | {"suite": suite, "algorithm": algorithm, "task": env, "seed": seed})
    except ValidationError as error:
        raise UsageError(f"{suite}/{algorithm} of {plugin.distribution}: {one_line(error)}") from None
    except BaseException as error:
        if interruption_behind(error) is not None:
            raise
        reason = printable(f"{type(error).__name__}: {error}", 200)
        raise UsageError(f"{suite}/{algorithm} of {plugin.distribution}: its spec fails ({reason})") from error


def sources(spec: Spec) -> dict[str, str]:
    """The file and commit of each documented setting of a cell, by its path in overrides; empty for some suites."""
    module_sources = getattr(_module(spec.suite), "sources", None)
    with plugins.stdout_to_stderr():
        return {} if module_sources is None else dict(module_sources(spec.algorithm, spec.task.id))


def check_algorithm(suite: str, algorithm: str) -> None:
    """Refuse an algorithm that the suite does not have.

    Raises:
        UnknownName: the suite or the algorithm does not exist.
        UsageError: other suites have the algorithm.
    """
    module = _module(suite)
    if algorithm in module.ALGORITHMS:
        return
    others = [name for name, other in SUITES.items() if algorithm in other.ALGORITHMS]
    if others:
        able = " and ".join(others)
        raise UsageError(f"{suite} has no {algorithm}, only {able}; {suite} has {_shortlist(list(module.ALGORITHMS))}")
    raise UnknownName("algorithm", algorithm, module.ALGORITHMS, where=suite)


def _unknown_task(suite: str, task: str) -> UsageError:
    """The error of a task that a suite does not have, with the nearest; ``ALE/Pong-v5`` is Pong with other settings."""
    names = _module(suite).TASKS
    if task == "*" and not tasks(suite, with_reference=True):  # the default of ``run``
        return UsageError(f"{suite} has no documented task; name one with --task: {_shortlist(list(names))}")
    game = re.fullmatch(r"(?:ALE/)?(\w+?)(?:NoFrameskip|Deterministic)?-v[0-9]+", task)
    if game and (name := f"{game[1]}NoFrameskip-v4") in names:
        return UsageError(
            f"{suite}: unknown task {task!r}; write {name} (the published protocol has no sticky actions; "
            "--set task.sticky=0.25 adds those of v5)"
        )
    return UnknownName("task", task, names, where=suite)


def _shortlist(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= MAX_NAMES else f"{', '.join(names[:MAX_NAMES])}, …"


def _module(suite: str) -> ModuleType:
    if suite not in SUITES:
        if suite in plugins.plugins():
            return plugins.load(suite)
        able = [f"{name} {suite}" for name, module in SUITES.items() if suite in module.ALGORITHMS]
        if able:
            raise UsageError(f"{suite} is an algorithm, not a suite; write {' or '.join(able)}")
        raise UnknownName("suite", suite, names())
    return SUITES[suite]
