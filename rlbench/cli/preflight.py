"""Checks before training: memory, disk and links; a refusal gives the number."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.errors import DoesNotFit, RefusedFile, UsageError

if TYPE_CHECKING:
    from rlbench.config.run import Runtime, Spec


def fits(specs: list[Spec], runtime: Runtime, results: Path) -> None:
    """Refuse runs that do not fit into memory, or onto the disk of ``results``."""
    due = [spec for spec in specs if _to_come(spec, results)]
    fits_memory(due, runtime)
    _disk(due, results)


def refuse_links(specs: list[Spec], results: Path) -> None:
    """Refuse runs whose folders hold links or are reached by links."""
    from rlbench.records import files
    from rlbench.records.store import folder_of

    for spec in specs:
        files.refuse_links(folder_of(spec, results), results)


def room(folder: Path, bytes_needed: int, what: str, remedy: str) -> None:
    """Refuse ``what`` if it needs more bytes than the disk of ``folder`` has free.

    Raises:
        DoesNotFit: the disk has fewer bytes; the message says how many.
    """
    from rlbench.config.footprint import size

    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if bytes_needed > free:
        raise DoesNotFit(f"{what}: {size(bytes_needed)} of disk are needed, {place} has {size(free)} free; {remedy}")


def writable(folder: Path) -> None:
    """Create a folder for data sets, and check that it is writable.

    Raises:
        UsageError: the folder cannot be written.
    """
    remedy = "choose another folder with RLBENCH_DATASETS"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); {remedy}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder}: cannot be written; {remedy}")


def fits_memory(specs: list[Spec], runtime: Runtime) -> None:
    """Refuse runs that would not fit into memory.

    Raises:
        DoesNotFit: a run would not; the message has the number.
    """
    from rlbench.assembly.device import device_of, eval_workers_of, free_memory
    from rlbench.cli.experience import steps_of
    from rlbench.config.footprint import footprint, size
    from rlbench.config.tasks import OfflineTask
    from rlbench.records.machine import available_memory

    device, host, steps = device_of(runtime), available_memory(), steps_of(runtime.dataset)
    on_gpu = device.type != "cpu"  # replay and networks, not the rest
    for spec in specs:
        need = footprint(spec, eval_workers_of(spec, runtime, device), steps=steps(spec))
        held = need.replay + need.networks
        remedy = "lower algo.replay.capacity with --set"
        if isinstance(spec.task, OfflineTask):
            remedy = "learn from a part of the data"
        for place, bytes_needed, free in (
            (str(device), held if on_gpu else 0, free_memory(device) if on_gpu else 0),
            ("this machine", need.total - held if on_gpu else need.total, host),
        ):
            if bytes_needed > free:
                raise DoesNotFit(
                    f"{spec.name}: {need.line()}; {size(bytes_needed)} of it on {place}, which has {size(free)} free; "
                    f"{remedy}, or use a larger machine"
                )


def _disk(specs: list[Spec], results: Path) -> None:
    """Check the disk for runs one after another; finished runs keep only their policies."""
    from rlbench.config.footprint import footprint
    from rlbench.records.store import folder_of

    policies = 0
    for spec in specs:
        folder, need = folder_of(spec, results), footprint(spec)
        present = _checkpoint_bytes(folder)
        remedy = "free some, choose another folder with --results, or lower algo.replay.capacity with --set"
        room(results, policies + need.disk - present, f"{spec.name}: a checkpoint and the one that replaces it", remedy)
        policies += need.policies


def _to_come(spec: Spec, results: Path) -> bool:
    from rlbench.records.store import folder_of, read_outcome

    with suppress(RefusedFile):  # the run itself reports it
        outcome = read_outcome(folder_of(spec, results))
        return outcome is None or outcome.status == "interrupted"
    return True


def _checkpoint_bytes(folder: Path) -> int:
    """Bytes of a run's checkpoints; another process may replace them at the same time."""
    total = 0
    with suppress(OSError):
        for path in folder.glob("checkpoint/*/*"):
            with suppress(OSError):
                total += path.stat().st_size
    return total
