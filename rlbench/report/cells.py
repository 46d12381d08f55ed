"""The cells of a table: reference score, measured score and verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from rlbench import suites
from rlbench.config.names import count_text, number_text
from rlbench.records.looks import Looks, read_looks
from rlbench.records.types import Estimator
from rlbench.report.equal_steps import EqualSteps, at_equal_steps, decide_at_equal_steps, end_of, shortfall_percent
from rlbench.report.estimate import (
    centred,
    correct_optimism,
    curves_within,
    final,
    interquartile_mean,
    interval,
    largest_gap,
    mean,
    peak,
    seed_scores,
    steps_to,
    within,
)
from rlbench.report.parity import NOT_ANSWERED, Parity, parity_note, parity_rows
from rlbench.report.reference_scores import (
    SHARE,
    at_the_end,
    comparable,
    is_longer,
    margin,
    margin_reaches_random,
    notes,
    primary_references,
    resolution,
    threshold,
)
from rlbench.report.reference_table import OPTIMUM, CellKey, ReferenceScore, estimator_of, on_scale, scale_of
from rlbench.report.remarks import imported_remarks, remarks, setting_remarks
from rlbench.report.run_index import Runs, gather, with_imported
from rlbench.report.runs import UNKNOWN, DatasetReturns, Run, dataset_returns, failed_score, recorded_returns
from rlbench.report.verdict import (
    ALPHA,
    DECIDED,
    MAX_MORE_SEEDS,
    UNDECIDABLE,
    CellTest,
    Verdict,
    correct_for_looks,
    decide,
    in_both_respects,
    no_more_than_consistent,
    out_of_reach,
    prediction_test,
    require_agreement,
    variance_of_mean,
    welch_test,
    with_failures,
)

D4RL_ESTIMATORS: tuple[Estimator, Estimator] = ("normalized-best", "normalized-final")
AVERAGES: dict[Estimator, Callable[[Sequence[float]], float]] = {"max-of-mean": mean, "max-of-iqm": interquartile_mean}
"""Estimators that take the evaluation at which the mean or interquartile mean over seeds is highest."""

ALTERNATIVE_ESTIMATOR: dict[Estimator, Estimator] = {
    "raw": "best-of-run",
    "as-printed": "best-of-run",
    "normalized": "normalized-best",
}
"""The estimator that a reference may have used where it does not say whether it printed the best or the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The score of our runs, by the reference score's own estimator."""

    score: float  # over seeds, failed ones at their ``failed_score``
    low: float | None  # of the 95 % t-interval of the mean; None for one seed
    high: float | None
    n: int  # seeds, failed ones included
    estimator: Estimator
    env_steps: int  # the fewest of any run that counts
    env_id: str
    scores: tuple[float, ...] = ()  # one per seed, failed ones last
    seeds: tuple[int, ...] = ()  # in rising order
    imported: bool = False  # by another program


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One row of a table."""

    key: CellKey
    documented: ReferenceScore | None
    measured: Measured | None
    verdict: Verdict
    note: str
    margin: float | None = None  # difference from the reference score within which means count as equal
    all_scores: tuple[float, ...] = ()  # with the seeds later than those of the last look
    test: CellTest | None = None  # the test before Holm's correction over the table
    dataset_returns: DatasetReturns = UNKNOWN  # returns of the data set, offline
    origin: Literal["", "own", "rlbench"] = ""  # of the evaluated runs; empty with one results folder
    rlbench: Measured | None = None  # score of rlbench's own records, beside the user's runs
    scores: tuple[float, ...] = ()  # scores of the test; failed ones last, as ``measured`` has them
    shortfall_percent: float | None = None  # the largest that the data allow, of the way from random to the reference
    at: EqualSteps | None = None  # the verdict at equal steps, where a curve is documented
    looks: Looks | None = None  # taken by ``run --until-decided``; the verdict is that of the last one
    unfinished: int = 0  # seeds short of the budget, or lost after a look
    conflicting: int = 0  # whole records with other numbers than those that count


def every_cell(
    suites: Sequence[str], results: Path, *, alpha: float = ALPHA, margin_share: float | None = None
) -> tuple[Cell, ...]:
    """The cells of each suite: those with a reference score in the references' order, then other measured ones.

    Holm's correction of verdicts is over a suite's whole table; ``margin_share`` replaces the margin's own share.
    """
    runs = {key: select_last_look(group) for key, group in with_imported(gather(results), results).items()}
    returns_by_file = recorded_returns(run for group in runs.values() for run in group.all)
    parity = {row.key: row for row in parity_rows(runs, suites)}
    table: list[Cell] = []
    for suite in suites:
        references = primary_references(suite)
        unreferenced = sorted(key for key in runs if key.suite == suite and key not in references)
        groups = {key: runs.get(key, Runs()) for key in (*references, *unreferenced)}
        cells = [_test_cell(key, references.get(key), group, margin_share) for key, group in groups.items()]
        verdicts = decide([cell.test for cell in cells], alpha)
        at_steps = decide_at_equal_steps([cell.at for cell in cells], alpha)
        for cell, group, verdict, at in zip(cells, groups.values(), verdicts, at_steps, strict=True):
            returns = dataset_returns(cell.key, group.all, returns_by_file)
            is_good = at is not None and at.word in {"ON TRACK", "AHEAD"}
            at_step = replace(at, word="OPEN") if at is not None and is_good and cell.conflicting else at
            row = replace(cell, verdict=_verdict(verdict, group), at=at_step, dataset_returns=returns)
            table.append(replace(row, note="; ".join(_remarks(row, group, parity.get(cell.key)))))
    return tuple(table)


def select_last_look(group: Runs) -> Runs:
    """The runs that the last look of ``run --until-decided`` counts; all of them without a look.

    A look with a seed that has no ended run contradicts the records: it is not used, and all seeds stay.

    Raises:
        RefusedFile: the record of its looks is damaged.
    """
    every = map(read_looks, sorted(group.folders))  # a copied folder has the looks taken before the copy
    looks = max((looks for looks in every if looks is not None), key=lambda looks: looks.count, default=None)
    if looks is None:
        return group
    ended = {run.seed for run in (*group.scored, *group.other_data, *group.other_versions)}
    if lost := tuple(seed for seed in range(looks.current.seeds if looks.count else 0) if seed not in ended):
        return replace(group, lost_seeds=lost)
    count = sum(ended.issuperset(range(look.seeds)) for look in looks.design)
    later = _select_look(group, replace(looks, count=count)) if count > looks.count else None
    return replace(_select_look(group, looks), ended_look=later)


def _select_look(group: Runs, looks: Looks) -> Runs:
    complete, failed, short = (
        [run for run in part if run.seed < looks.current.seeds] for part in (group.complete, group.failed, group.short)
    )
    later = len(group.scored) - len(complete) - len(failed)
    look = replace(group, complete=complete, failed=failed, short=short, looks=looks, later_seeds=later)
    return replace(look, all_seeds=group) if later else look


def _verdict(verdict: Verdict | None, runs: Runs) -> Verdict:
    """The verdict; INCONCLUSIVE at best while a seed is unfinished, lost after a look, or has a second record."""
    if verdict is not None:
        good = verdict.word in {"CONSISTENT", "REPRODUCED", "ABOVE"}
        may_be_bad = runs.unfinished or runs.lost_seeds or runs.conflicting(runs.complete)
        return Verdict("INCONCLUSIVE") if good and may_be_bad else verdict
    if runs.complete or runs.failed:
        return Verdict("NOT COMPARABLE")
    if runs.short:
        return Verdict("PARTIAL")
    return Verdict("NOT COMPARABLE" if runs.other_protocol else "NOT RUN")


def _test_cell(key: CellKey, reference: ReferenceScore | None, runs: Runs, margin_share: float | None) -> Cell:
    """A cell before the other cells of its suite are tested; its verdict is a placeholder, its note empty."""
    scale, limit, estimator = scale_of(key), _limit(runs, reference), estimator_of(key, reference)
    scored_runs, failed = runs.score_runs
    scores = seed_scores(scored_runs, estimator, limit=limit, scale=scale)
    failed_scores = [failed_score(scores, estimator, (*scored_runs, *failed), scale)] * len(failed)
    test_scores = _test_scores(scored_runs, scores, reference)
    tolerance, test = margin(key, reference, margin_share) if reference else None, None
    is_comparable = comparable(key, None if runs.of_imported else reference)
    too_long = reference is not None and not runs.of_imported and is_longer(reference, runs.budget)
    whole = _test_cell(key, reference, runs.all_seeds, margin_share) if runs.all_seeds else None
    if runs.scored and is_comparable and not too_long and reference is not None and tolerance is not None:
        test_of = partial(_test, key, reference, tolerance, runs.level)
        floor = failed_score(test_scores, estimator, runs.scored, scale)
        test = with_failures(test_of, test_scores, [floor] * len(runs.failed))
        if estimator in ALTERNATIVE_ESTIMATOR:
            other = seed_scores(scored_runs, ALTERNATIVE_ESTIMATOR[estimator], limit=limit, scale=scale)
            test = require_agreement(test, with_failures(test_of, other, failed_scores))
        if (stop := threshold(key, reference)) is not None:
            test = in_both_respects(test, _test_steps_to_threshold(runs, reference, stop, margin_share))
        if margin_reaches_random(key, reference, tolerance):
            test = no_more_than_consistent(test)
        if whole is not None and whole.test is not None:
            both = require_agreement(test, whole.test)
            test = replace(test, word=both.word, above=both.above)
        test = test if runs.looks is None else correct_for_looks(test, runs.looks)
        if runs.ended_look and (ended := _test_cell(key, reference, runs.ended_look, margin_share).test):
            test = replace(test, below=in_both_respects(test, ended).below)  # a look that looks.json omits counts
    at = at_equal_steps(key, runs, margin_share) if is_comparable else None
    if at is not None and whole is not None:
        at = at.lowered_by(whole.at)
    return Cell(
        key=key,
        documented=reference,
        measured=_measure(runs, [*scores, *failed_scores], estimator, limit),
        verdict=Verdict("NOT RUN"),
        note="",
        margin=tolerance,
        test=test,
        scores=tuple(centred((*test_scores, *failed_scores), estimator)),
        shortfall_percent=shortfall_percent(test, reference.score, on_scale(scale, estimator)) if reference else None,
        at=at,
        all_scores=whole.scores if whole is not None else (),
        looks=runs.looks,
        unfinished=len(runs.unfinished) + len(runs.lost_seeds),
        conflicting=len(runs.conflicting(runs.complete)),
    )


def _limit(runs: Runs, reference: ReferenceScore | None) -> int | None:
    """The steps within which evaluations count: the reference's; of unfinished runs at most those that all reached.

    The first evaluation of every run counts, since an imported curve may begin late.
    """
    limits = [reference.limit] if reference and reference.limit else []
    if short := [] if runs.scored else [run for run in runs.short if run.evaluations]:
        limits.append(max(min(map(end_of, short)), *(run.evaluations[0].env_steps for run in short)))
    return min(limits, default=None)


def _test_scores(runs: Sequence[Run], scores: Sequence[float], reference: ReferenceScore | None) -> Sequence[float]:
    """The scores of the test: a maximum over evaluations is corrected for optimism beyond the reference's own."""
    if reference is None or reference.n is None or reference.estimator not in AVERAGES:
        return scores
    return correct_optimism(curves_within(runs, reference.limit), AVERAGES[reference.estimator], reference.n)


def _test(key: CellKey, reference: ReferenceScore, tolerance: float, level: float, scores: Sequence[float]) -> CellTest:
    scores = centred(scores, reference.estimator)
    std, n = (0.0, 2) if reference.source == OPTIMUM else (reference.std, reference.n or 1)  # an optimum has no error
    if n > 1:
        return welch_test(scores, reference.score, std, n, tolerance, level)
    stop = threshold(key, reference)
    if stop is None:
        return prediction_test(scores, reference.score, tolerance, resolution(key, reference))
    capped = [min(score, stop) for score in scores]  # scores beyond the threshold differ by chance
    return prediction_test(capped, stop, tolerance, resolution(key, reference))


def _test_steps_to_threshold(
    runs: Runs, reference: ReferenceScore, stop: float, margin_share: float | None
) -> CellTest:
    """Test the steps to the threshold, negative so that more is better, against the reference's if it is known.

    A seed that did not reach the threshold counts at its whole budget, a lower bound of its steps.
    """
    documented = reference.steps_to_threshold
    if documented is None:
        return CellTest(word="CONSISTENT", above=1.0)  # the reference only says that its budget suffices
    steps = [-float(steps_to(run.evaluations, stop) or run.budget) for run in runs.complete]
    epoch = max(largest_gap(run.evaluations) for run in runs.scored)

    def test(scores: Sequence[float]) -> CellTest:
        return prediction_test(
            scores, -documented, (SHARE if margin_share is None else margin_share) * documented, epoch
        )

    return with_failures(test, steps, [-float(max(run.budget, runs.budget)) for run in runs.failed])


def _measure(runs: Runs, scores: Sequence[float], estimator: Estimator, limit: int | None) -> Measured | None:
    if not scores:
        return None
    low, high = interval(centred(scores, estimator)) if len(scores) > 1 else (None, None)
    scored_runs, failed = runs.score_runs
    evaluated = [run for run in scored_runs if run.evaluations] or failed
    seeds = [run.seed for run in (*(r for r in scored_runs if within(r.evaluations, limit)), *failed)]
    return Measured(
        score=interquartile_mean(scores) if estimator.endswith("iqm") else mean(scores),
        low=low,
        high=high,
        n=len(scores),
        estimator=estimator,
        env_steps=min(run.env_steps for run in evaluated),
        env_id=", ".join(sorted({run.env_id for run in evaluated})),
        scores=tuple(scores),
        seeds=tuple(sorted(seeds)),
        imported=runs.of_imported,
    )


def _remarks(cell: Cell, runs: Runs, parity: Parity | None) -> Iterator[str]:
    """The notes of a cell, in a fixed order."""
    reference, word = cell.documented, cell.verdict.word
    yield from (*imported_remarks(runs, parity_note(parity) if parity else ""), *notes(cell.key))
    if problem := suites.unavailable_reason(cell.key.suite):
        yield problem
    if word == "NOT COMPARABLE":
        yield _incomparable(reference, runs) if reference else "not documented"
    if reference is not None and reference.estimator in ALTERNATIVE_ESTIMATOR and cell.measured is not None:
        yield "the reference does not say whether its score is the best or the last"
    if reference is not None and cell.test is not None and margin_reaches_random(cell.key, reference, cell.margin or 0):
        wide = "documented spread" if reference.std == cell.margin else "margin"
        yield f"the {wide} reaches the random policy, so nothing is called reproduced"
    yield from _caveats(cell, runs)
    if word == "PARTIAL":
        yield f"{min(run.env_steps for run in runs.short):,} of {runs.budget:,} steps"
    elif runs.unfinished:
        yield f"{count_text(len(runs.unfinished), 'run')} incomplete"
    scale = scale_of(cell.key)
    if cell.key.suite == "offline" and runs.complete and scale is not None and scale.goal is not None:
        best, last = (mean(seed_scores(runs.complete, kind, scale=scale)) for kind in D4RL_ESTIMATORS)
        yield f"on D4RL's scale {number_text(best, '.1f')} best, {number_text(last, '.1f')} last"
    if (failed := runs.score_runs[1]) and cell.measured is not None:
        every = count_text(cell.measured.n, "run")
        yield f"{len(failed)} of {every} failed, counted at {cell.measured.scores[-1]:,.6g}"
    yield from setting_remarks(runs, word)
    yield from remarks(runs)
    yield from _open_questions(cell, runs, parity)


def _incomparable(reference: ReferenceScore, runs: Runs) -> str:
    """The reason why a reference's score is not compared with runs."""
    if not runs.of_imported and is_longer(reference, runs.budget):
        return f"documented within {reference.limit:,} steps, a run of rlbench takes {runs.budget:,}"
    return "another protocol or environment"


def _open_questions(cell: Cell, runs: Runs, parity: Parity | None) -> Iterator[str]:
    """The verdict at equal steps beside an open one, and a cell below its reference without a third measurement."""
    reference, at = cell.documented, cell.at
    if at is not None and (cell.test is None or runs.short):
        yield at.note
    below = cell.verdict.word == "BELOW" or (at is not None and at.word == "BEHIND")
    untested = not runs.of_imported and (parity is None or not parity.word)
    if below and untested and reference and reference.source != OPTIMUM:
        yield NOT_ANSWERED.format(*cell.key)


def _caveats(cell: Cell, runs: Runs) -> Iterator[str]:
    """Caveats beyond a verdict's statistics: rarer failures, a decline after the peak, the reference's own error."""
    reference, word, seeds = cell.documented, cell.verdict.word, cell.scores
    if reference is None or cell.measured is None or cell.test is None or cell.margin is None:
        return
    centre = AVERAGES.get(reference.estimator)
    if (stop := threshold(cell.key, reference)) is not None:
        yield _threshold_text(runs, reference, stop)
    several = reference.source == OPTIMUM or (reference.n or 1) > 1  # a single run has its resolution for a spread
    if several and word == "REPRODUCED" and cell.margin == reference.std:
        yield "the margin is the documented std"
    if several and word in DECIDED and len(set(seeds)) == 1 and not reference.std:
        rate = 1 - ALPHA ** (1 / len(seeds))  # the highest at which no failure in so many is still that likely
        at_peak = "at the peak " if centre else ""
        hidden = "" if centre or word == "BELOW" else f"; a failure rate of up to {rate:.0%} cannot be excluded"
        yield f"all {len(seeds)} seeds tie {at_peak}(zero variance): the difference alone decides{hidden}"
    curves = curves_within(runs.complete, reference.limit)
    if centre and curves:
        top, theirs = peak(curves, centre), at_the_end(cell.key, reference.limit or 0)
        last = centre([final(curve) for curve in curves])
        if centre([evaluation.mean for evaluation in top]) - last > cell.margin:
            steps = max(evaluation.env_steps for evaluation in top)
            there = f" (reported final {theirs.score:,.6g})" if theirs else ""
            yield f"peak at {steps:,} steps, final {number_text(last, ',.1f')}{there}"
    looks = cell.looks
    undecided = word == "INCONCLUSIVE" and bool(looks.count if looks else (cell.verdict.more or 0) > MAX_MORE_SEEDS)
    if undecided and reference.std and reference.n is not None and reference.n > 1:
        distance, level = mean(seeds) - reference.score + cell.margin, looks.design[-1].level if looks else ALPHA
        if out_of_reach(distance, variance_of_mean(reference.std, reference.n), reference.n, level):
            yield f"{UNDECIDABLE}: the reported score's own error is too large"


def _threshold_text(runs: Runs, reference: ReferenceScore, stop: float) -> str:
    reach_steps = [steps for run in runs.complete if (steps := steps_to(run.evaluations, stop)) is not None]
    text = f"{len(reach_steps)} of {count_text(len(runs.scored), 'run')} reached {stop:g}"
    if reach_steps:
        ends = dict.fromkeys((min(reach_steps), max(reach_steps)))
        text += f" after {' to '.join(f'{steps:,}' for steps in ends)} steps"
    theirs = reference.steps_to_threshold
    return text + (f", the reference after about {theirs:,}" if theirs else ", where the reference stopped, too")
