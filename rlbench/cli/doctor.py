"""``rlbench doctor``: the requirements that this machine meets or lacks, one line each, with the remedy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from dataclasses import asdict, dataclass
from errno import ENOTDIR
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal
from warnings import catch_warnings

import typer

from rlbench.cli import completion
from rlbench.cli.options import RESULTS, Json, Results, argument, check_suite
from rlbench.cli.output import print_result, terminal_width
from rlbench.config.names import printable
from rlbench.errors import UsageError
from rlbench.report.columns import sentences
from rlbench.signals import interruption_behind

if TYPE_CHECKING:
    from rlbench.config.run import Spec

DISK_NEEDED = 1_000_000_000
"""Bytes: checkpoints of one Atari run hold its replay, 0.7 GB; records are a few hundred kilobytes."""

DRIVER = Path("/proc/driver/nvidia/version")  # there wherever NVIDIA's driver is loaded
FEW = 1_000  # transitions of replay below which nothing is learned
IMPORT_OPENGL = {"mujoco", "gymnasium_robotics"}  # packages that import the OpenGL backend of MUJOCO_GL

INSTALL = f"{sys.executable} -m pip install"
ELSEWHERE = "`export RLBENCH_RESULTS=/folder/on/another/disk`"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    state: Literal["ok", "missing", "optional"]  # optional: absent, and runs do without it
    what: str
    detail: str  # what is there, or the remedy


def doctor(
    suite: Annotated[
        str | None,
        argument(
            "[SUITE]",
            "Look only at what this suite needs; default: all of them.",
            completion.suites,
            callback=check_suite,
        ),
    ] = None,
    *,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Show what this machine has and lacks, with the remedy.

    One line a thing: ok, optional (runs do without it) or missing; the last makes the exit code 2.
    """
    from rlbench import suites

    names = [suite] if suite else suites.names()
    findings = list(_findings(names, results))
    lines = (f"{f.state:<8}  {f.what}: {printable(f.detail, len(f.detail))}" for f in findings)
    text = "\n".join(sentences(lines, terminal_width(), hang=10))
    print_result({"findings": [asdict(finding) for finding in findings]}, text, json=json)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(UsageError.exit_code)


def _findings(suites: list[str], results: Path) -> Iterator[Finding]:
    yield Finding("ok", "python", f"{sys.version.split()[0]} at {sys.executable}")
    yield _package("torch", "torch>=2.10")
    yield from _device()
    yield _package("gymnasium", "gymnasium>=1.2")
    if "atari" in suites:
        yield _roms()
        yield _package("envpool", "envpool>=1.2", "another stepper of Atari games, task.env=envpool")
    if {"mujoco", "goals"} & set(suites):
        yield _package("mujoco", "mujoco>=3.2,<4")
    if "goals" in suites:
        yield _package("gymnasium_robotics", "gymnasium-robotics>=1.4")
    if "offline" in suites:
        yield _package("h5py", "h5py>=3.12")
        yield from _data()
    yield from _updates()
    yield _compiler()
    yield _disk(results)
    yield from map(_memory, suites)


def _device() -> Iterator[Finding]:
    torch = _try_import("torch")
    if not isinstance(torch, ModuleType):
        return
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Finding("ok", "device", f"cuda: {names}")
        return
    release = torch.__version__.partition("+")[0]
    remedy = f"`{INSTALL} --force-reinstall --index-url https://pypi.org/simple torch=={release}`"
    if DRIVER.exists():
        yield Finding("optional", "device", f"cpu only, though there is an NVIDIA GPU; a torch for it: {remedy}")
    else:
        yield Finding("optional", "device", f"cpu only; with an NVIDIA GPU install its driver, then {remedy}")


def _roms() -> Finding:
    roms = _try_import("ale_py.roms")
    if not isinstance(roms, ModuleType):
        return Finding("missing", "ale", f"{roms}; `{INSTALL} 'ale-py>=0.12'`")
    from rlbench.suites.atari import GAMES

    absent = [game for game in GAMES if not _has_rom(game)]
    if not absent:
        return Finding("ok", "ale roms", f"{len(GAMES)} games")
    unset = "`unset ALE_ROMS_DIR`, or put them there"
    remedy = unset if os.environ.get("ALE_ROMS_DIR") else f"`{INSTALL} --force-reinstall 'ale-py>=0.12'`"
    return Finding("missing", "ale roms", f"none for {', '.join(absent)}; {remedy}")


def _has_rom(game: str) -> bool:
    from rlbench.envs.ale import rom_of

    with suppress(UsageError, OSError):
        return rom_of(game, "doctor").exists()
    return False


def _package(name: str, requirement: str, purpose: str = "") -> Finding:
    """A package that runs need, or one with a ``purpose`` that they do without."""
    from importlib.metadata import PackageNotFoundError

    from rlbench.envs.opengl import import_remedy
    from rlbench.versions import version

    module = _try_import(name)
    if isinstance(module, ModuleType):
        try:
            return Finding("ok", name, version(name))
        except UsageError as error:
            return Finding("missing", name, str(error))
        except PackageNotFoundError:  # built in place
            return Finding("ok", name, str(getattr(module, "__version__", "of unknown version")))
    if purpose:
        return Finding("optional", name, f"{module}; {purpose}: `{INSTALL} '{requirement}'`")
    backend = import_remedy() if name in IMPORT_OPENGL else None
    return Finding("missing", name, backend or f"{module}; `{INSTALL} '{requirement}'`")


def _compiler() -> Finding:
    names = filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++"))
    if path := next(filter(None, map(shutil.which, names)), None):
        return Finding("ok", "c++ compiler", path)
    return Finding("optional", "c++ compiler", "none; compiled updates are faster on a CPU: `apt install g++`")


def _disk(results: Path) -> Finding:
    try:
        with suppress(FileNotFoundError):  # it is made by a run
            results.lstat()
    except OSError as error:
        return Finding("missing", "disk", f"{results}: {error.strerror}; name another folder: {ELSEWHERE}")
    place = next(folder for folder in (results.absolute(), *results.absolute().parents) if os.path.lexists(folder))
    if not os.access(place, os.W_OK) or not place.is_dir():
        return Finding("missing", "disk", f"{place} cannot be written; name another folder: {ELSEWHERE}")
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free at {place}"
    if free < DISK_NEEDED:
        need = f"{DISK_NEEDED / 1e9:.0f} GB needed"
        return Finding("missing", "disk", f"{text}, {need}; free some, or {ELSEWHERE}")
    return Finding("ok", "disk", text)


def _memory(suite: str) -> Finding:
    from rlbench import suites
    from rlbench.config.footprint import footprint, size_text
    from rlbench.records.machine import available_memory

    if problem := suites.unavailable_reason(suite):  # of a plug-in
        return Finding("missing", "suite", problem)
    try:
        spec = _largest_run(suite)
    except UsageError as error:  # of a plug-in's settings
        return Finding("missing", "suite", str(error))
    if spec is None:
        return Finding("missing", "suite", f"{suite} has no algorithm with a task; mend the plug-in, or uninstall it")
    free = available_memory()
    need = footprint(spec).total
    text = f"{size_text(free)} available, {size_text(need)} needed by a run of {suite}"
    if free >= need:
        return Finding("ok", "memory", text)
    return Finding("missing", "memory", f"{text}; {_memory_remedy(spec, free)}")


def _memory_remedy(spec: Spec, free: int) -> str:
    """Remedy for too little memory: a replay that fits, else the smallest run."""
    from rlbench.config.footprint import footprint

    need, replay = footprint(spec), getattr(spec.algo, "replay", None)
    room = free - (need.total - need.replay)
    rows = room * getattr(replay, "capacity", 0) // max(1, need.replay)
    if replay is None or rows < FEW:
        smaller = "use a larger machine" if spec.suite == "toy" else "begin with `rlbench run toy dqn --task Catch`"
        return f"close other programs, or {smaller}"
    capacity = 10 ** (len(str(rows)) - 1)
    return f"keep less: `rlbench run {spec.suite} {spec.algorithm} --set algo.replay.capacity={capacity}`"


def _largest_run(suite: str) -> Spec | None:
    """The documented run of a suite that takes the most memory; None where it has no cell."""
    from rlbench import suites
    from rlbench.config.footprint import footprint

    specs = [
        suites.spec(suite, algo, task)
        for algo in suites.algorithms(suite)
        for task in suites.tasks(suite, with_reference=True) or suites.tasks(suite)
        if suites.has_cell(suite, algo, task)
    ]
    return max(specs, key=lambda spec: footprint(spec).total, default=None)


def _updates() -> Iterator[Finding]:
    if not isinstance(_try_import("torch"), ModuleType):
        return
    from rlbench.assembly.device import device_of
    from rlbench.assembly.engine import default_engine
    from rlbench.config.run import Runtime

    device = device_of(Runtime())
    engine, on_rollouts = (default_engine(device, rollouts=rollouts).description for rollouts in (False, True))
    yield Finding("ok", "updates", f"{engine}; on rollouts {on_rollouts}")


def _data() -> Iterator[Finding]:
    from rlbench.datasets import catalogue

    remedies: dict[catalogue.Kind, tuple[str, str]] = {
        "d4rl": ("download hopper-medium-v2", "D4RL_DATASET_DIR"),
        "minari": ("download mujoco/hopper/medium-v0", "MINARI_DATASETS_PATH"),
        "own": ("generate rlb-hopper-medium", "RLBENCH_DATASETS"),
    }
    for kind, (words, variable) in remedies.items():
        folder = catalogue.folder(kind)
        try:
            if os.path.lexists(folder) and not folder.is_dir():
                raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder))
            count = len(catalogue.list_local(kind))
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}; `export {variable}=/another/folder`"
            yield Finding("missing", f"{kind} data", problem)
            continue
        if count:
            yield Finding("ok", f"{kind} data", f"{count} {'set' if count == 1 else 'sets'} in {folder}")
        else:
            yield Finding("optional", f"{kind} data", f"none in {folder}; `rlbench data {words}`, or set {variable}")


def _try_import(name: str) -> ModuleType | str:
    """The module, or in one line why it cannot be imported; a broken library may raise anything."""
    from importlib import import_module

    try:
        with redirect_stderr(StringIO()), catch_warnings(record=True):  # what a library says of itself is no finding
            return import_module(name)
    except Exception as error:  # its remedy is the same whatever it raises
        if interruption_behind(error) is not None:
            raise
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
