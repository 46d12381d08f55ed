"""Parity with another library: hand computations, formats, and the committed table."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from rlbench import suites
from rlbench.cli.app import main
from rlbench.report import parity
from rlbench.report.cells import every_cell
from rlbench.report.equal_steps import ReferenceCurve, ReferencePoint
from rlbench.report.parity import Parity, parity_note, parity_plain, parity_rows, pooled_parity
from rlbench.report.pooled import Effect, meta_analysis
from rlbench.report.reference_table import CellKey, scale_of
from rlbench.report.run_index import gather, with_imported
from tests.commands import stderr_of, stdout_of
from tests.conftest import Patch, RecordRun, RecordSeeds
from tests.report.conftest import RESULTS

TASK = "Swimmer-v4"
Rows = Callable[..., list[Parity]]


def peer(path: Path, scores: Sequence[float], *, task: str = TASK, first: int = 0, **lists: Sequence[Any]) -> None:
    """Import a curve per seed from ``first`` on: its score at 30,000, 60,000 … steps, to 90,000 or to its end."""
    ends, settings, library = (lists.get(name, ()) for name in ("ends", "settings", "library"))
    cell = {"peer": library[0] if library else "lib 1", "suite": "mujoco", "algorithm": "a2c", "task": task}
    lines = [
        {**cell, "seed": first + seed, "settings": settings[seed] if settings else "", "steps": step}
        | {"returns": [score if step > 1 else step], "mujoco": "3", "differences": ["x: 1"]}
        for seed, score in enumerate(scores)
        for step in (0, 1, *range(30_000, (ends[seed] if ends else 90_000) + 1, 30_000))
    ]
    (path / "peer.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["import", str(path / "peer.jsonl"), "--results", str(path / "results")]) == 0


@pytest.fixture
def rows(record_seeds: RecordSeeds, tmp_path: Path) -> Rows:
    """Makes the row of A2C on Swimmer from one score per seed of ours, to 90,000 steps, and of the peer's."""

    def make(ours: Sequence[float], theirs: Sequence[float], **words: Sequence[Any]) -> list[Parity]:
        cell = {"suite": "mujoco", "algo": "a2c", "task": TASK, "status": "interrupted"}
        record_seeds(*([0.0, *[score] * 3] for score in ours), **cell, environment={"packages": {"mujoco": "3.3.7"}})
        peer(tmp_path, theirs, **words)
        return parity_rows(with_imported(gather(tmp_path / "results"), tmp_path / "results"), ["mujoco"])

    return make


def test_parity_row_equals_a_hand_computation(rows: Rows) -> None:
    (row,) = rows([10.0, 14.0, 18.0], [20.0, 22.0, 24.0])
    assert (row.key.task, row.step, row.ours, row.peer) == (TASK, 90_000, (10, 14, 18), (20, 22, 24))
    error, degrees = math.sqrt(16 / 3 + 4 / 3), 2  # Welch: (20 / 3)² / ((16 / 3)² / 2 + (4 / 3)² / 2) = 2.94
    assert row.difference == -8
    assert row.interval == pytest.approx((-8 - 4.302653 * error, -8 + 4.302653 * error), abs=1e-5)
    scale = scale_of(row.key)
    assert row.distance == pytest.approx(row.reference.mean - scale.random)
    assert row.bound_percent == pytest.approx(100 * (8 + stats.t.ppf(0.95, degrees) * error) / row.distance)
    assert row.peer_difference == pytest.approx(22 - row.reference.mean)
    assert (row.library, row.packages, row.differences) == ("lib 1", ("mujoco 3",), ("x: 1",))


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ((20.0, 20.1, 20.2), (20.0, 20.1, 20.2), "ON PAR"),
        ((5.0, 5.1, 5.2), (20.0, 20.1, 20.2), "WORSE"),
        ((40.0, 40.1, 40.2), (20.0, 20.1, 20.2), "BETTER"),
        ((0.0, 20.0, 40.0), (0.0, 20.0, 40.0), "OPEN"),
        ((20.0, 20.1, 20.2), (20.0, 20.1), "OPEN"),
    ],
)
def test_verdict_of_a_parity_row(ours: Sequence[float], theirs: Sequence[float], word: str, rows: Rows) -> None:
    (row,) = rows(ours, theirs)
    assert row.word == word


def test_a_failed_seed_counts_at_the_random_policys_score(rows: Rows, record_run: RecordRun) -> None:
    record_run([50.0], suite="mujoco", algo="a2c", task=TASK, seed=9, status="failed")
    (row,) = rows([20.0, 20.1, 20.2], [20.0, 20.1, 20.2])
    scale = scale_of(row.key)
    assert scale is not None and row.ours == (20.0, 20.1, 20.2, scale.random) and row.word == "OPEN"


def test_a_failed_seed_counts_where_no_distance_is_known(rows: Rows, record_run: RecordRun, monkeypatch: Patch) -> None:
    monkeypatch.setattr(ReferenceCurve, "has_risen", lambda self, step: False)
    record_run([50.0], suite="mujoco", algo="a2c", task=TASK, seed=9, status="failed")
    (row,) = rows([20.0, 20.1, 20.2], [20.0, 20.1, 20.2])
    scale = scale_of(row.key)
    assert scale is not None and (row.ours[3:], row.word) == ((scale.random,), "")
    monkeypatch.setattr(parity, "scale_of", lambda key: None)
    (row,) = rows([], [20.0, 20.1, 20.2])
    assert (len(row.ours), row.left_out) == (3, ("1 failed run of rlbench",))


def test_a_seed_with_a_second_record_leaves_parity_open(rows: Rows, record_run: RecordRun, tmp_path: Path) -> None:
    for seed in range(3):
        for score in (20.0, 19.0):  # the second is of a whole run with other numbers
            folder = record_run([0.0, *[score + seed / 10] * 3], suite="mujoco", algo="a2c", task=TASK, seed=seed)
            (tmp_path / "results" / f"{score}").mkdir(exist_ok=True)
            folder.rename(tmp_path / "results" / f"{score}" / folder.name)
    record_run([50.0], suite="mujoco", algo="a2c", task=TASK, seed=9, status="failed")
    (row,) = rows([], [20.0, 20.1, 20.2])
    assert len(row.ours) == 4, "with the failed seed"
    assert (row.word, pooled_parity([row, row])) == ("OPEN", [])
    assert row.left_out == ("second records of 3 seeds of rlbench",)


@pytest.mark.parametrize("end", [990_000, 840_000])
def test_unfinished_seeds_beside_finished_ones_leave_parity_open(
    end: int, record_seeds: RecordSeeds, record_run: RecordRun, results: Path, tmp_path: Path
) -> None:
    cell = {"suite": "mujoco", "algo": "a2c", "task": TASK}
    record_seeds(*([0.0, *[20.0 + 0.1 * seed] * 33] for seed in range(3)), **cell)
    peer(tmp_path, [20.0, 20.1, 20.2], ends=[end] * 3)
    words = []
    for seed, means, versions in ((None, [], None), (5, [0.0], "test/later"), (3, [], None), (4, [0.0], None)):
        if seed is not None:
            environment = {"env": {"env": versions}} if versions else {}
            record_run(means, seed=seed, status=None, environment=environment, **cell)
        (row,) = parity_rows(with_imported(gather(results), results), ["mujoco"])
        words.append((row.word, row.distance is None, row.left_out))
    below, later = "{} of rlbench below the step".format, "1 run of rlbench in other versions of the environment"
    assert words == [
        ("ON PAR", False, ()),
        ("OPEN", True, (later,)),
        ("OPEN", True, (later, below("1 seed"))),
        ("OPEN", True, (later, below("2 seeds"))),
    ]


def test_a_whole_and_a_shorter_curve_of_a_seed_count_once(rows: Rows, tmp_path: Path) -> None:
    rows([20.0, 20.1, 20.2], [20.0, 20.1])
    (tmp_path / "results").rename(tmp_path / "whole")
    rows([20.0, 20.1, 20.2], [20.0, 20.1], ends=[60_000, 60_000])
    (tmp_path / "whole").rename(tmp_path / "results" / "whole")
    (row,) = parity_rows(with_imported(gather(tmp_path / "results"), tmp_path / "results"), ["mujoco"])
    assert (row.step, row.peer, row.word) == (90_000, (20.0, 20.1), "OPEN")
    assert row.left_out == ("curves of a seed that has another one",)


def test_step_is_the_last_common_evaluation_of_the_peers_curves(rows: Rows) -> None:
    (row,) = rows([20.0, 21.0, 22.0], [20.0, 21.0, 22.0], ends=[90_000, 60_000, 90_000])
    assert row.step == 60_000


def test_curves_of_other_settings_environments_and_libraries_are_left_out(
    rows: Rows, record_run: RecordRun, tmp_path: Path
) -> None:
    for seed, env in ((3, "test/env"), (4, "test/later")):
        run = {"suite": "mujoco", "algo": "a2c", "task": TASK, "status": "interrupted"}
        record_run([0.0, 1.0], **run, seed=seed, environment={"env": {"env": env}})
    settings = [suites.spec("mujoco", "a2c", TASK).id, "0123456789ab", "", ""]
    rows([20.0, 21.0, 22.0], [20.0, 99.0, 21.0, 22.0], settings=settings)
    peer(tmp_path, [98.0], task="Swimmer-v5", first=10)
    peer(tmp_path, [97.0, 96.0], library=["lib 2"], first=20)
    peer(tmp_path, [20.0, 21.0], first=30)  # copies of seeds 0 and 2
    (row,) = parity_rows(with_imported(gather(tmp_path / "results"), tmp_path / "results"), ["mujoco"])
    assert (row.library, row.peer) == ("lib 1", (20, 21, 22))
    left_out = "left out are curves of settings 0123456789ab, curves of Swimmer-v5, curves of lib 2, "
    left_out += "curves of another seed (copies), 1 run of rlbench in other versions of the environment, "
    left_out += "1 seed of rlbench below the step"
    for text in ("rlbench ran with mujoco 3.3.7", "curves do not state settings", left_out):
        assert f"{text}." in parity_plain([row])


def test_one_seed_on_a_side_gives_no_row(rows: Rows) -> None:
    assert rows([20.0], [20.0, 21.0]) == []


@pytest.mark.parametrize(("digest", "count"), [("a" * 64, 1), ("b" * 64, 0)])
def test_offline_parity_rows_use_one_file(digest: str, count: int, record_seeds: RecordSeeds, tmp_path: Path) -> None:
    cell = {"suite": "offline", "algorithm": "cql", "task": "rlb-hopper-medium"}
    words = {"suite": "offline", "algo": "cql", "task": "rlb-hopper-medium", "status": "interrupted"}
    record_seeds(*([0.0, 1.0, 10.0 + seed] for seed in range(3)), **words, data={"sha256": "a" * 64})
    lines = [
        {"peer": "lib 1", **cell, "seed": seed, "steps": step, "returns": [12.0 + seed], "data": digest}
        for seed in range(3)
        for step in (5_000, 10_000)
    ]
    (tmp_path / "peer.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["import", str(tmp_path / "peer.jsonl"), "--results", str(tmp_path / "results")]) == 0
    rows = parity_rows(with_imported(gather(tmp_path / "results"), tmp_path / "results"), ["offline"])
    assert len(rows) == count
    if rows:
        assert (rows[0].key.dataset, rows[0].step, rows[0].reference) == ("rlb-hopper-medium", 10_000, None)
        scale = scale_of(rows[0].key)
        assert scale is not None and rows[0].distance == pytest.approx(13 - scale.random)  # to the peer


def parity_of(task: str, ours: Sequence[float], theirs: Sequence[float], reference: float) -> Parity:
    level = ReferencePoint(step=10, reference_step=10, mean=reference, std=3.0, n=10)
    return Parity(
        key=CellKey("mujoco", "a2c", task, ""), library="lib 1", packages=(), differences=(), step=1_000,
        ours=tuple(ours), peer=tuple(theirs), reference=level, distance=reference, test=None, word="OPEN",
    )  # fmt: skip


def test_pooled_parity_rows_equal_a_hand_computation() -> None:
    (whole,) = pooled_parity([parity_of("A", (8, 12), (18, 22), 40), parity_of("B", (30, 34), (31, 33), 80)])
    # variances of the means: 8 / 2 + 8 / 2 and 8 / 2 + 2 / 2; the document's error is 3² / 9 = 1
    assert whole.ours == pytest.approx(meta_analysis([Effect(-10 / 40, 8 / 1600), Effect(0, 5 / 6400)]))
    assert whole.peer == pytest.approx(meta_analysis([Effect(-20 / 40, 5 / 1600), Effect(-48 / 80, 2 / 6400)]))
    bounds = ((-0.3, 0.2), (0.11, 0.3), (0.09, 0.3), (-0.09, -0.01), (-0.3, -0.01))
    words = [whole._replace(ours=whole.ours._replace(low=low, high=high)).word for low, high in bounds]
    assert (whole.cells, words) == (2, ["OPEN", "BETTER", "ON PAR", "ON PAR", "WORSE"])


def test_runs_of_two_sources_are_not_pooled() -> None:
    rows = [parity_of("A", (8, 12), (18, 22), 40), parity_of("B", (30, 34), (31, 33), 80)]
    assert len(pooled_parity([replace(row, source="runs") for row in rows])) == 1
    without_effect = replace(rows[0], source="runs", distance=None)
    assert len(pooled_parity([*rows, without_effect])) == 1
    assert (
        pooled_parity([replace(row, source=source) for row, source in zip(rows, ("runs", "results"), strict=True)])
        == []
    )


def test_note_has_the_distances_below_the_reference() -> None:
    assert parity_note(parity_of("A", (8, 12), (18, 22), 40)) == (
        "at 1,000 steps rlbench 10.00 (2), lib 1 in this environment 20.00 (2), the reference 40.00; "
        "the library is 20.00 below it, rlbench 30.00; parity OPEN"
    )
    assert "below" not in parity_note(parity_of("A", (41, 43), (18, 22), 40))


def test_a_cell_below_its_reference_names_the_peer_or_is_not_answered(
    record_seeds: RecordSeeds, tmp_path: Path
) -> None:
    task = "InvertedDoublePendulum-v4"
    record_seeds(*([60.0, *[100.0 + seed] * 34] for seed in range(5)), suite="mujoco", algo="a2c", task=task)

    def note() -> str:
        cells = every_cell(["mujoco"], tmp_path / "results")
        return next(cell.note for cell in cells if cell.key[1:3] == ("a2c", task) and cell.verdict.word == "BELOW")

    assert "NOT ANSWERED" in note() and "`rlbench import FILE --as mujoco/a2c --results DIR`" in note()
    peer(tmp_path, [100.0, 101.0, 102.0], task=task, first=50)  # where the published curve has not risen
    assert "NOT ANSWERED" in note() and "parity untested" in note()
    shutil.rmtree(tmp_path / "results/mujoco/a2c" / task / "imported")
    peer(tmp_path, [100.0, 101.0, 102.0, 103.0], task=task, ends=[990_000] * 4)
    assert "NOT ANSWERED" not in note() and "at 990,000 steps rlbench 102.0 (5), lib 1" in note()


def test_every_format_holds_the_same_row(rows: Rows, results: Path) -> None:
    (row,) = rows([10.0, 14.0, 18.0], [20.0, 22.0, 24.0])
    words = ["table", "mujoco", "--parity", "--results", str(results), "--format"]

    def printed(style: str) -> str:
        return stdout_of([*words, style])

    assert "| a2c | Swimmer-v4 | 90,000 | 14.00 (3) | 22.00 (3) |" in printed("md")
    assert "Not equal in a2c: x: 1." in printed("rich")
    (cell,) = json.loads(printed("json"))["cells"]
    assert (cell["ours"], cell["peer"], cell["word"]) == ([10, 14, 18], [20, 22, 24], row.word)
    assert "choose --format rich, md, json" in stderr_of([*words, "latex"])
    assert "no such cell of mujoco has two runs" in stderr_of([*words, "md", "--task", "Hopper-v4"])
    assert "did you mean 'Hopper-v4'?" in stderr_of([*words, "md", "--task", "Hoper"])


def test_parity_without_curves_is_a_usage_error(results: Path) -> None:
    results.mkdir()
    error = stderr_of(["table", "mujoco", "--parity", "--results", str(results)])
    assert "no such cell of mujoco has two runs of rlbench and two curves" in error


def means_at(places: Sequence[int], steps: Sequence[int], returns: Sequence[float]) -> float:
    """The mean of the last return up to each place, a two-hundredth late at most."""
    return math.fsum(max((s, r) for s, r in zip(steps, returns, strict=True) if s <= 1.005 * p)[1] for p in places) / 3


def test_committed_parity_has_the_means_of_the_curves_and_epochs() -> None:
    """Read the JSON of every curve and epoch of A2C on Swimmer directly."""
    committed = (RESULTS / "tables/mujoco-parity.md").read_text(encoding="utf-8")
    folder, places = RESULTS / "mujoco/a2c/Swimmer-v4", (420_000, 450_000, 480_000)
    curves = [json.loads(path.read_text()) for path in folder.glob("imported/*/curve.json")]
    theirs = [means_at(places, curve["steps"], curve["returns"]) for curve in curves]
    ours = []
    for path in folder.glob("*/seed=*/epochs.jsonl"):
        epochs = [json.loads(line) for line in path.read_text().splitlines()]
        steps = [epoch["env_steps"] for epoch in epochs if epoch["evaluated"]]
        returns = [math.fsum(epoch["evaluated"]["returns"]) / 10 for epoch in epochs if epoch["evaluated"]]
        ours.append(means_at(places, steps, returns))
    assert len(theirs) == 5 and len(ours) == 10
    row = next(line for line in committed.splitlines() if line.startswith("| a2c | Swimmer-v4 | 480,000 |"))
    assert f"| {math.fsum(ours) / 10:.2f} (10) | {math.fsum(theirs) / 5:.2f} (5) |" in row
