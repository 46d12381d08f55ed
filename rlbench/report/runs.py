"""Runs as a report needs them: read from their records in a fraction of the time that the whole record takes.

Of an epoch's line only what follows the training games is parsed, and nothing is validated beyond its checksum and the
types of what is used. ``store.read`` gives the whole record; both refuse the same files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rlbench.config.names import cleaned, named, printable, texts
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files
from rlbench.records.attempts import resumptions
from rlbench.report.attempts import Attempt, attempts

PARTS = ("spec.json", "epochs.jsonl", "outcome.json", "checkpoint")
STATUSES = ("done", "failed", "interrupted")
SEAL = len('{"checksum":"0123456789abcdef",')


class Evaluation(NamedTuple):
    """One evaluation of a run."""

    env_steps: int
    seconds: float  # wall clock since the run began
    mean: float  # of the games' raw returns


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run as it was found on disk."""

    folder: Path
    suite: str
    algorithm: str
    task: str
    dataset: str  # empty where nothing was recorded beforehand
    seed: int
    id: str  # of its settings: runs of equal id are repeats of each other
    smoke: bool
    budget: int  # steps it was to take
    settings: Mapping[str, object]  # the Spec as it was written
    environment: Mapping[str, object]  # where it was made
    evaluations: tuple[Evaluation, ...]
    speeds: tuple[
        float, ...
    ]  # agent steps a second, per epoch in which it learned; gradient steps where data are given
    env_steps: int  # at the end of its last epoch
    seconds: float
    status: str  # done, failed, or interrupted, which includes running
    reason: str  # one printable line, whatever the record holds
    curve: str = ""  # SHA-256 of its losses and returns: equal records are copies of each other, whatever their clock
    resumed: tuple[Mapping[str, object], ...] = ()  # what differed in the environment of a later process
    attempts: tuple[Attempt, ...] = ()  # put aside by ``--force``

    @property
    def environments(self) -> tuple[Mapping[str, object], ...]:
        """The environment of every process that made it, as far as they differ."""
        found = [dict(self.environment)]
        for changes in self.resumed:
            found.append({**found[-1], **changes})
        return tuple(found)

    @property
    def env_id(self) -> str:
        """What stepped the environment, as the run noted it."""
        noted = self.environment.get("env")
        made = noted.get("env") if isinstance(noted, dict) else None
        return made if isinstance(made, str) else self.task


def folders(results: Path) -> Iterator[Path]:
    """Every run's folder below ``results``, in order of name; what ``--force`` put aside is not a run.

    Raises:
        UsageError: ``results`` is no folder.
        RefusedFile: a folder in it cannot be read, is a link, or has a name that does not print.
    """
    if results.exists() and not results.is_dir():
        raise UsageError(f"{results}: not a folder; choose a folder of records with --results")
    for place, names, _ in os.walk(results, onerror=_unreadable):
        names[:] = sorted(n for n in names if not n.startswith(("attempt-", ".")))
        for name in names:
            files.refuse_link(Path(place, name))
            if not name.isprintable():
                raise RefusedFile(f"{Path(place, printable(name))}: has a name that does not print; rename the folder")
        if Path(place).name.startswith("seed="):
            names.clear()
            if any(Path(place, part).exists() for part in PARTS):
                yield Path(place)


def _unreadable(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # nothing has been recorded yet, or it went meanwhile
    raise RefusedFile(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")


def read(folder: Path) -> Run:
    """A run's record.

    Raises:
        RefusedFile: a file is damaged, missing or newer than this version; the message names it.
    """
    return _read(folder, tuple(map(_stamp, (folder / part for part in PARTS[:3]))))


def epoch_numbers(folder: Path) -> list[str]:
    """The losses and returns of each epoch of a run as text: equal text, equal to the bit."""
    return [line.numbers for line in _epochs(folder / "epochs.jsonl", complete=False)]


@lru_cache(maxsize=8192)
def _read(folder: Path, stamps: tuple[tuple[int, int, int], ...]) -> Run:
    """One reading for all the tables and pictures of a report, until a file changes."""
    del stamps  # they say which reading is meant
    head = files.read_sealed(folder / "spec.json")
    ended = _outcome(folder / "outcome.json")
    status = str(ended.get("status", "interrupted"))
    epochs = list(_epochs(folder / "epochs.jsonl", complete=status != "interrupted"))
    counted = ended.get("epochs", 0)
    if ended and (len(epochs) < int(str(counted)) or (status != "interrupted" and len(epochs) > int(str(counted)))):
        raise RefusedFile(
            f"{folder / 'epochs.jsonl'}: holds {len(epochs)} epochs, outcome.json counts {counted}; restore it"
        )
    try:
        return _run(folder, head, epochs, status, str(ended.get("reason", "")))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise RefusedFile(f"{folder / 'spec.json'}: not a spec of this schema; restore it") from None


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes whenever a file does."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Line(NamedTuple):
    env_steps: int
    seconds: float
    speed: float | None  # None while nothing was learned
    evaluation: Evaluation | None
    numbers: str  # its losses and returns


def _run(folder: Path, head: dict[str, object], epochs: list[_Line], status: str, reason: str) -> Run:
    from rlbench.config.run import recorded_settings

    spec, environment = recorded_settings(head["spec"]), cleaned(head.get("environment"))
    if not isinstance(spec, dict):
        raise TypeError
    try:
        for text in filter(None, (str(head["id"]), *texts(spec))):
            named(text)
    except ValueError as error:
        raise RefusedFile(f"{folder / 'spec.json'}: {error}") from None
    task = spec["task"]
    _same_identity(spec, head, folder)
    return Run(
        folder=folder,
        suite=str(spec["suite"]),
        algorithm=str(spec["algorithm"]),
        task=str(task["id"]),
        dataset=str(task.get("dataset") or ""),
        seed=int(spec["seed"]),
        id=str(head["id"]),
        smoke=bool(spec["smoke"]),
        budget=int(spec["budget"]["steps"]),
        settings=spec,
        environment=environment if isinstance(environment, dict) else {},
        evaluations=tuple(line.evaluation for line in epochs if line.evaluation is not None),
        speeds=tuple(
            _updating(epochs) if task.get("kind") == "offline" else (e.speed for e in epochs if e.speed is not None)
        ),
        env_steps=epochs[-1].env_steps if epochs else 0,
        seconds=epochs[-1].seconds if epochs else 0.0,
        status=status,
        reason=printable(reason),
        curve=sha256("\n".join(line.numbers for line in epochs).encode()).hexdigest(),
        resumed=tuple(
            resumption.environment for resumption in resumptions({"resumed": cleaned(head.get("resumed", []))})
        ),
        attempts=attempts(folder),
    )


def _same_identity(spec: dict[str, object], head: dict[str, object], folder: Path) -> None:
    """Refuse settings that stand under the identity of others."""
    from rlbench.config.run import Spec

    identity = Spec.model_validate(spec, strict=False).id
    if head["id"] != identity:
        raise RefusedFile(f"{folder / 'spec.json'}: says it is {head['id']}, its settings are {identity}; restore it")


def _updating(epochs: Sequence[_Line]) -> Iterator[float]:
    """Gradient steps a second of each epoch but the first, its evaluation among them."""
    for before, line in pairwise(epochs):
        if line.env_steps > before.env_steps and line.seconds > before.seconds:
            yield (line.env_steps - before.env_steps) / (line.seconds - before.seconds)


def _outcome(path: Path) -> dict[str, object]:
    """How the run ended; empty while nothing says so."""
    if not path.exists():
        return {}
    found = files.read_sealed(path)
    if found.get("status") not in STATUSES or type(found.get("epochs")) is not int:
        raise RefusedFile(f"{path}: not a record of this schema; restore it, or start over with --force")
    return found


def _epochs(path: Path, *, complete: bool) -> Iterator[_Line]:
    if not path.exists():
        return
    *lines, tail = files.read_text(path).split("\n")
    if tail and complete:
        raise RefusedFile(f"{path}: damaged (its last line is torn); restore it, or start over with --force")
    for number, text in enumerate(lines):
        where = f"{path}:{number + 1}"
        try:
            yield _line(text, number, where)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
            raise RefusedFile(f"{where}: not a record of this schema; restore it") from None


def _line(text: str, number: int, where: str) -> _Line:
    content = _tail(text) or files.unsealed(text, where)
    if content["number"] != number:
        raise RefusedFile(f"{where}: epoch {content['number']} where {number} was due; restore it")
    steps, seconds = content["env_steps"] or content["updates"], content["seconds"]  # offline none is ever taken
    if not isinstance(steps, int) or not isinstance(seconds, int | float):
        raise TypeError
    evaluated, learned = content["evaluated"], content["updated"] is not None
    evaluation, returns = None, None
    if isinstance(evaluated, dict):
        returns = evaluated["returns"]
        mean = sum(evaluated["returns"]) / len(evaluated["returns"])
        if not math.isfinite(mean):
            raise ValueError
        evaluation = Evaluation(steps, float(seconds), mean)
    elif evaluated is not None:
        raise TypeError
    numbers = json.dumps([content["updated"], returns])
    return _Line(steps, float(seconds), _speed(text) if learned else None, evaluation, numbers)


def _tail(text: str) -> dict[str, object] | None:
    """What follows the training games in a line as this version writes it; None for any other."""
    if not text.startswith('{"checksum":"') or text[SEAL - 2 : SEAL] != '",':
        return None
    body = "{" + text[SEAL:]
    start = body.find(',"env_steps":')
    if start < 0 or sha256(body.encode()).hexdigest()[:16] != text[13:29]:
        return None
    found = json.loads("{" + body[start + 1 :])
    known = isinstance(found, dict) and found.get("schema_version") == files.SCHEMA_VERSION
    return found if known else None


def _speed(text: str) -> float | None:
    """The epoch's agent steps a second; None where it collected nothing."""
    _, found, rest = text.partition('"steps_per_second":')
    value = float(rest[: rest.index("}")].partition(",")[0]) if found else 0.0
    return value if value > 0 else None
