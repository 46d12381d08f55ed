"""What ``--dataset`` says: which recorded experience to learn from, by name or by where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Data:
    """What ``--dataset`` said: the name of a known set, or where one lies."""

    given: str | None

    @property
    def path(self) -> str | None:
        """Where it lies, if that was said."""
        return self.given if self.given is not None and self._lies() else None

    def tasks(self, suite: str) -> tuple[str, ...]:
        """The task that a named set is of itself, where ``--task`` does not say which."""
        from rlbench import suites
        from rlbench.suites.offline_discrete import RECORDINGS

        if self.given is None or self.path is not None or suite != "offline":
            return ()
        if self.given in RECORDINGS:
            return (RECORDINGS[self.given],)
        return (self.given,) if self.given in suites.tasks(suite) else ()

    def name(self, suite: str, task: str, *, smoke: bool) -> str:
        """What the data are called where they are not the task's own.

        Raises:
            UsageError: the suite learns from no data, or nothing says which.
        """
        from rlbench.datasets.checksums import sealed
        from rlbench.datasets.reading import data_file
        from rlbench.errors import UsageError
        from rlbench.suites.offline import WORLDS

        if suite != "offline":
            if self.given is not None:
                raise UsageError(f"--dataset: {suite} learns from what it plays; leave it out, or choose offline")
            return ""
        if task not in WORLDS:
            return "" if self.path is not None or self.given in {None, task} else str(self.given)
        if self.given is None and not smoke:
            raise UsageError(f"offline {task}: says where to judge, not what to learn from; name it with --dataset")
        if self.given is None or self.path is None:
            return self.given or ""
        lies = Path(self.given)
        if not lies.exists():
            return lies.stem  # what reads it says that it is missing
        return f"{lies.stem}-{sealed(data_file(lies)).sha256[:8]}"

    def _lies(self) -> bool:
        text = self.given or ""
        return Path(text).exists() or text.endswith((".hdf5", ".h5")) or text.startswith((".", "/", "~"))
