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

from rlbench.errors import RefusedFile, UnknownName
from rlbench.report.estimate import TOLERANCE
from rlbench.report.reference_files import Curve, OutsideScore, read_references, selected_files, selected_name
from rlbench.report.reference_table import (
    OPTIMUM,
    SUITES,
    VERSIONED,
    CellKey,
    ReferenceScore,
    SourcedText,
    base_of,
    cell_name,
    data_rows,
    documented_spec,
    last_digit,
    on_scale,
    protocol_of,
    published_scores,
    row_of,
    scale_of,
    sourced,
)

NEWEST_README = "README.md@f2402056b03a"
NOT_ALGORITHMS = ("behaviour", "qrdqn-expert")  # rows that describe a data set, not an algorithm
OFFLINE_TASKS = ("HalfCheetah-v2", "Hopper-v2", "Walker2d-v2", "Ant-v2")
"""Rows of the offline table that Tianshou lacks: the suite's algorithms on the MuJoCo data sets of D4RL, version 2."""

SHARE = 0.1  # margin of non-inferiority, as a share of the distance from the random policy to the reference score
OPTIMUM_SHARE = 0.05  # margin of a toy task below its known optimum, as a share of the optimum
INTEGER_RETURN_SUFFIX = "NoFrameskip-v4"  # endings of the names of tasks with integer returns
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
    others: tuple[ReferenceScore, ...] = ()  # not used by tables


def reference_cells(suite: str) -> tuple[ReferenceCell, ...]:
    """The cells of a suite that have a primary reference, in the order of the data, then those of outside references.

    Raises:
        UnknownName: the chosen reference speaks of no cell.
    """
    return _reference_cells(suite, selected_files(), selected_name())


def primary_references(suite: str) -> dict[CellKey, ReferenceScore]:
    """The reference score with which each cell of a suite is compared; errors are those of ``reference_cells``."""
    return {cell.key: cell.primary for cell in reference_cells(suite)}


def every_score(suite: str, files: tuple[Path, ...]) -> dict[CellKey, list[ReferenceScore]]:
    """Every published number of a suite by cell, those of outside files last; a faulty row of any suite is refused."""
    package, outside = published_scores(suite), _outside_scores(files)
    return package | {
        key: [*package.get(key, []), *(score for score, _ in scores)]
        for key, scores in outside.items()
        if key.suite == suite
    }


def curve_of(key: CellKey) -> Curve | None:
    """The documented curve of a cell: that of its outside reference, which may have none, or else the package's."""
    return _curves(selected_files(), selected_name()).get(key)


@cache
def _curves(files: tuple[Path, ...], name: str) -> dict[CellKey, Curve]:
    outside = {(key, score): curve for key, scores in _outside_scores(files).items() for score, curve in scores}
    cells = [cell for suite in {key.suite for key, _ in outside} for cell in _reference_cells(suite, files, name)]
    primary = {cell.key: outside[cell.key, cell.primary] for cell in cells if (cell.key, cell.primary) in outside}
    return {key: curve for key, curve in (reference_curves() | primary).items() if curve is not None}


@cache
def _packaged_systems() -> frozenset[str]:
    return frozenset(score.system for suite in SUITES for group in published_scores(suite).values() for score in group)


@cache
def _outside_scores(files: tuple[Path, ...]) -> dict[CellKey, list[tuple[ReferenceScore, Curve | None]]]:
    """The published numbers of some files by cell, each with its learning curve."""
    scores: dict[CellKey, list[tuple[ReferenceScore, Curve | None]]] = {}
    package = _packaged_systems()
    for path in files:
        for outside in read_references(path):
            reference, row, curve = outside
            if reference.name in package:
                raise RefusedFile(f"{path}: {reference.name}: is the name of a source of the package; choose another")
            key = CellKey(reference.suite, reference.algorithm, *row_of(reference.suite, row.task, row.dataset))
            scale = scale_of(key)
            if reference.estimator.startswith("normalized") and (scale is None or scale.goal is None):
                where = f"{path}: {reference.name}, {row.dataset or row.task}, estimator"
                raise RefusedFile(f"{where}: has no scale to normalise by; give raw points")
            if any(score.system == reference.name for score, _ in scores.get(key, ())):
                raise RefusedFile(f"{path}: {reference.name}: {cell_name(key)} has two scores; remove one")
            scores.setdefault(key, []).append((_score(outside), curve))
    return scores


def _score(outside: OutsideScore) -> ReferenceScore:
    reference, row, _ = outside
    return ReferenceScore(
        score=float(f"{row.score:.12g}"),
        std=None if row.std is None else float(f"{row.std:.12g}"),
        n=row.n or reference.n,
        estimator=reference.estimator,
        steps=f"{reference.steps / 1000:.12g}k" if reference.steps else "",
        system=reference.name,
        source=f"{reference.url}@{reference.version}",
        note=reference.title,
        task=row.task,
        dataset=row.dataset,
        protocol=reference.protocol,
        kind=reference.kind,
        resolution=last_digit(f"{row.score:f}"),
    )


@cache
def _reference_cells(suite: str, files: tuple[Path, ...], name: str) -> tuple[ReferenceCell, ...]:
    cells, every, outside = [], every_score(suite, files), _outside_scores(files)
    if name:
        groups = (group for table in dict.fromkeys((*SUITES, suite)) for group in every_score(table, files).values())
        systems = dict.fromkeys(score.system for group in groups for score in group)
        if name not in systems:
            raise UnknownName("reference", name, systems, where="--reference")
    if suite == "toy":
        return _optima()
    for key, rows in every.items():
        if key.algorithm in NOT_ALGORITHMS:
            continue
        by_name = next((score for score in rows if name and score.system == name), None)
        reference = by_name or _primary(key, rows) or next((score for score, _ in outside.get(key, ())), None)
        if reference is not None:
            others = tuple(score for score in rows if score is not reference)
            cells.append(ReferenceCell(key=key, primary=reference, others=others))
    order = {algorithm: index for index, algorithm in enumerate(dict.fromkeys(cell.key.algorithm for cell in cells))}
    return tuple(sorted(cells, key=lambda cell: order[cell.key.algorithm]))


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
        matches = [any(fnmatchcase(name, glob.lower()) for name in own_names for glob in globs) for own_names in names]
        keys = [key for key, match in zip(keys, matches, strict=True) if match]
    return keys


def primary(suite: str, algorithm: str, task: str) -> ReferenceScore | None:
    """The reference score that a cell is compared with, if any."""
    return primary_references(suite).get(CellKey(suite, algorithm, *row_of(suite, task, "")))


def at_the_end(key: CellKey, limit: int) -> ReferenceScore | None:
    """The mean of the reference runs in their last evaluation within ``limit`` steps, if it is published."""
    final_scores = [
        score
        for score in published_scores(key.suite).get(key, [])
        if (score.estimator, score.system) == ("final", "Tianshou") and score.steps.isdecimal()
    ]
    within = (score for score in final_scores if int(score.steps) <= limit)
    return max(within, key=lambda score: int(score.steps), default=None)


@cache
def sourced_notes(key: CellKey) -> tuple[SourcedText, ...]:
    """The notes on a cell, each with its source."""
    return tuple(SourcedText(row["note"], row["source"]) for row in sourced("notes.csv") if _named(row, key))


def notes(key: CellKey) -> tuple[str, ...]:
    """The notes on a cell, as its table prints them."""
    return tuple(note.text for note in sourced_notes(key))


def comparable(key: CellKey, reference: ReferenceScore | None = None) -> bool:
    """True if the environment does not differ in a way that changes scores, and the reference gives evaluations."""
    evaluates = reference is None or reference.kind == "evaluation"
    return evaluates and all(row["comparable"] != "no" for row in sourced("notes.csv") if _named(row, key))


def is_longer(reference: ReferenceScore, steps: int) -> bool:
    """True if the reference's score is of more steps than a run that takes ``steps``."""
    return reference.limit is not None and reference.limit > TOLERANCE * steps


def is_of_training(key: CellKey, reference: ReferenceScore) -> bool:
    """True if the reference gives training returns; an outside one states its kind beside its protocol's text."""
    is_packaged = reference.system in _packaged_systems()
    return reference.kind == "training" or (is_packaged and "training return" in protocol_of(key, reference).text)


def _primary(key: CellKey, scores: list[ReferenceScore]) -> ReferenceScore | None:
    theirs = [score for score in scores if score.system == "Tianshou"]
    newest = [score for score in theirs if score.source.endswith(NEWEST_README)]
    if newest:
        return _as_long(key, newest[0], [*newest, *theirs])
    from rlbench.suites.offline import ALGORITHMS

    offered = key.algorithm in ALGORITHMS and key.task in OFFLINE_TASKS and key.dataset.endswith("-v2")
    if key.suite == "offline" and not offered:
        return None
    candidates = (score for kind in PRIMARY for score in scores if (score.system, score.estimator) == kind)
    return next(candidates, None)


def _as_long(key: CellKey, first: ReferenceScore, others: list[ReferenceScore]) -> ReferenceScore:
    """Of the same statistic the score within as many steps as a run of ours takes; ``first`` where there is none.

    REINFORCE was printed within 10 M steps, A2C within 3 M; within 1 M their best is another number.
    """
    spec = documented_spec(*key[:3])
    if spec is None or first.limit in {None, spec.budget.steps}:
        return first
    alike = (score for score in others if score.estimator == first.estimator)
    return next((score for score in alike if score.limit == spec.budget.steps), first)


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
        key = CellKey(row["suite"], row["algorithm"], *row_of(row["suite"], row["task"], ""))
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


def margin_of(reference: float, std: float | None, random: float | None, margin_share: float | None = None) -> float:
    """The margin on each side of a reference within which means are equal; ``margin_share`` replaces the rule."""
    distance = abs(reference - (random or 0.0))
    return max(SHARE * distance, std or 0.0) if margin_share is None else margin_share * distance


def margin(key: CellKey, reference: ReferenceScore, margin_share: float | None = None) -> float:
    """The margin of a cell around its reference score, on the scale of that score.

    A ``margin_share`` that is given replaces the rule: then the documented spread does not count either.
    """
    if reference.source == OPTIMUM:
        return (OPTIMUM_SHARE if margin_share is None else margin_share) * abs(reference.score)
    return margin_of(reference.score, reference.std, on_scale(scale_of(key), reference.estimator), margin_share)


def resolution(key: CellKey, reference: ReferenceScore) -> float:
    """The smallest difference that a score of the cell can show, on the reference's scale.

    It is the unit of the last printed digit, or, where that is larger and every game's return is a whole number, one
    point in one game of an evaluation.
    """
    spec = documented_spec(*key[:3]) if key.task.endswith(INTEGER_RETURN_SUFFIX) else None
    return max(reference.resolution, 1 / spec.protocol.episodes if spec else 0.0)


def threshold(key: CellKey, reference: ReferenceScore) -> float | None:
    """The mean return at which both the reference run and ours stop; None if one of them does not."""
    spec = documented_spec(*key[:3]) if reference.stops else None
    stop = spec.protocol.stop if spec else None
    return stop if stop is not None and reference.score >= stop else None


def margin_reaches_random(key: CellKey, reference: ReferenceScore, margin: float) -> bool:
    """True if the margin reaches the random policy's score: then a score within it proves no skill."""
    random = on_scale(scale_of(key), reference.estimator)
    return reference.source != OPTIMUM and random is not None and margin >= abs(reference.score - random)
