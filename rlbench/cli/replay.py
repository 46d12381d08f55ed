"""``rlbench verify --replay``: the first epochs of a run trained again, and compared with its record to the bit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, get_args

from rlbench.cli.dataset_option import CheckedData, check_data, refuse_other_data
from rlbench.cli.inline import watched
from rlbench.cli.output import print_note
from rlbench.cli.preflight import check_memory
from rlbench.config.overrides import flatten
from rlbench.config.run import MAX_THREADS, EngineName, Runtime
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError, suggest_path
from rlbench.records.files import refuse_links
from rlbench.records.store import Record, Store, read_record
from rlbench.records.types import Epoch, plain
from rlbench.signals import Stop, stop_on_signals
from rlbench.suites.plugins import import_for_run

VALUE = re.compile(r"[\w,=: -]{0,200}", re.ASCII)  # value of a variable that chooses threads or instructions
CLOCKS = ("seconds", "evaluated.seconds", "collected.steps_per_second")
"""Fields of an epoch that no second run repeats."""

DATASET: Final = "name the file that it learned from with --dataset"


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the record and this machine, or between two epochs."""

    name: str
    before: object  # in the record
    here: object

    @property
    def line(self) -> str:
        """``torch: 2.13.0 recorded, 2.12.0 here``."""
        before, here = ("nothing" if value is None else value for value in (self.before, self.here))
        return f"{self.name}: {before} recorded, {here} here"

    @property
    def document(self) -> dict[str, object]:
        """The change for scripts."""
        return {"name": self.name, "recorded": self.before, "here": self.here}


def replay(
    folder: Path, epochs: int | None, dataset: Path | None, package: str | None, env_timeout: float
) -> tuple[dict[str, object], str]:
    """Train a run's first ``epochs`` again in a temporary folder; by default to the first epoch with updates.

    ``dataset`` is the path of the data set, if its name does not lead there, ``package`` the one to import first;
    ``env_timeout`` is in seconds. The result is a document and a text.

    Raises:
        UsageError: it is no run's folder, or this machine lacks its environment, device, engine, data or memory.
        RefusedFile: its record is damaged, or its data are another file.
        ResourceExhausted: memory is exhausted, or the disk of temporary files full.
    """
    refuse_links(folder, folder)
    if not (folder / "spec.json").exists():
        raise UsageError(f"{folder}: no run's folder{suggest_path(folder)}; name one: results/…/seed=0")
    record = _with_engine(read_record(folder))
    if dataset is not None and record.spec.suite != "offline":
        raise UsageError(f"--dataset: {record.spec.suite} learns from what it plays; leave it out")
    last = _last(record, epochs)
    with recorded_variables(record), watched(str(folder), env_timeout):
        import_for_run(package, record.spec.task)
        return _train_again(record, last, dataset)


def _with_engine(record: Record) -> Record:
    """The record with the engine of its first updates, which a process that resumed before them may have chosen."""
    engines = [line.environment.get("updates") for line in record.resumed if line.updates == 0]
    changes = [engine for engine in engines if isinstance(engine, str)]
    return replace(record, environment={**record.environment, "updates": changes[-1]}) if changes else record


def record_at(record: Record, epoch: int) -> Record:
    """The record with the environment of the process that recorded ``epoch``."""
    environment = dict(record.environment)
    for index, line in enumerate(record.resumed):
        if min(later.epoch for later in record.resumed[index:]) <= epoch:  # a line holds what differs from those before
            environment |= line.environment
    return replace(record, environment={name: value for name, value in environment.items() if value is not None})


def _last(record: Record, epochs: int | None) -> int:
    last_epoch = len(record.epochs) - 1
    if last_epoch < 0:
        raise UsageError(f"{record.folder}: holds no epoch yet; let it run on")
    if epochs is not None and epochs > last_epoch:
        raise UsageError(f"{record.folder}: holds {last_epoch} epochs; give --epochs {last_epoch} or fewer")
    first = next((epoch.number for epoch in record.epochs if epoch.updated is not None), last_epoch)
    return first if epochs is None else epochs


@contextmanager
def recorded_variables(record: Record) -> Iterator[None]:
    """Set the environment variables of threads and instructions as in the run, before torch reads them."""
    from rlbench.records.machine import INSTRUCTIONS, THREADS

    names, record_values = (*THREADS, *INSTRUCTIONS), record.environment
    for name in names:
        value = record_values.get(name, "")
        threads = re.findall(r"\d+", str(value)) if name.endswith("_NUM_THREADS") else []
        if not isinstance(value, str) or not VALUE.fullmatch(value) or any(int(n) > MAX_THREADS for n in threads):
            raise RefusedFile(f"{record.folder / 'spec.json'}: {name} has no value of a variable; restore it")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update({name: str(record_values[name]) for name in names if name in record_values})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def _writing(place: str) -> Iterator[None]:
    """Name TMPDIR in errors of the temporary folder."""
    try:
        yield
    except (ResourceExhausted, UsageError) as error:
        if place not in str(error):
            raise
        problem = str(error).replace(": it resumes", "").replace("another folder with --results", "another TMPDIR")
        raise ResourceExhausted(problem if "TMPDIR" in problem else f"{problem}, or set TMPDIR") from error


def _temporary_folder() -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="rlbench-replay-")
    except OSError as error:  # no temporary folder takes a byte
        raise ResourceExhausted(f"{error.strerror}: free some space, or set TMPDIR") from error


def _check_data(record: Record, runtime: Runtime) -> CheckedData | None:
    data = check_data(record.spec, runtime)
    try:
        refuse_other_data(record, runtime)
    except RefusedFile as error:
        raise RefusedFile(f"{str(error).rpartition('; ')[0]}; {DATASET}") from None
    return data


def _train_again(record: Record, last: int, dataset: Path | None) -> tuple[dict[str, object], str]:
    from rlbench.run import run

    runtime = _runtime(record).model_copy(update={"dataset": None if dataset is None else str(dataset)})
    changes = machine_changes(record, runtime, last)
    try:
        data = _check_data(record, runtime)
    except UsageError as error:
        raise UsageError(f"{record.folder}: {error}; or {DATASET}") from None
    stop = Stop(phase="setup")
    with _temporary_folder() as place, stop_on_signals(stop), _writing(place):
        check_memory([record.spec], runtime)
        store = Store.lock(record.spec, Path(place), {})
        if store is None:
            raise UsageError(f"{place}: another process holds it; replay again")
        records = run(record.spec, runtime, store, stop, data and data.seal)
        try:
            epoch, change = _compare_epochs(record, last, (epoch for epoch in records if isinstance(epoch, Epoch)))
            if change is not None and (here := store.environment.get("updates")):
                raise UsageError(f"{record.folder}: its updates cannot be computed as recorded, here {here}")
        finally:
            if isinstance(records, Generator):
                records.close()
            store.release()
    reach = f"epochs 0 to {epoch.number}, {epoch.steps:,} steps"
    result = "equal to the bit" if change is None else f"epoch {epoch.number} differs in {change.line}"
    document = {
        "folder": str(record.folder),
        "epochs": epoch.number,
        "env_steps": epoch.steps,
        "equal": change is None,
        "differs": change and change.document,
        "environment": [change.document for change in changes],
    }
    return document, "\n".join([f"{record.folder}: {reach}: {result}", *(f"  {change.line}" for change in changes)])


def _compare_epochs(record: Record, last: int, epochs: Iterator[Epoch]) -> tuple[Epoch, Change | None]:
    """The first epoch that differs, and its first difference but times; otherwise the last epoch."""
    for epoch in epochs:
        then, now = (json.loads(json.dumps(plain(each))) for each in (record.epochs[epoch.number], epoch))
        numbers = ({f.path: f.value for f in flatten(each, "") if f.path not in CLOCKS} for each in (then, now))
        change = next(_differences(*numbers), None)
        if change is not None or epoch.number == last:
            return epoch, change
        print_note(f"epoch {epoch.number} of {last}: equal")
    raise UsageError(f"{record.folder}: its record goes on where the run itself ends; restore it")


def _runtime(record: Record) -> Runtime:
    from rlbench.assembly.device import device_of

    record_values = record.environment
    engine, _, reason = str(record_values.get("updates", "")).partition(":")
    is_auto = engine == "numpy" and bool(reason)  # which takes numpy where networks are small
    runtime = Runtime(
        device=str(record_values.get("device", "cpu")),
        threads=recorded_threads(record),
        update_engine=next((name for name in get_args(EngineName) if name == engine and not is_auto), "auto"),
        eval_workers=0,
        checkpoint_seconds=1e9,
    )
    try:
        device_of(runtime)
    except UsageError:
        raise UsageError(f"{record.folder}: was made on {runtime.device}, which is not here; replay it there") from None
    return runtime


def recorded_threads(record: Record) -> int | None:
    """The number of torch's threads of a run; None if its record does not name it.

    Raises:
        RefusedFile: it is no number of threads.
    """
    threads = record.environment.get("torch_threads")
    if threads is None or (type(threads) is int and 1 <= threads <= MAX_THREADS):
        return threads
    raise RefusedFile(f"{record.folder / 'spec.json'}: torch_threads is no number of threads; restore it")


def machine_changes(record: Record, runtime: Runtime, last: int) -> tuple[Change, ...]:
    """Differences of code, versions and machine from the record; refuse another environment or version of it."""
    from rlbench.assembly.device import device_of
    from rlbench.assembly.engine import engine_of
    from rlbench.assembly.environments import describe
    from rlbench.records.machine import TUNABLES, environment, threads

    record_values = record.environment
    recorded_env, here = record_values.get("env"), dict(describe(record.spec).versions)
    if isinstance(recorded_env, Mapping) and recorded_env != here:
        other = "; ".join(change.line for change in _differences(recorded_env, here))
        raise UsageError(f"{record.folder}: its environment is not here ({other}); install the recorded versions")
    device = device_of(runtime)
    now = environment(updates=engine_of(record.spec, runtime, device).name, env=here, **threads())
    names = ["rlbench", "commit", "python", "system", "cpu", "updates", TUNABLES]
    names += ["vector_instructions"] if "vector_instructions" in record_values else []
    then = {**record_values, "updates": str(record_values.get("updates", "nothing")).partition(":")[0]}
    changes = list(_environment_changes(then, now, names))
    names.remove("updates")  # of a resume: the record names an inexact one
    for line in record.resumed:
        if line.epoch <= last:
            later = _environment_changes(line.environment, now, [name for name in names if name in line.environment])
            changes += (replace(change, name=f"{change.name} from epoch {line.epoch}") for change in later)
    inexact = record.outcome.inexact if record.outcome is not None else ()
    if any(step < record.epochs[last].steps for step in inexact):
        changes.append(Change("resumed inexactly at steps", ", ".join(map(str, inexact)), "never"))
    return tuple(changes)


def _environment_changes(
    record_values: Mapping[str, object], here: Mapping[str, object], names: Sequence[str]
) -> Iterator[Change]:
    """Differences of an environment in ``names``, and in the versions of packages and of the environment's parts."""
    yield from _differences(*({name: values.get(name) for name in names} for values in (record_values, here)))
    for name in ("packages", "env"):
        versions, installed = record_values.get(name), here.get(name)
        if isinstance(versions, Mapping) and isinstance(installed, Mapping):
            yield from _differences(versions, installed)


def _differences(record_values: Mapping[str, object], here: Mapping[str, object]) -> Iterator[Change]:
    for name in dict.fromkeys([*record_values, *here]):
        if record_values.get(name) != here.get(name):
            yield Change(name, record_values.get(name), here.get(name))
