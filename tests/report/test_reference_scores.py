"""The reference scores: complete, with sources, and with the right primary reference per cell."""

import csv
from itertools import pairwise

import pytest

from rlbench.report.provenance import cells_of
from rlbench.report.reference_scores import at_the_end, notes, primary, reference_cells, reference_curves
from rlbench.report.reference_table import DATA, CellKey, ReferenceScore, row_of, scale_of
from rlbench.suites import spec

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
    references = rows()
    assert len(references) == 1032
    assert [row["metric"] for row in references if not row["source"]] == []
    assert [row["note"] for row in references if not row["score"]] == ["nan printed: no complete episode in the buffer"]
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 2_000_000


def test_atari_references_are_complete() -> None:
    cells = reference_cells("atari")
    assert sorted((c.key.algorithm, c.key.task) for c in cells) == sorted(
        (a, f"{g}NoFrameskip-v4") for a in ALGORITHMS for g in GAMES
    )


def test_the_primary_atari_documents_are_the_single_runs_of_the_newest_readme() -> None:
    for cell in reference_cells("atari"):
        assert cell.primary.source == "examples/atari/README.md@f2402056b03a"
        assert (cell.primary.n, cell.primary.estimator, cell.primary.system) == (1, "best-of-run", "Tianshou")
        assert not cell.primary.variant.startswith("superseded")


@pytest.mark.parametrize(
    ("algorithm", "game", "score"),
    [("dqn", "Pong", 20), ("dqn", "Breakout", 316), ("rainbow", "Breakout", 684.6), ("sac", "SpaceInvaders", 649)],
)
def test_known_cells_have_their_printed_scores(algorithm: str, game: str, score: float) -> None:
    assert primary("atari", algorithm, f"{game}NoFrameskip-v4").score == score


def test_the_other_documents_of_a_cell_are_listed_with_it() -> None:
    cell = next(c for c in reference_cells("atari") if c.key == CellKey("atari", "dqn", "BreakoutNoFrameskip-v4", ""))
    assert {d.system for d in cell.others} == {"Tianshou", "Dopamine", "OpenAI Baselines"}
    assert {(d.n, d.estimator) for d in cell.others if d.system == "Tianshou"} >= {(10, "max-of-mean"), (10, "final")}
    assert cell.primary not in cell.others


def test_a_printed_interval_holds_its_score() -> None:
    references = [row for row in rows() if row["low"]]
    assert len(references) == 12
    assert all(float(row["low"]) <= float(row["score"]) <= float(row["high"]) for row in references)
    assert {row["estimator"] for row in references} == {"max-of-iqm", "final-iqm"}


def test_rows_about_data_sets_are_not_algorithms() -> None:
    assert {c.key.algorithm for c in reference_cells("offline")} == {
        "il", "bcq", "cql", "crr", "td3bc", "td3bc-raw", "iql",
    }  # fmt: skip


def test_the_mujoco_table_is_tianshous_and_redqs_one_documented_cell() -> None:
    cells = reference_cells("mujoco")
    assert len(cells) == 8 * 9 + 1
    assert {c.primary.n for c in cells if c.key.algorithm != "redq"} == {10}
    redq = [c for c in cells if c.key.algorithm == "redq"]
    assert [(c.key.task, c.primary.score, c.primary.system) for c in redq] == [("Ant-v4", 65.3, "Tianshou v2.0")]


def test_an_undocumented_cell_has_no_primary_and_a_toy_task_its_optimum() -> None:
    assert primary("atari", "dqn", "AlienNoFrameskip-v4") is None
    reference = primary("toy", "dqn", "CartPole-v1")
    assert (reference.score, reference.source, reference.n) == (500.0, "known optimum", None)


def test_cell_is_compared_with_a_reference_of_equal_budget() -> None:
    """REINFORCE is printed within 10 M steps, A2C within 3 M: their best there is not to be had in 1 M."""
    for suite in ("atari", "mujoco", "goals"):
        for cell in reference_cells(suite):
            steps = spec(suite, cell.key.algorithm, cell.key.task).budget.steps
            assert cell.primary.limit in {None, 500_000 if cell.key.algorithm == "redq" else steps}, cell.key
    redq = primary("mujoco", "redq", "Ant-v4")  # its runs are half as long as ours
    assert (redq.score, redq.limit) == (65.3, 500_000)
    for algorithm, score in {"reinforce": (932.2, 76.1), "a2c": (1000.0, 0.0), "ppo": (1000.0, 0.0)}.items():
        reference = primary("mujoco", algorithm, "InvertedPendulum-v4")
        assert (reference.score, reference.std, reference.estimator) == (*score, "max-of-mean")
    printed = primary("mujoco", "a2c", "HalfCheetah-v4")
    assert (printed.score, printed.std) == (1829.9, 1068.3)  # the README's, not recomputed


def test_every_documented_offline_cell_of_tianshou_is_its_primary() -> None:
    ours = [c for c in reference_cells("offline") if c.primary.system == "Tianshou"]
    assert len(ours) == 26
    sets = [f"{body}-{level}-v2" for body in ("halfcheetah", "walker2d") for level in ("medium", "expert")]
    scores = {"td3bc": [5741.13, 11788.25, 4051.76, 5068.15], "td3bc-raw": [5724.41, 11665.77, 3985.59, 5027.75]}
    for algorithm, expected in scores.items():
        actual = {(c.key.dataset, c.primary.score) for c in ours if c.key.algorithm == algorithm}
        assert actual == set(zip(sets, expected, strict=True))


def test_another_system_is_the_reference_if_tianshou_has_none() -> None:
    key = ("iql", "hopper-medium-v2")
    reference = next(c for c in reference_cells("offline") if (c.key.algorithm, c.key.dataset) == key)
    assert (reference.primary.system, reference.primary.score, reference.primary.std) == ("CORL", 67.53, 3.78)
    assert {"CORL", "OfflineRL-Kit"} <= {d.system for d in reference.others}


@pytest.mark.parametrize(
    ("system", "algorithms", "estimator", "cells"),
    [
        ("robomimic", {"bcq", "cql", "td3bc", "iql"}, "normalized-last-ten", 13),  # over the final 10 evaluations
        ("OfflineRL-Lib", {"td3bc"}, "normalized-best-of-last-two", 3),
        ("OfflineRL-Lib", {"iql"}, "normalized", 6),  # the section of IQL does not say
    ],
)
def test_cell_is_measured_by_its_references_estimator(
    system: str, algorithms: set[str], estimator: str, cells: int
) -> None:
    references = [c for c in reference_cells("offline") if c.primary.system == system and c.key.algorithm in algorithms]
    assert len(references) == cells
    assert {c.primary.estimator for c in references} == {estimator}
    assert not any("here the last" in note for c in references for note in notes(c.key))


@pytest.mark.parametrize("name", ["Ant-v2", "ant-v3", "Ant-v4", "Ant"])
def test_every_version_of_a_task_names_the_same_row(name: str) -> None:
    assert [c.key.task for c in cells_of("mujoco", "td3", name)] == ["Ant-v4"]


def test_a_data_set_names_its_row() -> None:
    assert row_of("offline", "halfcheetah-medium-v2", "") == ("HalfCheetah-v2", "halfcheetah-medium-v2")
    assert [c.key.dataset for c in cells_of("offline", "cql", "HalfCheetah-Medium-v2")] == ["halfcheetah-medium-v2"]
    assert len(cells_of("offline", "cql", "PongNoFrameskip-v4")) == 3


@pytest.mark.parametrize(
    ("steps", "limit"),
    [
        ("1M", 1_000_000),
        ("3M (max at 2672640)", 3_000_000),
        ("12 epochs", None),
        ("95000", None),
        ("500k (max at 95000)", 500_000),
    ],
)
def test_evaluations_beyond_the_references_steps_do_not_count(steps: str, limit: int | None) -> None:
    assert ReferenceScore(score=1, estimator="final", system="", source="", steps=steps).limit == limit


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (CellKey("mujoco", "ddpg", "Ant-v4", ""), "untrained policy"),
        (CellKey("mujoco", "ddpg", "Humanoid-v4", ""), "untrained policy"),
        (CellKey("offline", "cql", "HalfCheetah-v2", "halfcheetah-expert-v2"), "two bugs"),
        (CellKey("offline", "bcq", "HalfCheetah-v2", "halfcheetah-medium-v2"), "first row"),
        (CellKey("atari", "iqn", "SpaceInvadersNoFrameskip-v4", ""), "permutes"),
    ],
)
def test_known_errors_of_references_are_noted(key: CellKey, words: str) -> None:
    assert any(words in note for note in notes(key))


def test_notes_on_tianshou_apply_to_its_cells_only() -> None:
    reference = notes(CellKey("offline", "cql", "Hopper-v2", "hopper-medium-v2"))
    assert reference and not any("two bugs" in note for note in reference)
    headed = [c.key.dataset for c in reference_cells("offline") if any("headed CQL" in note for note in notes(c.key))]
    assert sorted(headed) == ["halfcheetah-expert-v2", "halfcheetah-medium-v2"]  # Walker2d's have a table of their own


def test_every_row_of_the_tables_has_a_scale() -> None:
    cells = [c for suite in ("atari", "mujoco", "offline", "goals", "toy") for c in reference_cells(suite)]
    assert [c.key for c in cells if scale_of(c.key) is None] == []


def test_every_atari_and_mujoco_row_with_a_published_curve_has_it() -> None:
    bare = {c.key for s in ("atari", "mujoco") for c in reference_cells(s)} - set(reference_curves())
    assert {key.algorithm for key in bare} <= {"sac"}
    for curve in reference_curves().values():
        assert len(curve.env_steps) == len(curve.mean) == len(curve.std)
        assert list(curve.env_steps) == sorted(set(curve.env_steps))


def test_a_curve_has_every_published_evaluation() -> None:
    """A line over a left-out evaluation misses a sudden rise: SAC's at 5,000 steps would be 505 for 97.9."""
    curves = [curve for key, curve in reference_curves().items() if key.suite == "mujoco"]
    gaps = {b - a for curve in curves for a, b in pairwise(curve.env_steps)}
    assert gaps == {5_000, 30_000, 30_720}


def test_maximum_of_a_curve_equals_its_reference() -> None:
    curve = reference_curves()[CellKey("mujoco", "a2c", "Ant-v4", "")]
    primary = cells_of("mujoco", "a2c", "Ant-v4")[0].primary
    within = [m for s, m in zip(curve.env_steps, curve.mean, strict=True) if s <= (primary.limit or 0)]
    assert max(within) == pytest.approx(primary.score, rel=0.02)  # the document interpolates at the limit


def test_the_bootstrap_of_c51_and_rainbow_is_noted_except_where_the_horizon_is_one() -> None:
    notes_by_cell = {
        (a, g): " ".join(notes(CellKey("atari", a, f"{g}NoFrameskip-v4", ""))) for a in ALGORITHMS for g in GAMES
    }
    annotated = {cell for cell, text in notes_by_cell.items() if "s_{t+3}" in text}
    assert annotated == {(a, g) for a in ("c51", "rainbow") for g in GAMES if g != "Breakout"}


def test_the_end_of_the_documented_runs_is_the_last_evaluation_within_the_steps() -> None:
    key = CellKey("mujoco", "ppo", "InvertedPendulum-v4", "")
    ends = {limit: at_the_end(key, limit) for limit in (1_000_000, 3_000_000, 900_000)}
    assert [end and (end.score, end.std) for end in ends.values()] == [(824.1, 312.5), (934.5, 152.1), None]
    assert at_the_end(CellKey("goals", "ddpg", "FetchReach-v4", ""), 10**9) is None
