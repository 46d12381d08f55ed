"""Executor that trains one job at a time in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from rlbench.cli.dataset_option import CheckedData, check_data
from rlbench.cli.output import print_note
from rlbench.cli.watchdog import Watchdog
from rlbench.config.run import Runtime, Spec
from rlbench.errors import Interrupted, RefusedFile, ResourceExhausted, RlbenchError, RunFailed, UsageError
from rlbench.records.locks import NAME, holder, is_locked
from rlbench.records.store import Store
from rlbench.records.types import Progress
from rlbench.signals import Stop
from rlbench.sweep.events import Begun, Event, Exited, Status, epoch_end
from rlbench.sweep.plan import Job

STATUSES: Final[tuple[tuple[type[RlbenchError], Status], ...]] = (
    (Interrupted, "interrupted"), (RefusedFile, "refused"), (UsageError, "refused"), (ResourceExhausted, "halted"),
    (RunFailed, "failed"),
)  # fmt: skip
"""The status of a run by the error that ended it."""


class Inline:
    """Executor without worker processes; ``events`` trains the started job."""

    in_process = True

    def __init__(self, runtime: Runtime, results: Path, stop: Stop) -> None:
        self.runtime, self.results, self.stop = runtime, results, stop
        self._started: tuple[Job, bool] | None = None

    def has_room(self, job: Job) -> bool:
        """Return whether no job is started."""
        del job
        return self._started is None

    def start(self, job: Job, *, force: bool) -> None:
        """Make a job the one that ``events`` trains."""
        self._started = job, force

    def events(self, seconds: float) -> Iterator[tuple[Job, Event]]:
        """Train the started job and yield its events."""
        from rlbench.run import run

        del seconds
        if self._started is None:
            return
        (job, force), self._started, store = self._started, None, None
        self.stop.phase, self.stop.until = "setup", job.until
        try:
            data = check_data(job.spec, self.runtime)
            with watched("before the run", self.runtime.env_timeout):
                environment = environment_of(job.spec, self.runtime, data)
            store = Store.lock(job.spec, self.results, environment, force=force)
            if store is None:
                exited = Exited(0, _holder(job.folder), status="running")
            else:
                if store.crash_reason is not None:
                    print_note(f"{job.name}: {store.crash_reason}")
                with watched(str(store.folder), self.runtime.env_timeout, store):
                    for record in run(job.spec, self.runtime, store, self.stop, data and data.seal):
                        if self.stop.phase == "setup":
                            self.stop.phase = "training"
                            yield job, Begun(record.steps)
                        yield job, record if isinstance(record, Progress) else epoch_end(record)
                exited = Exited(0, "")
        except (Interrupted, RefusedFile, UsageError, ResourceExhausted, RunFailed) as error:
            status = next(status for kind, status in STATUSES if isinstance(error, kind))
            is_recorded = store is not None and store.outcome is not None
            status = "halted" if status == "failed" and not is_recorded else status  # no record counts it
            if status == "refused" and store is not None:
                store.withdraw()  # it leaves no record if it has none yet
            exited = Exited(error.exit_code, str(error), status=status)
        finally:
            self.stop.phase = "idle"
            if store is not None:
                store.release()
        yield job, exited

    def terminate(self) -> None:
        """Do nothing: the run polls ``stop`` itself."""

    def kill(self) -> None:
        """Do nothing: the run has ended when its caller handles an error."""


def watched(where: str, env_timeout: float, store: Store | None = None) -> AbstractContextManager[object]:
    """A watchdog for environments; ``where`` names the run or the policy, and ``store`` records a hang.

    In another thread than the main one, which signals do not reach, there is none.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return Watchdog(store, env_timeout, where)


def environment_of(spec: Spec, runtime: Runtime, data: CheckedData | None) -> dict[str, object]:
    """Machine, versions and data of a run, for its record."""
    from torch import cuda

    from rlbench.assembly.device import device_of, threads_of
    from rlbench.assembly.engine import engine_of
    from rlbench.assembly.environments import describe
    from rlbench.records.machine import environment, threads

    device = device_of(runtime)
    return environment(
        device=str(device),
        gpu=cuda.get_device_name(device) if device.type == "cuda" else None,
        updates=engine_of(spec, runtime, device).description,
        torch_threads=threads_of(spec, runtime, device),
        env=dict(describe(spec).versions),
        **({} if data is None else {"data": data.metadata()}),
        **threads(),
    )


def _holder(folder: Path) -> str:
    from rlbench.report.run_index import run_status

    status = run_status(folder)
    damage = f", but {status.reason}" if status.state == "damaged" else ""
    elsewhere = not is_locked(folder)  # the disk has no locks, and the process may be of another machine
    remedy = f" (if none is, delete {folder / NAME})" if elsewhere else ""
    return f"{holder(folder)} is running it{remedy}{damage}"
