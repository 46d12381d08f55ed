"""Exported curves are imported again without change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbench.cli.app import main
from rlbench.records import imported
from tests.commands import json_of, stderr_of
from tests.conftest import RecordRun

MEANS = {0: (1.0 / 3.0, 20.5, 7.25), 1: (-1.0, 1e-17, 1e5), 2: (0.1, 0.2, 0.3)}


@pytest.fixture
def results(record_run: RecordRun, tmp_path: Path) -> Path:
    for seed, means in MEANS.items():
        record_run(means, suite="toy", algo="dqn", task="Catch", seed=seed)
    record_run((5.0, 6.0), suite="toy", algo="ppo", task="CartPole-v1", seed=0)
    return tmp_path / "results"


def export(form: str, results: Path, file: Path, *names: str) -> bytes:
    assert main(["export", form, *names, "--results", str(results), "--output", str(file)]) == 0
    return file.read_bytes()


def test_tidy_table_round_trips_to_the_bit(results: Path, tmp_path: Path) -> None:
    first = export("csv", results, tmp_path / "a.csv")
    assert first.decode().splitlines()[:2] == [
        "suite,algo,task,dataset,seed,step,return,length,kind,origin",
        "toy,dqn,Catch,,0,0,0.33333333333333326,10.0,evaluation,rlbench",
    ]
    assert main(["import", str(tmp_path / "a.csv"), "--results", str(tmp_path / "again")]) == 0
    assert export("csv", tmp_path / "again", tmp_path / "b.csv") == first.replace(b",rlbench\n", b",imported\n")


def test_score_matrices_round_trip(results: Path, tmp_path: Path) -> None:
    first = export("npz", results, tmp_path / "a.npz", "toy")
    assert main(["import", str(tmp_path / "a.npz"), "--results", str(tmp_path / "again")]) == 0
    assert export("npz", tmp_path / "again", tmp_path / "b.npz", "toy") == first
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["toy/tasks"].tolist() == ["CartPole-v1", "Catch"]
        assert arrays["toy/dqn/seeds"].tolist() == [0, 1, 2]
        assert arrays["toy/dqn"][:, 1].tolist() == pytest.approx([max(means) for means in MEANS.values()])
        assert np.isnan(arrays["toy/dqn"][:, 0]).all()


def test_event_files_round_trip(results: Path, tmp_path: Path) -> None:
    assert main(["export", "tensorboard", "toy", "--results", str(results), "--output", str(tmp_path / "board")]) == 0
    assert main(["import", str(tmp_path / "board" / "toy" / "dqn"), "--as", "toy/dqn", "--task", "Catch", "--results",
                 str(tmp_path / "again")]) == 0  # fmt: skip
    curves = sorted(
        (imported.read_curve(f) for f in imported.curve_folders(tmp_path / "again")), key=lambda curve: curve.seed
    )
    assert [curve.returns for curve in curves] == [pytest.approx(means, rel=1e-6, abs=1e-6) for means in MEANS.values()]


@pytest.mark.parametrize(
    ("form", "record", "note"),
    [
        ("csv", {"status": "failed"}, "1 failed run: tables score it as a random policy, an import does not"),
        ("npz", {"status": "interrupted"}, "1 run short of the budget: left out"),
        (
            "csv",
            {"environment": {"env": {"env": "test/later"}}},
            "1 run in other versions of the environment: left out",
        ),
        ("npz", {"sets": ["algo.lr=0.5"]}, "1 run of other settings: left out"),
    ],
)
def test_runs_that_an_export_cannot_describe_are_counted(
    form: str, record: dict[str, Any], note: str, results: Path, record_run: RecordRun
) -> None:
    record_run((0.5,), suite="toy", algo="dqn", task="Catch", seed=9, **record)
    words = ["export", form, "--results", str(results), "--output", str(results.parent / "x")]
    assert stderr_of(words, 0) == f"{note}\n"


@pytest.mark.parametrize("form", ["csv", "npz"])
def test_an_unknown_suite_and_a_folder_that_is_a_file_are_refused(form: str, results: Path, tmp_path: Path) -> None:
    line: Sequence[str] = ["export", form, "--results", str(results), "--output", str(tmp_path / "x")]
    assert "did you mean 'toy'" in stderr_of([*line, "tyo"])
    words = ["export", "npz", "--json", "--results", str(results), "--output", str(tmp_path / "x.npz")]
    assert json_of(words)["count"] == 2
