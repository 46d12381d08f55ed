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
from rlbench.records.machine import omp_threads

M_TRIM_THRESHOLD: Final = -1  # names of glibc's mallopt
M_MMAP_THRESHOLD: Final = -3
TRIM_THRESHOLD: Final = 2**29  # bytes at the top of the heap that stay in the process after free
MMAP_THRESHOLD: Final = 2**27  # bytes from which an allocation has its own mapping, which free returns


def device_of(runtime: Runtime) -> torch.device:
    """The device a run uses.

    Raises:
        UsageError: it is not a device, or this machine lacks it.
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
    """Threads of torch: as many as speed up the shapes of this run.

    A checkpoint's number comes first, then ``--threads``, then ``OMP_NUM_THREADS``; ``OMP_THREAD_LIMIT`` bounds all.
    """
    requested = runtime.saved_threads or runtime.threads or omp_threads()
    threads = requested or useful_threads(spec, gpu=device.type != "cpu", cores=cores())
    return min(threads, omp_threads("OMP_THREAD_LIMIT") or threads)


def stepping_threads(runtime: Runtime) -> int:
    """Threads that step envs in this process: at most two, since half of a step holds the interpreter lock."""
    return min(runtime.threads or omp_threads() or cores(), cores(), 2)


def eval_workers_of(spec: Spec, runtime: Runtime, device: torch.device) -> int:
    """Processes that evaluate beside the training: the requested number, or one that suits the run's share of cores."""
    share = min(runtime.threads or omp_threads() or cores(), cores())
    threads = threads_of(spec, runtime, device)
    gpu = device.type != "cpu"
    return eval_worker_count(spec, requested=runtime.eval_workers, cores=share, threads=threads, gpu=gpu)


def keep_memory() -> None:
    """Keep freed memory in the process, with glibc and unless the environment sets ``MALLOC_…``.

    Otherwise every step maps the memory of its frames and activations again, thousands of pages.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)
        library.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
