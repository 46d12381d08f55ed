"""Lanes that step while nobody waits: the plain ones, to the bit, and truly under way."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import numpy as np
import pytest

from rlbench.build.environments import environments, meanwhile
from rlbench.envs.base import Snapshot, Step
from rlbench.envs.gymnasium import GymnasiumVector
from rlbench.envs.mujoco import MujocoVector
from rlbench.envs.underway import underway
from rlbench.spec.task import MujocoTask, ToyTask

Draw = Callable[..., np.ndarray]


def hopper() -> MujocoVector:
    return MujocoVector(task="Hopper-v4", seeds=[3, 4])


def test_the_answers_are_those_of_the_plain_lanes_to_the_bit_and_so_is_the_state(draw: Draw) -> None:
    plain, away = hopper(), underway(hopper())
    assert isinstance(away, Snapshot)
    assert np.array_equal(plain.reset(), away.reset())
    for action in draw(plain.info.actions, seed=5, size=(120, 2)):
        plain.send(action)
        away.send(action)
        for one, other in zip(plain.recv(), away.recv(), strict=True):
            assert np.array_equal(one, other)
    again = underway(hopper())
    assert isinstance(again, Snapshot)
    again.load_state_dict(away.state_dict())
    action = draw(plain.info.actions, seed=6, size=(2,))
    for envs in (plain, again):
        envs.send(action)
    for one, other in zip(plain.recv(), again.recv(), strict=True):
        assert np.array_equal(one, other)
    for envs in (plain, away, again):
        envs.close()
        envs.close()


class Telling(MujocoVector):
    """Says when it steps."""

    stepped = Event()

    def recv(self) -> Step:
        try:
            return super().recv()
        finally:
            self.stepped.set()


def test_they_step_though_nobody_waits(draw: Draw) -> None:
    envs = underway(Telling(task="Hopper-v4", seeds=[3]))
    envs.reset()
    envs.send(draw(envs.info.actions, seed=5, size=(1,)))
    assert Telling.stepped.wait(30)
    envs.recv()
    with pytest.raises(RuntimeError, match="send actions first"):
        envs.recv()
    envs.close()


class Loose(MujocoVector):
    """Breaks."""

    def recv(self) -> Step:
        raise ValueError("the joint is loose")


def test_what_breaks_on_the_way_is_heard_where_it_is_waited_for(draw: Draw) -> None:
    envs = underway(Loose(task="Hopper-v4", seeds=[3]))
    envs.reset()
    envs.send(draw(envs.info.actions, seed=5, size=(1,)))
    with pytest.raises(ValueError, match="the joint is loose"):
        envs.recv()
    envs.close()


def test_only_engines_that_would_step_in_the_call_get_a_thread() -> None:
    physics = environments(MujocoTask(id="Hopper-v4"), seeds=(0,), training=True)
    assert isinstance(physics, GymnasiumVector)
    assert not isinstance(meanwhile(physics), GymnasiumVector)
    catch = environments(ToyTask(id="Catch"), seeds=(0,), training=True)
    assert meanwhile(catch) is catch
    physics.close()
    catch.close()
