"""Margins, resolutions and thresholds of cells, and their effect on verdicts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rlbench.report.cells import Cell, every_cell
from rlbench.report.check import against_references
from rlbench.report.evidence import Evidence
from rlbench.report.provenance import cells_of
from rlbench.report.reference_scores import margin, reference_cells, resolution, threshold
from rlbench.report.reference_table import SUITES, CellKey, ReferenceScore, parse_score
from tests.conftest import RecordSeeds


def reference_of(suite: str, algorithm: str, task: str) -> tuple[CellKey, ReferenceScore]:
    reference = cells_of(suite, algorithm, task)[0]
    return reference.key, reference.primary


@pytest.mark.parametrize(
    ("suite", "algorithm", "task", "expected"),
    [
        ("atari", "ppo", "PongNoFrameskip-v4", 0.1),  # 20.2 over ten games
        ("atari", "c51", "BreakoutNoFrameskip-v4", 0.1),  # 536.6
        ("atari", "dqn", "BreakoutNoFrameskip-v4", 1.0),  # printed as 316, whatever a hundred games show
        ("atari", "dqn", "SpaceInvadersNoFrameskip-v4", 0.1),  # 812.2 over a hundred games
        ("offline", "il", "halfcheetah-expert-v2", 0.01),  # 11355.31, and no game's return is a whole number
        ("offline", "iql", "hopper-expert-v2", 0.1),  # 110.5 on D4RL's scale
    ],
)
def test_resolution_is_at_least_the_last_digit_and_one_point_in_one_game(
    suite: str, algorithm: str, task: str, expected: float
) -> None:
    assert resolution(*reference_of(suite, algorithm, task)) == expected


def test_one_point_in_one_of_ten_games_counts_where_more_digits_are_printed() -> None:
    key, reference = reference_of("atari", "ppo", "PongNoFrameskip-v4")
    finer = ReferenceScore(score=20.25, estimator=reference.estimator, system="", source="", resolution=0.01)
    assert resolution(key, finer) == 0.1
    assert resolution(CellKey("offline", "il", "HalfCheetah-v2", "halfcheetah-expert-v2"), finer) == 0.01


@pytest.mark.parametrize(("text", "unit"), [("20.2", 0.1), ("316", 1.0), ("11355.31", 0.01), ("-21.0", 0.1)])
def test_the_last_printed_digit_is_read_from_the_text(text: str, unit: float) -> None:
    names = ("std", "low", "high", "n", "steps", "metric", "variant", "note", "task", "dataset")
    line = dict.fromkeys(names, "") | {"score": text, "estimator": "raw", "system": "x", "source": "y"}
    assert parse_score(line).resolution == unit


def test_every_documented_pong_run_stopped_at_twenty_and_no_other_run_did() -> None:
    stops = {(c.key.algorithm, c.key.task) for c in reference_cells("atari") if threshold(c.key, c.primary) == 20.0}
    assert stops == {(c.key.algorithm, "PongNoFrameskip-v4") for c in reference_cells("atari")}
    others = [c for s in SUITES for c in reference_cells(s) if threshold(c.key, c.primary) not in {None, 20.0}]
    assert others == []


@pytest.mark.parametrize(
    ("algorithm", "steps"), [("dqn", 1_500_000), ("c51", None), ("ppo", None)]
)  # "~1.5M (15 epochs; …)" and "<=10M (stop_fn: …)"
def test_the_steps_to_the_threshold_are_known_of_one_run(algorithm: str, steps: int | None) -> None:
    assert reference_of("atari", algorithm, "PongNoFrameskip-v4")[1].steps_to_threshold == steps


def test_given_margin_applies_to_every_cell() -> None:
    for suite in SUITES:
        for cell in reference_cells(suite):
            one, two = (margin(cell.key, cell.primary, share) for share in (0.1, 0.2))
            assert two == pytest.approx(2 * one) and one > 0, cell.key
            if cell.primary.std is not None:
                assert margin(cell.key, cell.primary) == max(one, cell.primary.std)


def pong(
    record_seeds: RecordSeeds, results: Path, algo: str, curves: Sequence[Sequence[float]], share: float | None
) -> Cell:
    record_seeds(*curves, algo=algo, task="PongNoFrameskip-v4")
    cells = every_cell(["atari"], results, margin_share=share)
    return next(c for c in cells if (c.key.algorithm, c.key.task) == (algo, "PongNoFrameskip-v4"))


LATE = [*[-21.0] * 30, 20.0]
"""Reaches twenty after 3,000,000 steps."""


@pytest.mark.parametrize(
    ("algo", "curves", "share", "word", "note"),
    [
        ("ppo", [[-21.0, 20.0]] * 3, None, "CONSISTENT", "3 of 3 runs reached 20 after 100,000 steps"),  # 20.2
        ("dqn", [[-21.0, 20.1]] * 3, None, "CONSISTENT", "3 of 3 runs reached 20 after 100,000 steps"),  # 20
        ("rainbow", [[-21.0, 20.0]] * 3, None, "CONSISTENT", "3 of 3 runs reached 20"),  # 21
        ("rainbow", [[-21.0, 20.0]] * 3, 0.0, "CONSISTENT", "3 of 3 runs reached 20"),
        ("ppo", [[-21.0, 19.9]] * 3, None, "CONSISTENT", "0 of 3 runs reached 20, where"),
        ("ppo", [[-21.0, 10.0]] * 3, None, "BELOW", "0 of 3 runs reached 20, where"),
        ("ppo", [[-21.0, 10.0]] * 3, 0.5, "CONSISTENT", "0 of 3 runs reached 20, where"),
        ("dqn", [LATE] * 3, None, "BELOW", "3 of 3 runs reached 20 after 3,000,000 steps, the reference after about"),
        ("dqn", [LATE] * 3, 1.0, "CONSISTENT", "3 of 3 runs reached 20"),
        ("ppo", [LATE] * 3, None, "CONSISTENT", "3 of 3 runs reached 20 after 3,000,000 steps"),  # within its 10 M
        ("dqn", [LATE, LATE[10:], LATE], None, "CONSISTENT", "after 2,000,000 to 3,000,000 steps"),
    ],
)
def test_verdict_at_a_common_threshold_is_about_reaching_it_and_its_steps(
    record_seeds: RecordSeeds,
    results: Path,
    algo: str,
    curves: Sequence[Sequence[float]],
    share: float | None,
    word: str,
    note: str,
) -> None:
    cell = pong(record_seeds, results, algo, curves, share)
    assert cell.verdict.word == word
    assert note in cell.note


@pytest.mark.parametrize(
    ("score", "share", "word"), [(290.0, None, "CONSISTENT"), (280.0, None, "BELOW"), (280.0, 0.2, "CONSISTENT")]
)
def test_given_margin_applies_to_a_single_reference_run(
    record_seeds: RecordSeeds, results: Path, score: float, share: float | None, word: str
) -> None:
    """DQN on Breakout: documented 316, a random policy 1.7; a tenth of the way is 31.4."""
    record_seeds(*([0.0, score + seed] for seed in range(3)))
    findings = against_references("atari", Evidence(results), alpha=0.05, margin=share)
    assert {finding.word for finding in findings if finding.word != "NOT RUN"} == {word}


def test_given_margin_replaces_the_published_std(record_seeds: RecordSeeds, results: Path) -> None:
    """DDPG on Hopper: documented 2197 ± 971.6, so that 2000 ± 10 passes by the spread and not by one in fifty."""
    record_seeds(*([0.0, 2000.0 + 10 * seed] for seed in range(3)), suite="mujoco", algo="ddpg", task="Hopper-v4")
    words = []
    for share in (None, 0.02):
        cells = every_cell(["mujoco"], results, margin_share=share)
        words += [(c.verdict.word, c.margin) for c in cells if c.measured is not None]
    assert words[0] == ("REPRODUCED", 971.6)
    assert words[1][0] == "INCONCLUSIVE"
    assert words[1][1] == pytest.approx(43.6, abs=0.1)
