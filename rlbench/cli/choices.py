"""Values that arguments and options take."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from rlbench.errors import UsageError

BASELINE_ACTIONS: Final = ("save", "show")
EXECUTORS: Final = ("local", "ray")
FORMATS: Final = ("rich", "md", "csv", "json", "html")
LISTS: Final = ("suites", "algos", "tasks", "runs")
PLOTS: Final = ("curves", "walltime", "profile", "interval", "improvement", "forest")
TRACKERS: Final = ("tensorboard", "wandb")


def parse_count(text: str | int, option: str = "--steps") -> int:
    """Parse a number of steps: ``100000``, ``100_000``, ``1e5``, ``100k`` or ``1M``.

    Raises:
        UsageError: the text is no whole number of at least 1.
    """
    written = str(text).replace("_", "").replace(",", "")
    unit = {"k": 1e3, "K": 1e3, "M": 1e6}.get(written[-1:], 1.0)
    with suppress(ValueError, OverflowError):
        count = round(float(written[:-1] if unit > 1 else written) * unit, 6)
        if 1 <= count <= 1e15 and count.is_integer():
            return int(count)
    raise UsageError(f"{option} {text}: no whole number of steps; write it as 100000, 1e5, 100k or 1M")
