"""Environment of a run for its record: versions, commit, processor, memory and threads."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

import rlbench
from rlbench.config.run import MAX_THREADS
from rlbench.versions import version

THREADS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS")
INSTRUCTIONS = (
    *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_NUM_STRIPES", "ATEN_CPU_CAPABILITY"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
    *("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
)
"""Environment variables that choose instructions of the processor or GPU, or the parts of a matrix product that threads
share, and with them the rounding of every sum."""

TUNABLES = "GLIBC_TUNABLES"
"""The same of the C library, by its parts ``glibc.cpu.…``; a process reads it only at its start."""

CONTROL_GROUPS = {
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),  # version 2
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By controller: the folder, the files of limit and usage, and the page cache that the kernel can reclaim."""

MODULES = ("*.py", "*.so")  # files that Python imports, as git names them

PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "envpool", "mujoco", "safetensors")


def environment(**more: object) -> dict[str, object]:
    """Return everything that a replay of the run needs to know; ``more`` comes from the caller."""
    return {
        "rlbench": rlbench.__version__,
        "commit": own_commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": processor(),
        "vector_instructions": vector_instructions(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        "memory": _memory()[0],
        "packages": {name: number for name in PACKAGES if (number := _version(name)) is not None},
        "command": " ".join([Path(sys.argv[0]).name, *map(_public, sys.argv[1:])]),
        **more,
    }


OUTWARD: Final = re.compile(r"(^|[^\w.])\.\.(/|$)")
"""The part ``..`` of a path, which may be in quotes."""


def _public(word: str) -> str:
    """Make an argument public: a path becomes relative to the current folder, or ``PATH`` with all that follows."""
    parts = re.split(r"([=,:])", word)
    for place, part in enumerate(parts):
        if part.startswith(("/", "~")) or OUTWARD.search(part):
            try:
                parts[place] = "PATH" if part.startswith("~") else os.path.relpath(part)
            except OSError:  # the current folder was removed
                parts[place] = "PATH"
            if parts[place] == "PATH" or OUTWARD.search(parts[place]):
                return "".join([*parts[:place], "PATH"])
    return "".join(parts)


def processor() -> str:
    """Model of the processor, as the kernel names it; several models may share a name."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def vector_instructions() -> str:
    """Vector instructions of the processor, by which libraries choose the order, and so the rounding, of every sum."""
    flags = (_cpuinfo("flags") or _cpuinfo("Features")).split()
    return " ".join(sorted(flag for flag in flags if flag.startswith(("avx", "fma", "amx", "asimd", "sve"))))


def has_gpu() -> bool:
    """Return True if the kernel drives an NVIDIA GPU; torch need not be imported."""
    return Path("/proc/driver/nvidia/version").exists()


@cache
def own_commit() -> str | None:
    """Commit of this process's code: the package's own as of the first call, whatever its checkout has later."""
    return commit()


def commit() -> str | None:
    """Commit of the package's own checkout, with ``+dirty`` where its code differs; None without a checkout.

    A package installed inside another project's repository has no commit. Modules that git ignores differ, too, and so
    do files that its index tells it not to compare.
    """
    package = Path(rlbench.__file__).resolve().parent
    try:
        if Path(_git(package, "rev-parse", "--show-toplevel")).resolve() != package.parent:
            return None
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        head = _git(package, "rev-parse", "--short=12", "HEAD")
        differs = _git(package, "status", "--porcelain", "-unormal", "--", ".")
        differs = differs or _git(package, "ls-files", "--others", "--", *MODULES)  # the ignored ones among them
        states = _git(package, "ls-files", "-v", "--", ".").splitlines()  # "H" for a file that git compares
        return head + ("+dirty" if differs or any(not state.startswith("H") for state in states) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def available_memory() -> int:
    """Bytes of memory for a new process: free on the machine, and in every control group around this process."""
    return min([_memory()[1], *_free_in_control_groups()])


def _memory() -> tuple[int, int]:
    """Bytes of the machine's memory, and the available ones; the free ones where /proc does not tell."""
    try:
        memory = psutil.virtual_memory()
    except OSError:  # systemd's ProcSubset=pid hides /proc/meminfo
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
    return memory.total, memory.available


def threads() -> dict[str, str]:
    """Environment variables of threads and instructions at the start of the libraries."""
    values = {name: os.environ[name] for name in (*THREADS, *INSTRUCTIONS) if name in os.environ}
    tunables = ":".join(re.findall(r"glibc\.cpu\.[^:]*", os.environ.get(TUNABLES, "")))
    return values | ({TUNABLES: tunables} if tunables else {})


def omp_threads(name: str = "OMP_NUM_THREADS") -> int | None:
    """The number of threads in a variable of OpenMP; by the default one a sweep shares the cores among processes."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() and len(value) < 5 and 0 < int(value) <= MAX_THREADS else None


def _free_in_control_groups() -> Iterator[int]:
    """Bytes below the limit of each control group, as containers, SLURM and systemd set it; the page cache counts."""
    for line in _kernel_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in CONTROL_GROUPS:
            continue
        root, *names, cache = CONTROL_GROUPS[controllers]
        for group in (PurePosixPath(path), *PurePosixPath(path).parents):
            limit, usage = (_kernel_text(f"{root}{group}/{name}").strip() for name in names)
            if limit.isdigit() and usage.isdigit():
                counts = (line.split() for line in _kernel_text(f"{root}{group}/memory.stat").splitlines())
                reclaimable = sum(int(count) for name, count in counts if name == cache)
                yield max(0, int(limit) - int(usage) + min(int(usage), reclaimable))


def _cpuinfo(name: str) -> str:
    lines = (line.partition(":") for line in _kernel_text("/proc/cpuinfo").splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _kernel_text(path: str) -> str:
    """Text of a file of the kernel; empty where it is missing."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str:
    """Run git in ``folder``, without the hooks and file monitor of its repository, and without taking its locks."""
    settings = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    process = subprocess.run(  # noqa: S603 - no shell, and no argument of the user
        ["git", *settings, "-C", str(folder), *arguments],  # noqa: S607 - git is where PATH says
        capture_output=True,
        errors="surrogateescape",  # as in every path of Python
        check=True,
        timeout=5,
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    )
    return process.stdout.strip()
