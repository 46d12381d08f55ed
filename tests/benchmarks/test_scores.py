"""Scores of d3rlpy and rlbench on one file at equal updates; the page is current."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.children import ROOT
from benchmarks.scores import Contest, Pair, markdown, pairs

FILE = "a" * 64


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Three seeds at 10,000 updates, one of them on another file, and an evaluation halfway."""
    path = tmp_path / "theirs.jsonl"
    rows = [(0, 5_000, [9e9], FILE), (0, 10_000, [90.0, 110.0], FILE), (1, 10_000, [100.0, 140.0], FILE)]
    lines = [{"algorithm": "cql", "data": "rlb-hopper-medium", "seed": s, "updates": n, "returns": r, "sha256": f}
            for s, n, r, f in rows]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_scores_are_of_one_file_at_equal_updates(theirs: Path, tmp_path: Path, record_run: Callable[..., Path]) -> None:
    """Evaluations come every 5,000 updates: the third is that after 10,000."""
    for seed, (level, digest) in enumerate([(105.0, FILE), (95.0, FILE), (1e6, "b" * 64)]):
        record_run([0.0, 1.0, level, 7.0], suite="offline", task="rlb-hopper-medium", algo="cql", seed=seed,
                   data={"sha256": digest})  # fmt: skip
    assert pairs(tmp_path / "results", theirs) == [
        Pair(Contest("cql", 10_000), "rlb-hopper-medium", (100.0, 120.0), (105.0, 95.0))
    ]


def test_runs_of_other_settings_are_not_ours_but_the_horizon_is_chosen_and_short_runs_count(
    tmp_path: Path, record_run: Callable[..., Path]
) -> None:
    """TD3+BC's documented horizon is 3. One run ended at 30,000 updates, the others went on."""
    path = tmp_path / "theirs.jsonl"
    line = {"algorithm": "td3bc", "data": "rlb-hopper-medium", "updates": 30_000, "returns": [50.0], "sha256": FILE}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    for sets, level in [
        ([], 3.0),
        (["algo.n_step=1"], 1.0),
        (["algo.actor_lr=0.5"], 9.0),
        (["algo.n_step=1", "algo.actor_lr=0.5"], 9.0),
    ]:
        record_run([0.0] * 6 + [level], suite="offline", task="rlb-hopper-medium", algo="td3bc", data={"sha256": FILE},
                   sets=[*sets, "budget.steps=30000"])  # fmt: skip
    one, three = pairs(tmp_path / "results", path)
    assert (one.contest.horizon, one.ours, three.contest.horizon, three.ours) == (1, (1.0,), 3, (3.0,))


@pytest.mark.parametrize(("ours", "word"), [((97.0, 95.0), "reached"), ((95.0, 96.5), "**missed**")])
def test_score_is_reached_within_the_peers_std(ours: tuple[float, ...], word: str) -> None:
    """110 less the deviation of 100 and 120, 14.142, is 95.858."""
    (row,) = markdown([Pair(Contest("cql", 10_000), "x", (100.0, 120.0), ours)]).splitlines()[2:]
    assert row.endswith(f"| {word} |") and "| 110 ± 14 (2) |" in row


def test_the_page_shows_what_the_records_say() -> None:
    """Regenerate with ``python -m benchmarks.scores``."""
    text = markdown(pairs(ROOT / "results"))
    assert text in (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
