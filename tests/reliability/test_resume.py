"""R2: a run that is stopped or killed anywhere equals an uninterrupted one, bit for bit."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlbench.config.run import Runtime
from rlbench.records.store import read_record
from rlbench.run import run
from rlbench.signals import Stop
from tests.forging import locked, outcome_of
from tests.reliability.families import (
    ALL,
    CATCH,
    CURIOUS_DOORS,
    FEW_GAMES,
    FLAT,
    GAME,
    GRID,
    PENDULUM,
    RAINBOW,
    REAL,
    REGISTERED,
    Family,
    marked,
)
from tests.reliability.run_one import QUIET, carry, ending, epochs_of
from tests.slow import slow_but

RESUMED = (*(one for one in ALL if one != GAME), FEW_GAMES, REGISTERED, Family("mujoco", "sac", "Humanoid-v4", REAL))
QUICK = (CATCH, FEW_GAMES, RAINBOW, PENDULUM, REGISTERED, CURIOUS_DOORS, FLAT, GRID)
ANYWHERE = st.lists(st.floats(0.01, 0.99), max_size=2)
WHILE_IT_LEARNS = st.floats(0.5, 0.8)  # for whatever else there is; as a share of a run's records


@pytest.mark.timeout(900)
@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.soak)])
@pytest.mark.parametrize("family", marked(RESUMED, QUICK, pytest.mark.slow))
def test_run_interrupted_anywhere_equals_an_uninterrupted_one(
    family: Family, examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec, whole = family.spec(), tmp_path_factory.mktemp("whole")
    records = carry(spec, whole)
    golden = ending(family.folder(whole))

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(early=ANYWHERE, late=WHILE_IT_LEARNS, crash=st.booleans(), often=st.booleans())
    def check(*, early: list[float], late: float, crash: bool, often: bool) -> None:
        results = tmp_path_factory.mktemp("stopped")
        runtime = Runtime(device="cpu", threads=1, checkpoint_seconds=0.05 if often else 1e9)
        before: list[dict[str, object]] = []
        for share in (*early, late):
            carry(spec, results, max(1, int(share * records)), crash=crash, runtime=runtime)
            now = epochs_of(family.folder(results))
            assert now[: len(before)] == before, "an evaluation was lost"
            before = now
        carry(spec, results)
        assert epochs_of(family.folder(results))[: len(before)] == before
        assert ending(family.folder(results)) == golden

    check()


@pytest.mark.parametrize("remaining", slow_but([1, 2, 5], 1))
def test_a_run_stopped_in_its_last_evaluation_still_closes_its_last_epoch(tmp_path: Path, remaining: int) -> None:
    records = carry(CATCH.spec(), tmp_path / "whole")
    carry(CATCH.spec(), tmp_path / "stopped", records - remaining)
    carry(CATCH.spec(), tmp_path / "stopped")
    assert ending(CATCH.folder(tmp_path / "stopped")) == ending(CATCH.folder(tmp_path / "whole"))


def test_paused_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    family = CATCH._replace(sets=(*CATCH.sets, "budget.steps=1200", "budget.epoch=400", "budget.segment=500"))
    for until, steps in ((1, 400), (401, 800), (1200, 1200)):
        store = locked(family.spec(), tmp_path)
        list(run(family.spec(), QUIET, store, Stop(until=until)))
        store.release()
        record, ended = read_record(store.folder), steps == 1200
        assert (record.epochs[-1].steps, record.outcome.steps) == (steps, steps)
        assert record.outcome.status == ("done" if ended else "interrupted")
        assert [record.has_ended(step) for step in (None, steps, steps + 1)] == [ended, True, ended]
    carry(family.spec(), tmp_path / "whole")
    assert ending(family.folder(tmp_path)) == ending(family.folder(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        Family("mujoco", "sac", "Hopper-v4", (*REAL, "task.envs=3", "task.env=envpool", "task.async_batch=2")),
        FEW_GAMES._replace(sets=(*FEW_GAMES.sets, "task.envs=3", "task.async_batch=2")),
    ],
    ids=lambda family: family.name,
)
def test_asynchronous_envs_resume_and_record_inexact_steps(family: Family, tmp_path: Path) -> None:
    spec, at = family.spec(), []
    for stop in (0, 70, 110):  # the first before anything was collected
        carry(spec, tmp_path, stop_at=stop)
        outcome = outcome_of(family.folder(tmp_path))
        assert outcome.status == "interrupted"
        assert outcome.inexact == tuple(at[1:])
        at.append(outcome.env_steps)
    carry(spec, tmp_path)
    outcome = outcome_of(family.folder(tmp_path))
    assert outcome.status == "done"
    assert outcome.inexact == tuple(at[1:])
    assert 0 < at[1] < at[2] < spec.budget.steps <= outcome.env_steps < spec.budget.steps + 3
