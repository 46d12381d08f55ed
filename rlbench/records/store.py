"""Reader and only writer of a run's record; ``rlbench.checkpoint`` writes its checkpoint.

<results>/<suite>/<algo>/<task>[@<dataset>]/<spec id>/seed=<n>/
    spec.json       the resolved Spec, its id, the environment it ran in, and the changes of that environment on resume
    epochs.jsonl    one sealed line per epoch
    outcome.json    how it ended, or where it was interrupted
    failure.txt     the traceback of the error that ended it, if it failed
    crash.txt       there while it runs; a process that dies leaves its last messages here
    checkpoint/     the state that a resume loads, and the best and the last policy, which stay; never committed
    attempt-<k>/    a record that ``--force`` set aside
<results>/<suite>/<algo>/<task>[@<dataset>]/<spec id>/looks.json    looks of ``run --until-decided`` at the seeds
"""

from __future__ import annotations

import dataclasses
import faulthandler
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from os.path import lexists
from pathlib import Path
from typing import IO, Self

from pydantic import TypeAdapter

from rlbench import disk, faults
from rlbench.config.names import clean_texts, printable
from rlbench.config.run import Spec, recorded_settings
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError
from rlbench.records import files, manifest
from rlbench.records.aside import ATTEMPT_PARTS, attempt_parts, end_moves, set_aside
from rlbench.records.attempts import Resumption, note_resumption, resumptions
from rlbench.records.epochs import environment_sums, line_of, read_epoch_sums, read_epochs, scores
from rlbench.records.locks import FolderLock
from rlbench.records.types import Epoch, Outcome

_OUTCOME = TypeAdapter(Outcome)
CHANGED_DURING_RUN = "was changed while the run was under way"
READS = 5  # of a record that another process writes meanwhile


def folder_of(spec: Spec, results: Path) -> Path:
    """Folder of a run; equal specs have equal folders."""
    return results / spec.suite / spec.algorithm / spec.task_folder / spec.id / f"seed={spec.seed}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One run as its folder holds it."""

    folder: Path
    spec: Spec
    environment: Mapping[str, object]  # of the first process, or of the last that began without a checkpoint
    epochs: tuple[Epoch, ...]
    outcome: Outcome | None
    resumed: tuple[Resumption, ...] = ()  # changes of the environment by later processes
    environment_sums: tuple[str, ...] = ()  # SHA-256 of the first process's environment, of the first two, and so on

    @property
    def epoch_sums(self) -> tuple[str, ...]:
        """SHA-256 of no epoch, of the first, of the first two, and so on."""
        return read_epoch_sums(self.folder, len(self.epochs))

    def has_ended(self, until: int | None = None) -> bool:
        """Return whether the run has ended, or was interrupted with an epoch at ``until`` steps or later."""
        if self.outcome is None or self.outcome.status != "interrupted":
            return self.outcome is not None
        return until is not None and bool(self.epochs) and self.epochs[-1].steps >= until


def refuse_other_attempt(folder: Path, spec: Spec) -> None:
    """Refuse to put another run aside: it would count as an attempt at this one.

    Raises:
        RefusedFile: the folder's record is of other settings or another seed; a damaged record is none.
    """
    try:
        record = read_record(folder)
    except RefusedFile:
        return
    refuse_other_run(record, spec)


def refuse_other_run(record: Record, spec: Spec) -> None:
    """Refuse a record of another run in the folder of this one.

    Raises:
        RefusedFile: its settings or its seed are others.
    """
    own = record.spec
    if (own.id, own.seed) != (spec.id, spec.seed):
        raise RefusedFile(f"{record.folder / 'spec.json'}: holds another run ({own.id}, seed {own.seed}); move it away")


def read_record(folder: Path) -> Record:
    """Read a run's record, whole.

    A crash tears the last line of ``epochs.jsonl``. A torn line is dropped while the run has no outcome, or is
    interrupted. A record that another process moves or replaces meanwhile is read again.

    Raises:
        RefusedFile: a file is damaged, missing or newer than this version; the message names it.
    """
    for _ in range(READS):
        stamps = files.record_stamps(folder)
        with suppress(RefusedFile):
            return _read_record(folder)
        if stamps == files.record_stamps(folder):
            break
    if not folder.exists():
        raise RefusedFile(f"{folder}: missing; another process may have moved it: run the same command again")
    return _read_record(folder)


def _read_record(folder: Path) -> Record:
    path = folder / "spec.json"
    metadata = files.read_sealed(path)
    with files.validating(str(path), "a spec"):
        spec = Spec.model_validate(recorded_settings(metadata.get("spec")), strict=False)
    if (stated_id := metadata.get("id")) != spec.id:
        raise RefusedFile(f"{path}: says it is {printable(str(stated_id))}, its settings are {spec.id}; restore it")
    outcome = read_outcome(folder)
    ended = outcome is not None and outcome.status != "interrupted"
    epochs = read_epochs(folder, complete=ended)
    if outcome is not None and (len(epochs) < outcome.epochs or (ended and len(epochs) > outcome.epochs)):
        raise RefusedFile(
            f"{folder / 'epochs.jsonl'}: holds {len(epochs)} epochs, outcome.json counts {outcome.epochs}; restore it"
        )
    sums, begin = environment_sums(metadata), -1 if ended else 0
    if outcome is not None and outcome.environments_sha256 not in {None, *sums[begin:]}:
        raise RefusedFile(f"{path}: is of another attempt than outcome.json; {manifest.COPY_AGAIN}")
    total = None if outcome is None else outcome.epochs_sha256
    if total is not None and total not in read_epoch_sums(folder, len(epochs))[begin:]:
        raise RefusedFile(f"{folder / 'epochs.jsonl'}: is of another attempt than outcome.json; {manifest.COPY_AGAIN}")
    first = clean_texts(metadata.get("environment"))
    environment, changes = dict(first) if isinstance(first, dict) else {}, list[Resumption]()
    for resumption in resumptions({"resumed": clean_texts(metadata.get("resumed", []))}, path):
        changes.append(resumption)
        if resumption.epoch == 0:  # without a checkpoint: its epochs replace all others
            for change in changes:
                environment.update(change.environment)
            environment, changes = {name: value for name, value in environment.items() if value is not None}, []
    return Record(
        folder=folder,
        spec=spec,
        environment=environment,
        resumed=tuple(changes),
        environment_sums=sums,
        epochs=epochs,
        outcome=outcome,
    )


def read_outcome(folder: Path) -> Outcome | None:
    """Read how the run ended; None while nothing says so."""
    path = folder / "outcome.json"
    if not lexists(path):
        return None
    with files.validating(str(path), "a record"):
        return _OUTCOME.validate_json(files.unsealed_json(files.read_text(path), str(path)), strict=True)


class Store:
    """One run's folder, held by one process."""

    def __init__(self, folder: Path, lock: FolderLock, spec: Spec, environment: Mapping[str, object]) -> None:
        self.folder, self._lock, self.spec, self.environment = folder, lock, spec, environment
        self.environment_sums = tuple[str, ...]()
        self.results = folder  # below it no folder may be a link
        self._epochs: list[Epoch] = []
        self._size = 0  # bytes of epochs.jsonl
        self.crash: IO[str] | None = None  # open for the last messages of a dying process
        self.crash_reason: str | None = None  # why the attempt before this one ended, where it crashed
        self.best: Path | None = None  # the checkpoint of the best policy, where there is one
        self.starts_over = False  # from another record, which is still in place

    @classmethod
    def lock(cls, spec: Spec, results: Path, environment: Mapping[str, object], *, force: bool = False) -> Self | None:
        """Lock the run's folder, and create it if need be; None while another process holds it.

        Raises:
            UsageError: the folder cannot be written.
            RefusedFile: its record is damaged or newer, or holds a link or a special file.
        """
        folder = folder_of(spec, results)
        files.refuse_links(folder, results)
        lock = FolderLock(folder)
        with disk.refusing(results):
            folder.mkdir(parents=True, exist_ok=True)
            faults.point("lock.made")
            if not lock.acquire():
                return None
        store = cls(folder, lock, spec, environment)
        store.results = results
        try:
            store._open(force=force)
            store._begin()
        except BaseException:
            store.release()
            raise
        return store

    def release(self) -> None:
        """Unlock the folder for other processes."""
        faulthandler.disable()
        if self.crash is not None:
            self.crash.close()
            path = self.folder / files.CRASH
            with suppress(OSError):
                if self._lock.intact() and path.stat().st_size == 0:  # the text of a crash stays
                    path.unlink()
                    faults.point("crash.removed")
        self.crash = None
        self._lock.release()

    def withdraw(self) -> None:
        """Remove the record of a run that was refused before it recorded anything."""
        attempts = [*self.folder.glob("attempt-*")]  # which no reader would see without spec.json
        if self.starts_over or attempt_parts(self.folder) or attempts or self.crash_reason or not self._lock.intact():
            return
        with suppress(OSError):
            for part in (files.CRASH, "spec.json"):  # in this order: the former without the latter is damage
                (self.folder / part).unlink(missing_ok=True)
                faults.point("record.withdrawn")

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Epochs on disk."""
        return tuple(self._epochs)

    @property
    def epoch_sums(self) -> tuple[str, ...]:
        """SHA-256 of no epoch, of the first, of the first two, and so on."""
        return read_epoch_sums(self.folder, len(self._epochs))

    @property
    def outcome(self) -> Outcome | None:
        """Outcome on disk; None while there is none."""
        return None if self.starts_over else read_outcome(self.folder)

    def start_over(self) -> None:
        """Put the record aside from which ``--force`` starts over, and begin another; called once the run is built.

        Raises:
            ResourceExhausted: the folder is no longer as this process left it, or the disk is full.
        """
        if self.starts_over:
            self.verify_unchanged()
            set_aside(self.folder)
            self.starts_over, self._size = False, 0
            self._write_settings()
            self._begin()

    def note_resumption(self, epoch: int, updates: int = 0, engine: str | None = None) -> None:
        """Add to the record what differs in this process's environment from ``epoch`` on, as ``note_resumption``."""
        note_resumption(self.folder, self.environment, epoch, updates, engine)
        self.environment_sums = self._read_environment_sums()

    def replaces(self, epoch: Epoch) -> bool:
        """True if ``append`` would replace recorded epochs."""
        return epoch.number < len(self._epochs) and scores(self._epochs[epoch.number]) != scores(epoch)

    def append(self, epoch: Epoch) -> None:
        """Write an epoch to disk.

        A resumed run repeats the epochs since its checkpoint. An epoch equal to the recorded one changes nothing. An
        epoch that differs (another machine, another library) replaces the recorded one and all later ones.

        Raises:
            ResourceExhausted: the folder is no longer as this process left it, or the disk is full.
        """
        self.verify_unchanged()
        if self.replaces(epoch):
            (self.folder / "outcome.json").unlink(missing_ok=True)  # it counts the epochs that are replaced
            faults.point("outcome.dropped")
            del self._epochs[epoch.number :]
            path = self.folder / "epochs.jsonl"
            lines = files.read_text(path).split("\n")[: epoch.number]
            files.replace(path, "".join(f"{line}\n" for line in lines))
            self._size = _size(path)
        elif epoch.number < len(self._epochs):
            return
        line = line_of(epoch)
        files.append(self.folder / "epochs.jsonl", line)
        self._epochs.append(epoch)
        self._size += len(line.encode()) + 1

    def verify_unchanged(self) -> None:
        """Verify that this process still holds the lock, and that nothing else has changed its epochs and best policy.

        Raises:
            ResourceExhausted: lock or best policy is gone, a folder is a link, or ``epochs.jsonl`` has another size.
        """
        lines = self.folder / "epochs.jsonl"
        try:
            files.refuse_links_above(self.folder, self.results)
        except RefusedFile as error:
            remedy = f"{str(error).partition(';')[0]}: put the folder itself in its place"
            raise ResourceExhausted(f"{self.folder}: {CHANGED_DURING_RUN}; {remedy}") from None
        if not self._lock.intact():
            raise ResourceExhausted(
                f"{self._lock.path}: the lock {CHANGED_DURING_RUN}; type the same command again: it resumes"
            )
        if _size(lines) != self._size:
            raise ResourceExhausted(f"{lines}: {CHANGED_DURING_RUN}; restore it, or start over with --force")
        if self.best is not None and not self.best.exists():
            raise ResourceExhausted(f"{self.best}: {CHANGED_DURING_RUN}; restore it, or start over with --force")

    def finish(self, outcome: Outcome) -> None:
        """Replace the outcome.

        Raises:
            ResourceExhausted: the folder is no longer as this process left it, or the disk is full.
        """
        self.verify_unchanged()
        if outcome.status == "done":
            self._reread()
        files.replace_sealed(self.folder / "outcome.json", dataclasses.asdict(outcome))

    def write_traceback(self, text: str) -> None:
        """Write the traceback of a failure; a full disk leaves only the reason in the outcome."""
        with suppress(ResourceExhausted, UsageError):
            self.verify_unchanged()
            files.replace(self.folder / "failure.txt", text)

    def _reread(self) -> None:
        try:
            files.refuse_links(self.folder, self.folder)
            record = read_record(self.folder)
            same = record.spec == self.spec and [*map(line_of, record.epochs)] == [*map(line_of, self._epochs)]
            same = same and self.environment_sums == self._read_environment_sums()
        except RefusedFile as error:
            raise ResourceExhausted(f"{error} (it {CHANGED_DURING_RUN})") from None
        if not same:
            raise ResourceExhausted(f"{self.folder}: {CHANGED_DURING_RUN}; restore it, or start over with --force")

    def _read_environment_sums(self) -> tuple[str, ...]:
        return environment_sums(files.read_sealed(self.folder / "spec.json"))

    def _begin(self) -> None:
        if self.starts_over:
            faulthandler.enable(2)  # on stderr: crash.txt is of the record that is still in place
            return
        path = self.folder / files.CRASH
        if path.exists():
            crash = f"an attempt crashed: {path} says where"
            self.crash_reason = crash if path.stat().st_size > 0 else "the last attempt died without a message"
        with files.writing(path):
            self.crash = TextIOWrapper(disk.open_append(path), encoding="utf-8")
            faults.point("crash.opened")
        faulthandler.enable(self.crash)  # a crash writes the stacks of all threads

    def _open(self, *, force: bool) -> None:
        with files.writing(self.folder):
            for temporary in self.folder.glob("*.json*.tmp"):
                temporary.unlink()
                faults.point("lock.swept")
        path, lines = self.folder / "spec.json", self.folder / "epochs.jsonl"
        if force:
            refuse_other_attempt(self.folder, self.spec)
            if attempt_parts(self.folder):  # they stay in place until the new run is built
                self.starts_over, self._size = True, _size(lines)
                return
            self._write_settings()
        elif path.exists():
            self._continue(read_record(self.folder), lines)
        elif parts := [part for part in ATTEMPT_PARTS if (self.folder / part).exists()]:
            raise RefusedFile(f"{path}: missing beside {parts[0]}; restore it, or start over with --force")
        else:
            self._write_settings()
        end_moves(self.folder)

    def _continue(self, record: Record, lines: Path) -> None:
        """Take over the epochs of the record on disk."""
        refuse_other_run(record, self.spec)
        self._epochs = list(record.epochs)
        if record.outcome is None or record.outcome.status == "interrupted":
            self.best = best if (best := self.folder / "checkpoint" / "best").exists() else None
            if lines.exists():
                disk.open_append(lines).close()  # a hard link is refused now, not after an epoch
        text = files.read_text(lines) if lines.exists() else ""
        if (whole := text[: text.rfind("\n") + 1]) != text:  # its last line was torn, which may be its first
            files.replace(lines, whole)
        self._size, self.environment_sums = _size(lines), self._read_environment_sums()

    def _write_settings(self) -> None:
        settings = {"id": self.spec.id, "spec": self.spec.model_dump(mode="json"), "environment": self.environment}
        files.replace_sealed(self.folder / "spec.json", settings)
        self.environment_sums = self._read_environment_sums()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
