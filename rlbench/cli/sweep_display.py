"""What a sweep shows while it runs, on stderr: a bar a run and one for all on a terminal, plain lines without one."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rlbench.cli.progress import Drawing, Speed, clock, moves
from rlbench.cli.progress_display import Plain

if TYPE_CHECKING:
    from rich.progress import TaskID

    from rlbench.sweep.events import Ending, Told
    from rlbench.sweep.plan import Job


def display(jobs: Sequence[Job], *, quiet: bool) -> Lines:
    """The display that suits where stderr goes."""
    if quiet:
        return Lines(jobs, quiet=True)
    return Table(jobs) if moves() else Lines(jobs)


class Advance:
    """How far a sweep has come, in steps of all its runs, and when it will end at its speed so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.budgets = {job.name: job.spec.budget.steps for job in jobs}
        self.done: dict[str, int] = {}
        self.given = 0  # steps that were there before
        self.since = monotonic()

    def begin(self, job: Job, steps: int) -> None:
        """A run goes on from here; steps that nobody here has made count for no speed."""
        self.given += steps - self.done.get(job.name, 0)
        self.done[job.name] = steps

    def come(self, job: Job, steps: int) -> None:
        """A run has come this far."""
        self.done[job.name] = min(steps, self.budgets[job.name])

    def end(self, job: Job, *, here: bool) -> None:
        """A run is over, and nothing of it is left to do."""
        left = self.budgets[job.name] - self.done.get(job.name, 0)
        self.given += 0 if here else left
        self.done[job.name] = self.budgets[job.name]

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return sum(self.done.values()) / max(1, sum(self.budgets.values()))

    @property
    def left(self) -> float | None:
        """Seconds to the end; None while nothing is known."""
        made = sum(self.done.values()) - self.given
        if made <= 0:
            return None
        return (sum(self.budgets.values()) - sum(self.done.values())) * (monotonic() - self.since) / made


class Lines:
    """A line for each run that starts, for each of its epochs, and for its end; for logs."""

    def __init__(self, jobs: Sequence[Job], *, quiet: bool = False) -> None:
        self.advance, self.total, self.ended, self.quiet = Advance(jobs), len(jobs), 0, quiet

    def __enter__(self) -> Self:
        """Nothing is taken."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was taken."""

    def begin(self, job: Job) -> None:
        """Says so."""
        self.say(f"{job.name}  starts ({job.threads} thread{'s' if job.threads > 1 else ''})")

    def tell(self, job: Job, told: Told) -> None:
        """Epochs, and where a run that was interrupted goes on."""
        from rlbench.sweep.events import Begun, Said

        if isinstance(told, Begun):
            self.advance.begin(job, told.steps)
            if told.steps:
                self.say(f"{job.name}  resumes at {told.steps:,}/{job.spec.budget.steps:,} steps")
        elif isinstance(told, Said):
            self.say(told.text)
        else:
            self.advance.come(job, told.steps)

    def pause(self, job: Job, reason: str) -> None:
        """Says why."""
        self.say(f"{job.name}: {reason}")

    def end(self, ending: Ending) -> None:
        """Says how, and how much is left."""
        self.ended += 1
        if ending.status != "interrupted":
            self.advance.end(ending.job, here=ending.log is not None)
        left = self.advance.left
        rest = f", ETA {clock(left)}" if left is not None and self.ended < self.total else ""
        why = f" ({ending.reason})" if ending.status != "done" or ending.log is None else ""
        self.say(f"{ending.job.name}: {ending.status}{why}  [{self.ended}/{self.total} runs{rest}]")

    def stop(self) -> None:
        """Says what is being waited for."""
        self.say("stopping: every run saves its state; a second signal ends them at once")

    def say(self, message: str) -> None:
        """A line, as long as somebody listens."""
        if not self.quiet:
            Plain().say(message)


class Table(Lines):
    """A bar for every running job and one for the sweep."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(jobs)
        self.drawing = Drawing(redraws=4)
        self.bars = self.drawing.bars
        self.all = self.bars.add_task(f"{len(jobs)} runs", total=1.0, note="")
        self.running: dict[str, TaskID] = {}
        self.speeds: dict[str, Speed] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def begin(self, job: Job) -> None:
        """A fresh bar."""
        title = self.drawing.title(job.spec)
        self.running[job.name] = self.bars.add_task(title, total=job.spec.budget.steps, note="setting up")
        self.speeds[job.name] = Speed()

    def tell(self, job: Job, told: Told) -> None:
        """Moves the bars; an epoch leaves a line above them."""
        from rlbench.sweep.events import Begun, Said

        super().tell(job, told)
        bar = self.running.get(job.name)
        if bar is None or isinstance(told, Said):
            return
        if isinstance(told, Begun):
            self.bars.update(bar, completed=told.steps)
        else:
            note = self.drawing.note(job.spec, told, self.speeds[job.name])
            self.bars.update(bar, completed=self.advance.done[job.name], note=note)
        self._sum()

    def pause(self, job: Job, reason: str) -> None:
        """Takes the bar away for now."""
        super().pause(job, reason)
        self._drop(job)

    def end(self, ending: Ending) -> None:
        """Takes the bar away."""
        super().end(ending)
        self._drop(ending.job)
        self._sum()

    def say(self, message: str) -> None:
        """A line above the bars."""
        self.drawing.say(message)

    def _drop(self, job: Job) -> None:
        bar = self.running.pop(job.name, None)
        if bar is not None:
            self.bars.remove_task(bar)

    def _sum(self) -> None:
        left = self.advance.left
        note = f"{self.ended} ended" + (f"  ETA {clock(left)}" if left is not None else "")
        self.bars.update(self.all, completed=self.advance.share, note=note)
