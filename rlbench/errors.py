"""Every error a user can meet, with its exit code.

    RlbenchError                1   a bug in rlbench; the message asks for a report
    ├── UsageError              2   the request cannot be met
    │   ├── UnknownName         2   a name that does not exist; the message suggests the nearest
    │   ├── UnknownRun          2   a name that no run has
    │   └── DoesNotFit          2   more memory or disk than this machine has
    ├── RefusedFile             2   a file that is damaged, newer than this version, or of another program
    ├── BelowReference          3   a score below the reference or the baseline
    ├── Inconclusive            4   the evidence is too thin, under --strict
    ├── RunFailed               5   a run that cannot go on
    │   ├── Diverged            5   NaN or infinity in a loss, a weight or a return
    │   ├── ResourceExhausted   5   a full disk or no memory left; the same command resumes
    │   └── BrokenEnvironment   5   an environment that violated its contract
    └── Interrupted   129/130/143   a signal; the state is saved

A message is one line: where, what, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class RlbenchError(Exception):
    """The root of the hierarchy; raised itself only for a bug."""

    exit_code = 1


class UsageError(RlbenchError):
    """The request cannot be met: a wrong value, an impossible pair, a folder that cannot be written."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, kind: str, name: str, names: Iterable[str], *, where: str = "") -> None:
        self.kind = kind
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}unknown {kind} {name!r}{suggest(name, names)}")


class UnknownRun(UsageError):
    """A name that no run has."""


class DoesNotFit(UsageError):
    """A run that needs more memory or disk than there is."""


class RefusedFile(RlbenchError):
    """A file that is refused: damaged, written by a newer version, or of another program."""

    exit_code = 2


class BelowReference(RlbenchError):
    """At least one cell is below its reference score or its baseline."""

    exit_code = 3


class Inconclusive(RlbenchError):
    """Under ``--strict``: at least one cell has too little evidence for a verdict."""

    exit_code = 4


class RunFailed(RlbenchError):
    """A run that cannot go on; its record says why and counts in the table."""

    exit_code = 5


class Diverged(RunFailed):
    """NaN or infinity in a loss, a weight or a return."""


class ResourceExhausted(RunFailed):
    """The machine, not the run, is at fault: a full disk, no memory left. The same command resumes."""


class BrokenEnvironment(RunFailed):
    """An environment that raised, hung, or answered with the wrong shape, type or a NaN."""


class Interrupted(RlbenchError):
    """SIGHUP, SIGINT or SIGTERM arrived; the state is saved and the same command resumes."""

    def __init__(self, message: str, *, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def suggest(name: str, candidates: Iterable[str]) -> str:
    """``; did you mean 'a' or 'b'?`` from the nearest names, or ``; known: a, b, c`` when none is near."""
    names = list(candidates)
    lower = {n.lower(): n for n in reversed(names)}
    low = name.lower()
    inside = [f for f in lower if name and low in f]
    beginnings = [f for f in lower if len(low) > 2 and _resembles_start(f, low)]  # pog: PongNoFrameskip-v4
    near = list(dict.fromkeys([*inside, *difflib.get_close_matches(low, lower, n=3, cutoff=0.5), *beginnings]))[:3]
    if near:
        return f"; did you mean {' or '.join(repr(lower[n]) for n in near)}?"
    listing = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"; known: {listing}" if names else ""


def suggest_path(path: Path) -> str:
    """``; did you mean 'results/toy'?`` of a missing path, from the names beside its missing part."""
    near: list[str] = []
    with suppress(OSError, StopIteration, ValueError):
        missing = next(part for part in reversed((path, *path.parents)) if not part.exists())
        if missing.is_symlink():
            return f"; {missing} is a link to a missing file"
        names = sorted(there.name for there in missing.parent.iterdir() if there.exists())
        near = difflib.get_close_matches(missing.name, names, n=3, cutoff=0.6)
        near = [str(missing.parent / name) for name in near]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _resembles_start(name: str, slip: str) -> bool:
    starts = (name[: len(slip)], name[: len(slip) + 1])
    return any(difflib.SequenceMatcher(None, slip, start).ratio() >= 0.75 for start in starts)
