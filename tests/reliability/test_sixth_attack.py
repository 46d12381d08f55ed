"""A sixth attack: second records, forced runs, other data and longer curves that lift a score."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

from rlbench import suites
from rlbench.config.tasks import GymnasiumTask
from rlbench.envs.external import external_vector
from rlbench.envs.gymnasium import GymnasiumVector
from rlbench.envs.mujoco import MujocoVector
from rlbench.errors import UsageError
from rlbench.records import imported
from rlbench.report.figure_style import rc_settings
from tests.commands import run_command, stderr_of, stdout_of
from tests.conftest import RecordRun
from tests.reliability.test_forged_records import full_run
from tests.reliability.test_hostile_curves import CURVE

HOPPER = {"suite": "offline", "algo": "td3bc", "task": "hopper-medium-v2"}


def score_and_seeds(results: Path, suite: str, algorithm: str, task: str) -> tuple[float, int]:
    """Score and number of seeds of a cell."""
    cells = json.loads(stdout_of(["table", suite, "--json", "--results", str(results)]))["cells"]
    key = (algorithm, task)
    (row,) = [row for row in cells if (row["algorithm"], row["dataset"] or row["task"]) == key and row["measured"]]
    return row["measured"]["score"], row["measured"]["n"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_record_with_a_lower_maximum_lifts_no_last_evaluation(record_run: RecordRun, results: Path) -> None:
    budget = suites.spec("offline", "td3bc", "hopper-medium-v2").budget
    between = -(-budget.steps // budget.epoch) - 1
    for last, maximum in ((100.0, 1_500.0), (1_400.0, 1_400.0)):
        folder = record_run([0.0, *[maximum] * between, last], **HOPPER)
        assert score_and_seeds(results, "offline", "td3bc", "hopper-medium-v2")[0] == pytest.approx(3.695, abs=0.01)
        folder.parent.rename(folder.parent.with_name(f"aside{last}"))


def test_a_forced_run_counts_as_failed_where_its_last_process_failed(record_run: RecordRun, results: Path) -> None:
    old, new = {"python": "3.11"}, {"python": "3.12"}
    for status, environment in (("interrupted", old), ("failed", new)):  # resumed by a newer Python, then failed
        record_run([0.0, 0.0], suite="toy", algo="ppo", task="Catch", status=status, environment=environment)
    full_run(record_run, 1.0, 0, environment=new, force=True)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (-0.6, 1)
    full_run(record_run, 1.0, 0, environment=old, force=True)
    assert score_and_seeds(results, "toy", "ppo", "Catch") == (1.0, 1)
    assert "FAILED" not in stderr_of(["check", "toy", "--results", str(results)], 0)


def test_a_strict_check_names_seeds_on_other_data(record_run: RecordRun, results: Path) -> None:
    budget = suites.spec("offline", "td3bc", "hopper-medium-v2").budget
    epochs = -(-budget.steps // budget.epoch)
    baseline = str(results.with_name("b.json"))
    for seed in range(5):
        good = seed < 3
        record_run([0.0] * epochs + [2_000.0 * good + seed], seed=seed, data={"sha256": str(good) * 8}, **HOPPER)
        if seed == 2:
            assert run_command(["baseline", "save", baseline, "--results", str(results)])[0] == 0
    check = ["check", "offline", "--baseline", baseline, "--results", str(results)]
    assert run_command(check)[0] == 0
    assert "2 runs on other data left out" in stdout_of([*check, "--strict"], 4)


def test_no_imported_evaluation_beyond_the_budget_counts(tmp_path: Path) -> None:
    budget = suites.spec("toy", "ppo", "Catch").budget.steps
    for seed in range(3):
        toy = replace(CURVE, suite="toy", algorithm="ppo", task="Catch", seed=seed)
        imported.write_curve(replace(toy, steps=(0, budget, 9 * budget), returns=(0.0, 0.1, 1.0 + seed)), tmp_path)
        imported.write_curve(replace(toy, seed=3 + seed, steps=(2 * budget,), returns=(1.0,)), tmp_path)
    assert score_and_seeds(tmp_path, "toy", "ppo", "Catch") == pytest.approx((0.1, 3))


def registered() -> GymnasiumVector:
    mujoco.set_mju_user_warning(None)
    task = GymnasiumTask(id="gym:Hopper-v5", package="gymnasium", version=gymnasium.__version__)
    envs = external_vector(task, seeds=(0,), training=True, make=None)
    assert isinstance(envs, GymnasiumVector)
    return envs


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("make", [lambda: MujocoVector(task="Hopper-v4", seeds=[0]), registered])
def test_a_warning_of_mujoco_is_written_through_no_link(make: Callable[[], GymnasiumVector]) -> None:
    Path("MUJOCO_LOG.TXT").symlink_to("precious")
    envs = make()
    envs.reset()
    (env,) = (env.unwrapped for env in envs.unwrapped())
    env.data.qvel[:] = np.inf
    with pytest.warns(UserWarning, match="The simulation is unstable"):
        env.do_simulation(np.zeros(3), 1)
    envs.close()
    assert not Path("precious").exists()


@pytest.mark.filterwarnings("always")
def test_a_setting_that_matplotlib_ignores_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--rc figure\.raise_window: .* not related to style.*; leave it out"):
        rc_settings(["font.size=8", "figure.raise_window=True"])
