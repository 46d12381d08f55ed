"""The loop of a sweep: starts what is missing wherever there is room, until everything has ended.

The claim on a run's folder is the truth. What another process holds is left alone and looked at again, so that
several sweeps of the same runs share them, and one takes over what another had to leave.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

from rlbench.errors import RefusedFile, ResourceExhausted, RlbenchError, UsageError
from rlbench.records import attempts
from rlbench.records.locks import held
from rlbench.records.store import read
from rlbench.records.types import Outcome
from rlbench.sweep.events import Begun, Ending, Exited, News, Status, Told
from rlbench.sweep.plan import Job
from rlbench.sweep.worker import PATIENCE

RETRIES = 2
"""Processes of a run that may die before it is given up, beyond the first; a run that failed is not tried again."""

LOSSES = 20
"""Machines that may vanish under a run before it is given up."""

LOOK = 2.0
"""Seconds until a run that another process holds is looked at again."""

WAIT = 0.25
"""Seconds to wait for a word of the processes before looking at everything else."""


class Executor(Protocol):
    """Where the processes of a sweep are."""

    def room(self, job: Job) -> bool:
        """Whether a job can begin now."""

    def start(self, job: Job, *, force: bool) -> None:
        """Begin a job that there is room for."""

    def news(self, seconds: float) -> list[tuple[Job, News]]:
        """What the jobs have told since, waiting at most so long for the first word."""

    def ask(self) -> None:
        """Let every job save its state and end."""

    def kill(self) -> None:
        """End every job at once."""


class Shown(Protocol):
    """Shows a sweep while it runs."""

    def begin(self, job: Job) -> None:
        """A process was started for the job."""

    def tell(self, job: Job, told: Told) -> None:
        """The job has told something."""

    def pause(self, job: Job, reason: str) -> None:
        """The job's process is gone, and it will be started again."""

    def end(self, ending: Ending) -> None:
        """The job is over, and this is how."""

    def stop(self) -> None:
        """A signal came, and the running jobs were asked to save their state."""


@dataclass(slots=True)
class Stop:
    """Set by a signal handler: the first lets every run save its state, a second ends them at once."""

    signal: int | None = None
    again: bool = False


@dataclass(slots=True)
class _Tries:
    """What is known of a job's processes in this sweep."""

    force: bool
    died: int = 0
    lost: int = 0
    started: bool = False
    begun: bool = False  # the present process holds the folder
    since: float = 0.0
    look: float = 0.0  # not to be started before


@dataclass(slots=True)
class Sweep:
    """The jobs of one invocation on their way."""

    jobs: Sequence[Job]
    executor: Executor
    shown: Shown
    stop: Stop
    force: bool = False
    endings: dict[str, Ending] = field(default_factory=dict)

    def carry(self) -> list[Ending]:
        """Carry every job to its end, or to where a signal stopped it; in the order of the jobs."""
        waiting, running = list(self.jobs), dict[str, Job]()
        tries = {job.name: _Tries(force=self.force) for job in self.jobs}
        waiting = [job for job in waiting if self._ended(job, tries[job.name]) is None]
        while (waiting or running) and self.stop.signal is None:
            self._start(waiting, running, tries)
            for job, news in self.executor.news(WAIT):
                self._hear(job, news, waiting, running, tries[job.name])
        self._wind_up(running, tries)
        for job in self.jobs:
            if job.name not in self.endings:
                reason, tried = f"signal {self.stop.signal}", tries[job.name]
                self._end(job, "interrupted", reason, tried, _outcome(job.folder), quiet=True)
        return [self.endings[job.name] for job in self.jobs]

    def _start(self, waiting: list[Job], running: dict[str, Job], tries: dict[str, _Tries]) -> None:
        """Start what there is room for, and drop what has ended meanwhile, whoever did it."""
        for job in list(waiting):
            tried = tries[job.name]
            if self.stop.signal is not None or tried.look > monotonic() or not self.executor.room(job):
                continue
            ended = self._ended(job, tried)
            if ended is not None:
                waiting.remove(job)
            elif held(job.folder):
                tried.look = monotonic() + LOOK
            else:
                waiting.remove(job)
                try:
                    self.executor.start(job, force=tried.force)
                except (RlbenchError, OSError) as error:  # of this one's folder; the others go on
                    self._end(job, "refused" if isinstance(error, UsageError) else "halted", str(error), tried)
                    continue
                running[job.name] = job
                tried.started, tried.begun, tried.since = True, False, monotonic()
                self.shown.begin(job)

    def _ended(self, job: Job, tried: _Tries) -> Ending | None:
        """How the job has ended before, if it has."""
        if tried.force or not (job.folder / "outcome.json").exists():
            return None
        try:
            outcome = read(job.folder).outcome
        except RefusedFile as error:
            return self._end(job, "refused", str(error), tried)
        if outcome is None or outcome.status == "interrupted":
            return None
        return self._end(job, outcome.status, outcome.reason, tried, outcome)

    def _hear(self, job: Job, news: News, waiting: list[Job], running: dict[str, Job], tried: _Tries) -> None:
        if isinstance(news, Begun):
            tried.begun, tried.force = True, False
            _note(job, {"event": "begun", "number": attempts.begun(job.folder) + 1, "steps": news.steps})
        if not isinstance(news, Exited):
            self.shown.tell(job, news)
            return
        del running[job.name]
        how, reason = self._judged(job, news, tried)
        if tried.begun or how in {"crashed", "halted", "refused"}:
            seconds = round(monotonic() - tried.since, 1)
            _note(job, {"event": "ended", "how": how, "reason": reason, "code": news.code, "seconds": seconds})
        if how == "running" and not held(job.folder):  # who had it may have come to its end, but not for ever
            tried.lost += 1
            if tried.lost > LOSSES:
                how, reason = "crashed", "it ends again and again without a word"
        if how == "running":
            tried.look = monotonic() + LOOK
            waiting.append(job)
            self.shown.pause(job, "another process is running it; left alone, and looked at again")
        elif how in {"crashed", "halted"} and self._another(news, tried) and self.stop.signal is None:
            waiting.append(job)
            self.shown.pause(job, f"{how}: {reason}; it is started again, from its last checkpoint")
        else:
            self._end(job, how, reason, tried, _outcome(job.folder))

    def _another(self, news: Exited, tried: _Tries) -> bool:
        """Whether the job may be tried again."""
        if news.lost:
            tried.lost += 1
            return tried.lost <= LOSSES
        tried.died += 1
        return tried.died <= RETRIES

    def _judged(self, job: Job, news: Exited, tried: _Tries) -> tuple[Status, str]:
        """What the end of a process means: its record is asked first, then its exit code."""
        outcome = None if tried.force else _outcome(job.folder)  # what is to be made anew says nothing yet
        if outcome is not None and outcome.status != "interrupted":
            return outcome.status, outcome.reason
        if self.stop.signal is not None and not news.lost:
            return "interrupted", outcome.reason if outcome is not None else f"signal {self.stop.signal}"
        return _by_code(news, begun=tried.begun)

    def _wind_up(self, running: dict[str, Job], tries: dict[str, _Tries]) -> None:
        """After a signal let every process save its state, and end those that take too long."""
        if not running:
            return
        self.executor.ask()
        self.shown.stop()
        until, killed = monotonic() + PATIENCE, False
        while running:
            if not killed and (self.stop.again or monotonic() > until):
                self.executor.kill()
                killed = True
            for job, news in self.executor.news(WAIT):
                self._hear(job, news, [], running, tries[job.name])

    def _end(
        self,
        job: Job,
        status: Status,
        reason: str,
        tried: _Tries,
        outcome: Outcome | None = None,
        *,
        quiet: bool = False,
    ) -> Ending:
        ending = Ending(
            job=job,
            status=status,
            reason=reason,
            outcome=outcome,
            log=job.folder / attempts.LOG if tried.started else None,
            attempts=attempts.begun(job.folder),
        )
        self.endings[job.name] = ending
        if not quiet:
            self.shown.end(ending)
        return ending


def _by_code(news: Exited, *, begun: bool) -> tuple[Status, str]:
    """What an exit code says where the record does not tell."""
    match news.code:
        case 0 if not begun:
            return "running", "another process is running it"
        case 2:
            return "refused", news.reason
        case 5:
            return "halted", news.reason
        case code if news.lost or code == 0:
            return "crashed", news.reason
        case code if code < 0:
            return "crashed", f"ended by {_signal_name(-code)}"
        case code:
            return "crashed", f"exit code {code}: {news.reason}"


def _outcome(folder: Path) -> Outcome | None:
    """How the run stands by its record; None where nothing or nobody says so."""
    try:
        return read(folder).outcome if (folder / "spec.json").exists() else None
    except RefusedFile:
        return None


def _note(job: Job, what: Mapping[str, object]) -> None:
    """Keep what was tried; a disk that is full is for the run to tell of."""
    with suppress(ResourceExhausted, UsageError, OSError):
        attempts.note(job.folder, {**what, "host": socket.gethostname()})


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
