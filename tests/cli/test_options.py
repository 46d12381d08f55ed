"""Options that no other test types, each through the command line."""

import json
from pathlib import Path

import pytest

from rlbench.cli import sweep
from rlbench.cli.app import main
from rlbench.cli.sweep import SweepOptions
from rlbench.datasets import minari
from tests.commands import json_of, stderr_of
from tests.conftest import Capture, Patch, RecordRun


@pytest.fixture
def elsewhere(record_run: RecordRun) -> None:
    """Runs of two algorithms, in a folder that is not the usual one."""
    for algo in ("dqn", "c51"):
        for seed in range(2):
            record_run([-0.6, 0.875], suite="toy", task="Catch", algo=algo, seed=seed)
    Path("results").rename("mine")


@pytest.mark.usefixtures("elsewhere")
def test_plot_uses_the_given_folder_and_algorithms() -> None:
    for name, words in {"both": [], "one": ["--algo", "dq*"], "none": ["--results", "nowhere"]}.items():
        line = ["plot", "toy", "--task", "Catch", "--output", f"{name}.svg", "--results", "mine", *words]
        assert main(line) == (2 if name == "none" else 0)
    both, one = (Path(f"{name}.svg").read_text(encoding="utf-8") for name in ("both", "one"))
    assert "c51" in both and "dqn" in both
    assert "c51" not in one and "dqn" in one


@pytest.mark.usefixtures("elsewhere")
def test_report_uses_the_given_folder() -> None:
    assert main(["report", "toy", "--output", "full.html", "--results", "mine"]) == 0
    assert main(["report", "toy", "--output", "empty.html"]) == 0
    full, empty = (Path(f"{name}.html").read_text(encoding="utf-8") for name in ("full", "empty"))
    assert "0.88" in full and "0.88" not in empty


def test_minaris_server_is_contacted_only_with_remote(monkeypatch: Patch) -> None:
    monkeypatch.setattr(minari, "remote_names", lambda: ["mujoco/hopper/strange-v0"])
    for words, there in (((), False), (("--remote",), True)):
        names = {row["name"]: row["kind"] for row in json_of(["data", "list", "--json", *words])["datasets"]}
        assert names.get("mujoco/hopper/strange-v0") == ("minari" if there else None)


def test_env_timeout_reaches_the_run_and_must_be_positive(monkeypatch: Patch) -> None:
    settings = []

    def take(_specs: object, options: SweepOptions) -> tuple[list[object], None]:
        settings.append(options.runtime.env_timeout)
        return [], None

    monkeypatch.setattr(sweep, "sweep", take)
    line = ["run", "toy", "dqn", "--task", "Catch", "--env-timeout"]
    assert main([*line, "2.5"]) == 0
    monkeypatch.setenv("RLBENCH_ENV_TIMEOUT", "1e400")  # without end
    assert main(line[:-1]) == 0
    assert settings == [2.5, float("inf")]
    assert "0.1" in stderr_of([*line, "0"])


def test_update_engine_and_eval_workers_reach_the_run(monkeypatch: Patch) -> None:
    settings = []

    def take(_specs: object, options: SweepOptions) -> tuple[list[object], None]:
        settings.append((options.runtime.update_engine, options.runtime.eval_workers))
        return [], None

    monkeypatch.setattr(sweep, "sweep", take)
    line = ["run", "toy", "dqn", "--task", "Catch"]
    assert main(line) == 0
    assert main([*line, "--update-engine", "cuda-graph", "--eval-workers", "2"]) == 0
    monkeypatch.setenv("RLBENCH_UPDATE_ENGINE", "eager")
    monkeypatch.setenv("RLBENCH_EVAL_WORKERS", "0")
    assert main(line) == 0
    assert settings == [("auto", None), ("cuda-graph", 2), ("eager", 0)]
    assert "cuda-graph" in stderr_of([*line, "--update-engine", "quick"])


def test_doctor_checks_the_disk_of_the_given_folder(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for words in (["--results", "mine"], ["--results", "mine/not/yet"]):
        main(["doctor", "toy", "--json", *words])
        rows = {row["what"]: row["detail"] for row in json.loads(capsys.readouterr().out)["findings"]}
        assert f"at {tmp_path / 'mine'}" in rows["disk"]
