"""R9: no failed, partial, smoke or foreign run raises a cell's score, and no failed seed leaves n."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench import suites
from rlbench.cli.resolve import resolve
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec
from rlbench.records.types import Status
from rlbench.report import cells
from rlbench.report.cells import Cell, every_cell
from rlbench.report.reference_scores import reference_cells
from rlbench.report.reference_table import CellKey, row_of
from rlbench.report.run_index import group_runs
from rlbench.report.runs import Evaluation, Run
from tests.conftest import Patch, RecordSeeds
from tests.slow import slow_but

CELLS = (
    ("toy", "dqn", "Catch"),  # against an optimum
    ("mujoco", "ppo", "Hopper-v4"),  # against ten documented seeds
    ("atari", "dqn", "BreakoutNoFrameskip-v4"),  # against a single run
    ("mujoco", "ppo", "Swimmer-v4"),  # a spread that reaches the random policy
)
ORDER = ("NOT RUN", "BELOW", "INCONCLUSIVE", "CONSISTENT", "REPRODUCED", "ABOVE")
WORDS = ("NOT COMPARABLE", "PARTIAL")
"""The words where nothing was measured by the reference's protocol; neither better nor worse."""

Curve = list[float]


def run_of(spec: Spec, means: Curve, status: Status, folder: str, share: float = 1.0) -> Run:
    """A run as it would be read: evaluations evenly over its ``share`` of the budget."""
    last = max(1, len(means) - 1)
    steps = [int(share * spec.budget.steps) * i // last for i in range(len(means))]
    return Run(
        folder=Path(folder),
        suite=spec.suite,
        algorithm=spec.algorithm,
        task=spec.task.id,
        dataset="",
        seed=spec.seed,
        id=spec.id,
        smoke=spec.smoke,
        budget=spec.budget.steps,
        settings=spec.model_dump(mode="json"),
        environment={},
        evaluations=tuple(Evaluation(step, 0.0, mean) for step, mean in zip(steps, means, strict=True)),
        speeds=(),
        env_steps=steps[-1] if steps else 0,
        seconds=1.0,
        status=status,
        reason="",
    )  # fmt: skip


@cache
def spec_of(name: tuple[str, str, str], seed: int, *changes: str) -> Spec:
    return apply_settings(suites.spec(*name, seed=seed), [parse(text) for text in changes])


def cell_of(name: tuple[str, str, str], runs: list[Run], monkeypatch: Patch) -> Cell:
    """The cell as the table has it, among all others that were not run."""
    key = CellKey(name[0], name[1], *row_of(name[0], name[2], ""))
    with monkeypatch.context() as patch:
        patch.setattr(cells, "gather", lambda _: group_runs(runs))
        return next(cell for cell in every_cell([name[0]], Path("none")) if cell.key == key)


def spread_of(name: tuple[str, str, str]) -> tuple[float, float]:
    """A score about the document's, and how far others lie from it."""
    key = CellKey(name[0], name[1], *row_of(name[0], name[2], ""))
    score = next(cell.primary.score for cell in reference_cells(name[0]) if cell.key == key)
    return score, max(abs(score), 1.0)


curves = st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=4)  # in the document's own size about it
SEEDS = st.lists(curves, min_size=0, max_size=6)
KINDS = ("failed", "failed early", "interrupted", "shorter", "smoke", "elsewhere", "variant")


def with_record(name: tuple[str, str, str], kind: str, seed: int, means: Curve) -> Run:
    """A run that is no full one of the documented settings."""
    spec, folder = spec_of(name, seed), f"x/{kind}/{seed}"
    if kind.startswith("failed"):
        return run_of(spec, [] if kind == "failed early" else means, "failed", folder)
    if kind == "interrupted":
        return run_of(spec, means, "interrupted", folder, 0.9)
    changes = {
        "shorter": f"budget.steps={max(1, spec.budget.steps // 2)}",
        "elsewhere": f"protocol.episodes={2 * spec.protocol.episodes}",
        "variant": "algo.gamma=0.5",
    }
    other = resolve(*name, seed=seed, smoke=True).spec if kind == "smoke" else spec_of(name, seed, changes[kind])
    return run_of(other, means, "done", folder)


def no_better(before: Cell, after: Cell) -> bool:
    """True unless the verdict has risen; a cell without a verdict has nothing to rise from."""
    old, new = before.verdict.word, after.verdict.word
    if old in WORDS or new in WORDS:
        return new in {*WORDS, "NOT RUN", "INCONCLUSIVE", "BELOW"} or old == new
    return ORDER.index(new) <= max(ORDER.index(old), ORDER.index("INCONCLUSIVE") if old == "NOT RUN" else 0)


@pytest.mark.parametrize("name", slow_but([(cell,) for cell in CELLS], 0, 2), ids="/".join)
def test_partial_runs_never_raise_a_score_and_failed_seeds_stay_in_n(
    name: tuple[str, str, str], monkeypatch: Patch
) -> None:
    centre, width = spread_of(name)

    @settings(max_examples=100)
    @given(SEEDS, st.lists(st.tuples(st.sampled_from(KINDS), curves), min_size=1, max_size=3))
    def holds(done: list[Curve], more: list[tuple[str, Curve]]) -> None:
        def clipped(curve: Curve) -> Curve:
            return [centre + width * value for value in curve]

        full = [
            run_of(spec_of(name, seed), clipped(curve), "done", f"x/done/{seed}") for seed, curve in enumerate(done)
        ]
        others = [with_record(name, kind, 100 + i, clipped(curve)) for i, (kind, curve) in enumerate(more)]
        failed = sum(kind.startswith("failed") for kind, _ in more)
        before, after = cell_of(name, full, monkeypatch), cell_of(name, [*full, *others], monkeypatch)
        assert no_better(before, after), (before.verdict, after.verdict)
        if before.measured is not None and after.measured is not None:
            assert after.measured.n == len(full) + failed
            assert after.measured.score <= before.measured.score + 1e-9 * width
        if failed and after.measured is not None:
            assert after.measured.n == len(full) + failed
            assert f"{failed} of {len(full) + failed}" in after.note
        short = sum(kind in {"interrupted", "shorter"} for kind, _ in more)
        if short and (full or failed):
            assert f"{short} run" in after.note and "incomplete" in after.note, "reported"
            assert after.verdict.word in {"BELOW", "INCONCLUSIVE", "NOT COMPARABLE"}, "they may be the bad ones"
        if failed and not full:
            assert after.verdict.word in {"INCONCLUSIVE", "BELOW", "NOT COMPARABLE"}, "failures alone are no success"

    holds()


def test_survivorship_rules_hold_for_records_on_disk(record_seeds: RecordSeeds, results: Path) -> None:
    """Through the real files: three seeds that reached the optimum, one that failed high, one smoke run above it."""
    catch = {"suite": "toy", "task": "Catch"}

    def cell() -> Cell:
        return next(c for c in every_cell(["toy"], results) if c.key.algorithm == "dqn" and c.key.task == "Catch")

    record_seeds(*[[1.0, 1.0]] * 3, **catch)
    assert (cell().verdict.word, cell().measured and cell().measured.n) == ("REPRODUCED", 3)
    before = cell()
    record_seeds([50.0, 50.0], start=7, sets=["smoke=true"], **catch)
    assert cell() == before, "a smoke run leaves no trace"
    record_seeds([50.0, 50.0], start=3, status="failed", **catch)
    row = cell()
    assert row.measured is not None and row.measured.n == 4
    assert row.measured.score < 1.0
    assert row.verdict.word in {"INCONCLUSIVE", "BELOW"}
