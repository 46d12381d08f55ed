"""``run --track``: trackers that show the records of running seeds, in a thread of their own.

A tracker reads records from disk and never touches the training loop. Only the end of the command waits for it. A
tracker that fails is dropped with a message; the run goes on, and ``rlbench export`` writes its files later.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from rlbench import disk
from rlbench.cli.output import print_note
from rlbench.errors import RefusedFile, UnknownName, UsageError
from rlbench.records import files
from rlbench.records.store import Record, folder_of, read_record
from rlbench.report.exports import FILE, events, points, update_file
from rlbench.signals import interruption_behind

if TYPE_CHECKING:
    from rlbench.config.run import Spec

TRACKERS: Final = ("tensorboard", "wandb")
INTERVAL: Final = 1.0  # seconds between two looks at the records
PATIENCE: Final = 60.0  # seconds that the end of the command waits for trackers
STOP_PATIENCE: Final = 5.0  # after a signal: Docker kills ten seconds later
ENDED: Final = {"done": 0, "failed": 1}  # exit codes that W&B shows as finished and failed
KILLED: Final = 255
OFFLINE: Final = ("offline", "dryrun")  # values of WANDB_MODE


class TensorBoard:
    """One event file per run, in the folder layout of the records."""

    name = "tensorboard"

    def __init__(self, where: Path) -> None:
        self._where = where

    def take(self, record: Record) -> None:
        """Append the new epochs to the run's file."""
        files.refuse_link(self._where)
        update_file(curves_in(self._where, record.spec), events(record.epochs), append=True, option="--track-dir")

    def close(self) -> None:
        """Do nothing: every file is closed."""


class WandbRun(Protocol):
    """Used part of a run of Weights & Biases."""

    step: int  # the first without data
    offline: bool

    def log(self, data: Mapping[str, float], step: int) -> None:
        """Log the values of one step."""

    def finish(self, exit_code: int) -> None:
        """Upload everything and end the run."""


class Wandb:
    """One W&B run for each run, its step the epoch's number; W&B's environment variables and modes apply."""

    name = "wandb"

    def __init__(self, module: ModuleType, where: Path) -> None:
        self._module, self._where = module, where
        self._runs: dict[str, WandbRun] = {}
        self._epochs_logged: dict[str, int] = {}  # epochs

    def take(self, record: Record) -> None:
        """Log the new epochs, and end the run when its record has ended."""
        name = run_id(record)
        logged = self._logged_epochs(name) if os.environ.get("WANDB_MODE") in OFFLINE else 0
        if len(record.epochs) > self._epochs_logged.get(name, logged):
            run = self._runs.get(name) or self._begin(name, record)
            for epoch in record.epochs[self._epochs_logged[name] :]:
                run.log(points(epoch), step=epoch.number)
                self._epochs_logged[name] = epoch.number + 1
        status = None if record.outcome is None else record.outcome.status
        if name in self._runs and status in ENDED:
            self._finish(name, ENDED[status])

    def close(self) -> None:
        """End the open runs; the same id resumes them."""
        for name in list(self._runs):
            self._finish(name, KILLED)

    def _finish(self, name: str, exit_code: int) -> None:
        self._runs.pop(name).finish(exit_code=exit_code)  # until then W&B may hold what was logged in memory
        disk.replace(self._where / f"{name}.logged", f"{self._epochs_logged[name]}\n".encode())

    def _begin(self, name: str, record: Record) -> WandbRun:
        spec = record.spec
        files.refuse_link(self._where)
        self._where.mkdir(parents=True, exist_ok=True)
        run: WandbRun = self._module.init(
            project=os.environ.get("WANDB_PROJECT") or "rlbench",
            name=f"{spec.name} seed={spec.seed}",
            group=f"{spec.name} {spec.id}",
            id=name,
            config=spec.model_dump(mode="json"),
            dir=str(self._where.absolute()),  # the current folder of W&B's service is another
            resume="allow",
            reinit="create_new",
        )
        self._runs[name] = run
        self._epochs_logged[name] = self._logged_epochs(name) if run.offline else run.step
        return run

    def _logged_epochs(self, name: str) -> int:
        with suppress(RefusedFile, OSError, ValueError):
            return int(disk.content(self._where / f"{name}.logged"))
        return 0


class RecordWatcher(Thread):
    """Passes new records to trackers until ``complete`` is set."""

    def __init__(self, trackers: Sequence[Tracker], folders: Sequence[Path]) -> None:
        super().__init__(name="trackers", daemon=True)
        self.complete, self.patience = Event(), PATIENCE
        self._trackers, self._folders = list(trackers), list(folders)
        self._stamps: dict[Path, tuple[object, ...]] = {}

    def run(self) -> None:
        """Look at each interval, and once more at the end."""
        while not self.complete.wait(INTERVAL):
            self._look()
        self._look()
        for tracker in list(self._trackers):
            self._pass(tracker, None)

    def _look(self) -> None:
        for folder in self._folders:
            stamps = files.record_stamps(folder)
            if stamps == self._stamps.get(folder) or stamps[0] is None:
                continue
            with suppress(RefusedFile, OSError, MemoryError):  # between two writes; the run itself reports them
                record = read_record(folder)
                for tracker in list(self._trackers):
                    self._pass(tracker, record)
                self._stamps[folder] = stamps

    def _pass(self, tracker: Tracker, record: Record | None) -> None:
        """Pass a record to a tracker, or close it; drop a tracker that fails."""
        try:
            if record is None:
                tracker.close()
            else:
                tracker.take(record)
        except BaseException as error:  # noqa: BLE001 - a tracker may raise anything, such as asyncio's CancelledError
            self._trackers.remove(tracker)
            why = type(error).__name__
            with suppress(Exception):  # its text may fail
                why = str(error) or why
            print_note(f"--track {tracker.name}: {why}; it is dropped, the runs go on")


Tracker: TypeAlias = TensorBoard | Wandb


@contextmanager
def tracking(names: Sequence[str], specs: Sequence[Spec], results: Path, where: Path) -> Iterator[RecordWatcher]:
    """Track the runs of ``specs`` in the body; trackers write below ``where``.

    Raises:
        UsageError: a tracker is unknown or not installed, or ``where`` is in a run's folder.
    """
    trackers = [_tracker(name, where) for name in dict.fromkeys(names)]
    thread = RecordWatcher(trackers, [folder_of(spec, results) for spec in specs])
    if not trackers:
        yield thread  # never started
        return
    thread.start()
    try:
        yield thread
    finally:
        thread.complete.set()
        thread.join(thread.patience)
        if thread.is_alive():
            print_note(f"--track: not every epoch was written within {thread.patience:.0f} s; the records are whole")


def _tracker(name: str, where: Path) -> Tracker:
    if name not in TRACKERS:
        raise UnknownName("tracker", name, TRACKERS, where="--track")
    if name == "tensorboard":
        files.refuse_run_folder(where, "--track-dir")
        return TensorBoard(where / name)
    if find_spec("wandb") is None:
        remedy = f"`{sys.executable} -m pip install wandb`, or take --track tensorboard"
        raise UsageError(f"--track wandb: not installed; {remedy}")
    try:
        module = import_module("wandb")
        with TemporaryDirectory() as empty, chdir(empty):
            module.setup()  # reads wandb/settings in the current folder, which may name another host for the key
        return Wandb(module, where / name)
    except BaseException as error:  # an import may raise anything
        if interruption_behind(error) is not None:
            raise
        raise UsageError(f"--track wandb: cannot be imported ({error!r}); repair it, or leave it out") from None


def curves_in(where: Path, spec: Spec) -> Path:
    """Return the path of a run's TensorBoard file.

    Raises:
        RefusedFile: the file or a folder above it is a link below ``where``.
    """
    folder = folder_of(spec, where)
    files.refuse_links(folder, where)
    return folder / FILE


def run_id(record: Record) -> str:
    """Return the W&B id of a run; each attempt that ``--force`` put aside keeps its own."""
    attempt = sum(1 for _ in record.folder.glob("attempt-*"))
    return f"{record.spec.id}-{record.spec.seed}" + (f"-{attempt}" if attempt else "")
