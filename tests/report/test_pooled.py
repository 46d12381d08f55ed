"""Pooled verdicts against hand computations and metafor's formulas on the committed records."""

import csv
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from rlbench.report.cells import Cell
from rlbench.report.check import against_references
from rlbench.report.evidence import Evidence
from rlbench.report.pooled import Effect, Kind, Meta, Pooled, meta_analysis, pooled_rows
from rlbench.report.reference_table import DATA
from tests.report.conftest import RESULTS


def metafor(y: np.ndarray, v: np.ndarray) -> Meta:
    """``rma(yi, vi, method = "DL", test = "adhoc")`` with its projection matrix (Viechtbauer 2010, section 2)."""
    k, x = len(y), np.ones((len(y), 1))
    w = np.diag(1 / v)
    p = w - w @ x @ np.linalg.inv(x.T @ w @ x) @ x.T @ w
    q = float(y @ p @ y)
    tau2 = max(0.0, (q - (k - 1)) / float(np.trace(p)))
    w = np.diag(1 / (v + tau2))
    inverse = np.linalg.inv(x.T @ w @ x)
    middle = float((inverse @ x.T @ w @ y)[0])
    p = w - w @ x @ inverse @ x.T @ w
    half = stats.t.ppf(0.975, k - 1) * np.sqrt(max(1.0, float(y @ p @ y) / (k - 1)) * float(inverse[0, 0]))
    return Meta(middle, middle - half, middle + half, tau2**0.5, q, k - 1)


def test_pooled_verdict_of_two_cells_equals_a_hand_computation() -> None:
    estimate = meta_analysis([Effect(-0.1, 0.01), Effect(-0.3, 0.04)])
    half = 12.706204736 * (1 / 125) ** 0.5  # weights 100 and 25; Q = 100 * 0.04**2 + 25 * 0.16**2, less than df
    assert estimate == pytest.approx((-0.14, -0.14 - half, -0.14 + half, 0.0, 0.8, 1))


def test_tau_of_heterogeneous_cells_equals_a_hand_computation() -> None:
    estimate = meta_analysis([Effect(0.0, 0.01), Effect(0.4, 0.01)])
    tau2 = (8 - 1) / (200 - 20000 / 200)  # Q = 100 * 0.04 + 100 * 0.04
    assert (estimate.mean, estimate.tau, estimate.q) == pytest.approx((0.2, tau2**0.5, 8.0))
    assert estimate.high == pytest.approx(0.2 + 12.706204736 * 0.2)  # half the range, whatever tau


def test_meta_analysis_equals_metafors_formulas() -> None:
    rng = np.random.default_rng(0)
    for k in (2, 3, 5, 9):
        y, v = rng.normal(-0.1, 0.2, k), rng.uniform(1e-3, 0.1, k)
        assert meta_analysis([Effect(*pair) for pair in zip(y, v, strict=True)]) == pytest.approx(metafor(y, v))


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(-0.09, 0.3, "REPRODUCED"), (-0.05, -0.01, "REPRODUCED"), (-0.3, -0.01, "BELOW"), (-0.3, 0.2, "INCONCLUSIVE")],
)
def test_pooled_verdict_follows_the_interval(low: float, high: float, word: str) -> None:
    meta = Meta((low + high) / 2, low, high, 0.0, 1.0, 2)
    row = Pooled(suite="mujoco", algorithm="ppo", kind="full", keys=(), left_out=(), meta=meta)
    assert row.word == word
    assert replace(row, margin=0.01).word == ("BELOW" if high < 0 else "INCONCLUSIVE")


def test_the_gate_pools_by_its_own_margin_and_alpha(mujoco_cells: tuple[Cell, ...]) -> None:
    gate = partial(against_references, "mujoco", Evidence(RESULTS), pool=True)
    words = {
        margin: {f.algorithm: f.word for f in gate(alpha=0.05, margin=margin) if f.aspect == "pooled"}
        for margin in (0.01, 0.5)
    }
    assert words[0.01] != words[0.5] and set(words[0.5].values()) == {"REPRODUCED"}
    (wide,) = (row for row in pooled_rows(mujoco_cells, alpha=0.3) if (row.algorithm, row.kind) == ("ppo", "full"))
    (row,) = (row for row in pooled_rows(mujoco_cells) if (row.algorithm, row.kind) == ("ppo", "full"))
    ratio = stats.t.ppf(0.85, row.meta.df) / stats.t.ppf(0.975, row.meta.df)
    assert wide.meta.high - wide.meta.mean == pytest.approx(ratio * (row.meta.high - row.meta.mean))
    texts = [f.reason for f in gate(alpha=0.3, margin=None) if f.aspect == "pooled" and f.algorithm == "ppo"]
    assert str(wide) in texts[0]


def test_the_committed_rows_equal_an_independent_computation(mujoco_cells: tuple[Cell, ...]) -> None:
    with (DATA / "references.csv").open(encoding="utf-8") as file:
        random = {row["task"]: float(row["random"]) for row in csv.DictReader(file)}
    rows = {row.algorithm: row for row in pooled_rows(mujoco_cells) if row.kind == "full"}
    assert {"ppo", "npg", "reinforce", "a2c", "trpo"} <= rows.keys()
    for algorithm, row in rows.items():
        y, v, outcome_left = [], [], []
        for cell in mujoco_cells:
            reference = cell.documented
            if cell.key.algorithm != algorithm or cell.test is None or len(cell.scores) < 3 or reference is None:
                continue
            ours, way = np.array(cell.scores), reference.score - random[cell.key.task.removesuffix("-v4")]
            if not reference.std or ours.std() == 0:
                outcome_left.append(cell.key.task)
                continue
            y.append((ours.mean() - reference.score) / abs(way))
            v.append((ours.var(ddof=1) / len(ours) + reference.std**2 / (reference.n - 1)) / way**2)
        assert row.meta == pytest.approx(metafor(np.array(y), np.array(v)))
        assert (len(row.keys), list(row.left_out)) == (len(y), outcome_left)


def test_unfinished_cells_and_cells_of_two_origins_are_not_pooled(mujoco_cells: tuple[Cell, ...]) -> None:
    def rows(group: list[Cell], kind: Kind = "full") -> list[tuple[str, int]]:
        return [(row.origin, len(row.keys)) for row in pooled_rows(group) if row.kind == kind]

    (ppo,) = (row for row in pooled_rows(mujoco_cells) if (row.algorithm, row.kind) == ("ppo", "full"))
    group = [cell for cell in mujoco_cells if cell.key in ppo.keys]
    count = len(group)
    assert rows([replace(group[0], unfinished=1), *group[1:]]) == [(group[0].origin, count - 1)]
    ((origin, pooled_cells),) = rows(group, "at")
    index = next(place for place, cell in enumerate(group) if cell.at is not None and cell.at.test is not None)
    one_conflicting = [replace(cell, conflicting=int(place == index)) for place, cell in enumerate(group)]
    assert rows(one_conflicting, "at") == [(origin, pooled_cells - 1)]
    both = [replace(cell, origin=origin) for origin in ("own", "rlbench") for cell in group]
    assert rows(both) == [("own", count), ("rlbench", count)]


def test_algorithm_can_be_below_without_a_single_cell_below() -> None:
    effects = [Effect(-0.25 + 0.01 * k, 0.0225) for k in range(6)]
    assert all(effect.difference + 1.96 * effect.variance**0.5 > 0 for effect in effects)
    tasks_left = ("InvertedPendulum-v4",)
    meta = meta_analysis(effects)._replace(tau=0.5)
    row = Pooled(suite="mujoco", algorithm="ppo", kind="full", keys=(), left_out=tasks_left, meta=meta)
    assert row.word == "BELOW"
    assert str(row).endswith("(τ 50.0, Q 0.1 with 5 df); not pooled, for want of a spread: InvertedPendulum-v4")
