"""R3: SIGKILL at any moment loses at most the work since the last checkpoint, and never a recorded evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.families import CATCH, GAME, HOPPER, Family
from tests.reliability.soak import Ground
from tests.reliability.zygote import Zygote


def killed(family: Family, kills: int, folder: Path, seed: int) -> Ground:
    """Run after run of one family, until it has been killed so often."""
    with Zygote(folder) as start:
        ground = Ground(folder, start, seed)
        while not ground.tolls or ground.tolls[family.name].kills < kills:
            ground.killed(family)
            assert ground.tolls[family.name].faults == []
    return ground


def test_a_run_that_is_killed_at_random_ends_as_if_it_never_was(tmp_path: Path) -> None:
    toll = killed(CATCH, 5, tmp_path, seed=1).tolls[CATCH.name]
    assert toll.kills >= 5
    assert toll.attempts == toll.kills + toll.runs


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", [GAME, HOPPER], ids=lambda family: family.name)
def test_a_game_and_a_walk_survive_fifty_kills_each(family: Family, tmp_path: Path) -> None:
    toll = killed(family, 50, tmp_path, seed=2).tolls[family.name]
    assert toll.kills >= 50
    assert toll.lost > 10, "most were killed before they had recorded anything"
