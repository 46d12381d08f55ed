"""One run of a command from its claim to what became of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rlbench.cli.experience import Checked, checked, dataset_of, documented

if TYPE_CHECKING:
    from rlbench.cli.progress_display import Display
    from rlbench.config.run import Runtime, Spec
    from rlbench.records.store import Record, Store
    from rlbench.records.types import Outcome
    from rlbench.run import Stop

Row: TypeAlias = dict[str, object]
"""What became of a run."""


def carried(spec: Spec, runtime: Runtime, results: Path, stop: Stop, shown: Display, *, force: bool) -> Row:
    """Carry one run to its end; gives what became of it."""
    from rlbench.cli.output import complain
    from rlbench.errors import RefusedFile
    from rlbench.records.store import folder_of

    try:
        return _claimed(spec, runtime, results, stop, shown, force=force)
    except RefusedFile as error:
        complain(str(error))
        return {**row(spec, folder_of(spec, results), "refused", None), "reason": str(error)}
    finally:
        stop.under_way = False


def _claimed(spec: Spec, runtime: Runtime, results: Path, stop: Stop, shown: Display, *, force: bool) -> Row:
    from rlbench.cli.experience import same
    from rlbench.records.store import folder_of, read

    folder = folder_of(spec, results)
    found = read(folder) if (folder / "outcome.json").exists() and not force else None
    ended = None if found is None or _unsettled(found) else found.outcome
    if found is not None and ended is not None:
        same(found, runtime)
        shown.end(f"{spec.name} seed {spec.seed}: {ended.status} already ({ended.reason}); --force runs it again")
        return row(spec, folder, ended.status, ended)
    from rlbench.errors import Interrupted, ResourceExhausted, RunFailed
    from rlbench.records.store import Store

    store: Store | None = None
    try:
        data = checked(spec, runtime)
        store = Store.claim(spec, results, _machine(spec, runtime, data), force=force)
        if store is None:
            return _of_another(spec, folder, shown)
        _iterated(spec, runtime, store, stop, shown, data)
    except Interrupted as error:
        shown.end(str(error))
    except ResourceExhausted as error:
        shown.end(f"{spec.name} seed {spec.seed}: halted: {error}")
        return {**_told(spec, folder), "status": "halted", "reason": str(error)}
    except RunFailed as error:
        shown.end(f"{spec.name} seed {spec.seed}: failed: {error} (traceback: {folder / 'failure.txt'})")
        told = _told(spec, folder)  # nothing was tried where it could not even be built, and no outcome says so
        return told if told["status"] == "failed" else {**told, "status": "failed", "reason": str(error)}
    else:
        shown.end(f"{spec.name} seed {spec.seed}: done")
    finally:
        if store is not None:
            store.release()
    return _told(spec, folder)


def _of_another(spec: Spec, folder: Path, shown: Display) -> Row:
    """A run that another process is at, as far as that has come."""
    from rlbench.records.lock_holder import holder
    from rlbench.report.run_status import standing

    who, there = holder(folder), standing(folder)
    damaged = f", but {there.reason}" if there.state == "damaged" else ""
    shown.end(f"{spec.name} seed {spec.seed}: {who} is running it{damaged}; left alone")
    told = row(spec, folder, "running", None)
    return {**told, "reason": f"{who} is running it{damaged}", "env_steps": there.env_steps, "best": there.best}


def _iterated(spec: Spec, runtime: Runtime, store: Store, stop: Stop, shown: Display, data: Checked | None) -> None:
    """Every record of a run, shown, while another thread watches over this one."""
    from rlbench.cli.output import remark
    from rlbench.cli.watchdog import Watchdog
    from rlbench.run import run as carry_on

    if store.died is not None:
        remark(f"{spec.name} seed {spec.seed}: {store.died}")
    with Watchdog(store, runtime.env_timeout):
        for record in carry_on(spec, runtime, store, stop, data and data.seal):
            if not stop.under_way:
                stop.under_way = True
                shown.begin(spec, record.steps)
            shown.show(record)


def _unsettled(found: Record) -> bool:
    """Whether a run goes on, or a crash at its very end left more than its policies, which may be gigabytes."""
    place = found.folder / "checkpoint"
    if found.outcome is None or found.outcome.status != "done":
        return found.outcome is None or found.outcome.status == "interrupted"
    return place.is_dir() and any(part.name not in {"best", "last"} for part in place.iterdir())


def _machine(spec: Spec, runtime: Runtime, data: Checked | None) -> dict[str, object]:
    """Where and with what the run is made, for its record."""
    from rlbench.assembly.device import device_of, threads_of
    from rlbench.assembly.engine import engine_of
    from rlbench.assembly.environments import describe
    from rlbench.records.machine import environment, threads

    device = device_of(runtime)
    return environment(
        device=str(device),
        gpu=_card(device.type),
        updates=engine_of(spec, runtime, device).told,
        torch_threads=threads_of(spec, runtime, device),
        env=dict(describe(spec).versions),
        **({} if data is None else {"data": data.told()}),
        **threads(),
    )


def _card(kind: str) -> str | None:
    """The model of the GPU, by which speeds are told apart; None without one."""
    from torch import cuda

    return cuda.get_device_name() if kind == "cuda" else None


def _told(spec: Spec, folder: Path) -> Row:
    from rlbench.records.store import read_outcome

    outcome = read_outcome(folder)
    return row(spec, folder, outcome.status if outcome is not None else "interrupted", outcome)


def row(spec: Spec, folder: Path, status: str, outcome: Outcome | None) -> Row:
    """What is told of a run, under the names of the JSON."""
    return {
        "suite": spec.suite,
        "algorithm": spec.algorithm,
        "task": spec.task.id,
        "dataset": dataset_of(spec) or None,
        "seed": spec.seed,
        "folder": str(folder),
        "status": status,
        "reason": outcome.reason if outcome else "",
        "env_steps": outcome.steps if outcome else 0,
        "best": outcome.best if outcome else None,
        "final": outcome.final if outcome else None,
        "inexact": outcome.inexact if outcome else (),
        "documented": documented(spec),
    }
