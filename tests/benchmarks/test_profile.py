"""The profile of a step: it covers every algorithm, and its parts sum to the whole step."""

import re

import pytest
import torch

from benchmarks import profile
from benchmarks.cases import PROFILED, Case
from benchmarks.figures import Figures
from benchmarks.report import report
from benchmarks.shares import figure, steps, table
from benchmarks.stopwatch import PARTS
from rlbench import suites
from rlbench.algorithms import ppo, trpo
from rlbench.algorithms import steps as shared
from tests.slow import slow_but


def test_every_algorithm_of_the_online_suites_is_profiled_and_every_continuous_offline_one():
    online = {f"{suite}/{name}" for suite in ("atari", "mujoco") for name in suites.algorithms(suite)}
    plain = {name for name in online if not name.endswith("+icm")}  # curiosity adds a network and no part
    assert plain <= {*PROFILED}, plain - {*PROFILED}
    assert {f"offline/{name}" for name in ("il", "bcq", "cql", "crr", "td3bc", "iql")} <= {*PROFILED}


@pytest.fixture
def restored(monkeypatch):
    """Restore the functions that a stopwatch wraps: every test of this process uses them."""
    monkeypatch.setattr(torch.autograd, "grad", torch.autograd.grad)
    monkeypatch.setattr(shared, "optimizer_step", shared.optimizer_step)
    monkeypatch.setattr(shared, "polyak_update", shared.polyak_update)
    for module, name in ((ppo, "rollout_batch"), (ppo, "state_values"), (trpo, "rollout_batch")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(profile, "SECONDS", 0.2)


EVERYONE = {"forward", "backward", "optimizer", "bookkeeping", "sample", "other", "idle", "rlbench"}
PLAYING = {"emulator", "act", "write"}


@pytest.mark.parametrize(
    ("algorithm", "more"),
    slow_but(
        [
            ("mujoco/sac", {*PLAYING, "targets"}),
            ("mujoco/ppo", {*PLAYING, "normalise", "returns"}),
            ("mujoco/trpo", {*PLAYING, "normalise", "returns"}),
            ("offline/td3bc", {"targets"}),
        ],
        1,
    ),
)
def test_the_parts_of_a_step_are_all_there_and_make_up_the_step(restored, algorithm, more):
    parts = profile.step_parts(Case(1, 0, algorithm))
    assert set(parts) == EVERYONE | more
    assert set(parts) - {"rlbench", "idle"} <= set(PARTS)
    whole = sum(took for name, (took,) in parts.items() if name not in {"rlbench", "idle"})
    assert whole == pytest.approx(1e3 / parts["rlbench"][0], rel=1e-6)
    assert all(took >= 0 for (took,) in parts.values())
    assert parts["other"][0] < 0.5 * whole, "most of a step is known"


@pytest.fixture
def profiled():
    figures = Figures()
    figures.add("profile atari/dqn", "rlbench", 2, "steps/s", [100.0])
    for part, spent in {"emulator": 2.0, "forward": 5.0, "backward": 3.0, "idle": 1.0}.items():
        figures.add("profile atari/dqn parts", part, 2, "ms", [spent])
    figures.add("dqn-pong", "rlbench", 2, "env steps/s", [5.0])
    return report(figures, {})


def test_shares_are_of_the_whole_step_and_idle_is_within_it(profiled):
    (step,) = steps(profiled)
    assert (step.name, step.threads, step.whole, step.idle) == ("atari/dqn", 2, 10.0, 1.0)
    assert [step.share(part) for part in ("emulator", "forward", "act")] == [0.2, 0.5, 0.0]
    (row,) = table(profiled).splitlines()[2:]
    assert re.sub(r"\s*\|\s*", "|", row) == "|atari/dqn|2|10|20%||||||50%|30%|||||10%|"


def test_figure_is_deterministic(profiled, tmp_path):
    for name in ("a.png", "b.png"):
        figure(profiled, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
