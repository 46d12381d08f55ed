"""Checks before training: memory and disk; a refusal gives the number."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from rlbench import disk
from rlbench.cli.dataset_option import rows_of
from rlbench.config.footprint import footprint, size_text
from rlbench.config.run import Runtime, Spec
from rlbench.errors import DoesNotFit, UsageError
from rlbench.records.store import folder_of
from rlbench.sweep.plan import REMEDIES, is_due, refuse_too_large


def check_resources(specs: list[Spec], runtime: Runtime, results: Path, *, force: bool) -> None:
    """Refuse runs that do not fit into memory, or onto the disk of ``results``; finished runs keep their policies.

    ``force`` starts finished runs again.
    """
    due = [spec for spec in specs if force or is_due(spec, results)]
    check_memory(due, runtime)
    policies = 0
    for spec in due:
        need, present = footprint(spec), _checkpoint_bytes(folder_of(spec, results))
        smaller = "" if spec.algo.learns_from == "data" else f", or {REMEDIES[spec.algo.learns_from]}"
        remedy = f"free some, choose another folder with --results{smaller}"
        what = f"{spec.name}: a checkpoint and the one that replaces it"
        check_disk_space(results, policies + need.disk - present, what, remedy)
        policies += need.policies


def check_disk_space(folder: Path, bytes_needed: int, what: str, remedy: str) -> None:
    """Refuse ``what`` if it needs more bytes than the disk of ``folder`` has free."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if bytes_needed > free:
        text = f"{size_text(bytes_needed)} of disk are needed, {place} has {size_text(free)} free"
        raise DoesNotFit(f"{what}: {text}; {remedy}")


def check_writable(folder: Path) -> None:
    """Create a folder for data sets, and check that it is writable."""
    remedy = "choose another folder with RLBENCH_DATASETS"
    with disk.refusing(folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder}: cannot be written; {remedy}")


def check_memory(specs: list[Spec], runtime: Runtime) -> None:
    """Refuse runs that would not fit into memory."""
    from rlbench.assembly.device import device_of, eval_workers_of, free_memory
    from rlbench.records.machine import available_memory

    device, host, steps = device_of(runtime), available_memory(), rows_of(runtime.dataset)
    on_gpu = device.type != "cpu"  # replay and networks, not the rest
    gpu_memory = free_memory(device) if on_gpu else 0
    for spec in specs:
        need = footprint(spec, eval_workers_of(spec, runtime, device), steps=steps(spec))
        on_device = need.replay + need.networks if on_gpu else 0
        refuse_too_large(spec, need, str(device), on_device, gpu_memory)
        refuse_too_large(spec, need, "this machine", need.total - on_device, host)


def _checkpoint_bytes(folder: Path) -> int:
    """Bytes of a run's checkpoints; another process may replace them at the same time."""
    total = 0
    with suppress(OSError):
        for path in folder.glob("checkpoint/*/*"):
            with suppress(OSError):
                total += path.stat().st_size
    return total
