"""Display of a sweep on stderr: progress bars on a terminal, otherwise one line per epoch, or nothing.

A worker process sends its messages through a pipe to the sweep that started it. It never outlives its parent: when the
parent is gone, it saves its state and ends, as after SIGTERM.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from rlbench.cli.output import write_line
from rlbench.config.names import printable
from rlbench.records.types import Progress
from rlbench.sweep.events import Begun, EpochEnd, to_line

if TYPE_CHECKING:
    from rich.progress import Task

    from rlbench.config.run import Spec
    from rlbench.sweep.events import Ending, Message
    from rlbench.sweep.plan import Job


REDRAW = 0.1  # seconds between two movements of a bar
WINDOW = 20.0  # seconds over which the speed is measured, so that it follows the machine's load
WIDE = 110  # columns from which everything fits on a line


@contextmanager
def display(jobs: Sequence[Job], *, quiet: bool) -> Iterator[Lines]:
    """Choose the display for stderr: bars need a terminal on which they can move."""
    if quiet or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines(jobs, quiet=quiet)
        return
    bars = Bars(jobs)
    with bars.bars:
        yield bars


class Lines:
    """One line for the begin, each epoch and the end of each run; for logs."""

    def __init__(self, jobs: Sequence[Job], *, quiet: bool = False) -> None:
        self.targets = {job.name: job.steps for job in jobs}
        self.done: dict[str, int] = {}
        self.skipped_steps = 0  # steps that this sweep has not trained itself
        self.since, self.ended, self.quiet = monotonic(), 0, quiet

    def begin(self, job: Job) -> None:
        """Wait for the run's first message."""

    def show(self, job: Job, message: Message) -> None:
        """Write a line for the begin and for an epoch."""
        target = self.targets[job.name]
        if isinstance(message, Progress):
            self.done[job.name] = min(message.steps, target)
        elif isinstance(message, Begun):
            self.skipped_steps += message.steps - self.done.get(job.name, 0)  # of an earlier attempt: no speed
            self.done[job.name] = message.steps
            verb = "resumes" if message.steps else "starts"
            self.say(f"{job.name}  {verb} at {message.steps:,}/{target:,} steps")
        else:
            self.say(epoch_line(job.name, message, target))

    def pause(self, job: Job, reason: str) -> None:
        """Write the reason."""
        self.say(f"{job.name}: {printable(reason, len(reason))}")

    def end(self, ending: Ending) -> None:
        """Write the ending and, of several runs, the remaining time."""
        self.ended, name = self.ended + 1, ending.job.name
        if ending.status != "interrupted" or ending.is_paused:
            is_trained = ending.started and (ending.status == "done" or ending.is_paused)
            self.skipped_steps += 0 if is_trained else self.targets[name] - self.done.get(name, 0)
            self.done[name] = self.targets[name]
        if ending.status != "refused" or len(self.targets) > 1:  # of one run the command's last line says it
            self.say(_ending_line(ending) + self._progress_text())

    def stop(self) -> None:
        """Write that the workers save their state."""
        self.say("stopping: every run saves its state; a second signal ends them at once")

    def say(self, message: str) -> None:
        """Write a line, unless stderr is closed."""
        if not self.quiet:
            write_line(message)

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds to the end of the sweep at the speed so far; None before the first step."""
        done, steps = sum(self.done.values()), sum(self.targets.values())
        trained_steps = done - self.skipped_steps
        return (steps - done) * (monotonic() - self.since) / trained_steps if trained_steps > 0 else None

    def _progress_text(self) -> str:
        total, seconds = len(self.targets), self.remaining_seconds
        eta = f", ETA {clock(seconds)}" if seconds is not None and self.ended < total else ""
        return f"  [{self.ended}/{total} runs{eta}]" if total > 1 else ""


class Bars(Lines):
    """One bar for each running job and, with several jobs, one for the suite."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        from rich import progress
        from rich.console import Console

        super().__init__(jobs)
        console = Console(stderr=True)
        self.narrow = console.width < WIDE
        self.bars = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=8 if self.narrow else 16),
            progress.TaskProgressColumn(),
            *(() if self.narrow else (progress.TimeElapsedColumn(),)),
            progress.TextColumn("{task.fields[note]}"),
            console=console,
            refresh_per_second=8,
            speed_estimate_period=WINDOW,
            get_time=monotonic,
        )
        steps = sum(self.targets.values())
        self.suite = self.bars.add_task(f"{len(jobs)} runs", total=steps, note="") if len(jobs) > 1 else None
        self.running: dict[str, Task] = {}

    def begin(self, job: Job) -> None:
        """Add a bar."""
        task = job.spec.task.id.removesuffix("NoFrameskip-v4")[:14] if self.narrow else job.spec.task.id
        title = f"{job.spec.algorithm} {task} seed {job.spec.seed}"
        self.bars.add_task(title, total=job.steps, note="setting up", evaluation="", last_move=-1.0)
        self.running[job.name] = self.bars.tasks[-1]

    def show(self, job: Job, message: Message) -> None:
        """Move the bars; an epoch writes a line above them."""
        super().show(job, message)
        bar = self.running[job.name]
        if isinstance(message, EpochEnd):
            bar.fields["evaluation"] = "" if message.evaluation is None else f"evaluation {message.evaluation:.6g}"
        elif isinstance(message, Begun) or monotonic() > bar.fields["last_move"] + REDRAW:
            self.bars.update(bar.id, completed=self.done[job.name])
            if isinstance(message, Progress):
                self.bars.update(bar.id, last_move=monotonic(), note=self._note(job.spec, message, bar))
            self._move_suite()

    def pause(self, job: Job, reason: str) -> None:
        """Remove the bar until the next start."""
        super().pause(job, reason)
        self._remove(job)

    def end(self, ending: Ending) -> None:
        """Remove the bar."""
        super().end(ending)
        self._remove(ending.job)
        self._move_suite()

    def say(self, message: str) -> None:
        """Write a line above the bars."""
        with suppress(OSError, ValueError):
            self.bars.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def _note(self, spec: Spec, record: Progress, bar: Task) -> str:
        """Speed, remaining time, last return and last evaluation, as far as the terminal is wide."""
        if record.evaluated is not None:
            return f"evaluating: {record.evaluated}/{spec.protocol.episodes} episodes"
        parts = [f"{bar.speed or 0.0:,.0f} steps/s"]
        if bar.time_remaining is not None:
            most = "≤ " if spec.protocol.stop is not None else ""  # a run may stop early, at a score
            parts.append(f"ETA {most}{clock(bar.time_remaining)}")
        if not self.narrow:
            parts += [f"return {record.last_return:.4g}"] if record.last_return is not None else []
            parts.append(bar.fields["evaluation"])
        return "  ".join(filter(None, parts))

    def _remove(self, job: Job) -> None:
        if (bar := self.running.pop(job.name, None)) is not None:
            self.bars.remove_task(bar.id)

    def _move_suite(self) -> None:
        if self.suite is not None:
            seconds = self.remaining_seconds
            note = f"{self.ended} ended" + (f"  ETA {clock(seconds)}" if seconds is not None else "")
            self.bars.update(self.suite, completed=sum(self.done.values()), note=note)


def epoch_line(name: str, epoch: EpochEnd, steps: int) -> str:
    """Describe an epoch in one line."""
    evaluation = (
        "no evaluation"
        if epoch.evaluation is None
        else f"evaluation {epoch.evaluation:.6g} over {epoch.episodes} episodes"
    )
    speed = "" if epoch.steps_per_second is None else f", {epoch.steps_per_second:,.0f} steps/s"
    return f"{name}  epoch {epoch.number}  {epoch.steps:,}/{steps:,} steps  {evaluation}{speed}  {clock(epoch.seconds)}"


def _ending_line(ending: Ending) -> str:
    """Describe an ending in one line, with the command's next step."""
    name, status, reason = ending.job.name, ending.status, printable(ending.reason, len(ending.reason))
    if not ending.started and status in {"done", "failed"}:
        return f"{name}: {status} already ({reason}); --force runs it again"
    match status:
        case "done":
            return f"{name}: done"
        case "interrupted":
            steps = ending.outcome.steps if ending.outcome is not None else 0
            stop = f"stopped at {steps:,} steps ({reason}); the same command resumes"
            pause = f"paused at {steps:,} steps by --until; the same command without it goes on"
            return f"{name}: {pause if ending.is_paused else stop}"
        case "running":
            return f"{name}: {reason}; left alone"
        case "failed":
            return f"{name}: failed: {reason} (traceback: {ending.job.folder / 'failure.txt'})"
        case "halted" | "crashed" | "refused":
            return f"{name}: {status}: {reason}"


def clock(seconds: float) -> str:
    """Format seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


INTERVAL = 0.5  # seconds between two Progress messages
PATIENCE = 25.0  # seconds until an orphan that does not end is killed


def stop_with_parent(pipe: int | None) -> None:
    """End this process when the parent's end of ``pipe`` is closed; None without a parent."""
    if pipe is not None:
        os.set_blocking(pipe, False)
        Thread(target=_watch, args=(pipe,), daemon=True).start()


def _watch(pipe: int) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # errors are always reported
    while not poll.poll():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)


class PipeDisplay(Lines):
    """Sends messages to the parent; its lines go to stderr, which is the run's log."""

    def __init__(self, pipe: int, jobs: Sequence[Job]) -> None:
        super().__init__(jobs)
        self.pipe, self.last_progress = pipe, 0.0

    def show(self, job: Job, message: Message) -> None:
        """Send a message; one that finds no room in the pipe is lost, and the next says more."""
        super().show(job, message)
        if isinstance(message, Progress):
            if monotonic() - self.last_progress < INTERVAL:
                return
            self.last_progress = monotonic()
        with suppress(OSError):
            os.write(self.pipe, (to_line(message) + "\n").encode())
