"""Run loop of every ``rlbench run``: start each missing job where there is room, until all jobs have ended.

The lock on a run's folder decides who trains it. A sweep of processes waits for a job that another process holds, so
that several sweeps of the same runs share them; an in-process sweep leaves such a job to the other process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import lexists, realpath
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from rlbench.errors import RefusedFile, ResourceExhausted, RlbenchError, UsageError
from rlbench.records import attempts
from rlbench.records.aside import ATTEMPT_PARTS, count_aside
from rlbench.records.locks import is_locked, remove_empty_crash
from rlbench.records.store import CHANGED_DURING_RUN, Record, read_record, refuse_other_run
from rlbench.records.types import Outcome
from rlbench.signals import Stop, cause
from rlbench.sweep.events import Begun, Ending, Event, Exited, Message, Status
from rlbench.sweep.local import PATIENCE
from rlbench.sweep.plan import Job

RETRIES = 2  # times a job whose process died is started again; a run that failed is not
LOSSES = 20  # times a job whose machine was lost is started again
POLL_SECONDS = 2.0  # seconds between two checks of a job that another process holds
EVENT_SECONDS = 0.25  # seconds to wait for an event of the running jobs
WAIT_REASON: Final = "another process is running it; will check it again"


class Executor(Protocol):
    """Runs jobs: in this process, in worker processes of this machine, or on a cluster."""

    @property
    def in_process(self) -> bool:
        """Return whether jobs run in this process, so that each has one attempt and no log."""

    def has_room(self, job: Job) -> bool:
        """Return whether a job can start now."""

    def start(self, job: Job, *, force: bool) -> None:
        """Start a job that there is room for."""

    def events(self, seconds: float) -> Iterable[tuple[Job, Event]]:
        """Return new events of the jobs; wait at most ``seconds`` for the first."""

    def terminate(self) -> None:
        """Ask every job to save its state and end."""

    def kill(self) -> None:
        """End every job at once."""


class Display(Protocol):
    """Shows the progress of a sweep."""

    def begin(self, job: Job) -> None:
        """The job was started."""

    def show(self, job: Job, message: Message) -> None:
        """The job has sent a message."""

    def pause(self, job: Job, reason: str) -> None:
        """The job waits for its next start: its process is gone, or another one runs it."""

    def end(self, ending: Ending) -> None:
        """The job has ended."""

    def stop(self) -> None:
        """The running jobs have a signal to save their state."""


@dataclass(slots=True)
class _JobState:
    force: bool  # the record that stands at the sweep's start is still in place, and has to go
    attempts: int  # that stood beside it
    real_path: str  # of the folder, at the start
    died: int = 0
    lost: int = 0
    started: bool = False
    begun: bool = False  # the present process holds the folder
    since: float = 0.0
    next_start: float = 0.0  # earliest time of the next start


@dataclass(slots=True)
class Sweep:
    """Jobs of one command, carried out by an executor.

    ``check`` raises ``RefusedFile`` for a finished record that the command must not call done.
    """

    jobs: Sequence[Job]
    executor: Executor
    display: Display
    stop: Stop
    force: bool = False
    check: Callable[[Record], None] = lambda _: None
    endings: dict[str, Ending] = field(default_factory=dict)
    _waiting: list[Job] = field(default_factory=list)
    _running: dict[str, Job] = field(default_factory=dict)
    _states: dict[str, _JobState] = field(default_factory=dict)

    def run(self) -> list[Ending]:
        """Run every job to its end, or until a signal; return their endings in the order of the jobs."""
        for job in self.jobs:
            force = self.force and any(lexists(job.folder / part) for part in ("spec.json", *ATTEMPT_PARTS))
            state = _JobState(force=force, attempts=count_aside(job.folder), real_path=realpath(job.folder))
            self._states[job.name] = state
        self._waiting = [job for job in self.jobs if not self._end_if_complete(job)]
        while (self._waiting or self._running) and self.stop.signal is None:
            self._start()
            for job, event in self.executor.events(EVENT_SECONDS):
                self._handle(job, event)
        self._stop_running()
        stopped_by = self.stop.signal
        reason = "not started, because another run was halted" if stopped_by is None else cause(stopped_by)
        for job in self.jobs:
            if job.name not in self.endings:
                self._end(job, "interrupted", reason, _outcome(job.folder), quiet=True)
        return [self.endings[job.name] for job in self.jobs]

    def _start(self) -> None:
        """Start the jobs that there is room for; drop those that another process has finished meanwhile."""
        for job in list(self._waiting):
            state = self._states[job.name]
            if self.stop.signal is not None or state.next_start > monotonic() or not self.executor.has_room(job):
                continue
            state.force = state.force and count_aside(job.folder) == state.attempts  # else a sweep beside this one
            if self._end_if_complete(job):  # has started it over
                self._waiting.remove(job)
            elif not self.executor.in_process and is_locked(job.folder):
                if not state.next_start:
                    self.display.pause(job, WAIT_REASON)
                state.next_start = monotonic() + POLL_SECONDS
            else:
                self._waiting.remove(job)
                try:
                    self.executor.start(job, force=state.force)
                except (RlbenchError, OSError) as error:  # its folder cannot be used; the other jobs go on
                    self._end(job, "refused" if isinstance(error, UsageError) else "halted", str(error))
                    continue
                self._running[job.name] = job
                state.started, state.begun, state.since = True, False, monotonic()
                self.display.begin(job)

    def _end_if_complete(self, job: Job) -> bool:
        """Record the ending of a job that has ended before."""
        if self._states[job.name].force or not (job.folder / "outcome.json").exists():
            return False
        try:
            record = read_record(job.folder)
            refuse_other_run(record, job.spec)
            if not _complete(record, job.until):
                return False
            self.check(record)
        except RefusedFile as error:
            self._end(job, "refused", str(error))
            return True
        remove_empty_crash(job.folder)
        if record.outcome is not None:
            self._end(job, record.outcome.status, record.outcome.reason, record.outcome)
        return True

    def _handle(self, job: Job, event: Event) -> None:
        state = self._states[job.name]
        if isinstance(event, Begun):
            state.begun, state.force = True, False
            self._note(job, {"event": "begun", "number": attempts.attempt_count(job.folder) + 1, "steps": event.steps})
        if not isinstance(event, Exited):
            self.display.show(job, event)
            return
        del self._running[job.name]
        status, reason = self._status(job, event)
        if state.begun or status in {"crashed", "halted", "refused"}:
            seconds = round(monotonic() - state.since, 1)
            end = {"event": "ended", "how": status, "reason": reason, "code": event.code, "seconds": seconds}
            self._note(job, end)
        if self.executor.in_process:
            self._end(job, status, reason, _outcome(job.folder))
            if status == "halted":  # a full disk is full for the next job too
                self._waiting.clear()
        else:
            self._retry_or_end(job, event, status, reason)

    def _retry_or_end(self, job: Job, event: Exited, status: Status, reason: str) -> None:
        state = self._states[job.name]
        outcome = None if state.force else _outcome(job.folder)
        is_done = outcome is not None and outcome.status == "done"  # by another's record: there is nothing to train
        if status == "running" and not is_locked(job.folder):  # its holder may have finished it, but not for ever
            state.lost += 1
            if state.lost > LOSSES:
                status, reason = "crashed", "it ends again and again without a message"
        if status == "running":
            state.next_start = monotonic() + POLL_SECONDS
            self._waiting.append(job)
            self.display.pause(job, WAIT_REASON)
        elif status in {"crashed", "halted"} and not is_done and _may_retry(state, event) and self.stop.signal is None:
            self._waiting.append(job)
            self.display.pause(job, f"{status}: {reason}; it is started again, from its last checkpoint")
        else:
            # what has halted and cannot begin again has still halted
            self._end(job, "halted" if status == "refused" and state.died else status, reason, _outcome(job.folder))

    def _status(self, job: Job, event: Exited) -> tuple[Status, str]:
        """Status and reason of a job whose process has ended: by its record, else by the exit code."""
        state = self._states[job.name]
        record = None if state.force else _record(job.folder)  # the record is of an earlier attempt then
        outcome = record.outcome if record is not None else None
        if outcome is not None and event.code == ResourceExhausted.exit_code and CHANGED_DURING_RUN in event.reason:
            return "halted", event.reason.removeprefix("rlbench: ")  # another's record was put in the place of its own
        if record is not None and outcome is not None and record.has_ended(job.until):
            return outcome.status, outcome.reason
        if event.status == "interrupted" and outcome is not None:
            return "interrupted", outcome.reason
        if event.status is not None:
            return event.status, event.reason
        if self.stop.signal is not None and not event.lost:
            return "interrupted", outcome.reason if outcome is not None else cause(self.stop.signal)
        return _by_code(event, begun=state.begun)

    def _stop_running(self) -> None:
        """After a signal let every process save its state, and kill those that take too long."""
        if not self._running:
            return
        self.executor.terminate()
        self.display.stop()
        until, was_killed = monotonic() + PATIENCE, False
        while self._running:
            if not was_killed and (self.stop.again or monotonic() > until):
                self.executor.kill()
                was_killed = True
            for job, event in self.executor.events(EVENT_SECONDS):
                self._handle(job, event)

    def _end(
        self, job: Job, status: Status, reason: str, outcome: Outcome | None = None, *, quiet: bool = False
    ) -> None:
        state, workers = self._states[job.name], not self.executor.in_process
        started, may_pause = state.started, status == "interrupted" and job.until is not None and not state.force
        record = _record(job.folder) if may_pause else None
        ending = Ending(
            job=job,
            status=status,
            reason=reason,
            outcome=None if state.force else outcome,
            started=started,
            log=job.folder / attempts.LOG if started and workers else None,
            attempts=attempts.attempt_count(job.folder) if workers else None,
            is_paused=record is not None and record.has_ended(job.until),
            starts_over=state.force and status != "running",
        )
        self.endings[job.name] = ending
        if not quiet:
            self.display.end(ending)

    def _note(self, job: Job, entry: Mapping[str, object]) -> None:
        """Log an attempt of a worker process; the run itself reports a full disk, or a changed folder."""
        same_folder = realpath(job.folder) == self._states[job.name].real_path  # and no link to another one
        if same_folder and not self.executor.in_process:
            with suppress(RlbenchError, OSError):
                attempts.note(job.folder, {**entry, "host": socket.gethostname()})


def _may_retry(state: _JobState, event: Exited) -> bool:
    """Count a death or a loss."""
    if event.lost:
        state.lost += 1
        return state.lost <= LOSSES
    state.died += 1
    return state.died <= RETRIES


def _complete(record: Record, until: int | None) -> bool:
    """Return whether nothing is left to do; a crash at the very end leaves checkpoints that a resume removes."""
    if record.outcome is None or record.outcome.status != "done":
        return record.has_ended(until)
    folder = record.folder / "checkpoint"
    return not folder.is_dir() or all(path.name in {"best", "last"} for path in folder.iterdir())


def _by_code(event: Exited, *, begun: bool) -> tuple[Status, str]:
    reason = event.reason.removeprefix("rlbench: ") or "its log is empty or gone"  # the command prints its own prefix
    match event.code:
        case 0 if not begun:
            return "running", "another process is running it"
        case 2 | 5:
            return "refused" if event.code == 2 else "halted", reason
        case code if event.lost or code == 0:
            return "crashed", reason
        case code if code < 0:
            return "crashed", f"ended by {cause(-code)}"
        case code:
            return "crashed", f"exit code {code}: {reason}"


def _outcome(folder: Path) -> Outcome | None:
    record = _record(folder)
    return record.outcome if record is not None else None


def _record(folder: Path) -> Record | None:
    try:
        return read_record(folder) if (folder / "spec.json").exists() else None
    except RefusedFile:
        return None
