"""Verdicts at equal steps: an unfinished run against its documented curve at the same step.

The estimand is the mean return over seeds at step t of the full Spec, whose schedules are those of the whole budget. It
says nothing about the score at the end. Test steps are fixed shares of the budget; our clock counts the random steps
before training, the documented one may not, and a seed's score is the mean of its last three evaluations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from rlbench.config.names import count_text, steps_text
from rlbench.report.estimate import TOLERANCE, curves_within, interval, mean
from rlbench.report.reference_files import Curve
from rlbench.report.reference_scores import curve_of, margin_of
from rlbench.report.reference_table import CellKey, documented_spec, scale_of
from rlbench.report.runs import Evaluation, Run
from rlbench.report.verdict import (
    ALPHA,
    MIN_SEEDS,
    CellTest,
    Verdict,
    correct_for_looks,
    decide,
    require_agreement,
    welch_test,
    with_failures,
)

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs

TEST_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # shares of the budget at which a cell is tested
WINDOW = 3  # number of evaluations whose mean is a seed's score
STDS_ABOVE_START = 3.0  # rise of the documented mean, in documented stds, at an informative test step
SHARE_OF_RISE = 0.1
"""Share of the way from the documented curve's start to its best, which the mean must have risen as well."""

StepWord = Literal["ON TRACK", "BEHIND", "AHEAD", "OPEN", "TOO EARLY"]
WORDS: dict[str, StepWord] = {"REPRODUCED": "ON TRACK", "BELOW": "BEHIND", "ABOVE": "AHEAD"}
"""The word at equal steps for each word of the same test at the full budget; every other one is OPEN."""

MARGIN_TEXTS = ("a tenth of the way from the random policy", "the documented std")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferencePoint:
    """The documented curve at one test step."""

    step: int  # of our clock
    reference_step: int  # of the documented clock
    mean: float  # of the documented means at the window's steps
    std: float  # mean of the printed stds at those steps: an upper bound of the std of a seed's score
    n: int  # documented seeds


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceCurve:
    """A documented curve beside the budget and the evaluation interval of our runs of the cell."""

    curve: Curve
    budget: int  # agent steps of the full Spec
    epoch: int  # agent steps from one evaluation to the next

    @property
    def test_steps(self) -> tuple[int, ...]:
        """The steps of our clock at which the cell is tested."""
        return tuple(round(share * self.budget) for share in TEST_SHARES)

    @property
    def end(self) -> float:
        """The step of our clock at which the curve ends: it says nothing of a later one."""
        return TOLERANCE * self.curve.env_steps[-1] + self.curve.uncounted_steps

    def point(self, step: int) -> ReferencePoint:
        """The documented mean and std over the window that ends at ``step``, interpolated between printed points."""
        reference_steps = [own_step - self.curve.uncounted_steps for own_step in window(step, self.epoch)]
        return ReferencePoint(
            step=step,
            reference_step=step - self.curve.uncounted_steps,
            mean=mean([interpolate(at, self.curve.env_steps, self.curve.mean) for at in reference_steps]),
            std=mean([interpolate(at, self.curve.env_steps, self.curve.std) for at in reference_steps]),
            n=self.curve.n,
        )

    def has_risen(self, step: int) -> bool:
        """True if the documented mean at ``step`` has risen a tenth of the way from its start to its best."""
        point, start = self.point(step), self.curve.mean[0]
        best = max(self.curve.mean[: max(1, bisect_right(self.curve.env_steps, TOLERANCE * self.budget))])
        return point.reference_step > 0 and point.mean > start and point.mean - start >= SHARE_OF_RISE * (best - start)

    def is_informative(self, step: int) -> bool:
        """True if the documented curve has risen at ``step``, and by three of its stds there."""
        point = self.point(step)
        return self.has_risen(step) and point.mean - self.curve.mean[0] >= STDS_ABOVE_START * point.std

    def first_informative(self) -> int | None:
        """The first informative test step; None if there is none."""
        return next((step for step in self.test_steps if self.is_informative(step)), None)

    def alpha_share(self, step: int) -> float:
        """The share of ``ALPHA`` that BEHIND, as well as AHEAD, may spend at the test step ``step``; all sum to 1.

        The spending function is Lan and DeMets' of the O'Brien-Fleming type over the number of the test step. The
        share due before the first informative test step is lost: a curve that is informative early is so mostly by
        luck, and then it is too high by luck as well.
        """
        number = self.test_steps.index(step) + 1
        return (cumulative_alpha(number) - cumulative_alpha(number - 1)) / ALPHA


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualSteps:
    """Comparison of a cell's seeds with its reference at the largest test step that enough of them have reached."""

    reference: ReferencePoint
    word: StepWord
    scores: tuple[float, ...]  # one per seed; failed ones last, at the lowest of these and the random policy's
    margin: float
    margin_is_std: bool  # the documented std is the margin, not the tenth of the way
    uncounted_steps: int
    short_seeds: int  # that have not reached the step
    informative_at: int | None  # the first informative test step, where the word is TOO EARLY
    test: CellTest | None  # None where the word is TOO EARLY
    more: int | None = None  # seeds to add, where the word is OPEN
    next_look: int | None = None  # seeds at the next look, where the word is OPEN
    shortfall_percent: float | None = None
    all_scores: tuple[float, ...] = ()  # with the seeds later than those of the last look

    def __str__(self) -> str:
        verdict = str(Verdict("INCONCLUSIVE", self.more, self.next_look)).removeprefix("INCONCLUSIVE")
        return f"{self.word} @{steps_text(self.reference.step)}{verdict}"

    def lowered_by(self, whole: EqualSteps | None) -> EqualSteps:
        """The comparison of a look's seeds, lowered where the test of all seeds, ``whole``, is weaker."""
        if whole is None or whole.test is None or self.test is None:
            return self
        both = require_agreement(self.test, whole.test)
        return replace(self, test=replace(self.test, word=both.word, above=both.above), all_scores=whole.scores)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % t-interval of the mean; None for one seed."""
        return interval(self.scores) if len(self.scores) > 1 else None

    @property
    def note(self) -> str:
        """The remarks of a table: the reference's clock, the margin, the seeds that have not reached the step."""
        at = f"at {self.reference.step:,} steps"
        if self.uncounted_steps:
            at += f" (the reference's {self.reference.reference_step:,}, without {self.uncounted_steps:,} random ones)"
        if self.word == "TOO EARLY":
            first = f"{self.informative_at:,}" if self.informative_at is not None else "no test step"
            at += f" the reference does not differ from its own start; informative at {first}"
        else:
            at += f" the margin is {MARGIN_TEXTS[self.margin_is_std]}"
        return at + (f"; {count_text(self.short_seeds, 'seed')} below that step" if self.short_seeds else "")


def reference_curve(key: CellKey) -> ReferenceCurve | None:
    """The documented curve of a cell; None where none is printed with a std over seeds, or no suite has the cell."""
    curve, spec = curve_of(key), documented_spec(*key[:3])
    if curve is None or spec is None or curve.n < 2:
        return None
    return ReferenceCurve(curve=curve, budget=spec.budget.steps, epoch=spec.budget.epoch)


def at_equal_steps(key: CellKey, runs: Runs, margin_share: float | None = None) -> EqualSteps | None:
    """A cell's seeds at equal steps, before the other cells of the table are tested; None without a curve or seed.

    ``margin_share`` replaces the margin's rule, as in ``margin_of``.
    """
    curve, scored_runs = reference_curve(key), runs.evaluated
    if curve is None or not scored_runs or not all(run.has_curve for run in scored_runs):
        return None
    failed = len(runs.failed)
    fewest = min(MIN_SEEDS, len(scored_runs) + failed)
    steps = [
        step for step in curve.test_steps if sum(has_reached_step(run, step) for run in scored_runs) + failed >= fewest
    ]
    step = max(
        (step for step in steps if step <= curve.end and any(has_reached_step(r, step) for r in scored_runs)),
        default=None,
    )
    if step is None:
        return None
    point, scale = curve.point(step), scale_of(key)
    scores = [
        score_at(run.evaluations, window(step, curve.epoch)) for run in scored_runs if has_reached_step(run, step)
    ]
    random = scale.random if scale is not None else curve.curve.mean[0]
    failed_scores = [min(random, *scores)] * failed
    margin = margin_of(point.mean, point.std, random, margin_share)
    test_of = partial(welch_test, reference=point.mean, std=point.std, n=point.n, margin=margin, level=runs.level)
    test = with_failures(test_of, scores, failed_scores) if curve.is_informative(step) else None
    if test is not None and runs.looks is not None and runs.looks.count:
        test = correct_for_looks(test, runs.looks)
    if test is not None:
        share_of_alpha = curve.alpha_share(step)
        below, above = (None if p is None else min(1.0, p / share_of_alpha) for p in (test.below, test.above))
        test = replace(test, below=below, above=above)
    return EqualSteps(
        reference=point,
        word="TOO EARLY" if test is None else "OPEN",
        scores=(*scores, *failed_scores),
        margin=margin,
        margin_is_std=margin_share is None and margin == point.std,
        uncounted_steps=curve.curve.uncounted_steps,
        short_seeds=len(runs.complete) + len(runs.short) - len(scores),
        informative_at=curve.first_informative() if test is None else None,
        test=test,
        shortfall_percent=shortfall_percent(test, point.mean, random),
    )


def decide_at_equal_steps(cells: Sequence[EqualSteps | None], alpha: float = ALPHA) -> list[EqualSteps | None]:
    """Every cell of a table at equal steps with its word, after Holm's correction over them."""
    verdicts = decide([at.test if at else None for at in cells], alpha)
    return [
        replace(at, word=WORDS.get(verdict.word, "OPEN"), more=verdict.more, next_look=verdict.next_look)
        if at and verdict
        else at
        for at, verdict in zip(cells, verdicts, strict=True)
    ]


def shortfall_percent(test: CellTest | None, reference: float, random: float | None) -> float | None:
    """The largest shortfall that the data allow, in percent of the way from the random policy to the reference."""
    if test is None or test.shortfall is None or random is None or reference == random:
        return None
    return 100 * test.shortfall / abs(reference - random)


def window(step: int, epoch: int) -> list[int]:
    """The steps of the last three evaluations up to ``step``, one an ``epoch``; fewer near the start."""
    last = int(TOLERANCE * step) // epoch
    return [epoch * number for number in range(max(0, last - WINDOW + 1), last + 1)]


def score_at(evaluations: Sequence[Evaluation], window: Sequence[int]) -> float:
    """The mean of a seed's evaluations at the window's steps; one that stopped before keeps its last evaluation."""
    env_steps = [evaluation.env_steps for evaluation in evaluations]
    return mean([evaluations[max(0, bisect_right(env_steps, TOLERANCE * step) - 1)].mean for step in window])


def step_of_three(runs: Sequence[Run]) -> int:
    """The largest step that three of the evaluated runs have reached, or all if there are fewer."""
    return sorted(map(end_of, runs), reverse=True)[:MIN_SEEDS][-1]


def scores_up_to(runs: Runs, step: int) -> list[float]:
    """One score for each seed that has reached ``step``: the mean of its last three evaluations up to there."""
    scored_runs = [run for run in runs.evaluated if TOLERANCE * end_of(run) >= step]
    return [mean([evaluation.mean for evaluation in curve[-WINDOW:]]) for curve in curves_within(scored_runs, step)]


def has_reached_step(run: Run, step: int) -> bool:
    """True if a run was evaluated up to ``step``, or has ended before by its protocol; no later evaluation counts."""
    return run.evaluations[0].env_steps <= TOLERANCE * step and TOLERANCE * end_of(run) >= step


def end_of(run: Run) -> int:
    """The steps up to which a run has a score: all of its budget where it has ended before by its protocol."""
    return max(run.budget if run.status == "done" else 0, run.evaluations[-1].env_steps)


def interpolate(step: float, steps: Sequence[int], values: Sequence[float]) -> float:
    """The value at ``step`` on the line between its neighbours; the first or the last one outside."""
    if step <= steps[0]:
        return values[0]
    for (start, below), (end, above) in pairwise(zip(steps, values, strict=True)):
        if step <= end:
            return below + (above - below) * (step - start) / (end - start)
    return values[-1]


def cumulative_alpha(number: int) -> float:
    """The alpha spent up to the test step of this number, counted from 1; none before."""
    if number == 0:
        return 0.0
    normal = NormalDist()
    return 2 * normal.cdf(normal.inv_cdf(ALPHA / 2) / (number / len(TEST_SHARES)) ** 0.5)
