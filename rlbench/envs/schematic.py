"""A simulation drawn without OpenGL: a schematic side view, the shapes of its bodies in front of one another.

The geoms of the model are projected, without perspective, light or textures, onto the plane in which the task happens:
seen from the side, or from above where every hinge turns about the vertical (Reacher, Swimmer). The view moves with the
body; the marks on the ground stand a metre apart. Meshes are drawn as the boxes around them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from rlbench.envs.base import Frames, Step
from rlbench.envs.gymnasium import Env
from rlbench.envs.pictures import Picture

WIDTH: Final = 480  # pixels
HEIGHT: Final = 360
ROOM: Final = 1.7  # widths of what is shown from one side of the picture to the other
SKY: Final = (236, 240, 244)
GROUND: Final = (120, 128, 120)
MARK: Final = (206, 212, 206)
EDGE: Final = (40, 44, 52)
UPRIGHT: Final = 0.9  # cosine from which an axis counts as vertical
CORNERS: Final = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)

ROUND: Final = {int(mujoco.mjtGeom.mjGEOM_SPHERE), int(mujoco.mjtGeom.mjGEOM_ELLIPSOID)}
LONG: Final = {int(mujoco.mjtGeom.mjGEOM_CAPSULE), int(mujoco.mjtGeom.mjGEOM_CYLINDER)}
FLAT: Final = {int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD)}


class View(NamedTuple):
    """From places in metres to pixels."""

    across: int  # the axis that points to the right
    up: int
    near: int  # the axis along which is looked; what is larger there lies in front
    centre: NDArray[np.float64]  # [3], in the middle of the picture
    scale: float  # pixels in a metre

    def pixels(self, places: NDArray[np.float64]) -> list[tuple[float, float]]:
        """``[P, 3]`` to so many pairs."""
        right = WIDTH / 2 + (places[:, self.across] - self.centre[self.across]) * self.scale
        down = HEIGHT / 2 - (places[:, self.up] - self.centre[self.up]) * self.scale
        return list(zip(right.tolist(), down.tolist(), strict=True))


class Schematic:
    """Draws one lane."""

    look = "schematic"

    def __init__(self, lane: Env) -> None:
        self._lane = cast("Any", lane)
        self.seconds = float(self._lane.dt)
        self._height, self._reach = 0.0, 1.0  # of where the view was first turned to, and how far across it goes

    def begun(self, obs: Frames) -> None:  # noqa: ARG002 - the simulation says all
        """Step back until there is room around everything; ``obs`` ``[1, ...]`` does not matter."""
        data, shown = self._lane.data, _seen(self._lane.model)
        around = self._lane.model.geom_rbound[shown, None]
        sides = (data.geom_xpos[shown] + around).max(0) - (data.geom_xpos[shown] - around).min(0)
        self._height = float(self._middle()[2])
        self._reach = ROOM * max(float(sides[0]), float(sides[2]) * WIDTH / HEIGHT)

    def moved(self, action: NDArray[Any], step: Step) -> None:
        """Nothing: the simulation, not ``action`` ``[1, A]``, says all."""

    def picture(self) -> Picture:
        """The bodies as they stand, ``[360, 480, 3]``."""
        view, image = self._view(), Image.new("RGB", (WIDTH, HEIGHT), SKY)
        draw = ImageDraw.Draw(image)
        model, data = self._lane.model, self._lane.data
        if view.up == 1:
            _grid(draw, view)
        elif np.isin(model.geom_type, [*FLAT]).any():
            _ground(draw, view)
        shown = _seen(model)
        order = np.argsort(data.geom_xpos[shown, view.near], kind="stable")
        for geom in shown[order[:: 1 if view.near == 2 else -1]].tolist():
            _drawn(draw, view, model, data, geom)
        for site in np.flatnonzero(model.site_rgba[:, 3] > 0).tolist():
            radius = float(model.site_size[site, 0]) * view.scale
            _ball(draw, view.pixels(data.site_xpos[site][None])[0], radius, _colour(model.site_rgba[site]))
        return np.array(image)

    def close(self) -> None:
        """The lane is its owner's."""

    def _middle(self) -> NDArray[np.float64]:
        """Centre of mass of everything that moves, ``[3]``."""
        return np.array(self._lane.data.subtree_com[0], np.float64)

    def _view(self) -> View:
        model, data = self._lane.model, self._lane.data
        hinges = data.xaxis[model.jnt_type == int(mujoco.mjtJoint.mjJNT_HINGE)]
        above = len(hinges) > 0 and bool((np.abs(hinges[:, 2]) > UPRIGHT).all())
        centre = self._middle()
        centre[2] = self._height
        return View(0, 1 if above else 2, 2 if above else 1, centre, WIDTH / self._reach)


def _seen(model: mujoco.MjModel) -> NDArray[np.int64]:
    """The geoms that are drawn: no floors, nothing transparent, no handles that only pull at a body."""
    floors = np.isin(model.geom_type, [*FLAT])
    shown = ~floors & (model.geom_rgba[:, 3] > 0) & (model.body_mocapid[model.geom_bodyid] < 0)
    return np.flatnonzero(shown)


def _ground(draw: ImageDraw.ImageDraw, view: View) -> None:
    """The floor with a tick every metre."""
    middle, reach = view.centre[view.across], WIDTH / view.scale
    marks = np.arange(np.floor(middle - reach), np.ceil(middle + reach) + 1)
    places = np.zeros((len(marks), 3))
    places[:, view.across] = marks
    at = view.pixels(places)
    draw.rectangle((0, at[0][1], WIDTH, HEIGHT), fill=MARK)
    draw.line((0, at[0][1], WIDTH, at[0][1]), fill=GROUND, width=2)
    for right, down in at:
        draw.line((right, down, right, down + 8), fill=GROUND, width=2)


def _grid(draw: ImageDraw.ImageDraw, view: View) -> None:
    """The floor from above, a line every metre both ways."""
    reach = WIDTH / view.scale
    for axis in (view.across, view.up):
        middle = view.centre[axis]
        for mark in np.arange(np.floor(middle - reach), np.ceil(middle + reach) + 1):
            ends = np.repeat(view.centre[None], 2, axis=0)
            ends[:, axis], ends[:, 1 - axis] = mark, ends[:, 1 - axis] + (-reach, reach)
            draw.line(view.pixels(ends), fill=MARK, width=1)


def _drawn(draw: ImageDraw.ImageDraw, view: View, model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> None:
    """One shape."""
    kind, size, colour = int(model.geom_type[geom]), model.geom_size[geom], _colour(model.geom_rgba[geom])
    place, turn = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)
    if kind in ROUND:
        _ball(draw, view.pixels(place[None])[0], float(size[0]) * view.scale, colour)
    elif kind in LONG:
        ends = view.pixels(place + np.outer((-1.0, 1.0), turn[:, 2] * size[1]))
        _bone(draw, ends, float(size[0]) * view.scale, colour)
    else:
        around = model.geom_aabb[geom]  # centre and half sides, in the geom's own axes
        _hull(draw, view.pixels(place + (around[:3] + CORNERS * around[3:]) @ turn.T), colour)


def _bone(draw: ImageDraw.ImageDraw, ends: list[tuple[float, float]], radius: float, colour: tuple[int, ...]) -> None:
    """Two balls and what lies between them, the edge first."""
    for wider, ink in ((1.0, EDGE), (0.0, colour)):
        width = max(1.0, radius) + wider
        draw.line([*ends], fill=ink, width=max(1, round(2 * width)))
        for right, down in ends:
            draw.ellipse((right - width, down - width, right + width, down + width), fill=ink)


def _ball(draw: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, colour: tuple[int, ...]) -> None:
    (right, down), wide = at, max(1.0, radius)
    draw.ellipse((right - wide, down - wide, right + wide, down + wide), fill=colour, outline=EDGE)


def _hull(draw: ImageDraw.ImageDraw, points: list[tuple[float, float]], colour: tuple[int, ...]) -> None:
    """The outline of the points, by Andrew's monotone chain."""
    ordered, outline = sorted(set(points)), []
    for sweep in (ordered, ordered[::-1]):
        chain: list[tuple[float, float]] = []
        for point in sweep:
            while len(chain) > 1 and _turns(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        outline += chain[:-1]
    if len(outline) > 2:
        draw.polygon(outline, fill=colour, outline=EDGE)


def _turns(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """More than 0 where the way from a over b to c turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _colour(rgba: NDArray[np.float32]) -> tuple[int, ...]:
    """Red, green and blue of a shape, as bytes."""
    return tuple(round(255 * float(part)) for part in rgba[:3])
