"""R2: a run that is stopped or killed anywhere equals an uninterrupted one, bit for bit."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlbench.config.run import Runtime
from tests.reliability.families import ALL, BEYOND, Family
from tests.reliability.run_one import carry, ending, epochs_of
from tests.slow import slow_but

Temporary = pytest.TempPathFactory
OFTEN = 0.05  # seconds between checkpoints


class Stops:
    """The places where a run is interrupted, as shares of its records, and the kind of interruption."""

    def __init__(self, shares: list[float], *, crash: bool, often: bool) -> None:
        self.shares, self.crash, self.often = shares, crash, often

    def __repr__(self) -> str:
        return f"Stops({self.shares}, crash={self.crash}, often={self.often})"


STOPS = st.builds(
    lambda early, late, **how: Stops([*early, late], **how),
    st.lists(st.floats(0.01, 0.99), max_size=2),
    st.floats(0.5, 0.8),  # while it learns, for whatever else there is
    crash=st.booleans(),
    often=st.booleans(),
)


def holds(family: Family, temporary: Temporary, examples: int) -> None:
    spec, whole = family.spec(), temporary.mktemp("whole")
    records = carry(spec, whole)
    golden = ending(family.folder(whole))

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(STOPS)
    def check(stops: Stops) -> None:
        stopped(family, temporary.mktemp("stopped"), stops, records)

    def stopped(family: Family, results: Path, stops: Stops, records: int) -> None:
        runtime = Runtime(device="cpu", threads=1, checkpoint_seconds=OFTEN if stops.often else 1e9)
        before: list[dict[str, object]] = []
        for share in stops.shares:
            carry(spec, results, max(1, int(share * records)), crash=stops.crash, runtime=runtime)
            now = epochs_of(family.folder(results))
            assert now[: len(before)] == before, "an evaluation was lost"
            before = now
        carry(spec, results)
        assert epochs_of(family.folder(results))[: len(before)] == before
        assert ending(family.folder(results)) == golden

    check()


@pytest.mark.parametrize("family", slow_but([(family,) for family in BEYOND], 1, 3, 5), ids=lambda family: family.name)
def test_run_of_each_family_interrupted_anywhere_equals_an_uninterrupted_one(
    family: Family, tmp_path_factory: Temporary
) -> None:
    holds(family, tmp_path_factory, 2)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", ALL, ids=lambda family: "-".join((family.name, *family.sets[-2:])))
def test_run_of_every_learner_interrupted_anywhere_equals_an_uninterrupted_one(
    family: Family, tmp_path_factory: Temporary
) -> None:
    holds(family, tmp_path_factory, 8)
