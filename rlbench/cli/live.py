"""What a run shows while it runs, on stderr: a moving bar on a terminal, one line an epoch without one, or nothing."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from rlbench.record.types import Epoch, Progress
    from rlbench.spec.run import Spec

WINDOW = 20.0  # seconds over which the speed is measured
WIDE = 110  # columns from which everything fits on a line
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
    moving = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Terminal(runs) if moving else Plain()


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


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
        from rlbench.record.types import Epoch

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


class Speed:
    """Steps a second over the last seconds, so that the remaining time follows the machine's load."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def at(self, steps: int) -> float:
        """Steps a second now; 0 while unknown."""
        now = monotonic()
        self.seen.append((now, steps))
        while now - self.seen[0][0] > WINDOW and len(self.seen) > 2:  # two points make a speed
            self.seen.pop(0)
        (then, before), elapsed = self.seen[0], now - self.seen[0][0]
        return (steps - before) / elapsed if elapsed > 0 and then < now else 0.0


class Terminal(Silent):
    """A bar for the running seed and, with several runs, one for all of them."""

    def __init__(self, runs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self.narrow = console.width < WIDE
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=8 if self.narrow else 16),
            TaskProgressColumn(),
            *(() if self.narrow else (TimeElapsedColumn(),)),
            TextColumn("{task.fields[note]}"),
        )
        self.bars: Bars = Progress(*columns, console=console, refresh_per_second=8)
        self.all: TaskID | None = self.bars.add_task("all runs", total=runs, note="") if runs > 1 else None
        self.bar: TaskID | None = None
        self.name, self.steps, self.games, self.looked, self.evaluation = "", 0, 0, 0.0, ""
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
        self.name, self.steps, self.evaluation = f"{spec.name} seed {spec.seed}", spec.budget.steps, ""
        self.games, self.speed = spec.protocol.episodes, Speed()
        task = spec.task.id.removesuffix("NoFrameskip-v4")[:14] if self.narrow else spec.task.id
        title = f"{spec.algorithm} {task} seed {spec.seed}"
        self.bar = self.bars.add_task(title, total=self.steps, completed=done, note="setting up")

    def show(self, record: Progress | Epoch) -> None:
        """Moves the bar; an epoch leaves a line above it."""
        from rlbench.record.types import Epoch

        if self.bar is None:
            return
        if isinstance(record, Epoch):
            self.say(epoch_line(self.name, record, self.steps))
            self.evaluation = f"evaluation {record.evaluated.mean:.4g}  " if record.evaluated else ""
        elif monotonic() - self.looked > REDRAW:
            self.looked = monotonic()
            self.bars.update(self.bar, completed=min(record.steps, self.steps), note=self._note(record))

    def _note(self, record: Progress) -> str:
        if record.judged is not None:
            return f"evaluating: {record.judged}/{self.games} games"
        pace = self.speed.at(record.steps)
        left = f"ETA {clock((self.steps - record.steps) / pace)}  " if pace > 0 else ""
        if self.narrow:
            return f"{pace:,.0f} steps/s  {left}".rstrip()
        last = f"return {record.last_return:.4g}  " if record.last_return is not None else ""
        return f"{pace:,.0f} steps/s  {left}{last}{self.evaluation}".rstrip()

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
        with suppress(OSError, ValueError):
            self.bars.console.print(message, highlight=False, markup=False, soft_wrap=True)
