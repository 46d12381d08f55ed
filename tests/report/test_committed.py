"""The committed records: their verdicts, and the tables and figures that are made of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rlbench.cli.app import main
from rlbench.report.cells import Cell
from rlbench.report.evidence import Evidence
from rlbench.report.pages import with_reproduced
from tests.commands import stdout_of
from tests.report.conftest import RESULTS

N = 10  # documented seeds of every cell


def evaluations(algorithm: str, task: str) -> np.ndarray:
    """Mean returns, ``[seed, evaluation]``, up to 1,005,000 steps."""
    rows = []
    for path in sorted((RESULTS / "mujoco" / algorithm / task).glob("*/seed=*/epochs.jsonl")):
        epochs = [json.loads(line) for line in path.read_text().splitlines()]
        rows.append([np.mean(e["evaluated"]["returns"]) for e in epochs if e["env_steps"] <= 1_005_000])
    return np.array(rows)


def peak(curves: np.ndarray) -> int:
    return int(curves.mean(axis=0).argmax())


def without_luck(curves: np.ndarray) -> np.ndarray:
    """Scores at the peak of the mean, less the optimism of a peak over fewer than ten seeds."""
    k = len(curves)
    scores = curves[:, peak(curves)]
    others = [curves[seed, peak(np.delete(curves, seed, axis=0))] for seed in range(k)]
    return scores - (1 - np.sqrt(k / N)) * (scores.mean() - np.mean(others))


@pytest.mark.parametrize(
    ("algorithm", "task", "score", "std", "random"),
    [
        ("ppo", "HalfCheetah-v4", 5783.9, 1244.0, -285.9),
        ("reinforce", "Hopper-v4", 390.0, 84.4, 20.0),
        ("a2c", "InvertedDoublePendulum-v4", 9257.7, 277.4, 58.1),
    ],
)
def test_a_committed_cell_equals_an_independent_computation(
    algorithm: str, task: str, score: float, std: float, random: float, mujoco_cells: tuple[Cell, ...]
) -> None:
    cell = next(cell for cell in mujoco_cells if cell.key[1:3] == (algorithm, task))
    assert (cell.documented.score, cell.documented.std, cell.documented.n) == (score, std, N)
    scores = without_luck(evaluations(algorithm, task))
    k, margin = len(scores), max(0.1 * abs(score - random), std)
    assert cell.scores == pytest.approx(scores)
    ours, theirs = scores.var(ddof=1) / k, std**2 / (N - 1)
    degrees = min(
        np.floor((s + theirs) ** 2 / (s**2 / (k - 1) + theirs**2 / (N - 1))) for s in (ours, max(ours, theirs * N / k))
    )
    difference, error = scores.mean() - score, np.sqrt(ours + theirs)
    assert cell.test.below == pytest.approx(stats.t.cdf((difference + margin) / error, degrees), rel=1e-6)
    assert cell.test.above == pytest.approx(stats.t.sf((difference - margin) / error, degrees), rel=1e-6)
    shortfall = 100 * (stats.t.isf(0.05, degrees) * error - difference) / abs(score - random)
    assert cell.shortfall_percent == pytest.approx(shortfall, rel=1e-3)
    reproduced = stats.t.sf((difference + margin) / error, degrees) < 0.05
    assert (cell.verdict.word == "REPRODUCED") == reproduced


@pytest.mark.parametrize("words", ["atari", "mujoco", "offline", "goals", "toy", "mujoco --parity", "offline --parity"])
def test_a_committed_table_is_current(words: str) -> None:
    table = stdout_of(f"table {words} --results {RESULTS} --format md")
    committed = (RESULTS / "tables" / f"{words.replace(' --', '-')}.md").read_text(encoding="utf-8")
    assert committed == table, "run scripts/tables and commit its output"
    assert "left out are curves" not in committed and "not state" not in committed


def test_readme_shows_what_was_reproduced() -> None:
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert with_reproduced(readme, Evidence(RESULTS)) == readme, "run scripts/tables and commit what it writes"
    assert readme.count("\n| ") > 10
    tables = "".join((RESULTS / "tables" / f"{suite}.md").read_text(encoding="utf-8") for suite in ("atari", "mujoco"))
    on_track = len(re.findall(r"\| ON TRACK @", tables))
    assert f" have a verdict: {on_track} on track, " in readme


def test_the_committed_results_page_is_current(tmp_path: Path) -> None:
    assert main(["report", "--results", str(RESULTS), "--output", str(tmp_path / "page.md")]) == 0
    committed = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert committed == (tmp_path / "page.md").read_text(encoding="utf-8"), "run scripts/tables and commit"
