"""Reference scores: for each cell the primary one, with which it is compared, and every other.

The numbers are package data, read by ``reference_table``; ``data/README.md`` says where they come from. A cell's
primary reference is Tianshou's newest README, whose settings the suites have, within as many steps as a run takes here;
where it is silent, the first of ``PRIMARY``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.errors import RefusedFile, UnknownName, UsageError
from rlbench.report.reference_files import Curve, curves_of, lines_of, selected_files, selected_name
from rlbench.report.reference_table import (
    OPTIMUM,
    VERSIONED,
    CellKey,
    Line,
    ReferenceScore,
    SourcedText,
    base_of,
    data_rows,
    lines,
    on_scale,
    parse_score,
    row_of,
    scale_of,
    sourced,
    suites,
)

if TYPE_CHECKING:
    from rlbench.config.run import Spec


NEWEST = "README.md@f2402056b03a"
NOT_ALGORITHMS = ("behaviour", "qrdqn-expert")  # rows that describe a data set, not an algorithm
OFFLINE_TASKS = ("HalfCheetah-v2", "Hopper-v2", "Walker2d-v2", "Ant-v2")
"""Rows of the offline table that Tianshou lacks: the suite's algorithms on the MuJoCo data sets of D4RL, version 2."""

SHARE = 0.1  # margin of non-inferiority, as a share of the way from the random policy to the reference score
OPTIMUM_SHARE = 0.05  # margin of a toy task below its known optimum, as a share of the optimum
WHOLE = "NoFrameskip-v4"  # endings of the names of tasks with integer returns
PRIMARY = (
    ("Tianshou v2.0", "max-of-mean"),
    ("CORL", "normalized-final"),
    ("OfflineRL-Kit", "normalized"),
    ("JAX-CORL", "normalized"),
    ("robomimic", "normalized-last-ten"),
    ("OfflineRL-Lib", "normalized-best-of-last-two"),
    ("OfflineRL-Lib", "normalized"),
)
"""Systems and estimators that stand in, in this order, where Tianshou's newest README is silent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceCell:
    """Everything documented about one cell."""

    key: CellKey
    primary: ReferenceScore
    unparsed: tuple[Line, ...] = ()  # other published numbers, not used by tables

    @property
    def others(self) -> tuple[ReferenceScore, ...]:
        """The other published scores of the cell."""
        return tuple(parse_score(line) for line in self.unparsed)


def reference_cells(suite: str) -> tuple[ReferenceCell, ...]:
    """The cells of a suite that have a primary reference, in the order of the data, then those of outside references.

    Raises:
        UnknownName: the chosen reference speaks of no cell.
    """
    return _reference_cells(suite, selected_files(), selected_name())


def primary_references(suite: str) -> dict[CellKey, ReferenceScore]:
    """The reference score with which each cell of a suite is compared; errors are those of ``reference_cells``."""
    return {cell.key: cell.primary for cell in reference_cells(suite)}


def every_line(suite: str, files: tuple[Path, ...]) -> dict[CellKey, list[Line]]:
    """Every published number of a suite by cell, those of outside files last; a faulty row of any suite is refused."""
    lines_by_cell = {key: list(rows) for key, rows in lines(suite).items()}
    for line in lines_of(files):
        if (key := _scaled(line)).suite == suite:
            lines_by_cell.setdefault(key, []).append(line)
    return lines_by_cell


def curve_of(key: CellKey) -> Curve | None:
    """The documented curve of a cell: that of its outside reference if it has one, else the package's."""
    return _curves(selected_files(), selected_name()).get(key)


@cache
def _curves(files: tuple[Path, ...], name: str) -> dict[CellKey, Curve]:
    outside = {(_key(line), parse_score(line)): curve for line, curve in curves_of(files)}
    cells = [cell for suite in {key.suite for key, _ in outside} for cell in _reference_cells(suite, files, name)]
    return reference_curves() | {
        cell.key: outside[cell.key, cell.primary] for cell in cells if (cell.key, cell.primary) in outside
    }


def _key(line: Line) -> CellKey:
    return CellKey(line["suite"], line["algorithm"], *row_of(line["suite"], line["task"], line["dataset"]))


def _scaled(line: Line) -> CellKey:
    """The cell of an outside row; a normalised score without a scale is refused."""
    key = _key(line)
    scale = scale_of(key)
    if line["estimator"].startswith("normalized") and (scale is None or scale.goal is None):
        name = line["dataset"] or line["task"]
        raise RefusedFile(
            f"{line['outside']}: {line['system']}, {name}, estimator: has no scale to normalise by; give raw points"
        )
    return key


@cache
def _reference_cells(suite: str, files: tuple[Path, ...], name: str) -> tuple[ReferenceCell, ...]:
    cells, every = [], every_line(suite, files)
    if name:
        systems = dict.fromkeys(
            row["system"] for table in {*suites(), suite} for r in every_line(table, files).values() for row in r
        )
        if name not in systems:
            raise UnknownName("reference", name, systems, where="--reference")
    if suite == "toy":
        return _optima()
    for key, rows in every.items():
        primary_line = None if key.algorithm in NOT_ALGORITHMS else _reference_line(key, rows, name)
        if primary_line is not None:
            others = tuple(row for row in rows if row is not primary_line)
            cells.append(ReferenceCell(key=key, primary=parse_score(primary_line), unparsed=others))
    order = {algorithm: index for index, algorithm in enumerate(dict.fromkeys(cell.key.algorithm for cell in cells))}
    return tuple(sorted(cells, key=lambda cell: order[cell.key.algorithm]))


def cells_named(suite: str, algorithm: str, task: str) -> tuple[ReferenceCell, ...]:
    """The cells of one algorithm whose task or data set has this name."""
    cells = [c for c in reference_cells(suite) if c.key.algorithm == algorithm]
    return tuple(c for c in cells if task.lower() in names_of(c.key, c.primary))


def names_of(key: CellKey, reference: ReferenceScore | None) -> set[str]:
    """The names of a row, in lower case: its task, its data set, the documented task."""
    names = {key.task, key.dataset, *([reference.task, reference.dataset] if reference else [])}
    if key.suite in VERSIONED:
        names |= {f"{base_of(key.task)}{version}" for version in ("", "-v2", "-v3", "-v4")}
    return {name.lower() for name in names if name}


def matching(
    keys: Sequence[CellKey], suite: str, *, tasks: Sequence[str] = (), algorithms: Sequence[str] = ()
) -> Sequence[CellKey]:
    """The cells whose task and algorithm any of the globs names; without a glob all of them.

    Raises:
        UnknownName: a glob names none.
    """
    for kind, globs in (("algorithm", algorithms), ("task", tasks)):
        if not globs:
            continue
        names = [
            {k.algorithm} if kind == "algorithm" else names_of(k, primary_references(k.suite).get(k)) for k in keys
        ]
        for glob in globs:
            if not any(fnmatchcase(name, glob.lower()) for of_key in names for name in of_key):
                candidates = (key.algorithm if kind == "algorithm" else key.dataset or key.task for key in keys)
                raise UnknownName(kind, glob, dict.fromkeys(candidates), where=suite)
        matches = [any(fnmatchcase(name, glob.lower()) for name in of for glob in globs) for of in names]
        keys = [key for key, match in zip(keys, matches, strict=True) if match]
    return keys


def primary(suite: str, algorithm: str, task: str) -> ReferenceScore | None:
    """The reference score that a cell is compared with, if any."""
    return primary_references(suite).get(CellKey(suite, algorithm, *row_of(suite, task, "")))


def at_the_end(key: CellKey, limit: int) -> ReferenceScore | None:
    """The mean of the reference runs in their last evaluation within ``limit`` steps, if it is published."""
    final_scores = (parse_score(line) for line in lines(key.suite).get(key, []) if line["estimator"] == "final")
    within = [
        row for row in final_scores if row.system == "Tianshou" and row.steps.isdecimal() and int(row.steps) <= limit
    ]
    return max(within, key=lambda row: int(row.steps), default=None)


@cache
def sourced_notes(key: CellKey) -> tuple[SourcedText, ...]:
    """The notes on a cell, each with its source."""
    return tuple(SourcedText(row["note"], row["source"]) for row in sourced("notes.csv") if _named(row, key))


def notes(key: CellKey) -> tuple[str, ...]:
    """The notes on a cell, as its table prints them."""
    return tuple(note.text for note in sourced_notes(key))


def comparable(key: CellKey) -> bool:
    """True if the reference's environment does not differ in a way that changes scores."""
    return all(row["comparable"] != "no" for row in sourced("notes.csv") if _named(row, key))


def _reference_line(key: CellKey, rows: list[Line], name: str) -> Line | None:
    """The row that a cell is compared with: of the reference called ``name``, else the primary one."""
    chosen_line = next((row for row in rows if name and row["system"] == name), None)
    return chosen_line or _primary(key, rows) or next((row for row in rows if "outside" in row), None)


def _primary(key: CellKey, rows: list[Line]) -> Line | None:
    theirs = [r for r in rows if r["system"] == "Tianshou"]
    newest = [r for r in theirs if r["source"].endswith(NEWEST)]
    if newest:
        return _as_long(key, newest[0], [*newest, *theirs])
    from rlbench.suites.offline import ALGORITHMS

    offered = key.algorithm in ALGORITHMS and key.task in OFFLINE_TASKS and key.dataset.endswith("-v2")
    if key.suite == "offline" and not offered:
        return None
    candidates = (r for name, kind in PRIMARY for r in rows if (r["system"], r["estimator"]) == (name, kind))
    return next(candidates, None)


def _as_long(key: CellKey, first: Line, others: list[Line]) -> Line:
    """Of the same statistic the row within as many steps as a run of ours takes; ``first`` where there is none.

    REINFORCE was printed within 10 M steps, A2C within 3 M; within 1 M their best is another number.
    """
    limit, spec = parse_score(first).limit, default_spec(key)
    if spec is None or limit in {None, spec.budget.steps}:
        return first
    alike = (r for r in others if r["estimator"] == first["estimator"])
    return next((r for r in alike if parse_score(r).limit == spec.budget.steps), first)


@cache
def default_spec(key: CellKey) -> Spec | None:
    """The settings of a run of ours; None where no suite has the cell."""
    from rlbench import suites

    try:
        return suites.spec(key.suite, key.algorithm, key.task)
    except (UnknownName, UsageError):
        return None


def _optima() -> tuple[ReferenceCell, ...]:
    """The cells of suite ``toy``, whose references are exact optimal returns."""
    from rlbench.suites import toy

    return tuple(
        ReferenceCell(
            key=CellKey("toy", algorithm, task, ""),
            primary=ReferenceScore(
                score=score,
                estimator="best-of-run",
                metric="mean return of the best policy",
                system=OPTIMUM,
                source=OPTIMUM,
                task=task,
            ),
        )
        for algorithm in toy.ALGORITHMS
        for task, score in toy.OPTIMUM.items()
        if (algorithm, task) not in toy.IMPOSSIBLE
    )


def _named(row: dict[str, str], key: CellKey) -> bool:
    """True if a row of the notes, with its blank-separated globs, matches a cell."""
    pairs = (
        ((key.suite,), row["suite"]),
        ((key.algorithm,), row["algorithms"]),
        ((key.task, key.dataset), row["tasks"]),
    )
    return all(any(fnmatchcase(n, glob) for n in names for glob in globs.split()) for names, globs in pairs)


@cache
def reference_curves() -> dict[CellKey, Curve]:
    """Curves by cell; where two references draw one, that of more seeds."""
    curves: dict[CellKey, Curve] = {}
    for row in data_rows("documented_curves.csv"):
        key = _key(row | {"dataset": ""})
        curve = Curve(
            n=int(row["n"]),
            uncounted_steps=int(row["uncounted_steps"]),
            source=row["source"],
            env_steps=tuple(map(int, row["env_steps"].split())),
            mean=tuple(map(float, row["mean"].split())),
            std=tuple(map(float, row["std"].split())),
        )
        if key not in curves or curve.n > curves[key].n:
            curves[key] = curve
    return curves


def margin_of(reference: float, std: float | None, random: float | None, share: float | None = None) -> float:
    """The margin below a reference score within which a mean is not worse; ``share`` replaces the rule and ``std``."""
    distance = abs(reference - (random or 0.0))
    return max(SHARE * distance, std or 0.0) if share is None else share * distance


def margin(key: CellKey, reference: ReferenceScore, share: float | None = None) -> float:
    """The margin of a cell around its reference score, on the scale of that score.

    A ``share`` that is given replaces the rule: then the documented spread does not count either.
    """
    if reference.source == OPTIMUM:
        return (OPTIMUM_SHARE if share is None else share) * abs(reference.score)
    return margin_of(reference.score, reference.std, on_scale(scale_of(key), reference.estimator), share)


def resolution(key: CellKey, reference: ReferenceScore) -> float:
    """The smallest difference that a score of the cell can show, on the reference's scale.

    It is the unit of the last printed digit, or, where that is larger and every game's return is a whole number, one
    point in one game of an evaluation.
    """
    spec = default_spec(key) if key.task.endswith(WHOLE) else None
    return max(reference.resolution, 1 / spec.protocol.episodes if spec else 0.0)


def threshold(key: CellKey, reference: ReferenceScore) -> float | None:
    """The mean return at which both the reference run and ours stop; None if one of them does not."""
    spec = default_spec(key) if reference.stops else None
    stop = spec.protocol.stop if spec else None
    return stop if stop is not None and reference.score >= stop else None


def margin_reaches_random(key: CellKey, reference: ReferenceScore, margin: float) -> bool:
    """True if the margin reaches the random policy's score: then a score within it proves no skill."""
    random = on_scale(scale_of(key), reference.estimator)
    return reference.source != OPTIMUM and random is not None and margin >= abs(reference.score - random)
