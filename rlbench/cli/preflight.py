"""What a command would need of this machine, refused with the number before anything is made."""

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
    """Refuse runs that would not fit into memory, or onto the disk below ``results``."""
    due = [spec for spec in specs if _to_come(spec, results)]
    _memory(due, runtime)
    _disk(due, results)


def refuse_links(specs: list[Spec], results: Path) -> None:
    """Refuse runs whose folders are reached by links, or hold any: their files may be somebody else's."""
    from rlbench.records import files
    from rlbench.records.store import folder_of

    for spec in specs:
        files.refuse_links(folder_of(spec, results), results)


def room(folder: Path, needed: int, what: str, remedy: str) -> None:
    """Refuse ``what`` takes ``needed`` bytes, if the disk that ``folder`` is or will be on has fewer.

    Raises:
        DoesNotFit: it has; the message says how many.
    """
    from rlbench.config.footprint import size

    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise DoesNotFit(f"{what}: {size(needed)} of disk are needed, {place} has {size(free)} free; {remedy}")


def writable(folder: Path) -> None:
    """Make a folder for data sets, if need be.

    Raises:
        UsageError: it cannot be written.
    """
    remedy = "choose another folder with RLBENCH_DATASETS"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); {remedy}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder}: cannot be written; {remedy}")


def _memory(specs: list[Spec], runtime: Runtime) -> None:
    from rlbench.assembly.device import device_of, eval_workers_of, free_memory
    from rlbench.cli.experience import steps_of
    from rlbench.config.footprint import footprint, size
    from rlbench.config.tasks import OfflineTask
    from rlbench.records.machine import available_memory

    device, host, steps = device_of(runtime), available_memory(), steps_of(runtime.dataset)
    apart = device.type != "cpu"  # replay and networks lie on the device, the rest on the host
    for spec in specs:
        need = footprint(spec, eval_workers_of(spec, runtime, device), steps=steps(spec))
        held = need.replay + need.networks
        less = "lower algo.replay.capacity with --set"
        if isinstance(spec.task, OfflineTask):
            less = "learn from a part of the data"
        for place, bytes_needed, free in (
            (str(device), held if apart else 0, free_memory(device) if apart else 0),
            ("this machine", need.total - held if apart else need.total, host),
        ):
            if bytes_needed > free:
                raise DoesNotFit(
                    f"{spec.name}: {need.line()}; {size(bytes_needed)} of it on {place}, which has {size(free)} free; "
                    f"{less}, or use a larger machine"
                )


def _disk(specs: list[Spec], results: Path) -> None:
    """Runs come one after another: of those before only the policies stay."""
    from rlbench.config.footprint import footprint
    from rlbench.records.store import folder_of

    kept = 0
    for spec in specs:
        folder, need = folder_of(spec, results), footprint(spec)
        there = _held(folder)
        remedy = "free some, choose another folder with --results, or lower algo.replay.capacity with --set"
        room(results, kept + need.disk - there, f"{spec.name}: a checkpoint and the one that replaces it", remedy)
        kept += need.policies


def _to_come(spec: Spec, results: Path) -> bool:
    """Whether a run has not ended yet; one that has needs nothing."""
    from rlbench.records.store import folder_of, read_outcome

    with suppress(RefusedFile):  # which the run itself will tell
        outcome = read_outcome(folder_of(spec, results))
        return outcome is None or outcome.status == "interrupted"
    return True


def _held(folder: Path) -> int:
    """Bytes of its checkpoints, which another process may be replacing meanwhile."""
    total = 0
    with suppress(OSError):
        for path in folder.glob("checkpoint/*/*"):
            with suppress(OSError):
                total += path.stat().st_size
    return total
