"""Resumes of a run by other code, libraries or hardware than before: one sealed line each, part of the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlbench.errors import RefusedFile
from rlbench.record import files
from rlbench.record.machine import POLICY

RESUMED = "resumed.jsonl"
ASKED = ("command", "memory", "updates", "torch_threads", *POLICY)
"""Entries of an environment on which no number depends: a resumed run keeps its threads and its engine."""


class Resume(NamedTuple):
    """A run goes on in another environment than before."""

    epoch: int  # the first one that is recorded there
    environment: Mapping[str, object]


def read_resumes(folder: Path) -> tuple[Resume, ...]:
    """The resumes of a run by other code, libraries or hardware, in order.

    Raises:
        RefusedFile: a line is damaged or newer.
    """
    path, resumes = folder / RESUMED, list[Resume]()
    for number, line in enumerate(files.read_text(path).splitlines() if path.exists() else ()):
        content = files.unsealed(line, f"{path}:{number + 1}")
        epoch, environment = content.get("epoch"), content.get("environment")
        if not isinstance(epoch, int) or not isinstance(environment, dict):
            raise RefusedFile(f"{path}:{number + 1}: not a resume of this schema; restore it")
        resumes.append(Resume(epoch, environment))
    return tuple(resumes)


def note_resume(folder: Path, environment: Mapping[str, object], epoch: int, threads: int) -> None:
    """Write down that a run goes on from ``epoch`` in ``environment``, where that is another one than before."""
    head = files.read_sealed(folder / "spec.json").get("environment")
    resumes = read_resumes(folder)
    before = resumes[-1].environment if resumes else head if isinstance(head, dict) else {}
    if _comparable(before) == _comparable(environment):
        return
    resumes = (*resumes, Resume(epoch, {**environment, "torch_threads": threads}))
    lines = [files.sealed({"schema_version": files.SCHEMA_VERSION, **resume._asdict()}) for resume in resumes]
    files.replace(folder / RESUMED, "".join(line + "\n" for line in lines))


def _comparable(environment: Mapping[str, object]) -> object:
    """An environment as its JSON reads back, without what equal numbers do not depend on."""
    return json.loads(json.dumps({name: value for name, value in environment.items() if name not in ASKED}))
