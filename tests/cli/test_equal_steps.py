"""Equal steps on the command line: the gate, pooled rows, and the price of the first informative checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.cli.app import main

Record = Callable[..., Path]


@pytest.mark.parametrize(("level", "code", "word"), [(1.0, 0, "TOO EARLY"), (-2000.0, 3, "BEHIND")])
def test_check_gates_at_equal_steps(
    level: float, code: int, word: str, record_run: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = 2 if code == 0 else 21  # 5,000 and 100,000 steps
    for seed in range(3):
        means = [level + seed] * epochs
        record_run(means, suite="mujoco", algo="sac", task="HalfCheetah-v4", seed=seed, status="interrupted")
    if code == 0:
        for seed in range(3):
            record_run(
                [level + seed] * 3,
                suite="mujoco",
                algo="sac",
                task="HalfCheetah-v4",
                seed=seed + 3,
                status="interrupted",
            )
    where = ["--results", str(tmp_path / "results"), "--json"]
    assert main(["check", "mujoco", "--at", *where]) == code
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert word in {finding["word"] for finding in findings if finding["algorithm"] == "sac"}
    assert main(["check", "mujoco", "--pooled", *where]) == 0


def test_plan_prices_the_first_informative_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "mujoco", "sac", "--at", "informative", "--json", "--results", str(tmp_path)]) == 0
    rows = {row["task"]: row for row in json.loads(capsys.readouterr().out)["include"]}
    assert (rows["HalfCheetah-v4"]["until"], rows["HalfCheetah-v4"]["steps"]) == (50_000, 500_000)
