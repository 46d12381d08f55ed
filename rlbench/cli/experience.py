"""What ``--dataset`` says: which recorded experience to learn from, by name or by where it lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlbench.config.run import Runtime, Spec
    from rlbench.datasets.checksums import Seal
    from rlbench.records.store import Record


@dataclass(frozen=True)
class Data:
    """What ``--dataset`` said: the name of a known set, or where one lies."""

    given: str | None

    @property
    def path(self) -> str | None:
        """Where it lies, if that was said."""
        return str(Path(self.given).expanduser()) if self.given and self._lies() else None

    def tasks(self, suite: str, globs: tuple[str, ...] = ()) -> tuple[str, ...]:
        """What ``--task`` says; where it does not, the task that a named set is of, or says that it is of.

        Raises:
            UsageError: a path says where something lies, not what it is; or there is no set of that name, or it is of
                no task that is judged here; or ``--task`` names a set of D4RL's that is no row of the table.
        """
        from rlbench import suites
        from rlbench.errors import UsageError
        from rlbench.suites.offline import WORLDS
        from rlbench.suites.offline_discrete import RECORDINGS

        if suite != "offline":
            return globs
        _rows(globs)
        row = self.path is None and self.given in suites.tasks(suite)
        if row and globs == (suites.offline.world_of(str(self.given)),):
            return (str(self.given),)  # the row itself, said in two ways
        if globs or self.given is None:
            return globs
        if self.path is not None or not self.given:
            raise UsageError(
                f"--dataset {self.given!r}: name its environment with --task, one of {', '.join(WORLDS)}, or the row"
            )
        if self.given in RECORDINGS:
            return (RECORDINGS[self.given],)
        return (self.given,) if row else (_judged(self.given),)

    def name(self, suite: str, task: str, *, smoke: bool) -> str:
        """What the data are called where they are not the task's own.

        Raises:
            UsageError: the suite learns from no data, nothing says which, or there is none.
        """
        from rlbench.datasets.checksums import sealed
        from rlbench.datasets.loader import data_file
        from rlbench.datasets.locations import found
        from rlbench.errors import UsageError
        from rlbench.suites.offline import WORLDS

        if suite != "offline":
            if self.given is not None:
                raise UsageError(f"--dataset: {suite} learns from what it plays; leave it out, or choose offline")
            return ""
        if task not in WORLDS:
            return "" if self.path is not None or self.given in {None, task} else str(self.given)
        if self.given is None and not smoke:
            raise UsageError(f"offline: {task} is an environment; name the data to learn from with --dataset")
        if self.given is None or self.path is None:
            return self.given or ""
        lies = Path(self.path)
        if not lies.exists():
            return lies.stem  # what reads it says that it is missing
        return f"{lies.stem}-{sealed(data_file(found('', lies))).sha256[:8]}"

    def _lies(self) -> bool:
        text = self.given or ""
        return Path(text).exists() or text.endswith((".hdf5", ".h5")) or text.startswith((".", "/", "~"))


def _rows(globs: tuple[str, ...]) -> None:
    """Refuse the names of data sets that D4RL has and the table does not."""
    from rlbench import suites
    from rlbench.datasets import catalogue
    from rlbench.errors import UsageError

    for name in globs:
        if name in catalogue.d4rl() and name not in suites.tasks("offline"):
            world = catalogue.known(name).env_id
            use = f"learn from it with --task {world} --dataset {name}" if world else "nothing here judges its task"
            raise UsageError(f"--task {name}: is a data set, but no row of the table; {use}")


def _judged(name: str) -> str:
    """The world that judges what is learned from a set without a row of its own, as far as the set says."""
    from rlbench.assembly.dataset_compatibility import recorded_on
    from rlbench.datasets import catalogue
    from rlbench.datasets.loader import told
    from rlbench.datasets.locations import found
    from rlbench.errors import UsageError
    from rlbench.suites.offline import WORLDS

    known = catalogue.d4rl().get(name)
    if known is not None and known.env_id is None:
        raise UsageError(f"--dataset {name}: nothing here judges its task; the table has: {', '.join(WORLDS)}")
    path = found(name)
    said = recorded_on(told(path), name, path)
    if said not in WORLDS:
        of = "does not say what it is of" if said is None else f"is of {said}, which judges nothing here"
        raise UsageError(f"--dataset {name}: {of}; say with --task on what to judge: {', '.join(WORLDS)}")
    return said


def steps_of(given: str | None) -> Callable[[Spec], int | None]:
    """Tell the steps of a run's recorded experience, ``given`` or its task's own; None where it is not there."""
    from rlbench.config.tasks import OfflineTask

    path = Data(given).path

    @cache
    def of(name: str) -> int | None:
        from rlbench.datasets.loader import steps_here

        return steps_here(name, None if path is None else Path(path))

    return lambda spec: of(spec.task.data) if isinstance(spec.task, OfflineTask) else None


class Checked(NamedTuple):
    """What is learned from, every byte of it hashed just now."""

    name: str
    path: Path
    seal: Seal

    def told(self) -> dict[str, object]:
        """Its name, its file, the SHA-256 of that, its worth; for the record."""
        from rlbench.datasets.dataset_return import dataset_return

        file = {"name": self.name, "file": self.path.name, "sha256": self.seal.sha256, "bytes": self.seal.size}
        return {**file, **dataset_return(self.path, self.name)._asdict()}


def checked(spec: Spec, runtime: Runtime) -> Checked | None:
    """The data of a run; None where it learns from what it plays.

    Raises:
        UsageError: they are nowhere.
        RefusedFile: they are damaged, or of another task.
    """
    from rlbench.assembly.dataset_compatibility import check_identity
    from rlbench.assembly.offline import source
    from rlbench.config.tasks import OfflineTask
    from rlbench.datasets import checksums, loader

    path = source(spec, spec.task, runtime) if isinstance(spec.task, OfflineTask) else None
    if not isinstance(spec.task, OfflineTask) or path is None:
        return None
    seal = checksums.verified(loader.data_file(path))  # before HDF5 opens it: damage could end the process
    check_identity(spec.task, path)  # before anything is recorded
    return Checked(spec.task.data, path, seal)


def same(ended: Record, runtime: Runtime) -> None:
    """Refuse to call a run done that learned from another file than the one that is meant now, if there is one.

    Raises:
        RefusedFile: the SHA-256 of its data is another.
    """
    from rlbench.config.tasks import OfflineTask
    from rlbench.datasets.checksums import sealed
    from rlbench.datasets.loader import data_file
    from rlbench.datasets.locations import found, place, present
    from rlbench.errors import RefusedFile

    noted, task = ended.environment.get("data"), ended.spec.task
    if not isinstance(noted, dict) or not isinstance(task, OfflineTask):
        return
    if runtime.dataset is None and not present(place(task.data)):
        return
    path = data_file(found(task.data, None if runtime.dataset is None else Path(runtime.dataset)))
    now, then = sealed(path).sha256, str(noted.get("sha256"))
    if then != now:
        raise RefusedFile(
            f"{ended.folder}: learned from {noted.get('file')} (SHA-256 {then[:12]}…), {path} is another "
            f"({now[:12]}…); keep its runs apart with --results, or start over with --force"
        )


def dataset_of(spec: Spec) -> str:
    """What was learned from, where it is not the task's own."""
    from rlbench.config.tasks import OfflineTask

    return spec.task.dataset if isinstance(spec.task, OfflineTask) else ""


def documented(spec: Spec) -> float | None:
    """What a run's best evaluation is shown beside, in raw points; nothing where it learned from other data."""
    from rlbench.report.reference_scores import CellKey, primary, row_of
    from rlbench.report.references import in_points, reference

    if spec.smoke or dataset_of(spec):
        return None
    document = primary(spec.suite, spec.algorithm, spec.task.id)
    key = CellKey(spec.suite, spec.algorithm, *row_of(spec.suite, spec.task.id, ""))
    return None if document is None else in_points(document, reference(key))
