"""What a run shows while it runs, on stderr: a moving bar on a terminal, one line an epoch without one, or nothing."""

from __future__ import annotations

import sys
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rlbench.cli.progress import Drawing, Speed, clock, moves

if TYPE_CHECKING:
    from rich.progress import TaskID

    from rlbench.config.run import Spec
    from rlbench.records.types import Epoch, Progress

REDRAW = 0.1  # seconds between two looks at the bar


class Display(Protocol):
    """Shows runs one after another."""

    def __enter__(self) -> Self:
        """Take the terminal."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""

    def begin(self, spec: Spec, done: int) -> None:
        """A run starts, or goes on after ``done`` steps."""

    def show(self, record: Progress | Epoch) -> None:
        """The run has come this far."""

    def end(self, message: str) -> None:
        """The run is over, and this is how."""

    def say(self, message: str) -> None:
        """A line that stays."""


def display(*, quiet: bool, runs: int) -> Display:
    """The display that suits where stderr goes."""
    if quiet:
        return Silent()
    return Terminal(runs) if moves() else Plain()


def epoch_line(name: str, epoch: Epoch, steps: int) -> str:
    """One epoch in one line."""
    judged = (
        f"evaluation {epoch.evaluated.mean:.6g} over {len(epoch.evaluated.returns)} games"
        if epoch.evaluated
        else "no evaluation"
    )
    collected = epoch.collected
    pace = f", {collected.steps_per_second:,.0f} steps/s" if collected is not None and collected.steps else ""
    return f"{name}  epoch {epoch.number}  {epoch.steps:,}/{steps:,} steps  {judged}{pace}  {clock(epoch.seconds)}"


class Silent:
    """Nothing, but what has to be known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was taken."""

    def begin(self, spec: Spec, done: int) -> None:
        """Nothing."""

    def show(self, record: Progress | Epoch) -> None:
        """Nothing."""

    def end(self, message: str) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Nothing."""


class Plain(Silent):
    """One line an epoch, for logs."""

    def __init__(self) -> None:
        self.name, self.steps = "", 0

    def begin(self, spec: Spec, done: int) -> None:
        """Says from where."""
        self.name, self.steps = f"{spec.name} seed {spec.seed}", spec.budget.steps
        self.say(f"{self.name}  {'resumes at' if done else 'starts at'} {done:,}/{self.steps:,} steps")

    def show(self, record: Progress | Epoch) -> None:
        """Epochs only."""
        from rlbench.records.types import Epoch

        if isinstance(record, Epoch):
            self.say(epoch_line(self.name, record, self.steps))

    def end(self, message: str) -> None:
        """Says how."""
        self.say(message)

    def say(self, message: str) -> None:
        """A line, as long as somebody listens."""
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(message + "\n")
            sys.stderr.flush()


class Terminal(Silent):
    """A bar for the running seed and, with several runs, one for all of them."""

    def __init__(self, runs: int) -> None:
        self.drawing = Drawing(redraws=8, elapsed=True)
        self.bars = self.drawing.bars
        self.all: TaskID | None = self.bars.add_task("all runs", total=runs, note="") if runs > 1 else None
        self.bar: TaskID | None = None
        self.spec: Spec | None = None
        self.name, self.looked, self.evaluation = "", 0.0, ""
        self.speed = Speed()

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def begin(self, spec: Spec, done: int) -> None:
        """A fresh bar."""
        self.spec, self.name, self.evaluation = spec, f"{spec.name} seed {spec.seed}", ""
        self.speed = Speed()
        title = self.drawing.title(spec)
        self.bar = self.bars.add_task(title, total=spec.budget.steps, completed=done, note="setting up")

    def show(self, record: Progress | Epoch) -> None:
        """Moves the bar; an epoch leaves a line above it."""
        from rlbench.records.types import Epoch

        if self.bar is None or self.spec is None:
            return
        steps = self.spec.budget.steps
        if isinstance(record, Epoch):
            self.say(epoch_line(self.name, record, steps))
            self.evaluation = f"evaluation {record.evaluated.mean:.4g}" if record.evaluated else ""
        elif monotonic() - self.looked > REDRAW:
            self.looked = monotonic()
            note = self.drawing.note(self.spec, record, self.speed, self.evaluation)
            self.bars.update(self.bar, completed=min(record.steps, steps), note=note)

    def end(self, message: str) -> None:
        """Takes the bar away."""
        self.say(message)
        if self.bar is not None:
            self.bars.remove_task(self.bar)
            self.bar = None
        if self.all is not None:
            self.bars.advance(self.all)

    def say(self, message: str) -> None:
        """A line above the bars."""
        self.drawing.say(message)
