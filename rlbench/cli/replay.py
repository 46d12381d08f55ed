"""``rlbench verify --replay``: the first epochs of a run trained again, and compared with its record to the bit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from rlbench.cli.output import remark
from rlbench.errors import RefusedFile, UsageError, beside

if TYPE_CHECKING:
    from rlbench.config.run import Runtime
    from rlbench.records.store import Record
    from rlbench.records.types import Epoch

REPLAY_SCHEMA = 1
PLAIN = re.compile(r"[\w,=-]{0,40}", re.ASCII)
"""Value of a variable that chooses threads or instructions."""

CLOCKS = ("seconds", "evaluated.seconds", "collected.steps_per_second")
"""Fields of an epoch that no second run repeats."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that the record has otherwise than this machine, or than the new epoch."""

    name: str
    recorded: object
    here: object

    @property
    def line(self) -> str:
        """``torch: 2.13.0 recorded, 2.12.0 here``."""
        recorded, here = ("nothing" if value is None else value for value in (self.recorded, self.here))
        return f"{self.name}: {recorded} recorded, {here} here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The epochs that were trained again, and the first number that came out otherwise."""

    folder: Path
    epochs: int  # number of the last one that was compared
    steps: int  # of its end
    parted: Change | None  # in the last epoch; None where every number is equal
    changes: tuple[Change, ...]  # in code, versions and machine

    @property
    def text(self) -> str:
        """The result, and below it whatever could explain a difference."""
        reach = f"epochs 0 to {self.epochs}, {self.steps:,} steps"
        result = "equal to the bit" if self.parted is None else f"epoch {self.epochs} differs in {self.parted.line}"
        return "\n".join([f"{self.folder}: {reach}: {result}", *(f"  {change.line}" for change in self.changes)])

    @property
    def document(self) -> dict[str, object]:
        """The same for scripts."""
        return {
            "schema_version": REPLAY_SCHEMA,
            "folder": str(self.folder),
            "epochs": self.epochs,
            "env_steps": self.steps,
            "equal": self.parted is None,
            "differs": self.parted and asdict(self.parted),
            "environment": [asdict(change) for change in self.changes],
        }


def replay(folder: Path, epochs: int | None, dataset: Path | None = None) -> Replay:
    """Train a run's first ``epochs`` again in a temporary folder; by default until it has learned.

    ``dataset`` is the path of the recorded experience, where its name does not lead there.

    Raises:
        UsageError: it is no run's folder, or its environment, device, engine, data or memory cannot be had here.
        RefusedFile: its record is damaged, or its data are another file.
    """
    from rlbench.records.store import read

    if not (folder / "spec.json").exists():
        raise UsageError(f"{folder}: no run's folder{beside(folder)}; name one: results/…/seed=0")
    record = read(folder)
    last = _last(record, epochs)
    with _variables(record):
        return _trained(record, last, dataset)


def _last(record: Record, epochs: int | None) -> int:
    """The number of the last epoch that is compared."""
    held = len(record.epochs) - 1
    if held < 0:
        raise UsageError(f"{record.folder}: holds no epoch yet; let it run on")
    if epochs is not None and epochs > held:
        raise UsageError(f"{record.folder}: holds {held} epochs; give --epochs {held} or fewer")
    first = next((epoch.number for epoch in record.epochs if epoch.updated is not None), held)
    return first if epochs is None else epochs


@contextmanager
def _variables(record: Record) -> Iterator[None]:
    """The variables of threads and instructions as the run had them, before torch reads them."""
    from rlbench.config.run import MOST_THREADS
    from rlbench.records.machine import INSTRUCTIONS, THREADS

    names, recorded = (*THREADS, *INSTRUCTIONS), record.environment
    for name in names:
        value = recorded.get(name, "")
        threads = re.findall(r"\d+", str(value)) if name.endswith("_NUM_THREADS") else []
        if not isinstance(value, str) or not PLAIN.fullmatch(value) or any(int(n) > MOST_THREADS for n in threads):
            raise RefusedFile(f"{record.folder / 'spec.json'}: {name} has no value of a variable; restore it")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update({name: str(recorded[name]) for name in names if name in recorded})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _trained(record: Record, last: int, dataset: Path | None) -> Replay:
    from rlbench.cli.experience import check_data, refuse_other_data
    from rlbench.cli.preflight import fits_memory
    from rlbench.records.store import Store
    from rlbench.records.types import Epoch
    from rlbench.run import run
    from rlbench.signals import stop_on_signals

    runtime = _runtime(record).model_copy(update={"dataset": None if dataset is None else str(dataset)})
    changes = _changes(record, runtime, last)
    try:
        refuse_other_data(record, runtime)
        data = check_data(record.spec, runtime)
    except UsageError as error:
        raise UsageError(f"{record.folder}: {error}; or name the file that it learned from with --dataset") from None
    with TemporaryDirectory(prefix="rlbench-replay-") as place, stop_on_signals("setup") as stop:
        fits_memory([record.spec], runtime)
        store = Store.claim(record.spec, Path(place), {})
        if store is None:
            raise UsageError(f"{place}: another process holds it; replay again")
        records = run(record.spec, runtime, store, stop, data and data.seal)
        try:
            epoch, parted = _followed(record, last, (epoch for epoch in records if isinstance(epoch, Epoch)))
        finally:
            if isinstance(records, Generator):
                records.close()
            store.release()
    return Replay(folder=record.folder, epochs=epoch.number, steps=epoch.steps, parted=parted, changes=changes)


def _followed(record: Record, last: int, epochs: Iterator[Epoch]) -> tuple[Epoch, Change | None]:
    """The first epoch that differs, and in what; else the last that is compared."""
    for epoch in epochs:
        parted = _parted(record.epochs[epoch.number], epoch)
        if parted is not None or epoch.number == last:
            return epoch, parted
        remark(f"epoch {epoch.number} of {last}: equal")
    raise UsageError(f"{record.folder}: its record goes on where the run itself ends; restore it")


def _runtime(record: Record) -> Runtime:
    """Runtime of the run, by its record."""
    from rlbench.assembly.device import device_of
    from rlbench.config.run import MOST_THREADS, Runtime

    recorded = record.environment
    updates = str(recorded.get("updates", ""))
    if "stacked with" in updates:
        raise UsageError(
            f"{record.folder}: learned stacked with other seeds, which alone repeats within rounding; name another run"
        )
    threads = recorded.get("torch_threads")
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise RefusedFile(f"{record.folder / 'spec.json'}: torch_threads is no number of threads; restore it")
    runtime = Runtime(
        device=str(recorded.get("device", "cpu")),
        threads=threads,
        update_engine=_engine(updates.partition(":")[0]),
        eval_workers=0,
        checkpoint_seconds=1e9,
    )
    try:
        device_of(runtime)
    except UsageError:
        raise UsageError(f"{record.folder}: was made on {runtime.device}, which is not here; replay it there") from None
    return runtime


def _engine(name: str) -> Literal["auto", "eager", "numpy", "compiled", "cuda-graph"]:
    match name:
        case "eager" | "numpy" | "compiled" | "cuda-graph":
            return name
        case _:  # records before engines were noted
            return "auto"


def _changes(record: Record, runtime: Runtime, last: int) -> tuple[Change, ...]:
    """Differences of code, versions and machine from the record.

    Raises:
        UsageError: the environment, or its version, is not here.
    """
    from rlbench.assembly.device import device_of
    from rlbench.assembly.engine import engine_of
    from rlbench.assembly.environments import describe
    from rlbench.records.machine import environment

    recorded = record.environment
    world, here = recorded.get("env"), dict(describe(record.spec).versions)
    if isinstance(world, Mapping) and world != here:
        other = "; ".join(change.line for change in _compared(world, here))
        raise UsageError(f"{record.folder}: its environment is not here ({other}); install the recorded versions")
    device = device_of(runtime)
    now = environment(updates=engine_of(record.spec, runtime, device).name)
    names = ("rlbench", "commit", "python", "system", "cpu", "updates")
    then = {**recorded, "updates": str(recorded.get("updates", "nothing")).partition(":")[0]}
    changes = list(_compared({n: then.get(n) for n in names}, {n: now.get(n) for n in names}))
    packages, installed = recorded.get("packages"), now["packages"]
    if isinstance(packages, Mapping) and isinstance(installed, Mapping):
        changes += _compared(packages, installed)
    inexact = record.outcome.inexact if record.outcome is not None else ()
    if any(step < record.epochs[last].steps for step in inexact):
        changes.append(Change("resumed inexactly at steps", ", ".join(map(str, inexact)), "never"))
    return tuple(changes)


def _compared(recorded: Mapping[str, object], here: Mapping[str, object]) -> Iterator[Change]:
    for name in dict.fromkeys([*recorded, *here]):
        if recorded.get(name) != here.get(name):
            yield Change(name, recorded.get(name), here.get(name))


def _parted(recorded: Epoch, made: Epoch) -> Change | None:
    """The first number of an epoch that came out otherwise, the clock apart."""
    from rlbench.records.types import plain

    then, now = (dict(_numbers(json.loads(json.dumps(plain(epoch))))) for epoch in (recorded, made))
    return next(_compared(then, now), None)


def _numbers(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif prefix + name not in CLOCKS:
            yield prefix + name, value
