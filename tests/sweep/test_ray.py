"""The sweep on a Ray cluster of several nodes on this machine; runs where Ray is installed (see CONTRIBUTING.md)."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlbench.records.epochs import scores
from rlbench.records.store import read_record
from rlbench.sweep import ray as engine
from tests.commands import tiny_run

ROOT = Path(__file__).parents[2]
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "memory": 2_000_000_000}
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")


def records(results: Path) -> dict[int, tuple[object, ...]]:
    records = [read_record(path.parent) for path in sorted(results.glob("toy/dqn/Catch/*/seed=*/spec.json"))]
    return {
        r.spec.seed: (r.spec.id, [scores(e) for e in r.epochs], r.outcome and (r.outcome.status, r.outcome.weights))
        for r in records
    }


def begun(results: Path) -> int:
    logs = results.glob("toy/dqn/Catch/*/seed=*/attempts.jsonl")
    return sum(path.read_text().count('"event":"begun"') for path in logs)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # the test waits for them
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - an extra

    ray_cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    yield ray_cluster
    ray_cluster.shutdown()


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_ray_sweep_survives_a_lost_node_and_equals_the_local_records(cluster: object, tmp_path: Path) -> None:
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    results = tmp_path / "ray"
    more = ("--seeds", "0-5", "--executor", "ray", "--ray-address", cluster.address, "--json")
    process = subprocess.Popen(tiny_run(results, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while begun(results) < 3 and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.2)
    cluster.remove_node(nodes[0], allow_graceful=False)
    cluster.add_node(**NODE)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert [row["status"] for row in json.loads(out)["runs"]] == ["done"] * 6
    assert "lost" in err, "the node that was removed had nothing to do"
    assert not list(results.glob(".sweep-*"))
    local = tmp_path / "local"
    subprocess.run(tiny_run(local, "--seeds", "0-5", "--jobs", "2", "--quiet"), check=True, stdout=subprocess.DEVNULL)
    assert records(results) == records(local)


UNSHARED = """
import sys
from pathlib import Path
from rlbench.cli.app import main
from rlbench.sweep import ray
run_job = ray.run_job
def unshared(job, command, marker):
    yield from run_job(job, command, Path("/nowhere"))
ray.run_job = unshared
sys.exit(main(sys.argv[1:]))
"""


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_a_machine_that_does_not_see_the_results_folder_is_named_in_one_line(cluster: object, tmp_path: Path) -> None:
    more = ("--seeds", "0-1", "--executor", "ray", "--ray-address", cluster.address, "--quiet")
    command = [sys.executable, "-c", UNSHARED, *tiny_run(tmp_path, *more)[3:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 2, done.stderr
    assert f"--results {tmp_path}: " in done.stderr and "does not see this folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is here")
def test_without_ray_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        tiny_run(tmp_path / "none", "--executor", "ray"), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert engine.INSTALL in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "none").exists()
