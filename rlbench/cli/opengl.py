"""Whether this machine can render a simulation, found out in a process of its own: a broken driver may end it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from rlbench.cli.output import remark

if TYPE_CHECKING:
    from rlbench.spec.run import Spec

OFF = ("disable", "disabled", "off", "false", "0")
"""What MUJOCO_GL says where nothing is to be rendered; these are MuJoCo's own words."""

PATIENCE = 60.0  # seconds; software needs some for its first picture
PROBE = """import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
with mujoco.Renderer(model, 8, 8) as renderer:
    renderer.update_scene(mujoco.MjData(model))
    renderer.render()"""


def look(spec: Spec) -> str:
    """How a run's simulation is shown: rendered, with MUJOCO_GL set to what works, else as a schematic drawing."""
    from rlbench.build.cameras import RENDERED, SCHEMATIC
    from rlbench.spec.task import AtariTask, OfflineTask, ToyTask

    world = spec.task.world if isinstance(spec.task, OfflineTask) else spec.task
    if isinstance(world, AtariTask | ToyTask):
        return SCHEMATIC  # of which nobody asks
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    window = ["glfw"] if {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ) else []
    for library in [asked] if asked else ["egl", "osmesa", *window]:
        if library not in OFF and _renders(library):
            os.environ["MUJOCO_GL"] = library
            return RENDERED
    remark("no OpenGL works here (MUJOCO_GL): the film is a schematic drawing of the simulation")
    return SCHEMATIC


def _renders(library: str) -> bool:
    """Whether a picture comes of it."""
    environ, words = os.environ | {"MUJOCO_GL": library}, [sys.executable, "-P", "-c", PROBE]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and nothing of the user's in it
            words, env=environ, capture_output=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
