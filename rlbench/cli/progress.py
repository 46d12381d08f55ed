"""How progress is drawn on stderr, of one run or of many: bars with a speed and a time to the end, and lines."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from rlbench.config.run import Spec
    from rlbench.records.types import Progress

WINDOW = 20.0  # seconds over which the speed is measured
WIDE = 110  # columns from which everything fits on a line


def moves() -> bool:
    """Whether stderr is a terminal on which a bar can move."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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


class Drawing:
    """Bars side by side, each with a title and a note, and lines that stay above them."""

    def __init__(self, *, redraws: int, elapsed: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self.narrow = console.width < WIDE
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=8 if self.narrow else 16),
            TaskProgressColumn(),
            *((TimeElapsedColumn(),) if elapsed and not self.narrow else ()),
            TextColumn("{task.fields[note]}"),
        )
        self.bars: Bars = Progress(*columns, console=console, refresh_per_second=redraws)

    def title(self, spec: Spec) -> str:
        """What a run is called beside its bar."""
        task = spec.task.id.removesuffix("NoFrameskip-v4")[:14] if self.narrow else spec.task.id
        return f"{spec.algorithm} {task} seed {spec.seed}"

    def note(self, spec: Spec, record: Progress, speed: Speed, more: str = "") -> str:
        """Where a run is, at which speed, and for how long still; ``more`` where there is room for it."""
        if record.evaluated is not None:
            return f"evaluating: {record.evaluated}/{spec.protocol.episodes} games"
        pace = speed.at(record.steps)
        parts = [f"{pace:,.0f} steps/s"]
        if pace > 0:
            parts.append(f"ETA {clock((spec.budget.steps - record.steps) / pace)}")
        if record.last_return is not None and not self.narrow:
            parts.append(f"return {record.last_return:.4g}")
        if more and not self.narrow:
            parts.append(more)
        return "  ".join(parts)

    def say(self, message: str) -> None:
        """A line above the bars."""
        with suppress(OSError, ValueError):
            self.bars.console.print(message, highlight=False, markup=False, soft_wrap=True)
