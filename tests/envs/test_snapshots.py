"""Snapshots restore a fresh environment to the bit at any step, also over ends and resets."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.envs.base import Snapshot, Step
from rlbench.envs.gymnasium import ClassicVector, GymnasiumVector, _generator_state, _pcg64
from rlbench.envs.mujoco import FetchVector, MujocoVector
from rlbench.errors import BrokenEnvironment
from rlbench.ops.state_dict import State
from tests.envs.factories import answer_to, draw, make
from tests.slow import slow_but

STEPS = 90
TASKS: dict[str, tuple[Callable[..., Any], int | None]] = {  # the class, and a limit where random actions do not end it
    **dict.fromkeys(["Hopper-v4", "Walker2d-v4", "Humanoid-v4"], (MujocoVector, None)),
    **dict.fromkeys(["InvertedPendulum-v4", "InvertedDoublePendulum-v4"], (MujocoVector, None)),
    **dict.fromkeys(["Ant-v4", "HalfCheetah-v4", "Swimmer-v4", "Reacher-v4"], (MujocoVector, 25)),
    **dict.fromkeys(["FetchReach-v4"], (FetchVector, 25)),
    **dict.fromkeys(["Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"], (ClassicVector, 25)),
    "CartPole-v1": (ClassicVector, None),
}


def fresh(task: str) -> Any:
    kind, limit = TASKS[task]
    return kind(task=task, seeds=[3, 4], limit=limit)


@cache
def lived(task: str) -> tuple[np.ndarray, list[State], list[Step]]:
    """Actions, the state before each of them, and the answers to them."""
    env = fresh(task)
    env.reset()
    actions, states, rows = draw(env.info.actions, seed=5, size=(STEPS, 2)), [], []
    for action in actions:
        states.append(env.state_dict())
        rows.append(answer_to(env, action))
    env.close()
    assert sum(int((row.terminated | row.truncated).sum()) for row in rows) >= 2
    return actions, states, rows


def bytes_of(state: State) -> dict[str, Any]:
    """A state after a round trip through a file."""
    return {
        key: bytes_of(value)
        if isinstance(value, dict)
        else value.numpy().tobytes()
        if torch.is_tensor(value)
        else value
        for key, value in state.items()
    }


@pytest.mark.parametrize("task", slow_but(TASKS, 0, 2, 5, 9, 10, 11, 14))
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_rest_of_a_run_is_the_same_to_the_bit(task: str, data: st.DataObject) -> None:
    actions, states, rows = lived(task)
    ends = [at + 1 for at, row in enumerate(rows[:-1]) if (row.terminated | row.truncated).any()]  # a reset is due
    begun = [at + 1 for at in ends if at + 1 < STEPS]  # a reset has been
    start = data.draw(st.one_of(st.integers(0, STEPS - 1), st.sampled_from(ends), st.sampled_from(begun or ends)))
    env = fresh(task)
    env.load_state_dict(states[start])
    assert bytes_of(env.state_dict()) == bytes_of(states[start])
    for at in range(start, min(start + 50, STEPS)):
        for ours, theirs in zip(answer_to(env, actions[at]), rows[at], strict=True):
            assert ours.tobytes() == theirs.tobytes(), f"from {start}, at {at}"
    env.close()


def test_a_state_does_not_change_while_its_environment_goes_on() -> None:
    for task in ("Hopper-v4", "FetchReach-v4", "Pendulum-v1"):
        env = fresh(task)
        env.reset()
        state = env.state_dict()
        before = bytes_of(state)
        for action in draw(env.info.actions, seed=5, size=(30, 2)):
            answer_to(env, action)
        assert bytes_of(state) == before


def test_snapshot_of_other_envs_or_another_task_is_refused() -> None:
    env = fresh("Hopper-v4")
    env.reset()
    for other in (MujocoVector(task="Hopper-v4", seeds=[1]), fresh("Walker2d-v4"), fresh("Pendulum-v1")):
        other.reset()
        with pytest.raises(BrokenEnvironment, match="Hopper-v4"):
            env.load_state_dict(other.state_dict())


def test_environment_without_snapshots_does_not_claim_them() -> None:
    assert isinstance(fresh("Pendulum-v1"), Snapshot)
    assert not isinstance(GymnasiumVector(name="CartPole-v1", factory=make("CartPole-v1"), seeds=[1]), Snapshot)


def test_random_generator_resumes_even_within_a_draw() -> None:
    here, there = np.random.default_rng(1), np.random.default_rng(2)
    here.integers(5, dtype=np.uint32)  # half of 64 bits; the other half is the next one's
    there.bit_generator.state = _pcg64(_generator_state(here))
    assert (
        here.integers(2**32, dtype=np.uint32, size=3).tolist()
        == there.integers(2**32, dtype=np.uint32, size=3).tolist()
    )
    assert here.uniform(size=9).tolist() == there.uniform(size=9).tolist()
