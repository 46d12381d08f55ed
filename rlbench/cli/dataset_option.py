"""The option ``--dataset``: an offline data set by name or by path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rlbench import suites
from rlbench.cli.output import print_note
from rlbench.config.footprint import SHAPES
from rlbench.config.names import printable
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import OfflineTask
from rlbench.errors import RefusedFile, UsageError
from rlbench.records.store import Record
from rlbench.suites.offline import ENVS, MUJOCO_ENVS
from rlbench.suites.offline_discrete import RECORDINGS

if TYPE_CHECKING:
    from rlbench.datasets.checksums import Seal

DIGITS: Final = 8  # of the SHA-256, in the name of a data set that is given by path


@dataclass(frozen=True)
class Data:
    """Value of ``--dataset``: the name of a known data set, or a path."""

    value: str | None
    given_sha256: str | None = None  # of the path's file; a sweep gives it to its workers

    @property
    def path(self) -> str | None:
        """The path, where one was given."""
        text = self.value or ""
        is_path = text.endswith((".hdf5", ".h5")) or text.startswith((".", "/", "~"))
        return str(Path(text).expanduser()) if is_path or (text and Path(text).exists()) else None

    @cached_property
    def sha256(self) -> str | None:
        """SHA-256 of the path's file when the command first needs it; None without a file."""
        from rlbench.datasets.catalogue import find
        from rlbench.datasets.checksums import seal_of
        from rlbench.datasets.loader import data_file

        if self.given_sha256 is not None or self.path is None or not Path(self.path).exists():
            return self.given_sha256
        return seal_of(data_file(find("", Path(self.path)))).sha256

    def tasks(self, suite: str, globs: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Task patterns of ``--task``; without it the task of the data set.

        Raises:
            UsageError: no data set has the name; no environment here, or more than one, fits it; ``--task`` names a
                D4RL data set that is no row of the table.
        """
        if suite != "offline":
            return globs
        _rows(globs)
        row = self.path is None and self.value in suites.tasks(suite)
        if row and globs == (suites.offline.env_id_of(str(self.value)),):
            return (str(self.value),)  # the row itself, given twice
        if globs or self.value is None:
            return globs
        if not self.value:
            raise UsageError(
                f"--dataset {self.value!r}: name its environment with --task, one of {', '.join(ENVS)}, or the row"
            )
        if self.value in RECORDINGS:
            return (RECORDINGS[self.value],)
        return (self.value,) if row else (_environment_of(self.value, self.path),)

    def name(self, suite: str, task: str, *, smoke: bool) -> str:
        """Name of the data set; empty for the task's own.

        Raises:
            UsageError: the suite is online, or no option names a data set.
        """
        if suite != "offline":
            if self.value is not None:
                raise UsageError(f"--dataset: {suite} learns from what it plays; leave it out, or choose offline")
            return ""
        if task not in ENVS:
            return "" if self.path is not None or self.value in {None, task} else str(self.value)
        if self.value is None and not smoke:
            raise UsageError(f"offline: {task} is an environment; name the data to learn from with --dataset")
        if self.value is None or self.path is None:
            return self.value or ""
        path, sha256 = Path(self.path), self.sha256
        stem = path.stem if path.stem.strip(".") else path.resolve().stem  # of . and ..
        return f"{stem}-{sha256[:DIGITS]}" if sha256 is not None else stem  # what reads it says that it is missing


def _rows(globs: tuple[str, ...]) -> None:
    """Refuse names of D4RL data sets that are no row of the table."""
    from rlbench.datasets import catalogue

    for name in globs:
        if name in catalogue.d4rl() and name not in suites.tasks("offline"):
            env = catalogue.d4rl()[name].env_id
            use = (
                f"learn from it with --task {env} --dataset {name}" if env else "its policies cannot be evaluated here"
            )
            raise UsageError(f"--task {name}: is a data set, but no row of the table; {use}")


def _environment_of(value: str, file: str | None) -> str:
    """Environment that evaluates policies of a data set: of its metadata, or the only one of its sizes."""
    from rlbench.assembly.offline import recorded_on
    from rlbench.datasets import catalogue, checksums, d4rl, loader
    from rlbench.datasets.catalogue import find

    name = "" if file else value
    dataset = catalogue.d4rl().get(name)
    if dataset is not None and dataset.env_id is None:
        raise UsageError(f"--dataset {name}: its policies cannot be evaluated here; the table has: {', '.join(ENVS)}")
    path = find(name, None if file is None else Path(file))
    checksums.seal_of(loader.data_file(path))  # before HDF5 opens it: damage could end the process
    env_id = recorded_on(loader.dataset_metadata(path), name, path)
    if env_id in ENVS:
        return env_id
    if env_id is not None or path.is_dir():
        of = "names no environment" if env_id is None else f"is of {env_id}, which is not available here"
        raise UsageError(f"--dataset {value}: {of}; name its environment with --task: {', '.join(ENVS)}")
    features, actions = d4rl.widths(path)
    sizes = f"observations of {features} numbers and actions of {actions}"
    of_d4rl = {(entry.env_id, entry.features, entry.actions) for entry in catalogue.d4rl().values()}
    fitting = [env for env in MUJOCO_ENVS if SHAPES[env] == (features, actions) or (env, features, actions) in of_d4rl]
    if not fitting:
        raise UsageError(f"--dataset {value}: no environment here has {sizes}; see: rlbench list tasks --suite offline")
    if len(fitting) > 1:
        raise UsageError(
            f"--dataset {value}: names no environment; name it with --task, one of {', '.join(fitting)}, which have "
            f"{sizes}, or the row"
        )
    print_note(f"--dataset {value}: evaluated on {fitting[0]}, the only environment here with {sizes}")
    return fitting[0]


def rows_of(value: str | None) -> Callable[[Spec], int | None]:
    """Return a function from a run to the number of rows of its data set as read; None where the file is missing."""
    path = Data(value).path

    @cache
    def of(name: str) -> int | None:
        from rlbench.datasets.loader import rows_here

        return rows_here(name, None if path is None else Path(path))

    return lambda spec: of(spec.task.data) if isinstance(spec.task, OfflineTask) else None


class CheckedData(NamedTuple):
    """The data set of a run and its checksum, computed just now."""

    name: str
    path: Path
    seal: Seal

    def metadata(self) -> dict[str, object]:
        """Name, file, SHA-256 and dataset return, for the record."""
        from rlbench.datasets.summary import dataset_return
        from rlbench.records.machine import available_memory

        file = {"name": self.name, "file": self.path.name, "sha256": self.seal.sha256, "bytes": self.seal.size}
        return {**file, **dataset_return(self.path, self.name, max_bytes=available_memory())._asdict()}


def check_data(spec: Spec, runtime: Runtime) -> CheckedData | None:
    """Check the data set of a run; None for an online run.

    Raises:
        UsageError: the file is missing.
        RefusedFile: the file is damaged, of another task, or was replaced since the command began.
    """
    from rlbench.assembly.offline import check_identity, source
    from rlbench.datasets import checksums, loader

    path = source(spec, spec.task, runtime) if isinstance(spec.task, OfflineTask) else None
    if not isinstance(spec.task, OfflineTask) or path is None:
        return None
    seal = checksums.verify(loader.data_file(path))  # before HDF5 opens it: damage could end the process
    if runtime.dataset_sha256 not in {None, seal.sha256}:
        raise RefusedFile(
            f"{path}: was replaced since this command began; restore it, or name another folder with --results"
        )
    check_identity(spec.task, path)  # before anything is recorded
    try:
        loader.check_size(path, spec.task.data)
    except RefusedFile as error:  # D4RL's folder is the user's own
        print_note(str(error))
    _note_other_environment(spec.task, path)
    return CheckedData(spec.task.data, path, seal)


def _note_other_environment(task: OfflineTask, path: Path) -> None:
    """Note what Minari's metadata say of the recorded environment and the one of the evaluation has not."""
    from gymnasium.envs.registration import registry

    from rlbench.datasets.loader import dataset_metadata

    metadata, env = dataset_metadata(path), task.world.id
    for name, noun in (("env_kwargs", "arguments"), ("additional_wrappers", "wrappers")):
        if text := metadata.get(name):
            print_note(f"{path}: recorded with the {noun} {printable(text, 200)}; {env} evaluates without them")
    theirs, own = metadata.get("max_episode_steps"), getattr(registry.get(env), "max_episode_steps", None)
    if theirs and own and theirs != str(own):
        print_note(f"{path}: recorded in episodes of at most {theirs} steps; those of {env} have up to {own}")


def refuse_other_data(ended: Record, runtime: Runtime) -> None:
    """Refuse a finished run that learned from another data file than the present one.

    Raises:
        RefusedFile: the SHA-256 of the two files differ.
    """
    from rlbench.datasets.catalogue import find, is_present, locate
    from rlbench.datasets.checksums import seal_of
    from rlbench.datasets.loader import data_file

    file, task = ended.environment.get("data"), ended.spec.task
    if not isinstance(file, dict) or not isinstance(task, OfflineTask):
        return
    if runtime.dataset is None and not is_present(locate(task.data)):
        return
    path = data_file(find(task.data, None if runtime.dataset is None else Path(runtime.dataset)))
    now, then = seal_of(path).sha256, str(file.get("sha256"))
    if then != now:
        raise RefusedFile(
            f"{ended.folder}: learned from {file.get('file')} (SHA-256 {then[:12]}…), {path} is another "
            f"({now[:12]}…); keep its runs apart with --results, or start over with --force"
        )


def run_document(spec: Spec) -> dict[str, object]:
    """Name a run for scripts; ``dataset`` is None for the task's own."""
    dataset = (spec.task.dataset or None) if isinstance(spec.task, OfflineTask) else None
    task = {"suite": spec.suite, "algorithm": spec.algorithm, "task": spec.task.id}
    return {**task, "dataset": dataset, "seed": spec.seed}


def reference_score(spec: Spec) -> float | None:
    """Reference score of a run in raw points; None where it learns from other data than the reference."""
    from rlbench.report.reference_scores import primary_references
    from rlbench.report.reference_table import cell_of, in_points, scale_of

    key = cell_of(spec)
    reference = primary_references(spec.suite).get(key)
    if spec.smoke or reference is None or run_document(spec)["dataset"] is not None:
        return None
    return in_points(reference, scale_of(key))
