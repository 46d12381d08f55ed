"""The only writer below ``results/``: claims a run's folder, appends its epochs, replaces its outcome.

results/<suite>/<algo>/<task>[@<dataset>]/<spec id>/seed=<n>/
    spec.json       the resolved Spec, its id, the environment it ran in, and what differed where it was resumed
    epochs.jsonl    one sealed line an epoch
    outcome.json    how it ended, or stands
    failure.txt     the traceback of what ended it, if it failed
    crash.txt       there while it runs; left behind by a process that died, with what it could still say
    checkpoint/     what resuming needs; never committed
    attempt-<k>/    what ``--force`` put aside
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from rlbench import disk, faults
from rlbench.config.names import cleaned
from rlbench.config.overrides import one_line
from rlbench.config.run import Spec, recorded_settings
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError
from rlbench.records import files, manifest
from rlbench.records.attempts import Resumption, resumptions
from rlbench.records.locks import Claim
from rlbench.records.types import Epoch, Outcome

RecordT = TypeVar("RecordT")
_EPOCH = TypeAdapter(Epoch)
_OUTCOME = TypeAdapter(Outcome)
CHANGED = "was changed while the run was under way"
PARTS = ("spec.json", "epochs.jsonl", "outcome.json", "checkpoint", "failure.txt", "crash.txt")


def folder_of(spec: Spec, results: Path) -> Path:
    """Where the run lives: equal specs, equal folder."""
    return results / spec.suite / spec.algorithm / spec.place / spec.id / f"seed={spec.seed}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One run as it was found on disk."""

    folder: Path
    spec: Spec
    environment: Mapping[str, object]  # of the first attempt
    epochs: tuple[Epoch, ...]
    outcome: Outcome | None


def read(folder: Path) -> Record:
    """A run's record, whole.

    A torn last line of ``epochs.jsonl`` is what a crash leaves behind: it is dropped as long as the run
    has no outcome, or one that says it was interrupted before.

    Raises:
        RefusedFile: a file is damaged, missing or newer than this version; the message names it.
    """
    head = files.read_sealed(folder / "spec.json")
    spec = _model(Spec, head.get("spec"), folder / "spec.json")
    outcome = read_outcome(folder)
    ended = outcome is not None and outcome.status != "interrupted"
    epochs = read_epochs(folder, complete=ended)
    if outcome is not None and (len(epochs) < outcome.epochs or (ended and len(epochs) > outcome.epochs)):
        raise RefusedFile(
            f"{folder / 'epochs.jsonl'}: holds {len(epochs)} epochs, outcome.json counts {outcome.epochs}; restore it"
        )
    environment = cleaned(head.get("environment"))
    return Record(
        folder=folder,
        spec=spec,
        environment=environment if isinstance(environment, dict) else {},
        epochs=epochs,
        outcome=outcome,
    )


def read_outcome(folder: Path) -> Outcome | None:
    """How the run ended, or None while nothing says so."""
    path = folder / "outcome.json"
    return _parsed(_OUTCOME, files.read_sealed(path), str(path)) if path.exists() else None


def read_epochs(folder: Path, *, complete: bool) -> tuple[Epoch, ...]:
    """The epochs in order; with ``complete`` a torn last line is refused, not dropped.

    Raises:
        RefusedFile: a line is damaged, newer, or out of order.
    """
    path = folder / "epochs.jsonl"
    if not path.exists():
        return ()
    *lines, tail = files.read_text(path).split("\n")
    if tail and complete:
        raise RefusedFile(f"{path}: damaged (its last line is torn); restore it, or start over with --force")
    found = []
    for number, line in enumerate(lines):
        epoch = epoch_of(line, f"{path}:{number + 1}")
        if epoch.number != number:
            raise RefusedFile(f"{path}:{number + 1}: epoch {epoch.number} where {number} was due; restore it")
        found.append(epoch)
    return tuple(found)


def line_of(epoch: Epoch) -> str:
    """An epoch as a line of ``epochs.jsonl``."""
    return files.sealed(_plain(epoch))


def epoch_of(line: str, where: str) -> Epoch:
    """It again; ``where`` says where it stood.

    Raises:
        RefusedFile: it is damaged.
    """
    return _parsed(_EPOCH, files.unsealed(line, where), where)


class Store:
    """One run's folder, held by one process."""

    def __init__(self, folder: Path, claim: Claim, spec: Spec, environment: Mapping[str, object]) -> None:
        self.folder, self._claim, self.spec, self.environment = folder, claim, spec, environment
        self._epochs: list[Epoch] = []
        self._size = 0  # bytes of epochs.jsonl
        self.crash: IO[str] | None = None  # where a dying process may still write
        self.died: str | None = None  # what is known of an attempt that ended without a word

    @classmethod
    def claim(cls, spec: Spec, results: Path, environment: Mapping[str, object], *, force: bool = False) -> Self | None:
        """Hold the run's folder, made if need be; None while another process holds it.

        Raises:
            UsageError: the folder cannot be written.
            RefusedFile: what lies there is damaged or newer, a link or a special file.
        """
        folder = folder_of(spec, results)
        files.refuse_links(folder, results)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{results}: cannot be written ({error.strerror}); choose another folder with --results"
            ) from None
        faults.point("claim.made")
        claim = Claim(folder)
        try:
            if not claim.acquire():
                return None
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot be written ({error.strerror}); choose another folder with --results"
            ) from None
        store = cls(folder, claim, spec, environment)
        try:
            store._open(spec, environment, force=force)
            store._begin()
        except BaseException:
            store.release()
            raise
        return store

    def release(self) -> None:
        """Let other processes have the folder."""
        if self.crash is not None:
            self.crash.close()
        if self.crash is not None and self._claim.intact():
            with suppress(OSError):
                path = self.folder / "crash.txt"
                if path.stat().st_size == 0:  # what a crash has said stays
                    path.unlink()
                    faults.point("crash.removed")
        self.crash = None
        self._claim.release()

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """What is on disk."""
        return tuple(self._epochs)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, or stands."""
        return read_outcome(self.folder)

    def append(self, epoch: Epoch) -> bool:
        """Put an epoch on disk; whether it replaced others.

        After a resume the epochs since the checkpoint come again. One that repeats what is recorded changes
        nothing; one that differs (another machine, another library) replaces it and all that followed.

        Raises:
            ResourceExhausted: the folder is no longer as this process left it, or the disk is full.
        """
        self.assert_held()
        replaces = epoch.number < len(self._epochs)
        if replaces:
            if scores(self._epochs[epoch.number]) == scores(epoch):
                return False
            (self.folder / "outcome.json").unlink(missing_ok=True)  # it counts epochs that go now
            faults.point("outcome.dropped")
            del self._epochs[epoch.number :]
            files.replace(self.folder / "epochs.jsonl", self._text())
            self._size = len(self._text().encode())
        line = line_of(epoch)
        files.append(self.folder / "epochs.jsonl", line)
        self._epochs.append(epoch)
        self._size += len(line.encode()) + 1
        return replaces

    def assert_held(self) -> None:
        """Do nothing while the folder is this process's and its epochs are as long as they were written.

        Raises:
            ResourceExhausted: another process may hold it, or something else has written there.
        """
        lines = self.folder / "epochs.jsonl"
        if not self._claim.intact():
            raise ResourceExhausted(f"{self._claim.path}: the lock {CHANGED}; type the same command again: it resumes")
        if _size(lines) != self._size:
            raise ResourceExhausted(f"{lines}: {CHANGED}; restore it, or start over with --force")

    def finish(self, outcome: Outcome) -> None:
        """Replace the outcome.

        Raises:
            ResourceExhausted: the folder is no longer as this process left it, or the disk is full.
        """
        self.assert_held()
        if outcome.status == "done":
            self._reread()
        files.replace(self.folder / "outcome.json", files.sealed(_plain(outcome)) + "\n")

    def explain(self, text: str) -> None:
        """Keep what led to a failure; on a full disk the reason in the outcome has to do."""
        with suppress(ResourceExhausted, UsageError):
            self.assert_held()
            files.replace(self.folder / "failure.txt", text)

    def _reread(self) -> None:
        """Refuse to call a record done that a reader would refuse, or would not find to be this run's."""
        lines = self.folder / "epochs.jsonl"
        try:
            text = files.read_text(lines) if self._epochs else ""
            same = read(self.folder).spec == self.spec and text == self._text()
        except RefusedFile as error:
            raise ResourceExhausted(f"{error} (it {CHANGED})") from None
        if not same:
            raise ResourceExhausted(f"{self.folder}: {CHANGED}; restore it, or start over with --force")

    def _text(self) -> str:
        """All of ``epochs.jsonl``."""
        return "".join(line_of(epoch) + "\n" for epoch in self._epochs)

    def _begin(self) -> None:
        path = self.folder / "crash.txt"
        if path.exists():
            words = path.stat().st_size > 0
            self.died = f"an attempt crashed: {path} says where" if words else "the last attempt died without a word"
        with files.writing(path):
            self.crash = TextIOWrapper(files.appended(path), encoding="utf-8")
            faults.point("crash.opened")

    def _open(self, spec: Spec, environment: Mapping[str, object], *, force: bool) -> None:
        self._sweep()
        if force:
            set_aside(self.folder)
        path = self.folder / "spec.json"
        if not path.exists():
            left = [part for part in PARTS if (self.folder / part).exists()]
            if left:
                raise RefusedFile(f"{path}: missing beside {left[0]}; restore it, or start over with --force")
            head = {
                "schema_version": files.SCHEMA_VERSION,
                "id": spec.id,
                "spec": spec.model_dump(mode="json"),
                "environment": environment,
            }
            files.replace(path, files.sealed(head) + "\n")
            return
        found = read(self.folder)
        if found.spec != spec:
            raise RefusedFile(f"{path}: holds another run ({found.spec.id}, seed {found.spec.seed}); move it away")
        if found.outcome is None or found.outcome.status == "interrupted":
            _note_resumption(path, {**environment, **_saved_threads(self.folder)}, len(found.epochs))
        self._epochs = list(found.epochs)
        lines = self.folder / "epochs.jsonl"
        if lines.exists() and files.read_text(lines) != self._text():  # its last line was torn, which may be its first
            files.replace(lines, self._text())
        self._size = _size(lines)

    def _sweep(self) -> None:
        """Remove what a crash left half written; the folder is ours."""
        with files.writing(self.folder):
            for left in self.folder.glob("*.json*.tmp"):
                left.unlink()
                faults.point("claim.swept")


def _saved_threads(folder: Path) -> dict[str, object]:
    """The threads that a checkpoint says it was made with, which whoever resumes it takes."""
    place = manifest.standing(folder / "checkpoint" / "resume")
    with suppress(RefusedFile):  # which the resume itself tells
        threads = manifest.read(place).values.get("threads")
        return {} if threads is None else {"torch_threads": threads}
    return {}


def _note_resumption(path: Path, environment: Mapping[str, object], epoch: int) -> None:
    """Add to a record's head what differs in the ``environment`` of the process that goes on after ``epoch`` epochs."""
    head = files.read_sealed(path)
    first = head.get("environment")
    try:
        later = resumptions(head)
    except TypeError:
        raise RefusedFile(f"{path}: not a record of this schema; restore it, or start over with --force") from None
    before = dict(first) if isinstance(first, dict) else {}
    for resumption in later:
        before.update(resumption.environment)
    now = json.loads(json.dumps(environment))
    names = {**before, **now}.keys() - {"command"}
    changes = {name: now.get(name) for name in sorted(names) if now.get(name) != before.get(name)}
    if changes:
        head["resumed"] = [line._asdict() for line in (*later, Resumption(epoch, changes))]
        files.replace(path, files.sealed(head) + "\n")


def set_aside(folder: Path) -> None:
    """Move a run's record into an attempt's folder below it; whoever calls holds the run."""
    present = [folder / part for part in PARTS if (folder / part).exists()]
    if not present:
        return
    aside = _aside(folder, present)
    with files.writing(aside):
        aside.mkdir(exist_ok=True)
        faults.point("aside.made")
        for part in reversed(present):  # spec.json last: what a crash cut in two is seen, and put together again
            part.rename(aside / part.name)
            faults.point("aside.moved")
        disk.sync_folder(folder)


def _aside(folder: Path, parts: list[Path]) -> Path:
    """Where an attempt goes: with the rest of it, if a crash came in between, else to a folder of its own."""
    taken = [re.fullmatch(r"attempt-(\d+)", p.name) for p in folder.iterdir()]
    number = max((int(match[1]) for match in taken if match), default=0)
    last = folder / f"attempt-{number}"
    cut = last.is_dir() and not any((last / name).exists() for name in ("spec.json", *(p.name for p in parts)))
    return last if cut else folder / f"attempt-{number + 1}"


def scores(epoch: Epoch) -> tuple[object, ...]:
    """What of an epoch must come again when it is run again: everything but the wall clock."""
    games, shown = epoch.collected, epoch.evaluated
    judged = None if shown is None else (shown.returns, shown.lengths, shown.seeds)
    return (
        epoch.number,
        epoch.env_steps,
        epoch.updates,
        games and games.returns,
        games and games.lengths,
        epoch.updated,
        judged,
    )


def _size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _plain(record: Epoch | Outcome) -> dict[str, object]:
    return {"schema_version": files.SCHEMA_VERSION, **dataclasses.asdict(record)}


def _parsed(adapter: TypeAdapter[RecordT], content: dict[str, object], where: str) -> RecordT:
    content.pop("schema_version", None)
    try:
        return adapter.validate_python(content)
    except ValidationError as error:
        raise RefusedFile(f"{where}: not a record of this schema ({one_line(error)})") from None


def _model(kind: type[Spec], content: object, where: Path) -> Spec:
    try:
        return kind.model_validate(recorded_settings(content), strict=False)
    except ValidationError as error:
        raise RefusedFile(f"{where}: not a spec of this schema ({one_line(error)})") from None
