"""Lists of seeds as they are written on a command line: ``0``, ``0-9``, ``0,3,7``, ``0-2,7``."""

from __future__ import annotations

import re

from rlbench.errors import UsageError

HIGHEST = 2**32 - 1
MOST = 10_000
"""More seeds than this in one command are a slip of the keyboard."""


def parse_seeds(text: str, source: str = "--seeds") -> tuple[int, ...]:
    """The seeds in the order they were written.

    Raises:
        UsageError: a part is not a number or a range, runs backwards, or names a seed twice.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        for seed in _range(part.strip(), f"{source} {text!r}"):
            if seed in found:
                raise UsageError(f"{source} {text!r}: seed {seed} is named twice; name each seed once")
            found[seed] = None
            if len(found) > MOST:
                raise UsageError(f"{source} {text!r}: more than {MOST} seeds; split them over several commands")
    return tuple(found)


def _range(part: str, where: str) -> range:
    match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
    if match is None:
        raise UsageError(f"{where}: {part!r} is not a seed; write seeds as 0, 0-9, 0,3,7 or 0-2,7")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise UsageError(f"{where}: {part} runs backwards; write {last}-{first}")
    if last > HIGHEST:
        raise UsageError(f"{where}: {last} is too large for a seed; the highest is {HIGHEST}")
    return range(first, last + 1)
