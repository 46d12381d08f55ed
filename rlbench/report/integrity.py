"""Verify every record below a folder to the last byte: damage, newer versions, contradictions.

Traces of a killed process are no faults: a torn last line of an unfinished run, a temporary file, a checkpoint beside
its half-written successor. The same command repairs all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from rlbench.errors import RefusedFile, UsageError, suggest_path
from rlbench.records import files, imported, manifest, store
from rlbench.records.files import folders
from rlbench.records.locks import is_locked
from rlbench.records.looks import NAME, read_looks
from rlbench.records.manifest import Manifest
from rlbench.records.store import Record
from rlbench.records.types import StepCounts
from rlbench.report import baseline
from rlbench.report.runs import Run, attempts, read_run
from rlbench.seeds import Seeds

CHECKPOINTS = ("resume", "best", "last")
BASELINE = "baseline.json"
POLICY = "policy/"  # prefix of the names of a saved policy's parameters


class Fault(NamedTuple):
    """One fault of a record."""

    where: str
    what: str
    remedy: str

    @property
    def line(self) -> str:
        """The place, the fault and its remedy."""
        return f"{self.where}: {self.what}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(slots=True)
class Findings:
    """The files that were verified, and the problems found."""

    faults: tuple[Fault, ...] = ()
    runs: int = 0
    epochs: int = 0
    checkpoints: int = 0
    baselines: int = 0
    curves: dict[tuple[str, str], Run] = field(default_factory=dict)  # the first run of each settings and curve
    curve_digests: dict[tuple[str, str], Path] = field(default_factory=dict)  # the first curve of each cell and digest
    curve_folders: dict[tuple[object, ...], Path] = field(default_factory=dict)  # the longest curve of each seed
    seeds: dict[tuple[object, ...], Run] = field(default_factory=dict)  # the first ended run of each seed


def verify_records(results: Path) -> Findings:
    """Verify all records below ``results``, or of one run's folder; of attempts that ``--force`` put aside what counts.

    Raises:
        UsageError: there is no such folder.
    """
    if not results.is_dir():
        raise UsageError(f"{results}: no such folder{suggest_path(results)}; name a folder of records")
    findings = Findings()
    root = results if results.name else results.resolve()
    findings.faults = tuple(_fault(error) for error in _errors(root, findings))
    return findings


def _errors(results: Path, findings: Findings) -> Iterator[str]:
    readers: list[tuple[Callable[[Path], object], Path]] = []
    for folder in folders(results):
        findings.runs += 1
        yield from _verify_run(folder, findings)
        readers.append((_read_looks, folder.parent))
    read_curve = partial(_read_curve, findings)
    for folder in imported.curve_folders(results):
        findings.runs += 1
        readers.append((read_curve, folder))
    if (results / BASELINE).is_file():
        findings.baselines += 1
        readers.append((baseline.read_baseline, results / BASELINE))
    for reader, path in dict.fromkeys(readers):
        yield from _errors_of(partial(reader, path))


def _errors_of(read: Callable[[], object]) -> Iterator[str]:
    """Yield the error with which a file is refused."""
    try:
        read()
    except RefusedFile as error:
        yield str(error)


def _read_looks(cell: Path) -> None:
    """Read a cell's looks; refuse a look that counts seeds that have not ended."""
    looks = read_looks(cell)
    for seed in range(looks.current.seeds if looks and looks.count else 0):
        folder = cell / f"seed={seed}"
        outcome = store.read_outcome(folder)
        if (outcome is None or outcome.status == "interrupted") and not is_locked(folder):
            what = f"counts {looks}, but seed {seed} has not ended"
            raise RefusedFile(f"{cell / NAME}: {what}; restore the seed, or repeat `rlbench run --until-decided`")


def _read_curve(findings: Findings, folder: Path) -> None:
    curve = imported.read_curve(folder)
    other = findings.curve_digests.setdefault((str(folder.parent), curve.digest or str(folder)), folder)
    if other != folder:
        raise RefusedFile(f"{folder}: has the same numbers as {other.name} beside it; remove the copy")
    seed = curve.suite, curve.algorithm, curve.task, curve.dataset, curve.seed, curve.kind, curve.origin.data
    longest = findings.curve_folders.setdefault(seed, folder)
    if longest == folder:
        return
    points, others = _points(curve), _points(imported.read_curve(longest))
    if not (points <= others or others <= points):
        raise RefusedFile(f"{folder}: has other numbers than {longest}, which is the same seed; keep one of them")
    if others < points:
        findings.curve_folders[seed] = folder


def _points(curve: imported.ImportedCurve) -> set[tuple[int, float]]:
    """Steps and return of each point."""
    return {*zip(curve.steps, curve.returns, strict=True)}


def _verify_run(folder: Path, findings: Findings) -> Iterator[str]:
    if links := list(_errors_of(partial(files.refuse_links, folder, folder))):
        yield from links
        return
    try:
        record = store.read_record(folder)
    except RefusedFile as error:
        yield str(error)
        record = None
    refused_attempts = list(_errors_of(partial(attempts, folder)))
    yield from refused_attempts
    if record is not None:
        findings.epochs += len(record.epochs)
        contradictions = list(_contradictions(record))
        yield from (*contradictions, *_foreign_episodes(record))
        if not contradictions and not refused_attempts:
            yield from _duplicates(read_run(folder), findings)
    for name in CHECKPOINTS:
        checkpoint = manifest.current(folder / "checkpoint" / name)
        if checkpoint.is_dir():
            findings.checkpoints += 1
            errors = list(_verify_checkpoint(checkpoint, name, record))
            if errors and not is_locked(folder):  # the process that holds it may be replacing it now
                yield from errors


def _contradictions(record: Record) -> Iterator[str]:
    spec, path, outcome = record.spec, record.folder.resolve(), record.outcome
    expected = Path(spec.suite, spec.algorithm, *Path(spec.task_folder).parts, spec.id, f"seed={spec.seed}")
    if path.parts[-len(expected.parts) :] != expected.parts:
        yield f"{record.folder / 'spec.json'}: is the record of {expected}; move it there"
    if outcome is None or outcome.status == "interrupted":
        return
    evaluations = [(epoch.evaluated.mean, -epoch.number) for epoch in record.epochs if epoch.evaluated is not None]
    best, number = max(evaluations, default=(None, None))
    final = evaluations[-1][0] if evaluations else None
    if (outcome.best, outcome.final) != (best, final) or (number is not None and outcome.best_epoch != -number):
        yield f"{record.folder / 'outcome.json'}: names other scores than epochs.jsonl holds; restore it"
    last = record.epochs[-1] if record.epochs else StepCounts(env_steps=0, updates=0)
    if outcome.status == "done" and (outcome.env_steps, outcome.updates) != (last.env_steps, last.updates):
        yield f"{record.folder / 'outcome.json'}: counts other steps than epochs.jsonl; restore it"


def _foreign_episodes(record: Record) -> Iterator[str]:
    """Yield an error if evaluation episodes have env seeds that do not derive from the run's seed."""
    spec = record.spec
    for epoch in record.epochs:
        if epoch.evaluated is None:
            continue
        seeds = epoch.evaluated.seeds  # an episode an env: a forged number of envs costs no more than the file
        envs = Seeds(spec.seed).child("evaluation", epoch.number, "env").numbers(min(spec.protocol.envs, len(seeds)))
        if not set(seeds) <= set(envs):
            what = f"evaluations from epoch {epoch.number} on have episodes of another seed than {spec.seed}"
            yield f"{record.folder / 'epochs.jsonl'}: {what}; restore it"
            return


def _duplicates(run: Run, findings: Findings) -> Iterator[str]:
    """Yield an error for a run with the numbers of another seed, or with other numbers than the same seed."""
    if run.has_learned:
        first = findings.curves.setdefault((run.id, run.digest), run)
        if first.seed != run.seed:
            yield f"{run.folder}: has the same numbers as seed {first.seed} in {first.folder}; remove the copy"
    if run.status != "interrupted":
        first = findings.seeds.setdefault((run.id, run.seed, run.data_file), run)
        if (first.digest, first.status) != (run.digest, run.status):
            what = f"has other numbers than {first.folder}, which is the same seed"
            yield f"{run.folder}: {what}; keep the one that `rlbench verify --replay` repeats"


def _verify_checkpoint(checkpoint: Path, name: str, record: Record | None) -> Iterator[str]:
    try:
        contents = manifest.read_manifest(checkpoint)
    except RefusedFile as error:
        yield str(error)
        return
    for file, digest in contents.files.items():
        yield from _errors_of(partial(_verify_sum, checkpoint, file, digest))
    if record is None:
        return
    foreign = list(_errors_of(partial(_refuse_foreign, checkpoint, contents, record)))
    outcome = record.outcome
    if foreign and name == "resume" and outcome is not None and outcome.status == "done":
        foreign = [f"{checkpoint}: is not of this finished run; delete it, or put its own record here"]
    yield from foreign
    misplaced = _refuse_misplaced(name, contents.values.get("epoch"), record)
    if misplaced is not None:
        yield f"{checkpoint}: is {misplaced}; restore it"
    if outcome is None or outcome.status != "done":
        return
    weights = _weights(checkpoint, contents) if name == "last" else None
    if weights is not None and outcome.weights not in {None, weights}:
        yield f"{checkpoint}: holds other weights than outcome.json names; restore it"


def _refuse_foreign(checkpoint: Path, contents: Manifest, record: Record) -> None:
    manifest.refuse_foreign(checkpoint, contents.values, record.spec, record.environment_sums, record.epoch_sums)


def _verify_sum(checkpoint: Path, file: str, digest: str) -> None:
    with manifest.opened(checkpoint, file, digest):
        pass


def _refuse_misplaced(name: str, epoch: object, record: Record) -> str | None:
    """Name a checkpoint in the wrong folder; ``epoch`` is the policy's, None for a state to resume."""
    outcome, last = record.outcome, len(record.epochs) - 1
    done = outcome is not None and outcome.status == "done"
    if (name == "resume") != (epoch is None):
        return "a state to resume from, no policy" if epoch is None else "a policy, no state to resume from"
    if name == "best" and done and outcome is not None and epoch != outcome.best_epoch:
        return f"of epoch {epoch}, the best is {outcome.best_epoch}"
    if name == "last" and isinstance(epoch, int) and (epoch < last or (done and epoch > last)):
        return f"of epoch {epoch}, the last is {last}"
    return None


def _weights(checkpoint: Path, contents: Manifest) -> str | None:
    """SHA-256 of a saved policy's parameters, as in a run's outcome; None if they cannot be read."""
    policy: dict[str, list[NDArray[np.generic]]] = {}
    try:
        for file in sorted(contents.files):
            with manifest.opened(checkpoint, file, contents.files[file]) as path:
                pieces = sorted(load_file(path).items())
            for key, piece in pieces:
                policy.setdefault(key.rpartition("@")[0], []).append(piece)
    except (SafetensorError, RefusedFile):
        return None
    total = sha256()
    for key in sorted(name for name in policy if name.startswith(POLICY)):
        total.update(key.removeprefix(POLICY).encode() + b"".join(piece.tobytes() for piece in policy[key]))
    return total.hexdigest()


def _fault(error: str) -> Fault:
    """Split an error's line into place, fault and remedy."""
    where, _, rest = error.partition(": ")
    what, _, remedy = rest.rpartition("; ")
    return Fault(where, what or remedy, remedy if what else "")
