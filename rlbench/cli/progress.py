"""Progress bars on stderr, with speed and remaining time."""

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
    """Return whether stderr is a terminal on which a bar can move."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def clock(seconds: float) -> str:
    """Format seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Speed:
    """Steps a second over a sliding window, so that the remaining time follows the machine's load."""

    def __init__(self) -> None:
        self._window: list[tuple[float, int]] = []

    def at(self, steps: int) -> float:
        """Add a measurement and return steps a second; 0 after the first."""
        now = monotonic()
        self._window.append((now, steps))
        while now - self._window[0][0] > WINDOW and len(self._window) > 2:  # two points make a speed
            self._window.pop(0)
        (then, before), elapsed = self._window[0], now - self._window[0][0]
        return (steps - before) / elapsed if elapsed > 0 and then < now else 0.0


class Drawing:
    """Progress bars, each with a title and a note, and lines above them."""

    def __init__(self, *, redraws: int) -> None:
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
        self.bars: Bars = Progress(*columns, console=console, refresh_per_second=redraws)

    def title(self, spec: Spec) -> str:
        """Title of a run's bar."""
        task = spec.task.id.removesuffix("NoFrameskip-v4")[:14] if self.narrow else spec.task.id
        return f"{spec.algorithm} {task} seed {spec.seed}"

    def note(self, spec: Spec, record: Progress, speed: Speed, more: str = "") -> str:
        """Speed, remaining time, last return and ``more``, as far as the terminal is wide."""
        if record.evaluated is not None:
            return f"evaluating: {record.evaluated}/{spec.protocol.episodes} episodes"
        rate = speed.at(record.steps)
        parts = [f"{rate:,.0f} steps/s"]
        if rate > 0:
            most = "≤ " if spec.protocol.stop is not None else ""  # a run may stop early, at a score
            parts.append(f"ETA {most}{clock((spec.budget.steps - record.steps) / rate)}")
        if record.last_return is not None and not self.narrow:
            parts.append(f"return {record.last_return:.4g}")
        if more and not self.narrow:
            parts.append(more)
        return "  ".join(parts)

    def say(self, message: str) -> None:
        """Write a line above the bars."""
        with suppress(OSError, ValueError):
            self.bars.console.print(message, highlight=False, markup=False, soft_wrap=True)
