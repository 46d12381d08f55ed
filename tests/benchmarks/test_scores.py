"""d3rlpy's scores beside ours: the same file, the same updates, a number a seed; the page says what the records say."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import stats

from benchmarks.children import ROOT
from benchmarks.scores import Contest, Pair, markdown, pairs
from rlbench.report.reference_table import CellKey
from rlbench.report.references import documented_curves
from rlbench.report.run_index import gather

FILE = "a" * 64


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Three seeds at 10,000 updates, one of them on another file, and an evaluation halfway."""
    path = tmp_path / "theirs.jsonl"
    rows = [(0, 5_000, [9e9], FILE), (0, 10_000, [90.0, 110.0], FILE), (1, 10_000, [100.0, 140.0], FILE)]
    told = [{"algorithm": "cql", "data": "rlb-hopper-medium", "seed": s, "updates": n, "returns": r, "sha256": f}
            for s, n, r, f in rows]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in told), encoding="utf-8")
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
def test_a_score_is_reached_within_the_spread_of_theirs(ours: tuple[float, ...], word: str) -> None:
    """110 less the deviation of 100 and 120, 14.142, is 95.858."""
    (row,) = markdown([Pair(Contest("cql", 10_000), "x", (100.0, 120.0), ours)]).splitlines()[2:]
    assert row.endswith(f"| {word} |") and "| 110 ± 14 (2) |" in row


def test_the_page_shows_what_the_records_say() -> None:
    """Regenerate with ``python -m benchmarks.scores``."""
    text = markdown(pairs(ROOT / "results"))
    assert text in (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")


def test_what_is_said_of_a2c_beside_tianshous_own_is_what_the_records_give() -> None:
    said = (ROOT / "results/tables/README.md").read_text(encoding="utf-8")
    file = ROOT / "benchmarks/results/tianshou-a2c-scores.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    theirs: dict[int, list[float]] = {}
    for line in lines:
        if 240_000 <= line["steps"] <= 600_000:
            theirs.setdefault(line["seed"], []).append(statistics.fmean(line["returns"]))
    key = CellKey("mujoco", "a2c", "InvertedDoublePendulum-v4", "")
    runs = gather(ROOT / "results")[key].complete
    ours = [[e.mean for e in run.evaluations if 239_000 <= e.env_steps <= 601_000] for run in runs]
    assert {len(scores) for scores in [*theirs.values(), *ours]} == {13} and len(theirs) == 4
    late = [[statistics.fmean(scores[2:]) for scores in side] for side in (ours, theirs.values())]
    curve = documented_curves()[key]
    documented = [y for x, y in zip(curve.env_steps, curve.mean, strict=True) if 240_000 <= x <= 600_000]
    means = [[statistics.fmean(scores) for scores in side] for side in (ours, theirs.values())]
    probability = stats.ttest_ind(*means, equal_var=False).pvalue
    for words in (
        f"the mean is {statistics.fmean(means[0]):,.0f}",
        f"the documented curve has {statistics.fmean(documented):,.0f}",
        f"has {statistics.fmean(means[1]):,.0f} there",
        f"Welch's p = {probability:.2f}",
        f"it is {statistics.fmean(late[0]):,.0f} against {statistics.fmean(late[1]):,.0f}",
        f"(p = {stats.ttest_ind(*late, equal_var=False).pvalue:.2f})",
    ):
        assert words in said, words
