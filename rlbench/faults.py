"""Fault points: places where a test can end the process as kill -9 would, before, during and after every write.

``RLBENCH_FAULT=append.torn`` ends it at the first pass, ``append.torn:3`` at the third. Only ``tests/reliability`` sets
it, tries every point and checks that every file is whole. A law requires a point at every write.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import AnyStr, Final

VARIABLE: Final = "RLBENCH_FAULT"
EXIT_CODE: Final = 137  # as a shell reports kill -9

_passes: Counter[str] = Counter()


def point(name: str) -> None:
    """End the process here if ``RLBENCH_FAULT`` names this point; ``tests/reliability/points.py`` lists the points."""
    if _is_due(name):
        os._exit(EXIT_CODE)
    _passes[name] += 1


def cut(name: str, content: AnyStr) -> AnyStr:
    """The content to write before ``point(name)``: all of it, or half if the process ends there."""
    return content[: len(content) // 2] if _is_due(name) else content


def _is_due(name: str) -> bool:
    target, _, time = os.environ.get(VARIABLE, "").partition(":")
    return target == name and _passes[name] + 1 == int(time or 1)
