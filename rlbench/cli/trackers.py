"""``run --track``: boards that follow the records of running seeds, from a thread of their own.

A tracker is a reader: it sees what is on disk, never the training loop, and nothing waits for it but the end of the
command. One that fails is given up with a line; the run goes on, and ``rlbench export`` makes up for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol, cast

from rlbench import disk
from rlbench.cli.output import remark
from rlbench.errors import RefusedFile, UnknownName, UsageError

if TYPE_CHECKING:
    from rlbench.config.run import Spec
    from rlbench.records.store import Record

TRACKERS: Final = ("tensorboard", "wandb")
OFTEN: Final = 1.0  # seconds between two looks at the records
PATIENCE: Final = 60.0  # seconds that the end of the command waits for trackers
PARTS: Final = ("spec.json", "epochs.jsonl", "outcome.json")
ENDED: Final = {"done": 0, "failed": 1}  # exit codes that W&B shows as finished and failed
KILLED: Final = 255


class Tracker(Protocol):
    """Shows records elsewhere."""

    name: str

    def take(self, record: Record) -> None:
        """Show all of a record that is not shown yet."""

    def close(self) -> None:
        """No record will change any more."""


class TensorBoard:
    """A file a run, in the layout of the records."""

    name = "tensorboard"

    def __init__(self, where: Path) -> None:
        self._where = where

    def take(self, record: Record) -> None:
        """Bring the run's file up to its record."""
        from rlbench.report.tensorboard import bring_up, events

        bring_up(curves_in(self._where, record.spec), events(record.epochs))

    def close(self) -> None:
        """Every file is closed."""


class Run(Protocol):
    """What is used of a run of Weights & Biases."""

    step: int  # the first that it does not have
    offline: bool

    def log(self, data: Mapping[str, float], step: int) -> None:
        """Points of one step."""

    def finish(self, exit_code: int) -> None:
        """See everything through."""


class Board(Protocol):
    """What is used of the module ``wandb``."""

    def init(
        self,
        *,
        project: str,
        name: str,
        group: str,
        id: str,  # noqa: A002 - W&B's own word
        config: Mapping[str, object],
        dir: str,  # noqa: A002 - likewise
        resume: str,
        reinit: str,
    ) -> Run:
        """Begin a run, or take one up that has this id."""


class Wandb:
    """A run of W&B for each of ours, its step the epoch's number; W&B's own variables and modes hold."""

    name = "wandb"

    def __init__(self, board: Board, where: Path) -> None:
        self._board, self._where = board, where
        self._runs: dict[str, Run] = {}
        self._shown: dict[str, int] = {}  # epochs

    def take(self, record: Record) -> None:
        """Log the epochs that are not there yet, and end what has ended."""
        name = called(record)
        if len(record.epochs) > self._shown.get(name, 0):
            run = self._runs.get(name) or self._begun(name, record)
            for epoch in record.epochs[self._shown[name] :]:
                from rlbench.report.tensorboard import points

                run.log(points(epoch), step=epoch.number)
                self._noted(name, epoch.number + 1)
        status = None if record.outcome is None else record.outcome.status
        if name in self._runs and status in ENDED:
            self._runs.pop(name).finish(exit_code=ENDED[status])

    def close(self) -> None:
        """What goes on is going to be taken up again."""
        while self._runs:
            self._runs.popitem()[1].finish(exit_code=KILLED)

    def _begun(self, name: str, record: Record) -> Run:
        from rlbench.records import files

        spec = record.spec
        files.refuse_link(self._where)
        self._where.mkdir(parents=True, exist_ok=True)
        run = self._runs[name] = self._board.init(
            project=os.environ.get("WANDB_PROJECT") or "rlbench",
            name=f"{spec.name} seed={spec.seed}",
            group=f"{spec.name} {spec.id}",
            id=name,
            config=spec.model_dump(mode="json"),
            dir=str(self._where),
            resume="allow",
            reinit="create_new",
        )
        self._shown[name] = self._logged(name) if run.offline else run.step
        return run

    def _logged(self, name: str) -> int:
        """Epochs that were logged while nobody could be asked."""
        with suppress(RefusedFile, OSError, ValueError):
            return int(disk.content(self._where / f"{name}.logged"))
        return 0

    def _noted(self, name: str, count: int) -> None:
        self._shown[name] = count
        path = self._where / f"{name}.logged"
        disk.replace(path, f"{count}\n".encode(), path.with_suffix(f".{os.getpid()}.tmp"))


class Following(Thread):
    """Looks at records until it is told that they are complete."""

    def __init__(self, trackers: Sequence[Tracker], folders: Sequence[Path]) -> None:
        super().__init__(name="trackers", daemon=True)
        self.complete = Event()
        self._trackers, self._folders = list(trackers), list(folders)
        self._seen: dict[Path, tuple[object, ...]] = {}

    def run(self) -> None:
        """Look from time to time, and once more at the end."""
        while not self.complete.wait(OFTEN):
            self._look()
        self._look()
        for tracker in list(self._trackers):
            self._tried(tracker, None)

    def _look(self) -> None:
        for folder in self._folders:
            stamps = tuple(_stamp(folder / part) for part in PARTS)
            if stamps == self._seen.get(folder) or stamps[0] is None:
                continue
            from rlbench.records.store import read

            with suppress(RefusedFile):  # half of two writes may be seen; whoever writes says what is damaged
                record = read(folder)
                for tracker in list(self._trackers):
                    self._tried(tracker, record)
                self._seen[folder] = stamps

    def _tried(self, tracker: Tracker, record: Record | None) -> None:
        """Let a tracker have a record, or close it; one that fails is given up."""
        try:
            if record is None:
                tracker.close()
            else:
                tracker.take(record)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's programs fail in any way
            self._trackers.remove(tracker)
            why = str(error) or type(error).__name__
            remark(f"--track {tracker.name}: {why}; it follows no more, the runs go on")


@contextmanager
def following(names: Sequence[str], specs: Sequence[Spec], results: Path, where: Path) -> Iterator[None]:
    """Have the runs of ``specs`` followed while they are carried out; files of trackers lie below ``where``.

    Raises:
        UsageError: there is no such tracker, or it is not installed.
    """
    from rlbench.records.store import folder_of

    trackers = [_tracker(name, where) for name in dict.fromkeys(names)]
    if not trackers:
        yield
        return
    thread = Following(trackers, [folder_of(spec, results) for spec in specs])
    thread.start()
    try:
        yield
    finally:
        thread.complete.set()
        thread.join(PATIENCE)
        if thread.is_alive():
            remark(f"--track: not everything was shown within {PATIENCE:.0f} s; the records are whole")


def _tracker(name: str, where: Path) -> Tracker:
    if name not in TRACKERS:
        raise UnknownName("tracker", name, TRACKERS, where="--track")
    if name == "tensorboard":
        return TensorBoard(where / name)
    if find_spec("wandb") is None:
        remedy = f"`{sys.executable} -m pip install wandb`, or take --track tensorboard"
        raise UsageError(f"--track wandb: not installed; {remedy}")
    try:
        return Wandb(cast("Board", import_module("wandb")), where / name)
    except Exception as error:  # noqa: BLE001 - other people's programs fail in any way
        raise UsageError(f"--track wandb: cannot be imported ({error}); repair it, or leave it out") from None


def curves_in(where: Path, spec: Spec) -> Path:
    """The file of a run's curves for TensorBoard.

    Raises:
        RefusedFile: it is, or is reached by, a link below ``where``.
    """
    from rlbench.records import files
    from rlbench.records.store import folder_of
    from rlbench.report.tensorboard import FILE

    folder = folder_of(spec, where)
    files.refuse_links(folder, where)
    return folder / FILE


def called(record: Record) -> str:
    """A run's id at W&B: attempts that ``--force`` put aside stay what they are."""
    attempt = sum(1 for _ in record.folder.glob("attempt-*"))
    return f"{record.spec.id}-{record.spec.seed}" + (f"-{attempt}" if attempt else "")


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes whenever a file does; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
