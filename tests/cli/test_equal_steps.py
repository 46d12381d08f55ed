"""Equal steps on the command line: the gate, pooled rows, and the price of the first informative checkpoint."""

import json
from pathlib import Path

import pytest

from rlbench.cli.app import main
from tests.commands import json_of
from tests.conftest import Capture, RecordRun


@pytest.mark.parametrize(("level", "word"), [(0.0, "TOO EARLY"), (1.0, "TOO EARLY"), (-2000.0, "BEHIND")])
def test_check_gates_at_equal_steps(
    level: float, word: str, record_run: RecordRun, tmp_path: Path, capsys: Capture
) -> None:
    lengths = {0.0: [1] * 3, 1.0: [2] * 3 + [3] * 3}.get(level, [21] * 3)  # epochs: 0, 5,000, 10,000, 100,000 steps
    for seed, epochs in enumerate(lengths):
        means = [level + seed % 3] * epochs
        record_run(means, suite="mujoco", algo="sac", task="HalfCheetah-v4", seed=seed, status="interrupted")
    where = ["--results", str(tmp_path / "results"), "--json"]
    assert main(["check", "mujoco", "--at", *where]) == (3 if word == "BEHIND" else 0)
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert word in {finding["word"] for finding in findings if finding["algorithm"] == "sac"}
    assert main(["check", "mujoco", "--pooled", *where]) == 0


def test_plan_prices_the_first_informative_checkpoint(tmp_path: Path) -> None:
    rows = {
        row["task"]: row for row in json_of(f"plan mujoco sac --at informative --json --results {tmp_path}")["include"]
    }
    assert (rows["HalfCheetah-v4"]["until"], rows["HalfCheetah-v4"]["steps"]) == (50_000, 500_000)
