"""The cells of a table: what was documented, what was measured, and what the one says of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlbench.report.documented import OPTIMUM, Documented, Estimator, Key, at_the_end, comparable, documented, notes
from rlbench.report.estimate import AMBIGUOUS, final, interquartile_mean, interval, mean, peak, seed_scores, within
from rlbench.report.experience import UNKNOWN, Experience, experience, noted
from rlbench.report.gather import Runs, gather
from rlbench.report.references import Reference, normalized, reference
from rlbench.report.runs import Run
from rlbench.report.verdict import (
    ALPHA,
    MOST,
    SHARE,
    Claim,
    Verdict,
    against_optimum,
    against_run,
    against_seeds,
    margin_of,
    no_more_than_consistent,
    out_of_reach,
    settle,
    under_both,
    with_failures,
)

SUITES = ("atari", "mujoco", "offline", "goals", "toy")
"""Every suite that has a table; those without settings yet can only say NOT RUN."""

TOLERANCE = 0.05
"""How far below the known optimum the mean of a toy task may lie, as a share of it."""

BOTH: tuple[Estimator, Estimator] = ("normalized-best", "normalized-final")
"""What an offline score can be, told apart."""

PEAKS: dict[Estimator, Callable[[Sequence[float]], float]] = {"max-of-mean": mean, "max-of-iqm": interquartile_mean}
"""Estimators that pick the moment when the centre of the seeds is highest."""

OTHER_READING: dict[Estimator, Estimator] = {
    "raw": "best-of-run",
    "as-printed": "best-of-run",
    "normalized": "normalized-best",
}
"""What a document that does not name its estimator may have meant as well as the last evaluation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What our runs gave, by the document's own estimator."""

    score: float  # over seeds, failed ones at the random policy's score
    low: float | None  # of the 95 % t-interval of the mean; None for one seed
    high: float | None
    n: int  # seeds, failed ones included
    estimator: Estimator
    env_steps: int  # the fewest of any run that counts
    env_id: str
    seeds: tuple[float, ...] = ()  # one score a seed, failed ones last


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One row of a table."""

    key: Key
    documented: Documented | None
    measured: Measured | None
    verdict: Verdict
    note: str
    margin: float | None = None  # below the document, within which a mean is no worse
    claim: Claim | None = None  # what the seeds say before the other cells are heard
    experience: Experience = UNKNOWN  # what was learned from, where it was recorded


@dataclass(frozen=True, kw_only=True, slots=True)
class _Open:
    """A cell whose verdict waits for the others of its table."""

    key: Key
    document: Documented | None
    runs: Runs
    measured: Measured | None
    margin: float | None
    claim: Claim | None
    experience: Experience


def every_cell(
    suites: Sequence[str], results: Path, *, alpha: float = ALPHA, share: float | None = None
) -> tuple[Cell, ...]:
    """The cells of each suite: the documented ones in the documents' order, then what was measured beyond them.

    Verdicts are corrected over a suite's table, whatever part of it is shown; ``share`` replaces the margin's own.
    """
    runs = gather(results)
    known = noted(run for group in runs.values() for run in group.all)
    found: list[Cell] = []
    for suite in suites:
        documents = {cell.key: cell.primary for cell in documented(suite)}
        beyond = sorted(key for key in runs if key.suite == suite and key not in documents)
        cells = [_opened(key, documents.get(key), runs.get(key, Runs()), share, known) for key in (*documents, *beyond)]
        found += _settled(cells, alpha)
    return tuple(found)


def _settled(cells: Sequence[_Open], alpha: float) -> list[Cell]:
    judged = [cell for cell in cells if cell.claim is not None]
    verdicts = settle([cell.claim for cell in judged if cell.claim is not None], alpha)
    words = dict(zip([cell.key for cell in judged], verdicts, strict=True))
    return [_cell(cell, words.get(cell.key) or _unjudged(cell.runs)) for cell in cells]


def _cell(cell: _Open, verdict: Verdict) -> Cell:
    return Cell(
        key=cell.key,
        documented=cell.document,
        measured=cell.measured,
        verdict=verdict,
        note="; ".join(_remarks(cell, verdict)),
        margin=cell.margin,
        claim=cell.claim,
        experience=cell.experience,
    )


def _unjudged(runs: Runs) -> Verdict:
    if runs.complete or runs.failed:
        return Verdict("NOT COMPARABLE")
    if runs.short:
        return Verdict("PARTIAL")
    return Verdict("NOT COMPARABLE") if runs.elsewhere else Verdict("NOT RUN")


def _opened(
    key: Key, document: Documented | None, runs: Runs, share: float | None, known: Mapping[str, Experience]
) -> _Open:
    scale = reference(key)
    estimator: Estimator = document.estimator if document else "final" if key.suite == "offline" else "best-of-run"
    counted = runs.complete or ([] if runs.failed else runs.short or runs.elsewhere)
    scores = _scores(counted, estimator, document, scale)
    fallen = [_floor(scores, estimator, runs, scale)] * len(runs.failed)
    judged = document is not None and bool(runs.complete or runs.failed) and comparable(key)
    margin = allowed(key, document, share) if document else None
    claim = None
    if judged and document is not None and margin is not None:
        claim = with_failures(partial(_judged, document, margin), scores, fallen)
        if estimator in OTHER_READING:
            other = _scores(counted, OTHER_READING[estimator], document, scale)
            claim = under_both(claim, with_failures(partial(_judged, document, margin), other, fallen))
        if _insensitive(key, document, margin):
            claim = no_more_than_consistent(claim)
    measured = _measured(counted, [*scores, *fallen], estimator, runs)
    data = experience(key, runs.all, known)
    return _Open(key=key, document=document, runs=runs, measured=measured, margin=margin, claim=claim, experience=data)


def _scores(
    runs: Sequence[Run], estimator: Estimator, document: Documented | None, scale: Reference | None
) -> list[float]:
    return seed_scores(runs, estimator, limit=document.limit if document else None, scale=scale)


def _judged(document: Documented, margin: float, scores: Sequence[float]) -> Claim:
    if document.source == OPTIMUM:
        return against_optimum(scores, document.score, margin)
    if (document.n or 1) == 1:
        return against_run(scores, document.score)
    return against_seeds(scores, document.score, document.std, document.n or 1, margin)


def allowed(key: Key, document: Documented, share: float | None = None) -> float:
    """How far below its document the mean of a cell may lie and still be no worse, on the document's scale."""
    if document.source == OPTIMUM:
        return (TOLERANCE if share is None else share) * abs(document.score)
    random = _on_scale(reference(key), document.estimator)
    return margin_of(document.score, document.std, random, SHARE if share is None else share)


def _insensitive(key: Key, document: Documented, margin: float) -> bool:
    """Whether the margin is as wide as the way from the random policy: then being within it proves no skill."""
    random = _on_scale(reference(key), document.estimator)
    return document.source != OPTIMUM and random is not None and margin >= abs(document.score - random)


def _on_scale(scale: Reference | None, estimator: Estimator) -> float | None:
    """The random policy's score as the estimator counts."""
    if scale is None:
        return None
    return 100 * normalized(scale.random, scale) if estimator.startswith("normalized") else scale.random


def _floor(scores: Sequence[float], estimator: Estimator, runs: Runs, scale: Reference | None) -> float:
    """What a failed seed counts for: the random policy's score, and never more than the worst that ended.

    Where nobody knows what a random policy gets, the untrained one's first evaluation stands in.
    """
    random = _on_scale(scale, estimator)
    untrained = [run.evaluations[0].mean for run in runs.scored if run.evaluations]
    known = [random] if random is not None else untrained
    return min([*known, *scores], default=0.0)


def _measured(runs: Sequence[Run], scores: Sequence[float], estimator: Estimator, found: Runs) -> Measured | None:
    if not scores:
        return None
    low, high = interval(scores) if len(scores) > 1 else (None, None)
    counted = [run for run in runs if run.evaluations] or found.failed
    return Measured(
        score=interquartile_mean(scores) if estimator.endswith("iqm") else mean(scores),
        low=low,
        high=high,
        n=len(scores),
        estimator=estimator,
        env_steps=min(run.env_steps for run in counted),
        env_id=", ".join(sorted({run.env_id for run in counted})),
        seeds=tuple(scores),
    )


def _remarks(cell: _Open, verdict: Verdict) -> list[str]:
    """What must stand beside the numbers, in a fixed order."""
    runs, found = cell.runs, list(notes(cell.key))
    if verdict.word == "NOT COMPARABLE":
        found.append("another protocol or environment" if cell.document else "not documented")
    if cell.document is not None and cell.document.estimator in AMBIGUOUS and cell.measured is not None:
        found.append("the document does not say whether its score is the best or the last")
    if cell.document is not None and cell.claim is not None and _insensitive(cell.key, cell.document, cell.margin or 0):
        found.append("the documented spread reaches the random policy, so nothing is called reproduced")
    found += _doubts(cell, verdict)
    if verdict.word == "PARTIAL":
        found.append(f"{max(run.env_steps for run in runs.short):,} of {runs.budget:,} steps")
    elif runs.short:
        found.append(f"{_count(len(runs.short), 'run')} short of the budget")
    scale = reference(cell.key)
    if cell.key.suite == "offline" and runs.complete and scale is not None and scale.goal is not None:
        best, last = (mean(seed_scores(runs.complete, kind, scale=scale)) for kind in BOTH)
        found.append(f"on D4RL's scale {best:.1f} best, {last:.1f} last")
    if runs.failed and cell.measured is not None:
        every = _count(len(runs.failed) + len(runs.complete), "run")
        found.append(f"{len(runs.failed)} of {every} failed, counted at {cell.measured.seeds[-1]:,.6g}")
    others = len(runs.variants) + (0 if verdict.word == "NOT COMPARABLE" else len(runs.elsewhere))
    if others:
        found.append(f"{_count(others, 'run')} with other settings")
    if runs.strangers:
        found.append(f"{_count(len(runs.strangers), 'run')} on another file of that name")
    return found


def _doubts(cell: _Open, verdict: Verdict) -> Iterator[str]:
    """What a verdict's statistics cannot know: rarer failures, what came after the peak, the document's own error."""
    document, measured = cell.document, cell.measured
    if document is None or measured is None or cell.claim is None or cell.margin is None:
        return
    seeds, centre = measured.seeds, PEAKS.get(document.estimator)
    if verdict.word in {"REPRODUCED", "BELOW", "ABOVE"} and len(set(seeds)) == 1 and not document.std:
        rate = 1 - ALPHA ** (1 / len(seeds))  # the highest at which no failure in so many is still that likely
        picked = "at the picked moment " if centre else ""
        hidden = "" if centre or verdict.word == "BELOW" else f": up to {rate:.0%} of runs may still fail"
        yield f"{len(seeds)} equal seeds {picked}leave no spread to test with{hidden}"
    curves = [kept for run in cell.runs.complete if (kept := within(run.evaluations, document.limit))]
    if centre and curves:
        top, theirs = peak(curves, centre), at_the_end(cell.key, document.limit or 0)
        last = centre([final(curve) for curve in curves])
        if centre([evaluation.mean for evaluation in top]) - last > cell.margin:
            steps = max(evaluation.env_steps for evaluation in top)
            there = f", the document's {theirs.score:,.6g}" if theirs else ""
            yield f"best after {steps:,} steps; at the end {last:,.1f}{there}"
    if verdict.more is not None and verdict.more > MOST and document.std and document.n:
        distance = mean(seeds) - document.score + cell.margin
        if out_of_reach(distance, document.std**2 / document.n, document.n):
            yield "with this mean no number of seeds would do: the document's own error is too large"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
