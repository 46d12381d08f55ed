"""MuJoCo's warnings, which it writes to ``MUJOCO_LOG.TXT`` in the current folder unless a handler takes them."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

from rlbench.config.tasks import GymnasiumTask
from rlbench.envs import envpool
from rlbench.envs.envpool import EnvPoolMujoco
from rlbench.envs.external import external_vector
from rlbench.envs.gymnasium import GymnasiumVector
from rlbench.envs.mujoco import MujocoVector
from tests.conftest import Capture


def registered() -> GymnasiumVector:
    mujoco.set_mju_user_warning(None)
    task = GymnasiumTask(id="gym:Hopper-v5", package="gymnasium", version=gymnasium.__version__)
    return external_vector(task, seeds=(0,), training=True, make=None)


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("make", [lambda: MujocoVector(task="Hopper-v4", seeds=[0]), registered])
def test_a_warning_of_mujoco_is_written_through_no_link(make: Callable[[], GymnasiumVector]) -> None:
    Path("MUJOCO_LOG.TXT").symlink_to("precious")
    envs = make()
    envs.reset()
    (env,) = (env.unwrapped for env in envs.unwrapped())
    env.data.qvel[:] = np.inf
    with pytest.warns(UserWarning, match="The simulation is unstable"):
        env.do_simulation(np.zeros(3), 1)
    envs.close()
    assert not Path("precious").exists()


def test_mujoco_in_envpool_writes_no_log_and_prints_nothing(empty_folder: None, capfd: Capture) -> None:
    Path("MUJOCO_LOG.TXT").symlink_to("precious")
    EnvPoolMujoco(task="Hopper-v4", seeds=[0], threads=1).close()
    ctypes.CDLL(str(envpool.library())).mju_warning(b"The simulation is unstable")
    assert not Path("precious").exists() and capfd.readouterr().out == ""
