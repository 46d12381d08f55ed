"""R3: SIGKILL at any moment loses at most the work since the last checkpoint, and never a recorded evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.families import GAME, HOPPER, Family
from tests.reliability.soak import Ground
from tests.reliability.zygote import Zygote


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", [GAME, HOPPER], ids=lambda family: family.name)
def test_atari_and_mujoco_runs_survive_fifty_kills_each(family: Family, tmp_path: Path) -> None:
    with Zygote(tmp_path) as start:
        toll = Ground(tmp_path, start, seed=2).killed_often(family, 50)
    assert toll.kills >= 50
    assert toll.lost > 10, "most were killed before they had recorded anything"
