"""Estimators on curves with hand-computed scores."""

from pathlib import Path

import pytest
from scipy import stats

from rlbench.records.types import Estimator
from rlbench.report.estimate import (
    best,
    correct_optimism,
    curve_mean,
    final,
    interquartile_mean,
    mean,
    one_per_epoch,
    peak,
    sample_std,
    seed_scores,
    steps_to,
)
from rlbench.report.reference_table import CellKey, Scale, scale_of
from rlbench.report.runs import Evaluation, Run


def run(*means: float, seed: int = 0, steps: int = 1000) -> Run:
    evaluations = tuple(Evaluation(i * steps, float(i), mean) for i, mean in enumerate(means))
    cell = {"suite": "mujoco", "algorithm": "td3", "task": "Ant-v4", "dataset": "", "seed": seed, "id": ""}
    progress = {"budget": steps * len(means), "env_steps": steps * len(means), "seconds": 1.0, "speeds": ()}
    ended = {"smoke": False, "settings": {}, "environment": {}, "status": "done", "reason": ""}
    return Run(folder=Path(), evaluations=evaluations, **cell, **progress, **ended)


RUNS = [run(0.0, 10.0, 2.0, 4.0), run(0.0, 0.0, 9.0, 8.0), run(3.0, 2.0, 1.0, 6.0)]


@pytest.mark.parametrize(
    ("rows", "n", "expected"),
    [
        # the others pick moments 3, 1 and 3: their mean there is 10 / 3, for 6; half of the difference is surplus
        ([[0, 10, 2, 4], [0, 0, 9, 8], [3, 2, 1, 6]], 12, [4 - 4 / 3, 8 - 4 / 3, 6 - 4 / 3]),
        ([[0, 10, 2, 4], [0, 0, 9, 8], [3, 2, 1, 6]], 3, [4, 8, 6]),  # the document picked over as many
        ([[0, 10, 2, 4], [0, 0, 9, 8], [3, 2, 1, 6]], 2, [4, 8, 6]),  # over fewer: none is given back
        ([[0, 10], [0, 12], [0, 11]], 10, [10, 12, 11]),  # whoever picks picks the same moment
        ([[0, 10, 2, 4]], 10, [10]),  # nobody else to pick
        ([[0, 8], [4, 0, 0]], 8, [8 - 0.5 * 4, 0 - 0.5 * 4]),  # the others pick moments 0 and 1: scores 0 and 0
        ([], 10, []),
    ],
)
def test_maximum_over_few_seeds_is_corrected_for_optimism(
    rows: list[list[float]], n: int, expected: list[float]
) -> None:
    assert correct_optimism([run(*row).evaluations for row in rows], mean, n) == pytest.approx(expected)


def test_a_peak_is_of_evaluations_at_equal_steps() -> None:
    often, seldom = run(0.0, 9.0, 8.0, 1.0).evaluations, run(0.0, 7.0, steps=2000).evaluations
    assert [e.env_steps for e in peak([often, seldom], mean)] == [2000, 2000]  # by number it is 1000 and 2000


def test_the_steps_to_a_threshold_are_those_of_the_first_evaluation_that_reaches_it() -> None:
    curve = run(0.0, 19.9, 20.0, 5.0, 21.0).evaluations
    assert (steps_to(curve, 20.0), steps_to(curve, 20.5), steps_to(curve, 22.0)) == (2000, 4000, None)


def test_best_is_the_highest_evaluation_and_final_the_last() -> None:
    curve = run(0.0, 20.0, 19.0).evaluations
    assert (best(curve), final(curve)) == (20.0, 19.0)


@pytest.mark.parametrize(
    ("points", "budget", "level"),
    [
        ([(0, 99.0), (1000, 10.0), (3000, 4.0)], 5000, (10 * 1000 + 4 * 2000 + 4 * 2000) / 5000),  # the last one stays
        ([(0, 99.0), (1000, 10.0), (3000, 4.0)], 2000, (10 * 1000 + 4 * 2000) / 3000),
        ([(1000, 99.0), (2000, 6.0)], 2000, 6.0),  # nothing led to what a later start evaluates
        ([(0, 7.0)], 2000, 7.0),
    ],
)
def test_level_of_a_curve_weighs_each_evaluation_by_the_steps_before_it(
    points: list[tuple[int, float]], budget: int, level: float
) -> None:
    assert curve_mean([Evaluation(steps, 0.0, score) for steps, score in points], budget) == pytest.approx(level)


def test_normalized_scores_are_on_d4rls_scale() -> None:
    scale = scale_of(CellKey("offline", "cql", "HalfCheetah-v2", "halfcheetah-medium-v2"))
    assert scale == Scale(-280.178953, 12135.0)
    raw = run(-280.178953, 12135.0, 5927.4105235)
    assert seed_scores([raw], "normalized-best", scale=scale) == [100.0]
    assert seed_scores([raw], "normalized-final", scale=scale) == [pytest.approx(50.0)]
    with pytest.raises(ValueError, match="scale"):
        seed_scores([raw], "normalized")


PEAKED = [run(0.0, 100.0), *[run(5.0, 4.0)] * 3]

ELEVEN = [run(70, 0, 10, 0, 10, 0, 10, 0, 10, 0, 10), run(70, 5, 0, 5, 0, 2.5, 0, 0, 0, 12.5, 0)]

TO_TEN = Scale(0.0, 10.0)


@pytest.mark.parametrize(
    ("runs", "estimator", "options", "scores"),
    [
        pytest.param(RUNS, "best-of-run", {}, [10, 9, 6], id="the highest evaluation of each run"),
        pytest.param(RUNS, "max-of-mean", {}, [4, 8, 6], id="all seeds at the same evaluation"),  # means 1, 4, 4 and 6
        pytest.param(RUNS, "max-of-mean", {"limit": 2000}, [10, 0, 2], id="a maximum within the reference's steps"),
        pytest.param(RUNS, "best-of-run", {"limit": 0}, [0, 0, 3], id="a best within the reference's steps"),
        pytest.param(RUNS, "final", {"limit": 1000}, [10, 0, 2], id="an end within the reference's steps"),
        pytest.param([run(1.0, 2.0, steps=1003)], "final", {"limit": 1000}, [2], id="a vector step beyond the limit"),
        pytest.param([run(0, 20), run(0, 5, 9)], "max-of-mean", {}, [20, 9], id="a stopped run keeps its last"),
        pytest.param(PEAKED, "max-of-mean", {}, [100, 4, 4, 4], id="the maximum of the mean"),
        pytest.param(PEAKED, "max-of-iqm", {}, [0, 5, 5, 5], id="that of the interquartile mean lies elsewhere"),
        pytest.param([run(), run(1.0)], "final", {}, [1], id="a run without an evaluation has no score"),
        pytest.param([], "max-of-mean", {}, [], id="no run"),
        # as robomimic and OfflineRL-Lib print their scores
        pytest.param(ELEVEN, "normalized-final", {"scale": TO_TEN}, [100, 0], id="final"),
        pytest.param(ELEVEN, "normalized-last-ten", {"scale": TO_TEN}, [50, 25], id="of eleven the first is left out"),
        pytest.param(ELEVEN, "normalized-best-of-last-two", {"scale": TO_TEN}, [0, 125], id="means 62.5 and 50"),
    ],
)
def test_score_of_each_seed(
    runs: list[Run], estimator: Estimator, options: dict[str, object], scores: list[float]
) -> None:
    assert seed_scores(runs, estimator, **options) == pytest.approx(scores, rel=1e-12)


def test_human_normalized_score_is_one_for_a_human_and_zero_for_a_random_policy() -> None:
    scale = scale_of(CellKey("atari", "dqn", "BreakoutNoFrameskip-v4", ""))
    assert scale == Scale(1.7, 30.5)
    assert (scale.normalized(1.7), scale.normalized(30.5)) == (0.0, 1.0)
    assert scale.normalized(316) == pytest.approx(10.913, abs=1e-3)


@pytest.mark.parametrize("count", range(1, 12))
def test_the_interquartile_mean_is_scipys_trimmed_mean(count: int) -> None:
    scores = [float((7 * i) % 11) for i in range(count)]
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


@pytest.mark.parametrize(
    ("steps", "nearest"),
    [
        ([0, 4_999, 10_001, 14_999], [0, 4_999, 10_001, 14_999]),
        ([2_500, 7_500, 12_500], [2_500, 7_500, 12_500]),
        ([0, 2_000, 4_000, 6_000, 8_000, 9_900], [0, 6_000, 9_900]),
    ],
    ids=["off by one", "half-way", "dense"],
)
def test_one_evaluation_an_epoch_is_the_nearest_to_its_end(steps: list[int], nearest: list[int]) -> None:
    assert [e.env_steps for e in one_per_epoch([Evaluation(at, 0.0, 0.0) for at in steps], 5_000)] == nearest


def test_equal_scores_have_no_std() -> None:
    assert sample_std([389.6] * 3) == 0.0
    tie = [mean([20.9] * 3), mean([20.7, 21.0, 21.0]), mean([20.9] * 3)]
    assert len(set(tie)) == 2 and sample_std(tie) == 0.0
    assert sample_std([0.0, 0.0]) == 0.0 < sample_std([0.0, 1e-9])
