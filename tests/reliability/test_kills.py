"""R3: SIGKILL at any moment loses at most the work since the last checkpoint, and never a recorded evaluation."""

from pathlib import Path

import numpy as np
import pytest

from tests.reliability.families import GAME, HOPPER, Family
from tests.reliability.run_one import ending
from tests.reliability.soak import MOST, SHARE, Ground
from tests.reliability.zygote import Zygote


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", [GAME, HOPPER], ids=lambda family: family.name)
def test_atari_and_mujoco_runs_survive_fifty_kills_each(family: Family, tmp_path: Path) -> None:
    with Zygote(tmp_path) as start:
        toll = Ground(tmp_path, start, seed=2).killed_often(family, 50)
    assert toll.kills >= 50
    assert toll.lost > 10, "most were killed before they had recorded anything"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_until_decided_comes_to_the_same_looks_and_verdict_under_kills(tmp_path: Path) -> None:
    """From before the first record of looks to after the last; between seeds, and in them."""
    words = ["run", "toy", "reinforce", "Catch", "--until-decided", "--most-seeds", "5", "--device", "cpu", "--quiet"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    draw, kills = np.random.default_rng(0), 0
    with Zygote(tmp_path) as start:
        done = start([*words, "--results", str(whole)])
        assert done.status == 0, done.output
        for _ in range(MOST):
            again = start(
                [*words, "--quiet", "--results", str(killed)], kill_after=draw.uniform(0, SHARE * done.seconds)
            )
            if again.status == 0:
                break
            kills += 1
        else:
            again = start([*words, "--results", str(killed)])
        assert again.status == 0 and kills > 0, again.output
    cells = [next(place.glob("toy/reinforce/Catch/*")) for place in (whole, killed)]
    assert len({(cell / "looks.json").read_bytes() for cell in cells}) == 1
    seeds = [sorted(path.name for path in cell.iterdir()) for cell in cells]
    assert seeds[0] == seeds[1] and len(seeds[0]) > 3
    assert all(ending(cells[0] / name) == ending(cells[1] / name) for name in seeds[0] if name != "looks.json")
    assert done.output.splitlines()[-1] == again.output.splitlines()[-1].replace(str(killed), str(whole))
