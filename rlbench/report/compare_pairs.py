"""Pairs of cells of two results folders: per folder one setting of each cell, under the same protocol."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rlbench.report.estimate import seed_scores
from rlbench.report.imported_runs import origin_of
from rlbench.report.reference_scores import documented
from rlbench.report.reference_table import CellKey, Estimator
from rlbench.report.references import in_points, reference
from rlbench.report.run_index import Runs, file_of
from rlbench.report.runs import Run
from rlbench.report.tables import task_name

RULES: Final = ("task", "protocol", "budget")
"""The parts of a Spec that say what is measured: where they differ, scores differ for that alone."""

ENDED: Final = frozenset({"done", "failed"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The runs of one setting of a cell that have ended; a failed one has a score too."""

    runs: Runs
    usual: bool  # the documented setting


class Matched(NamedTuple):
    """The cells that two folders share."""

    pairs: tuple[tuple[CellKey, Side, Side], ...]
    left_out: tuple[str, ...]  # cells that both have and that are not compared, each with the reason


def matched(left: Mapping[CellKey, Runs], right: Mapping[CellKey, Runs], names: tuple[str, str]) -> Matched:
    """The cells that both have: the documented setting where a folder has runs of it, or else its only other one."""
    pairs, left_out = [], []
    for key in sorted(set(left) & set(right)):
        a, b = (_settings(side[key]) for side in (left, right))
        held = zip(names, (a, b), strict=True)
        several = [f"{name} has {len(found)} settings of it" for name, found in held if len(found) > 1]
        if not a or not b:
            continue
        unlike = [] if several else _unlike(a[0], b[0])
        if several or unlike:
            why = several or [f"they differ in {', '.join(unlike)}{_equal_budget(a[0], b[0])}"]
            left_out.append(f"{_name(key)}: {'; '.join(why)}")
            continue
        pairs.append((key, a[0], b[0]))
        for name, side, found in zip(names, (left, right), (a, b), strict=True):
            apart = [run for run in side[key].other_files if run.status in ENDED]
            if found[0].usual and apart:
                left_out.append(f"{_name(key)}: {len(apart)} of {name} on another file of that name")
    return Matched(tuple(pairs), tuple(left_out))


def _name(key: CellKey) -> str:
    return f"{key.suite}/{key.algorithm}/{task_name(key)}"


def ended(found: Iterable[Runs]) -> bool:
    """True if any run of some cells has ended."""
    return any(_settings(runs) for runs in found)


def _settings(runs: Runs) -> Sequence[Side]:
    """The documented setting alone, or every other one; runs on another file of the same name are another."""
    if runs.scored:
        return [Side(runs=Runs(complete=runs.complete, failed=runs.failed), usual=True)]
    groups: dict[tuple[str, str | None], list[Run]] = defaultdict(list)
    for run in (*runs.short, *runs.elsewhere, *runs.variants, *runs.other_files):
        if run.status in ENDED:
            groups[run.id, file_of(run)].append(run)
    return [
        Side(
            runs=Runs(
                complete=[run for run in group if run.status == "done"],
                failed=[run for run in group if run.status == "failed"],
            ),
            usual=False,
        )
        for group in groups.values()
    ]


def _unlike(left: Side, right: Side) -> list[str]:
    """The rules in which two sides differ, in words."""
    first = [side.runs.scored[0] for side in (left, right)]
    if any(map(origin_of, first)):
        kinds = {origin_of(run).get("kind", "evaluation") for run in first}
        return ["kind of return"] if len(kinds) > 1 else []
    a, b = map(_rules, first)
    found = [rule for rule in RULES if a[rule] != b[rule]]
    files = {digest for side in (left, right) for run in side.runs.scored if (digest := file_of(run)) is not None}
    return found + (["data"] if len(files) > 1 else [])


def _equal_budget(left: Side, right: Side) -> str:
    """The remedy where two sides differ in their steps: the command option that makes them equal."""
    counts = [side.runs.scored[0].budget for side in (left, right)]
    if counts[0] == counts[1]:
        return ""
    return f": {counts[0]:,} and {counts[1]:,} steps; train both with --steps {min(counts)}"


def _rules(run: Run) -> Mapping[str, object]:
    """As this version reads them: an older record lacks what has been added since, with its default."""
    from pydantic import ValidationError

    from rlbench.config.run import Spec

    try:
        settings = Spec.model_validate(run.settings, strict=False).model_dump(mode="json")
    except ValidationError:  # a version's that had other settings
        settings = dict(run.settings)
    return {rule: settings.get(rule) for rule in RULES}


def scores_of(key: CellKey, runs: Runs, *, cut: bool = True) -> list[float]:
    """A cell's finished runs by its document's estimator, in raw points; failed ones at the random policy's score.

    Evaluations beyond the document's steps do not count, unless the runs are not ``cut`` at those.
    """
    document = next((cell.primary for cell in documented(key.suite) if cell.key == key), None)
    estimator: Estimator = document.estimator if document else "best-of-run"
    scale = reference(key)
    scores = seed_scores(runs.complete, estimator, limit=document.limit if document and cut else None, scale=scale)
    if document is not None:
        scores = [in_points(replace(document, score=score), scale) for score in scores]
    return list(with_failed(key, scores, runs))


def with_failed(key: CellKey, scores: Sequence[float], runs: Runs) -> tuple[float, ...]:
    """Scores in raw points with those of failed runs, which get the random policy's."""
    scale = reference(key)
    floor = min([*scores, *([scale.random] if scale else [])], default=0.0)
    return (*scores, *[floor] * len(runs.failed))


def normalizer(keys: Sequence[CellKey], rows: Sequence[Sequence[float]]) -> tuple[str, list[tuple[float, float]]]:
    """The common scale of several tasks, in words and as the points 0 and 1 of each.

    Humans and D4RL's experts where all tasks have one, else the documents, else the best run that is compared. More
    points are more on every scale, also where a document or every run is worse than the random policy.
    """
    scales = [reference(key) for key in keys]
    goals = [scale.goal if scale else None for scale in scales]
    zeros = [scale.random if scale else 0.0 for scale in scales]
    if all(goal is not None for goal in goals):
        return "random policy 0, human or expert 1", [
            (z, g) for z, g in zip(zeros, goals, strict=True) if g is not None
        ]
    documents = [next((c.primary for c in documented(key.suite) if c.key == key), None) for key in keys]
    ones = [None if d is None else in_points(d, scale) for d, scale in zip(documents, scales, strict=True)]
    if all(one is not None and one - zero > 1e-9 for one, zero in zip(ones, zeros, strict=True)):
        return "random policy 0, document 1", [(z, one) for z, one in zip(zeros, ones, strict=True) if one is not None]
    best: dict[CellKey, float] = {}  # by task: all algorithms are measured alike
    for key, row in zip(keys, rows, strict=True):
        task = key._replace(algorithm="")
        best[task] = max(best.get(task, -math.inf), *row)
    tops = [best[key._replace(algorithm="")] for key in keys]
    ends = [(zero, top if top > zero else zero + 1) for zero, top in zip(zeros, tops, strict=True)]
    return "random policy 0, best run 1", ends
