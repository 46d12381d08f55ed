"""The device of a run, its number of threads, and its memory allocator."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

import torch

from rlbench.config.footprint import eval_worker_count, useful_threads
from rlbench.config.run import Runtime, Spec
from rlbench.errors import UsageError

M_TRIM_THRESHOLD: Final = -1  # names of glibc's mallopt
M_MMAP_THRESHOLD: Final = -3
KEPT: Final = 2**29  # bytes freed at the top of the heap that stay with the process
MAPPED: Final = 2**27  # bytes from which an allocation is mapped for itself, and unmapped when freed


def device_of(runtime: Runtime) -> torch.device:
    """The device a run uses.

    Raises:
        UsageError: it is not a device, or this machine has none such.
    """
    name = runtime.device if runtime.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: not a device; use auto, cpu, cuda or cuda:<number>") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; use cpu")
    if device.type not in {"cpu", "cuda"}:
        raise UsageError(f"--device {name}: only cpu and cuda are supported")
    return device


def free_memory(device: torch.device) -> int:
    """Bytes a CUDA device has free."""
    return int(torch.cuda.mem_get_info(device)[0])


def threads_of(spec: Spec, runtime: Runtime, device: torch.device) -> int:
    """Threads torch computes with: as many as pay, for the shapes of this run.

    ``OMP_NUM_THREADS`` overrules, and before it what a checkpoint was made with.
    """
    said = runtime.saved_threads or runtime.threads
    if said is not None:
        return said
    return _asked() or useful_threads(spec, gpu=device.type != "cpu", cores=cores())


def stepping_threads(runtime: Runtime) -> int:
    """Threads that share lanes stepped in this process: at most two, for half of a step holds the interpreter."""
    return min(runtime.threads or _asked() or cores(), cores(), 2)


def eval_workers_of(spec: Spec, runtime: Runtime, device: torch.device) -> int:
    """Processes that judge beside the training: what was asked for, or what this run's share of the cores is worth."""
    share = min(runtime.threads or _asked() or cores(), cores())
    return eval_worker_count(
        spec, requested=runtime.eval_workers, cores=share, threads=threads_of(spec, runtime, device)
    )


def _asked() -> int | None:
    """The value of ``OMP_NUM_THREADS``, by which a sweep gives each of its processes a share of the cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else None


def keep_memory() -> None:
    """Let what a step frees stay with the process, where glibc is and nobody chose otherwise.

    Else every batch's frames and activations are mapped anew, thousands of pages a step.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, KEPT)
        library.mallopt(M_MMAP_THRESHOLD, MAPPED)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
