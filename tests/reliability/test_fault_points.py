"""R3: a process that dies at any write loses no recorded evaluation, and the same command repairs its traces."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbench import faults
from rlbench.report.integrity import verify_records
from tests.reliability.families import CATCH, SHORT
from tests.reliability.points import POINTS
from tests.reliability.run_one import epochs_of
from tests.reliability.scenarios import SCENARIOS, passed, train
from tests.reliability.soak import Ground
from tests.reliability.zygote import Zygote
from tests.serving import Server, serving
from tests.slow import slow_but

CONTENT = bytes(range(256)) * 3_000
CHECKPOINTS = ("resume", ".resume.old")
MOST = 60
"""Times that a scenario comes by a point, at the most."""
CASES = [(point, name) for point in POINTS for name in passed(point)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(Server(files={"/set.hdf5": CONTENT}).answer) as port:
        yield f"http://127.0.0.1:{port}/set.hdf5"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("golden")
    assert train([str(results)]) == 0
    return results


@pytest.fixture(scope="module")
def endings(golden: Path, start: Zygote, address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    results = {}
    for name, scenario in SCENARIOS.items():
        folder = tmp_path_factory.mktemp(name)
        scenario.prepare(folder, golden)
        done = start([str(folder)], function=scenario.function, environ={"FROM": address})
        assert done.status == 0, done.output
        results[name] = scenario.ending(folder)
    return results


def survives(
    point: str, name: str, time: int, folder: Path, golden: Path, start: Zygote, address: str
) -> object | None:
    """The result of a scenario that died at a point and was repeated; None where it never came by so often."""
    scenario = SCENARIOS[name]
    scenario.prepare(folder, golden)
    run = SHORT.folder(folder)
    environ = {"FROM": address}
    died = start([str(folder)], function=scenario.function, environ=environ | {faults.VARIABLE: f"{point}:{time}"})
    if died.status == 0:
        return None
    assert died.status == faults.EXIT_CODE, died.output
    before, has_checkpoint = epochs_of(run), any((run / "checkpoint" / name).is_dir() for name in CHECKPOINTS)
    done = (run / "outcome.json").exists()
    assert not verify_records(folder).faults, "what a crash left behind is no fault"
    again = start([str(folder)], function=scenario.function, environ=environ)
    assert again.status == 0, again.output
    assert verify_records(folder).faults == ()
    if name == "run" and has_checkpoint and not done:
        assert "resumes at" in again.output, "work was lost that a checkpoint held"
    if name not in {"force", "differ"}:  # there the old epochs are meant to go
        assert epochs_of(run)[: len(before)] == before, "an evaluation was lost"
    return scenario.ending(folder)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("most", [1, pytest.param(MOST, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("point", "name"), slow_but(CASES, *range(0, len(CASES), 4)))
def test_process_that_dies_at_a_write_loses_nothing(
    point: str,
    name: str,
    most: int,
    golden: Path,
    endings: dict[str, object],
    start: Zygote,
    address: str,
    tmp_path: Path,
) -> None:
    """At its first occurrence, or at every one."""
    for time in range(1, most + 1):
        (tmp_path / str(time)).mkdir()
        result = survives(point, name, time, tmp_path / str(time), golden, start, address)
        if result is None and time > 1:
            break
        assert result == endings[name], time
    assert time < MOST


def test_every_fault_point_is_reached_by_a_scenario() -> None:
    assert all(passed(point) for point in POINTS)
    assert {name for _, name in CASES} == set(SCENARIOS)


@pytest.mark.slow
def test_run_killed_at_random_equals_an_uninterrupted_one(start: Zygote, tmp_path: Path) -> None:
    toll = Ground(tmp_path, start, seed=1).killed_often(CATCH, 2)
    assert toll.kills >= 2
    assert toll.attempts == toll.kills + toll.runs
