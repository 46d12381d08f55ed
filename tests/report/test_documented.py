"""The documented scores: complete, sourced, and each cell with the right primary document."""

from __future__ import annotations

import csv

import pytest

from rlbench.report.documented import DATA, Key, documented, notes, primary, suites

RULES = (
    ("best reward", "best-of-run"),
    ("best mean return", "best-of-run"),
    ("3M best reward", "best-of-run"),
    ("max over evaluations of the IQM", "max-of-iqm"),
    ("IQM return at the last", "final-iqm"),
    ("max over", "max-of-mean"),
    ("max average return", "max-of-mean"),
    ("10-seed mean test return at the last", "final"),
    ("average return at the last", "final"),
    ("average return at the end", "final"),
    ("mean return at the last evaluation", "final"),
    ("raw mean return", "raw"),
)
GAMES = ["Pong", "Breakout", "Enduro", "Qbert", "MsPacman", "Seaquest", "SpaceInvaders"]
ALGORITHMS = ["dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "ppo", "sac"]


def rows() -> list[dict[str, str]]:
    with (DATA / "documented_scores.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_estimator_follows_from_its_metric_by_the_stated_rules() -> None:
    for row in rows():
        expected = next((name for start, name in RULES if row["metric"].startswith(start)), "as-printed")
        assert row["estimator"] == expected, row["metric"]


def test_every_number_has_a_source_and_no_number_was_lost() -> None:
    found = rows()
    assert len(found) == 1032
    assert [row["metric"] for row in found if not row["source"]] == []
    assert [row["note"] for row in found if not row["score"]] == ["nan printed: no complete episode in the buffer"]


def test_atari_is_complete() -> None:
    cells = documented("atari")
    assert sorted((c.key.algorithm, c.key.task) for c in cells) == sorted(
        (a, f"{g}NoFrameskip-v4") for a in ALGORITHMS for g in GAMES
    )


def test_the_primary_atari_documents_are_the_single_runs_of_the_newest_readme() -> None:
    for cell in documented("atari"):
        assert cell.primary.source == "examples/atari/README.md@f2402056b03a"
        assert (cell.primary.n, cell.primary.estimator, cell.primary.system) == (1, "best-of-run", "Tianshou")
        assert not cell.primary.variant.startswith("superseded")


@pytest.mark.parametrize(
    ("algorithm", "game", "score"),
    [("dqn", "Pong", 20), ("dqn", "Breakout", 316), ("rainbow", "Breakout", 684.6), ("sac", "SpaceInvaders", 649)],
)
def test_known_cells_have_their_printed_scores(algorithm: str, game: str, score: float) -> None:
    found = primary("atari", algorithm, f"{game}NoFrameskip-v4")
    assert found is not None
    assert found.score == score


def test_the_other_documents_of_a_cell_are_listed_with_it() -> None:
    cell = next(c for c in documented("atari") if c.key == Key("atari", "dqn", "BreakoutNoFrameskip-v4", ""))
    assert {d.system for d in cell.others} == {"Tianshou", "Dopamine", "OpenAI Baselines"}
    assert {(d.n, d.estimator) for d in cell.others if d.system == "Tianshou"} >= {(10, "max-of-mean"), (10, "final")}
    assert cell.primary not in cell.others


def test_a_printed_interval_holds_its_score() -> None:
    found = [row for row in rows() if row["low"]]
    assert len(found) == 12
    assert all(float(row["low"]) <= float(row["score"]) <= float(row["high"]) for row in found)
    assert {row["estimator"] for row in found} == {"max-of-iqm", "final-iqm"}


def test_every_suite_of_the_command_line_has_documented_cells() -> None:
    assert {"atari", "mujoco", "offline", "goals"} <= set(suites())
    assert all(documented(suite) for suite in ("atari", "mujoco", "offline", "goals", "toy"))


def test_data_sets_are_no_algorithms() -> None:
    assert {c.key.algorithm for c in documented("offline")} == {"il", "bcq", "cql", "crr", "td3bc"}


def test_a_toy_task_is_documented_by_its_optimum() -> None:
    found = primary("toy", "dqn", "CartPole-v1")
    assert found is not None
    assert (found.score, found.source, found.n) == (500.0, "known optimum", None)


def test_an_undocumented_cell_has_no_primary() -> None:
    assert primary("atari", "dqn", "AlienNoFrameskip-v4") is None


def test_the_bootstrap_of_c51_and_rainbow_is_noted_except_where_the_horizon_is_one() -> None:
    noted = {(a, g) for a in ALGORITHMS for g in GAMES if notes(Key("atari", a, f"{g}NoFrameskip-v4", ""))}
    assert noted == {(a, g) for a in ("c51", "rainbow") for g in GAMES if g != "Breakout"}
