"""`scripts/gpu_check` on a machine without a GPU."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import TINY, check, main
from benchmarks.report import SCHEMA
from benchmarks.rigs import CELLS
from rlbench import suites
from rlbench.errors import UsageError


def test_gpu_check_without_a_gpu_prints_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu", "--output", str(tmp_path / "x.json")])
    assert main() == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "no CUDA GPU" in output.err
    assert not list(tmp_path.iterdir())


def test_a_rehearsal_writes_a_report_that_calls_nothing_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "LOOPS", {"mujoco/td3": 25.0})
    monkeypatch.setattr(gpu, "LEARN", ("il",))
    monkeypatch.setattr(gpu, "VALUES", ())
    monkeypatch.setattr(gpu, "TINY", TINY._replace(cells=CELLS[:1]))
    path = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["gpu", "--rehearse", "--output", str(path)])
    assert main() == 0
    checks = json.loads(path.read_text())
    assert checks["schema"] == SCHEMA
    assert [(row["ran"], row["within"], row["worst"]) for row in checks["parity"]] == [
        ("eager: no CUDA GPU", True, 0.0)
    ]
    assert {row["subject"] for row in checks["figures"]} == {"eager"}
    assert {row["workload"] for row in checks["figures"]} == {"loop mujoco/td3", "updates offline/il"}
    assert checks["minutes"] == {}
    assert "no CUDA GPU" in checks["skipped"]["loop mujoco/td3 cuda-graph"]


def test_checks_beyond_the_time_limit_are_named_and_skipped() -> None:
    checks = check(TINY, 0.0)
    assert (checks["figures"], checks["parity"]) == ([], [])
    names = {f"loop {engine} {name}" for name in gpu.LOOPS for engine in ("cuda-graph", "eager")}
    assert names <= set(checks["skipped"])


ROW = {"cell": "a/b/c", "engine": "cuda-graph", "ran": "cuda-graph", "within": True}


@pytest.mark.parametrize(
    ("rows", "broken", "code"),
    [([ROW], [], 0), ([ROW, {**ROW, "within": False}], [], 1), ([ROW], ["loop cuda-graph atari/dqn"], 1), ([], [], 1)],
)
def test_gpu_check_fails_if_an_engine_differs_breaks_or_is_not_compared(
    rows: list[object], broken: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"parity": rows, "skipped": {}, "broken": broken}
    monkeypatch.setattr(gpu, "check", lambda *_, speeds: report if not speeds else {})
    monkeypatch.setattr("sys.argv", ["gpu", "--rehearse", "--parity", "--output", str(tmp_path / "x.json")])
    assert main() == code


@pytest.mark.parametrize(
    ("cause", "broken"), [(None, True), (ImportError("libGL.so.1"), True), (ModuleNotFoundError(), False)]
)
def test_failing_check_does_not_stop_the_others(
    cause: ImportError | None, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def parity(cell: str, _: object) -> object:
        names.append(cell)
        raise UsageError(f"{cell}: refused") from cause

    monkeypatch.setattr(gpu, "parity", parity)
    checks = check(TINY, 100.0, speeds=False)
    assert names == list(TINY.cells)
    assert list(checks["skipped"]) == [f"parity cuda-graph {cell}" for cell in TINY.cells]
    assert checks["broken"] == (list(checks["skipped"]) if broken else [])
    assert checks["figures"] == []


def test_every_off_policy_algorithm_is_compared_with_eager_updates() -> None:
    cells = {(cell.split("/")[0], cell.split("/")[1]) for cell in CELLS}
    names = {name for _, name in cells}
    for suite in suites.names():
        for algorithm in suites.algorithms(suite):
            rollouts = algorithm.partition("+")[0] in {"ppo", "a2c", "reinforce", "npg", "trpo"}
            assert rollouts or algorithm in names or algorithm == "td3bc-raw", (suite, algorithm)
