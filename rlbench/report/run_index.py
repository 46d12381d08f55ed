"""Read the runs of each cell from a results folder: by whether they count, and by their status.

A cell has imported curves only without a run of rlbench. A training return is no evaluation: it is compared only with a
reference of its own kind.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rlbench.config.names import printable
from rlbench.errors import RefusedFile
from rlbench.records import imported
from rlbench.records.files import folders, record_stamps
from rlbench.records.imported import ImportedCurve
from rlbench.records.locks import is_locked
from rlbench.records.looks import Looks
from rlbench.records.store import Record, read_record
from rlbench.report.estimate import FULL, best, is_whole, one_per_epoch, within
from rlbench.report.reference_scores import is_of_training, primary_references
from rlbench.report.reference_table import CellKey, documented_spec, row_of
from rlbench.report.runs import Evaluation, Run, failed_in_full, keep_one, mark_failed, read_run, separate, take_copies
from rlbench.report.verdict import ALPHA
from rlbench.suites.plugins import Package

if TYPE_CHECKING:
    from rlbench.config.run import Spec

State = Literal["running", "done", "failed", "interrupted", "damaged"]
RECENT = 3  # epochs that the speed of a run is read from
LATE = 0.9  # share of the budget after which a complete curve has a point: evaluations may be a tenth apart

LEFT_OUT: Final = {
    "other_protocol": "of another protocol",
    "variants": "of other settings",
    "other_data": "on another data file",
    "other_versions": "in other versions of the environment",
    "same_numbers": "with the numbers of another seed",
    "duplicates": "beside the record that counts for their seed",
}
"""Parts of ``Runs`` that no score has, and their names."""


@dataclass(slots=True)
class Runs:
    """The runs of one cell, sorted by how they count."""

    complete: list[Run] = field(default_factory=list)  # the documented settings, ended
    failed: list[Run] = field(default_factory=list)  # the documented settings, ended by an error
    short: list[Run] = field(default_factory=list)  # the documented settings, but fewer steps or not yet ended
    unfinished: list[Run] = field(default_factory=list)  # short ones of all looks, versions and files: they may be bad
    other_protocol: list[Run] = field(default_factory=list)  # or another environment; ended, the same algorithm
    variants: list[Run] = field(default_factory=list)  # any other setting
    other_data: list[Run] = field(default_factory=list)  # the documented settings, on another file than those above
    other_versions: list[Run] = field(default_factory=list)  # the documented settings, another environment version
    same_numbers: list[Run] = field(default_factory=list)  # the numbers of another seed
    duplicates: list[Run] = field(default_factory=list)  # other records of a seed, better or shorter, no prefixes
    imported_curves: list[Run] = field(default_factory=list)  # curves that other programs measured
    of_imported: bool = False  # the imported curves stand in the place of runs
    interval: int = 0  # steps to which only the nearest imported return counts, where there are more
    later_seeds: int = 0  # finished runs of seeds that the next look will count
    all_seeds: Runs | None = None  # with those beyond the last look, which can only lower its verdict
    ended_look: Runs | None = None  # by a look whose seeds have ended but that looks.json does not count
    folders: set[Path] = field(default_factory=set)  # of its ended runs and their copies, each with the seeds of a cell
    looks: Looks | None = None  # taken by ``run --until-decided``
    lost_seeds: tuple[int, ...] = ()  # of the last look, without an ended run
    budget: int = 0  # documented steps of a run

    @property
    def main_protocol(self) -> list[Run]:
        """The runs of another protocol that repeat one experiment, one per seed: the one with most ended seeds."""
        groups = []
        for settings_id, versions in dict.fromkeys((run.id, run.env_versions) for run in self.other_protocol):
            group = [r for r in self.other_protocol if r.id == settings_id and r.env_versions in {None, versions}]
            keep_one(group, lambda r: r.seed)
            take_copies(group)
            groups.append(group)
        return max(groups, key=lambda group: (sum(run.counts_in_full for run in group), len(group)), default=[])

    @property
    def score_runs(self) -> tuple[list[Run], list[Run]]:
        """The runs of a table's score: those that count by their evaluations, and the failed ones."""
        protocol = [] if self.scored or self.short else self.main_protocol
        failed = self.failed or [run for run in protocol if run.status == "failed"]
        runs = self.complete or ([] if self.failed else self.short) or protocol
        return [run for run in runs if run.status != "failed"], failed

    @property
    def scored(self) -> tuple[Run, ...]:
        """The runs with a score."""
        return (*self.complete, *self.failed)

    @property
    def evaluated(self) -> list[Run]:
        """The runs of the documented settings that have an evaluation, ended or not."""
        return [run for run in (*self.complete, *self.short) if run.evaluations]

    @property
    def level(self) -> float:
        """The one-sided level at which a test of the runs reproduces."""
        return self.looks.current.level if self.looks is not None and self.looks.count else ALPHA

    @property
    def all(self) -> tuple[Run, ...]:
        """All runs without the better of two records of a seed, and without copies of scored ones."""
        return (*self.scored, *self.short, *self.other_protocol, *self.variants, *self.other_data, *self.other_versions)

    def conflicting(self, runs: Iterable[Run]) -> list[Run]:
        """Whole records of other numbers, which may be worse, beside those of ``runs`` with equal settings and seed."""
        seeds = {(run.id, run.seed) for run in runs}
        return [run for run in self.duplicates if (run.id, run.seed) in seeds and is_whole(run)]


def gather(results: Path) -> dict[CellKey, Runs]:
    """The runs below ``results`` by cell; a smoke run belongs to none.

    Raises:
        RefusedFile: a record is damaged or newer than this version; the message names the file.
        UsageError: ``results`` is not a folder.
    """
    return group_runs(read_run(folder) for folder in folders(results))


def group_runs(runs: Iterable[Run]) -> dict[CellKey, Runs]:
    """Sort runs by cell and by how they count; smoke runs are dropped, and a copied record counts once."""
    cells: dict[CellKey, Runs] = {}
    for run in map(mark_failed, runs):
        if not run.smoke:
            _sort(run, cells.setdefault(key_of(run), Runs()))
    for group in cells.values():
        others = [run for run in (*group.complete, *group.short) if run.status != "failed"]
        group.failed += filter(None, (failed_in_full(run, others) for run in group.short))
        group.short = [run for run in group.short if run.status != "failed"]
        group.folders = {run.folder.parent for run in (*group.complete, *group.failed)}
        _drop_parts(group.complete, group.short, group.other_protocol, group.variants)
        for part in (group.other_protocol, group.variants):
            group.duplicates += keep_one(part, lambda r: (r.id, r.seed, r.data_file, r.env_versions))
        every_short = tuple({run.seed: run for run in group.short}.values())
        separate(group)
        ended_seeds = {r.seed for r in group.scored}
        group.duplicates += [run for run in group.short if run.seed in ended_seeds]
        group.short, group.unfinished = (
            [r for r in runs if r.seed not in ended_seeds] for runs in (group.short, every_short)
        )
    return cells


def _drop_parts(*parts: list[Run]) -> None:
    """Drop each record that is a part of another of its settings and seed, as an earlier copy is; failed ones stay."""
    points_of: dict[tuple[object, ...], list[set[tuple[int, float]]]] = defaultdict(list)
    dropped, runs = set(), [run for run in chain(*parts) if run.status != "failed"]
    for run in sorted(runs, key=lambda r: (-len(r.evaluations), r.status != "done", -r.env_steps, r.folder)):
        env = run.origin["kind"] if run.origin else str(run.environment.get("env"))  # files spell it in several ways
        others = points_of[run.id, run.seed, run.data_file, env]
        points = {(evaluation.env_steps, evaluation.mean) for evaluation in run.evaluations}
        if any(points <= theirs for theirs in others):
            dropped.add(run.folder)
        others.append(points)
    for part in parts:
        part[:] = sorted((r for r in part if r.folder not in dropped), key=lambda r: (r.seed, str(r.folder)))


def key_of(run: Run) -> CellKey:
    """The cell of a run."""
    return CellKey(run.suite, run.algorithm, *row_of(run.suite, run.task, run.dataset))


def differences(run: Run) -> list[str]:
    """The settings of a run that differ from its cell's documented ones, as ``--set`` takes them."""
    from rlbench.config.overrides import flatten, written

    default = documented_spec_of_run(run)
    if default is None:
        return []
    theirs = {setting.path: setting.value for setting in flatten(default.model_dump(mode="json"), "")}
    return [
        f"{path.removesuffix('.kind')}={written(value)}"
        for path, value, _ in sorted(flatten(run.settings, ""), key=lambda setting: setting.path)
        if path != "seed" and theirs.get(path) != value
    ]


def _sort(run: Run, runs: Runs) -> None:
    default = documented_spec_of_run(run)
    counts = run.status == "failed" or run.counts_in_full
    runs.budget = default.budget.steps if default else max(runs.budget, run.budget)
    if default is None:
        (runs.other_protocol if counts and _package(run) else runs.variants).append(run)
        return
    shorter = default.budget.model_copy(update={"steps": run.budget})
    if run.id == default.id:
        part = runs.complete if counts else runs.short
        (runs.failed if run.status == "failed" else part).append(run)
    elif run.budget < default.budget.steps and run.id == default.model_copy(update={"budget": shorter}).id:
        runs.short.append(run)
    elif counts and _differs_in_protocol(run, default):
        runs.other_protocol.append(run)
    else:
        runs.variants.append(run)


def _differs_in_protocol(run: Run, default: Spec) -> bool:
    """True if a run differs from its cell's settings in nothing but task and protocol."""
    ignored = {"seed", "task", "protocol"}
    theirs = {name: value for name, value in default.model_dump(mode="json").items() if name not in ignored}
    return theirs == {name: value for name, value in run.settings.items() if name not in ignored}


def documented_spec_of_run(run: Run) -> Spec | None:
    """The documented settings of a run's cell; None where none are documented."""
    return documented_spec(run.suite, run.algorithm, run.task, run.dataset, _package(run))


def _package(run: Run) -> Package | None:
    """The package that brought a run's environment; None for a task of rlbench."""
    task = run.settings.get("task")
    if not isinstance(task, Mapping) or task["kind"] != "gymnasium":
        return None
    return Package(str(task["package"]), str(task["version"]))


def label(run: Run) -> str:
    """The settings by which a run differs from the published ones: ``lr=0.00015``."""
    differing = [text.removeprefix("algo.").removeprefix("method.") for text in differences(run)]
    return " ".join([text for text in differing if not text.startswith("budget.")] or differing) or "other settings"


def setting(run: Run) -> str:
    """Name the settings that a run changes, as ``lr=0.01``; ``published`` if that is at most its budget."""
    return label(run) if any(not text.startswith("budget.") for text in differences(run)) else "published"


def with_imported(runs: Mapping[CellKey, Runs], results: Path) -> dict[CellKey, Runs]:
    """Runs by cell; a cell without a run of rlbench has the imported curves in their place.

    Raises:
        RefusedFile: a curve is damaged or newer than this version; the message names the file.
    """
    cells = dict(runs)
    curves: dict[CellKey, list[Run]] = {}
    for folder in imported.curve_folders(results):
        run = _run_of_curve(folder, imported.read_curve(folder))
        curves.setdefault(key_of(run), []).append(run)
    for key, group in curves.items():
        group.sort(key=lambda run: run.seed)
        own = cells.get(key, Runs())
        cells[key] = _as_runs(key, group) if not own.all else own
        cells[key].imported_curves = group
    return cells


def _as_runs(key: CellKey, curves: list[Run]) -> Runs:
    """Imported curves of one cell, sorted as runs are."""
    reference = primary_references(key.suite).get(key)
    default = documented_spec_of_run(curves[0])
    limit = reference.limit if reference else None
    longest = max(curve.budget for curve in curves)
    cells = Runs(of_imported=True, budget=limit or (default.budget.steps if default else longest))
    is_training = reference is not None and is_of_training(key, reference)
    kind, epoch = "training" if is_training else "evaluation", default.budget.epoch if default else 1
    curves = [curve if curve.has_curve else _at_end(curve, cells.budget) for curve in curves]
    _drop_parts(curves)
    copies = _copies(curves)
    for curve in curves:
        evaluations = within(curve.evaluations, cells.budget)  # later ones never count
        spaced = one_per_epoch(evaluations, epoch)
        cells.interval = epoch if len(spaced) < len(evaluations) else cells.interval
        end = min(curve.budget, cells.budget)
        run = replace(curve, evaluations=spaced, budget=end, env_steps=end)
        if run.folder in copies:
            cells.same_numbers.append(run)
        elif run.origin["kind"] != kind:
            cells.other_protocol.append(run)
        elif run.env_steps >= FULL * cells.budget and spaced and spaced[-1].env_steps >= LATE * cells.budget:
            cells.complete.append(replace(run, budget=cells.budget))
        else:  # to its last point that counts, whatever later steps it states
            end = spaced[-1].env_steps if spaced else 0
            cells.short.append(replace(run, budget=end, env_steps=end))
    separate(cells)
    whole = {run.seed for run in cells.complete}
    cells.duplicates += [run for run in cells.short if run.seed in whole]
    cells.short = [run for run in cells.short if run.seed not in whole]
    cells.unfinished = [*cells.short, *(cells.other_protocol if whole else ())]
    return cells


def _copies(curves: Sequence[Run]) -> set[Path]:
    """The folders of curves that begin another one, as earlier copies do, or that equal the one of a lower seed."""
    points = {run.folder: [(e.env_steps, e.mean) for e in run.evaluations] for run in curves}
    order = sorted(curves, key=lambda run: (points[run.folder], -run.seed))
    return {
        run.folder
        for run, following in pairwise(order)  # what begins with a curve follows it
        if points[following.folder][: len(points[run.folder])] == points[run.folder]
        and len({mean for _, mean in points[run.folder]}) >= imported.MIN_DISTINCT_RETURNS
    }


def _at_end(score: Run, steps: int) -> Run:
    """An imported final score at the ``steps`` of the reference, where a run of the suite takes more."""
    evaluations = tuple(e._replace(env_steps=min(e.env_steps, steps)) for e in score.evaluations)
    return replace(score, evaluations=evaluations, budget=min(score.budget, steps))


def _run_of_curve(folder: Path, curve: ImportedCurve) -> Run:
    origin = {**asdict(curve.origin), "kind": curve.kind}
    data = {"data": {"sha256": curve.origin.data}} if curve.origin.data else {}
    versions = {name: version for name, _, version in (text.rpartition(" ") for text in curve.origin.packages)}
    return Run(
        folder=folder,
        suite=curve.suite,
        algorithm=curve.algorithm,
        task=curve.task,
        dataset=curve.dataset,
        seed=curve.seed,
        id="imported",
        smoke=False,
        budget=curve.steps[-1],
        settings={},
        environment={"env": {**versions, "env": curve.origin.env_id}, "origin": origin} | data,
        evaluations=tuple(Evaluation(s, 0.0, r) for s, r in zip(curve.steps, curve.returns, strict=True)),
        speeds=(),
        env_steps=curve.steps[-1],
        seconds=0.0,
        status="done",
        reason="",
        digest=curve.digest,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """The state of one run."""

    folder: Path
    state: State
    name: str  # suite/algorithm/task; of a damaged record, its folder
    setting: str = "published"  # or what it changes, as ``lr=0.01``
    seed: int | None = None
    smoke: bool = False
    env_steps: int = 0  # at the end of its last epoch, or where it was stopped since
    budget: int = 0
    best: float | None = None  # highest mean return of any evaluation
    eta_seconds: float | None = None  # to the end of the budget; None unless running, or while nothing is known
    reason: str


def run_status(folder: Path) -> RunStatus:
    """One run; of a record that cannot be read, the reason."""
    try:
        status, seconds_left = _recorded_status(folder, record_stamps(folder))
    except RefusedFile as error:
        return RunStatus(folder=folder, state="damaged", name=str(folder), reason=printable(str(error)))
    if status.state != "interrupted" or not is_locked(folder):
        return status
    with suppress(OSError):  # --force has moved it
        since = time.time() - (folder / "epochs.jsonl").stat().st_mtime
        seconds_left = None if seconds_left is None else max(0.0, seconds_left - max(0.0, since))
    return replace(status, state="running", eta_seconds=seconds_left, reason="")


@lru_cache(maxsize=65_536)  # `status --watch` looks at them every two seconds
def _recorded_status(folder: Path, stamps: tuple[object, ...]) -> tuple[RunStatus, float | None]:
    """State of a run by its files, and the seconds from its last epoch to the end of its budget."""
    del stamps  # part of the cache's key
    record, run = read_record(folder), read_run(folder)
    outcome, epochs = record.outcome, record.epochs
    later = outcome is not None and outcome.epochs >= len(epochs)  # otherwise it is that of an earlier attempt
    status = RunStatus(
        folder=folder,
        state=outcome.status if outcome else "interrupted",
        name=record.spec.name,
        setting="published" if record.spec.smoke else setting(run),
        seed=record.spec.seed,
        smoke=record.spec.smoke,
        env_steps=max(epochs[-1].steps if epochs else 0, outcome.steps if outcome else 0),
        budget=record.spec.budget.steps,
        best=best(run.evaluations) if run.evaluations else None,
        reason=printable(outcome.reason if outcome and later else "ended without a message"),
    )
    return status, _seconds_left(record)


def _seconds_left(record: Record) -> float | None:
    """Seconds to the end of the budget at the speed of the last epochs."""
    recent = record.epochs[-RECENT - 1 :]
    if len(recent) < 2 or recent[-1].steps <= recent[0].steps:
        return None
    per_step = (recent[-1].seconds - recent[0].seconds) / (recent[-1].steps - recent[0].steps)
    return per_step * (record.spec.budget.steps - recent[-1].steps)
